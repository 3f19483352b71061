"""Secure aggregation: the plain model, drop-outs at every stage, bytes that tell nothing."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedwatt.deploy.server.run_state import RunState
from fedwatt.deploy.vehicle.messages import REPLIES, VECTOR
from fedwatt.deploy.wire import pack, unpack
from fedwatt.errors import SettingError
from fedwatt.metrics.sums import packed, unpacked
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import column, deployed, loopback, make_fleet, plain, secured, weights

STEPS = ["sum-keys", "sum-shares", "sum-agree", "sum-reveal"]
LATE = ("sum-agree", "sum-reveal")
"""By then a vehicle's contribution has arrived."""


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("secure") / "fleet")


def assert_same_models(got: Path, wanted: Path) -> None:
    expected = weights(wanted)
    weights_after = weights(got)
    assert expected.keys() == weights_after.keys()
    for name in expected:
        # Fixed point is finer than float32, in which both are kept: a rounding may go either way.
        torch.testing.assert_close(weights_after[name], expected[name], rtol=0, atol=1e-6, msg=name)


# One method for each kind of vector; tests/privacy has all of them without the messages.
KINDS = {
    "fo-ri-fedavg": "",
    "scaffold": "",
    "fednova": "",
    "feddyn": "",
    "fedel": "",
    "fedadam": "",
    "fedavg@private": "noise_multiplier = 0.0\nclip_norm = 0.05\n",
    "ditto": "",
    "ifca": "warm_rounds = 1\n",
}


@pytest.mark.parametrize("method", KINDS)
def test_sums_give_the_model_that_updates_give(method: str, fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, method, more=KINDS[method])
    secure = deployed(text, loopback(fleet, tmp_path / "a"), tmp_path / "secure")
    clear = deployed(plain(text), loopback(fleet, tmp_path / "b"), tmp_path / "clear")
    assert_same_models(secure, clear)
    assert column(secure, "replied") == column(clear, "replied") == [True] * 8


@pytest.mark.parametrize("lost", [*STEPS, "train"])
def test_a_vehicle_may_drop_out_at_any_stage(lost: str, fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "scaffold", rounds=3)
    text = text.replace("stage_seconds = 5", "stage_seconds = 0.2")
    text = text.replace("round_seconds = 5", "round_seconds = 0.5")
    grid = loopback(fleet, tmp_path / "a")
    seen = []

    def tamper(kind: str, node: int, reply: bytes) -> bytes | None:
        if kind == lost and node == 2:
            seen.append(kind)
            # In the second of three rounds; sums that evaluate come before and between them.
            return None if len(seen) == (2 if kind == "train" else 4) else reply
        return reply

    grid.tamper = tamper
    secure = deployed(text, grid, tmp_path / "secure")
    other = loopback(fleet, tmp_path / "b")
    asked: list[int] = []

    def forget(kind: str, node: int, reply: bytes) -> bytes | None:
        if kind == "train" and node == 2:
            asked.append(node)
            return None if len(asked) == 2 and lost not in LATE else reply
        return reply

    other.tamper = forget
    clear = deployed(plain(text), other, tmp_path / "clear")
    # A vehicle whose contribution arrived is in the sum, though it never answers again.
    assert column(secure, "replied").count(False) == (lost not in LATE)
    assert column(secure, "replied") == column(clear, "replied")
    assert_same_models(secure, clear)


def test_a_fifth_of_the_vehicles_may_drop_out(tmp_path: Path) -> None:
    fleet = make_fleet(tmp_path / "fleet", 10)
    text = secured(fleet, rounds=2).replace("vehicles = 4", "vehicles = 10")
    text = text.replace("round_seconds = 5", "round_seconds = 1")
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if kind == "train" and node < 3 else reply
    run = deployed(text, grid, tmp_path / "run")
    assert read_table(run, "rounds").column("replies").to_pylist() == [0, 8, 8]


def test_too_few_survivors_make_no_model(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, rounds=1).replace("round_seconds = 5", "round_seconds = 0.2")
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if kind == "train" and node < 3 else reply
    run = deployed(text, grid, tmp_path / "run")
    assert column(run, "replied") == [False] * 4


