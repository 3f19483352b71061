"""Displacements in fewer bytes: what is sent, what is left on board, what a fleet makes of it."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch
from flwr.app import RecordDict

from fedwatt.deploy.messages import Content, from_records, to_records
from fedwatt.deploy.updates import BLOCK, expanded, rounded
from fedwatt.errors import SettingError
from fedwatt.randomness import generator
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import config_text, deployed, loopback, make_fleet, weights
from tests.deploy.test_relay import tree

NOTHING = torch.zeros(4)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("updates") / "fleet", vehicles=6)


def text(fleet: Path, kind: str = "int8", method: str = "fedavg", rounds: int = 3) -> str:
    own = config_text(fleet, method, rounds).replace("participation = 0.7", "participation = 1.0")
    return own.replace("vehicles = 4", f'vehicles = 6\nupdate_type = "{kind}"')


def test_int8_by_hand() -> None:
    # The scale is 1.27 / 127 = 0.01; 0.304 - 0.3 and -0.026 + 0.03 are left over.
    update = rounded(torch.tensor([1.27, 0.304, -0.026, 0.0]), NOTHING, "int8")
    assert update.arrays["delta"].dtype == np.int8
    assert update.arrays["delta"].tolist() == [127, 30, -3, 0]
    assert update.arrays["scales"] == pytest.approx([0.01], rel=1e-6)
    assert expanded(update.arrays) == pytest.approx([1.27, 0.30, -0.03, 0.0], rel=1e-6)
    # float32 numbers, so seven digits.
    assert update.residual.tolist() == pytest.approx([0.0, 0.004, 0.004, 0.0], abs=2e-7)
    lengths = (2 * 0.004**2) ** 0.5, (1.27**2 + 0.304**2 + 0.026**2) ** 0.5
    assert update.rounding == pytest.approx(lengths[0] / lengths[1], rel=1e-4)
    # The rest is added to the next displacement: 0.304 + 0.004 is nearer to 0.31.
    again = rounded(torch.tensor([1.27, 0.304, -0.026, 0.0]), update.residual, "int8")
    assert again.arrays["delta"].tolist() == [127, 31, -2, 0]


def test_a_block_has_a_scale_of_its_own() -> None:
    small, large = torch.full((BLOCK,), 1e-6), torch.full((3,), -5.0)
    update = rounded(torch.cat([small, large]), torch.zeros(BLOCK + 3), "int8")
    assert update.arrays["delta"].tolist() == [127] * BLOCK + [-127] * 3
    assert len(update.arrays["scales"]) == 2
    assert update.rounding < 1e-6


@pytest.mark.parametrize(("kind", "most"), [("float16", 2**-11), ("int8", 1 / 127)])
def test_all_that_was_moved_is_sent_but_for_the_last_rest(kind: str, most: float) -> None:
    draws = generator(1, "moves")
    moves = [torch.from_numpy(draws.normal(size=1000)).float() for _ in range(20)]
    rest, sent = torch.zeros(1000), np.zeros(1000)
    for move in moves:
        update = rounded(move, rest, kind)
        rest, sent = update.residual, sent + expanded(update.arrays)
        assert 0 < update.rounding < most
    moved = torch.stack(moves).double().sum(dim=0).numpy()
    # Twenty roundings of the rest to float32.
    np.testing.assert_allclose(sent + rest.numpy(), moved, atol=20 * 2**-24)
    assert np.abs(rest.numpy()).max() > 1e-4


@pytest.mark.parametrize("kind", ["float16", "int8"])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_arrives_so_and_leaves_nothing(kind: str, wrong: float) -> None:
    update = rounded(torch.tensor([1.0, wrong, 2.0, 0.0]), NOTHING, kind)
    assert not np.isfinite(expanded(update.arrays)).all()
    assert torch.equal(update.residual, NOTHING)
    assert update.rounding == 0.0


@pytest.mark.parametrize(("kind", "share"), [("float16", 0.53), ("int8", 0.30)])
def test_a_fleet_sends_less_and_learns_nearly_the_same(
    kind: str, share: float, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    full, small = loopback(fleet, tmp_path / "a"), loopback(fleet, tmp_path / "b")
    exact = deployed(text(fleet, "full"), full, tmp_path / "full")
    with caplog.at_level("INFO", "fedwatt.deploy"):
        run = deployed(text(fleet, kind), small, tmp_path / "small")
    told = [line for line in caplog.messages if f"Δ as {kind}: " in line]
    assert len(told) == 3 and "at most" in told[0]
    lengths = [sum(array_bytes(reply) for _, k, reply in grid.sent if k == "train")
               for grid in (full, small)]  # fmt: skip
    assert lengths[1] < share * lengths[0]
    for name, own in weights(exact).items():
        # Rounding takes at most 2 % of a displacement here, and these are below 0.2 a weight.
        assert 0 < (weights(run)[name] - own).abs().max() < 4e-3
    errors = [read_table(one, "rounds").column("test_rmse").to_pylist() for one in (exact, run)]
    assert errors[1] == pytest.approx(errors[0], rel=2e-3)


def array_bytes(reply: RecordDict) -> int:
    return sum(array.nbytes for array in from_records(reply).arrays.values())


def test_a_restart_goes_on_bit_for_bit(fleet: Path, tmp_path: Path) -> None:
    """Server and vehicles are started anew after the second of four rounds."""
    own = text(fleet, rounds=4)
    whole = deployed(own, loopback(fleet, tmp_path / "a"), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        deployed(own, loopback(fleet, tmp_path / "b"), tmp_path / "cut", stop=2)
    deployed(own, loopback(fleet, tmp_path / "b"), tmp_path / "cut", resume=True)
    for name, expected in weights(whole).items():
        assert torch.equal(weights(tmp_path / "cut")[name], expected), name
    # Without what rounding had left over the model is another one.
    with pytest.raises(KeyboardInterrupt):
        deployed(own, loopback(fleet, tmp_path / "c"), tmp_path / "lost", stop=2)
    for file in (tmp_path / "c").rglob("*residual*/*.safetensors"):
        file.unlink()
    deployed(own, loopback(fleet, tmp_path / "c"), tmp_path / "lost", resume=True)
    assert any(not torch.equal(weights(tmp_path / "lost")[n], w) for n, w in weights(whole).items())


def test_a_reply_that_did_not_count_leaves_no_rest(fleet: Path, tmp_path: Path) -> None:
    """Of a vehicle whose second reply is lost, the third is what it would be after the first."""
    own = text(fleet, rounds=3).replace("round_seconds = 5", "round_seconds = 0.05")
    grid = loopback(fleet, tmp_path / "state")
    question, answer = {}, grid.answer

    def noting(message):
        if message.metadata.dst_node_id == 1 and message.metadata.message_type == "train":
            question[grid.training] = message.content
        return answer(message)

    grid.answer = noting
    grid.tamper = lambda kind, node, reply: (
        None if (kind, node, grid.training) == ("train", 1, 2) else reply
    )
    deployed(own, grid, tmp_path / "run")
    assert from_records(question[3]).values["counted"] == 0
    # The same question has the same answer, however often it is asked.
    vehicle = grid.vehicles[1]
    sent = next(r for n, k, r in grid.sent[::-1] if (n, k) == (1, "train"))
    again = from_records(vehicle.answer("train", question[3]))
    for name, array in from_records(sent).arrays.items():
        assert np.array_equal(array, again.arrays[name]), name


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scales": None}, "it lacks 'scales'"),
        ({"rounding": None}, "it lacks 'rounding'"),
        ({"scales": np.full(4, np.nan, dtype=np.float32)}, "is not finite"),
        ({"scales": np.ones(400, dtype=np.float32)}, "not what was declared"),
        ({"delta": "float32"}, "not what was declared"),
    ],
)
def test_a_reply_that_is_wrong_is_the_vehicles_fault(
    change: dict, said: str, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind != "train" or node != 1:
            return reply
        content = from_records(reply)
        values, arrays = dict(content.values), dict(content.arrays)
        for name, new in change.items():
            if new is None:
                values.pop(name, None)
                arrays.pop(name, None)
            elif isinstance(new, str):
                arrays[name] = arrays[name].astype(new)
            else:
                arrays[name] = new if len(new) == 400 else new[: len(arrays[name])]
        return to_records(Content(values, arrays))

    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = tamper
    run = deployed(text(fleet, rounds=1), grid, tmp_path / "run")
    rejected = [row["vehicle"] for row in read_table(run, "clients").to_pylist() if row["rejected"]]
    assert rejected == [grid.vehicles[1].name]
    assert any(said in line for line in caplog.messages)


def test_relays_take_rounded_replies_in(fleet: Path, tmp_path: Path) -> None:
    own = text(fleet, "int8").replace("update_type", "relays = 100\nupdate_type")
    alone = deployed(own, loopback(fleet, tmp_path / "a"), tmp_path / "alone")
    behind = tree(loopback(fleet, tmp_path / "b"), tmp_path / "relays")
    run = deployed(own, behind, tmp_path / "behind")
    for name, expected in weights(alone).items():
        assert torch.equal(weights(run)[name], expected), name


@pytest.mark.parametrize(
    ("method", "more", "said"),
    [
        ("scaffold", "", "hand up 'control_change' besides Δ_k"),
        ("fedel", "", "hand up 'trained' besides Δ_k"),
        ("fedavg", "[secure]\nenabled = true\n", "under masks replies are words of secure.bits"),
    ],
)
def test_what_cannot_be_rounded_is_refused(
    method: str, more: str, said: str, fleet: Path, tmp_path: Path
) -> None:
    own = text(fleet, method=method).replace("[[method]]", f"{more}[[method]]")
    with pytest.raises(SettingError, match=said):
        deployed(own, loopback(fleet, tmp_path / "state"), tmp_path / "run")


@pytest.mark.parametrize("method", ["fednova", "fedavg@median", "fedrep"])
def test_other_methods_take_rounded_replies(method: str, fleet: Path, tmp_path: Path) -> None:
    full, rounded = loopback(fleet, tmp_path / "a"), loopback(fleet, tmp_path / "b")
    exact = deployed(text(fleet, "full", method, 2), full, tmp_path / "full")
    run = deployed(text(fleet, "int8", method, 2), rounded, tmp_path / "rounded")
    errors = [read_table(one, "rounds").column("test_rmse").to_pylist() for one in (exact, run)]
    assert errors[1] == pytest.approx(errors[0], rel=5e-3)
    replied = read_table(run, "clients").column("replied").to_pylist()
    assert len(replied) == 12 and all(replied)