def test_a_spoiled_vector_is_left_out_and_counted(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def tamper(kind: str, node: int, reply: bytes) -> bytes:
        if kind == "train" and node == 1:
            content = unpack(reply)
            return pack(content.with_values(words=content.values["words"][:-8]))
        return reply

    grid.tamper = tamper
    run = deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    assert sorted(column(run, "replied")) == [False, True, True, True]
    assert sorted(column(run, "rejected")) == [False, False, False, True]


@pytest.mark.parametrize("added", [2**46, 2**47])
def test_a_sum_of_impossible_weight_makes_no_model(
    added: int, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = loopback(fleet, tmp_path / "state")
    rounds: list[int] = []

    def tamper(kind: str, node: int, reply: bytes) -> bytes:
        # The first word is the weight; masks hide it and let it be added to.
        if kind == "train" and node == 1:
            rounds.append(node)
            if len(rounds) == 1:
                content = unpack(reply)
                words = unpacked(content.values["words"], 48)
                words[:1] += np.uint64(added)  # an array wraps around without a warning
                return pack(content.with_values(words=packed(words, 48)))
        return reply

    grid.tamper = tamper
    run = deployed(secured(fleet, rounds=2), grid, tmp_path / "run")
    assert read_table(run, "rounds").column("replies").to_pylist() == [0, 0, 4]
    assert "round 1 makes no model: 4 vehicles add up to a weight of" in caplog.text


def test_numbers_of_exchanges_grow_though_the_clock_goes_back(tmp_path: Path) -> None:
    state = RunState.begin(tmp_path, "plan", resume=False)
    assert [state.next_exchange(now) for now in (1000, 1001, 7)] == [1000, 1001, 1002]
    again = RunState.begin(tmp_path, "plan", resume=True)
    assert again.next_exchange(5) == 1003


def test_all_that_leaves_a_vehicle_is_declared_and_contributions_are_random(
    fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "a")
    deployed(secured(fleet, "scaffold", rounds=2), grid, tmp_path / "run")
    assert set(grid.kinds()) == {"enrol", *STEPS, "train", "evaluate", "final"}
    vectors = []
    for _, kind, body in grid.sent:
        content = unpack(body)
        form = VECTOR if kind in ("train", "evaluate", "final") else kind
        assert set(content.values) == {"status", *REPLIES[form]} and not content.arrays
        if kind == "train":
            vectors.append(np.frombuffer(content.values["words"], dtype=np.uint8))
    # 4 vehicles in 2 rounds; weight, Δ, control change and clipped values.
    parameters = sum(t.numel() for t in weights(tmp_path / "run").values())
    assert [len(vector) for vector in vectors] == [6 * (2 * parameters + 2)] * 8
    for number, vector in enumerate(vectors):
        # 5 standard deviations of fair coins.
        bits = np.unpackbits(vector)
        assert abs(bits.mean() - 0.5) < 2.5 / np.sqrt(len(bits))
        for other in vectors[:number]:
            same = (np.unpackbits(other) == bits).mean()
            assert abs(same - 0.5) < 2.5 / np.sqrt(len(bits))


def test_secrets_pass_from_process_to_process(fleet: Path, tmp_path: Path) -> None:
    """Flower's SuperNode: a new process, and so a new vehicle, for every message."""
    text = secured(fleet, "scaffold", rounds=1)
    grid = loopback(fleet, tmp_path / "a")
    handlers = {node: vehicle.handle for node, vehicle in grid.vehicles.items()}
    for node, vehicle in grid.vehicles.items():

        def handle(body: bytes, vehicle=vehicle, answer=handlers[node]) -> bytes:
            remaining = vehicle.secrets.export()
            vehicle.secrets.restore(b"")
            vehicle.secrets.restore(remaining)
            return answer(body)

        vehicle.handle = handle
    processes = deployed(text, grid, tmp_path / "processes")
    first = deployed(text, loopback(fleet, tmp_path / "b"), tmp_path / "one")
    assert column(processes, "replied") == [True] * 4
    assert_same_models(processes, first)


def test_a_resumed_run_continues_with_its_totals(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "scaffold", rounds=3)
    complete = deployed(text, loopback(fleet, tmp_path / "a"), tmp_path / "whole")
    grid = loopback(fleet, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "cut", stop=1)
    resumed = deployed(text, grid, tmp_path / "cut", resume=True)
    assert_same_models(resumed, complete)


def test_a_server_killed_among_contributions_loses_that_round_alone(
    fleet: Path, tmp_path: Path
) -> None:
    text = secured(fleet, rounds=3)
    grid = loopback(fleet, tmp_path / "state")

    def tamper(kind: str, node: int, reply: bytes) -> bytes:
        if kind == "train" and grid.kinds().count("train") == 6:
            raise KeyboardInterrupt
        return reply

    grid.tamper = tamper
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "run")
    again = loopback(fleet, tmp_path / "state")
    run = deployed(text, again, tmp_path / "run", resume=True)
    # Three of four vehicles have contributed to round 2, and contribute to no other sum of it.
    assert read_table(run, "rounds").column("replies").to_pylist() == [0, 4, 0, 4]


@pytest.mark.parametrize(
    ("method", "more", "reason"),
    [
        ("fedavg@median", "", "Median compares single replies"),
        ("fedavg@private", 'clipping = "adaptive"\n', "adaptive clipping"),
    ],
)
def test_what_sums_cannot_do_is_refused_before_the_first_round(
    method: str, more: str, reason: str, fleet: Path, tmp_path: Path
) -> None:
    text = secured(fleet, method, more=more)
    grid = loopback(fleet, tmp_path / "state")
    with pytest.raises(SettingError, match=reason):
        deployed(text, grid, tmp_path / "run")
    assert set(grid.kinds()) == {"enrol"}
