"""Secure aggregation on Flower's messages: the plain model, drop-outs, bytes that say nothing."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")
pytest.importorskip("cryptography")

import torch
from flwr.app import RecordDict

from fedwatt.deploy.guard import Guard
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.messages import SECURE as PREFIX
from fedwatt.deploy.messages import Content, from_records
from fedwatt.deploy.policy import OPEN
from fedwatt.deploy.secure_board import Secrets
from fedwatt.deploy.state import RunState
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import DataError, SettingError
from fedwatt.privacy.fixed_point import Layout, packed, unpacked
from fedwatt.privacy.secure.plain import to_plain
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import BOARD, config_text, deployed, loopback, make_fleet, weights
from tests.deploy.loopback import SuperNodes
from tests.privacy.exchanges import Stopped, terms_of

SECURE = "[secure]\nenabled = true\nstage_seconds = 5\n"
SHORT = ["secure-keys", "secure-shares", "secure-agree", "secure-reveal"]
STAGES = [*SHORT, "secure-train"]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("secure") / "fleet")


LATE = ("secure-agree", "secure-reveal")
"""By then a vehicle's vector has arrived."""


def secured(fleet: Path, method: str = "fedavg", rounds: int = 2, more: str = "") -> str:
    text = config_text(fleet, method, rounds, more)
    text = text.replace("participation = 0.7", "participation = 1.0")
    return text.replace("[[method]]", SECURE + "[[method]]")


def plain(text: str) -> str:
    return text.replace("enabled = true", "enabled = false")


def column(run: Path, name: str) -> list:
    return read_table(run, "clients").column(name).to_pylist()


def assert_same_models(got: Path, wanted: Path) -> None:
    expected, found = weights(wanted), weights(got)
    assert expected.keys() == found.keys()
    for name in expected:
        # Fixed point is finer than float32, in which both are kept: a rounding may go either way.
        torch.testing.assert_close(found[name], expected[name], rtol=0, atol=1e-6, msg=name)


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
def test_sums_give_the_model_that_replies_give(method: str, fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, method, more=KINDS[method])
    secret = deployed(text, loopback(fleet, tmp_path / "a"), tmp_path / "secret")
    clear = deployed(plain(text), loopback(fleet, tmp_path / "b"), tmp_path / "clear")
    assert_same_models(secret, clear)
    assert column(secret, "replied") == column(clear, "replied") == [True] * 8


@pytest.mark.parametrize("lost", STAGES)
def test_a_vehicle_may_drop_out_at_any_stage(lost: str, fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "scaffold")
    grid = loopback(fleet, tmp_path / "a")
    seen = []

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        if kind == lost and node == 2:
            seen.append(kind)
            # In the second of three rounds; sums that judge a model come before and between them.
            return None if len(seen) == (2 if kind == "secure-train" else 4) else reply
        return reply

    grid.tamper = tamper
    text = text.replace("rounds = 2", "rounds = 3")
    text = text.replace("stage_seconds = 5", "stage_seconds = 0.2").replace(
        "round_seconds = 5", "round_seconds = 0.5"
    )
    secret = deployed(text, grid, tmp_path / "secret")

    other = loopback(fleet, tmp_path / "b")
    asked: list[int] = []

    def forget(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        if kind == "train" and node == 2:
            asked.append(node)
            return None if len(asked) == 2 and lost not in LATE else reply
        return reply

    other.tamper = forget
    clear = deployed(plain(text), other, tmp_path / "clear")
    # Whose vector arrived is in the sum, though it never answers again.
    assert column(secret, "replied").count(False) == (lost not in LATE)
    assert column(secret, "replied") == column(clear, "replied")
    assert_same_models(secret, clear)


def test_too_few_survivors_make_no_model(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, rounds=1).replace("round_seconds = 5", "round_seconds = 0.2")
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if kind == "secure-train" and node < 3 else reply
    run = deployed(text, grid, tmp_path / "run")
    assert column(run, "replied") == [False] * 4
    revealed = [kind for _, kind, _ in grid.sent if kind == "secure-reveal"]
    assert len(revealed) == 2 * 4  # of the model that was judged and its strata at the end


def test_a_spoiled_vector_is_left_out_and_counted(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind == "secure-train" and node == 1:
            record = reply.config_records["values"]
            record["words"] = record["words"][:-8]
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

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        # The first word is the weight; masks hide it and let it be added to.
        if kind == "secure-train" and node == 1 and grid.training == 1:
            record = reply.config_records["values"]
            words = unpacked(record["words"], 48)
            words[:1] += np.uint64(added)  # an array wraps around without a warning
            record["words"] = packed(words, 48)
        return reply

    grid.tamper = tamper
    run = deployed(secured(fleet, rounds=2), grid, tmp_path / "run")
    rows = read_table(run, "rounds").to_pylist()
    assert [row["replies"] for row in rows] == [0, 0, 4]
    assert np.array_equal(grid.models[0], grid.models[1])
    assert "round 1 makes no model: 4 vehicles add up to a weight of" in caplog.text


def test_a_vector_is_laid_out_for_the_words_of_its_exchange(tmp_path: Path) -> None:
    # 0 fits into any word, and means the same in none but its own.
    held = Stopped(3, terms=terms_of(3, length=2, bits=48))
    name, guard = "car-000", Guard(OPEN, Ledger(tmp_path))
    question = Content(to_plain(held.inboxes[name], PREFIX))
    secrets = Secrets(name, tmp_path, BOARD, guard)
    secrets._state = held.shared[name]
    long, short = (Layout({"energy": (1, 8.0)}, vehicles=3, bits=bits) for bits in (64, 48))
    with pytest.raises(DataError, match="about words of 48 bits"):
        secrets.masked(question, long, {"energy": np.zeros(1)})
    sent = secrets.masked(question, short, {"energy": np.zeros(1)})
    assert len(sent.values["words"]) == 2 * 6  # the value, and how many were clipped


def test_numbers_of_exchanges_grow_though_the_clock_goes_back(tmp_path: Path) -> None:
    state = RunState.begin(tmp_path, resume=False)
    assert [state.next_exchange(now) for now in (1000, 1001, 7)] == [1000, 1001, 1002]
    again = RunState.begin(tmp_path, resume=True)
    assert (again.run, again.next_exchange(5)) == (state.run, 1003)


def test_all_that_leaves_a_vehicle_is_keys_shares_and_noise(fleet: Path, tmp_path: Path) -> None:
    """Every byte of a run: names, keys, signatures, and nothing else that is not random."""
    text = secured(fleet, "scaffold", rounds=2)
    grid = loopback(fleet, tmp_path / "a")
    deployed(text, grid, tmp_path / "run")
    kinds = {kind for _, kind, _ in grid.sent}
    assert kinds == {"enrol", *STAGES, "secure-evaluate", "secure-strata"}
    declared = {
        "enrol": {"vehicle", "enough", "features", "simulated", "version"},
        "secure-keys": {"exchange", "vehicle", "mask_key", "cipher_key"}
        | {"public", "voucher", "signature"},
        "secure-shares": {"exchange", "vehicle", "ciphertexts", "commitment"},
        "secure-train": {"exchange", "vehicle", "words"},
        "secure-evaluate": {"exchange", "vehicle", "words"},
        "secure-strata": {"exchange", "vehicle", "words"},
        "secure-agree": {"exchange", "vehicle", "signature", "follows"},
        "secure-reveal": {"exchange", "vehicle", "shares"},
    }
    vectors = []
    for _, kind, records in grid.sent:
        content = from_records(records)
        assert set(content.values) == declared[kind] and not content.arrays
        if kind == "secure-train":
            vectors.append(np.frombuffer(content.values["words"], dtype=np.uint8))
    # 4 vehicles in 2 rounds; weight, Δ, control change, 4 check words and clipped values.
    parameters = sum(t.numel() for t in weights(tmp_path / "run").values())
    assert [len(vector) for vector in vectors] == [6 * (2 * parameters + 6)] * 8
    for number, vector in enumerate(vectors):
        # 5 standard deviations of fair coins.
        bits = np.unpackbits(vector)
        assert abs(bits.mean() - 0.5) < 2.5 / np.sqrt(len(bits))
        for other in vectors[:number]:
            same = (np.unpackbits(other) == bits).mean()
            assert abs(same - 0.5) < 2.5 / np.sqrt(len(bits))


def test_a_reply_in_the_clear_is_not_given_where_sums_were_agreed(fleet, tmp_path) -> None:
    grid = loopback(fleet, tmp_path / "a")
    asked: list[tuple[str, RecordDict]] = []
    vehicle = grid.vehicles[1]
    answer = vehicle.answer
    vehicle.answer = lambda kind, records: asked.append((kind, records)) or answer(kind, records)
    deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    questions = dict(asked)
    with pytest.raises(DataError, match="in the clear"):
        answer("train", questions["secure-train"])
    with pytest.raises(DataError, match="out of turn"):
        answer("secure-train", questions["secure-train"])
    with pytest.raises(DataError, match="higher number"):
        answer("secure-keys", questions["secure-keys"])
    # A restart forgets the secrets and still knows which exchange was the last.
    fresh = Vehicle(vehicle.folder, vehicle.state, board=BOARD)
    with pytest.raises(DataError, match="out of turn"):
        fresh.answer("secure-reveal", questions["secure-reveal"])
    with pytest.raises(DataError, match="higher number"):
        fresh.answer("secure-keys", questions["secure-keys"])


def test_secrets_go_from_process_to_process_where_each_message_has_its_own(
    fleet: Path, tmp_path: Path
) -> None:
    """Flower's SuperNode: a new process, a new vehicle object, and the node's own context."""
    grid = SuperNodes(loopback(fleet, tmp_path / "a").vehicles, tmp_path / "board")
    text = secured(fleet, "scaffold", rounds=1)
    processes = deployed(text, grid, tmp_path / "processes")
    one = deployed(text, loopback(fleet, tmp_path / "b"), tmp_path / "one")
    assert column(processes, "replied") == [True] * 4
    assert_same_models(processes, one)


def test_a_resumed_run_goes_on_in_secret(fleet: Path, tmp_path: Path) -> None:
    text = secured(fleet, "scaffold", rounds=3)
    whole = deployed(text, loopback(fleet, tmp_path / "a"), tmp_path / "whole")
    grid = loopback(fleet, tmp_path / "b")
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "cut", stop=1)
    resumed = deployed(text, grid, tmp_path / "cut", resume=True)
    assert_same_models(resumed, whole)


@pytest.mark.parametrize(
    ("method", "more", "reason"),
    [
        ("fedavg@median", "", "Median compares single replies"),
        ("fedavg@private", 'clipping = "adaptive"\n', "adaptive clipping"),
        ("fo-ri-fedavg", "[deploy]", "diagnostics"),
    ],
)
def test_what_sums_cannot_do_is_refused_before_the_first_round(
    method: str, more: str, reason: str, fleet: Path, tmp_path: Path
) -> None:
    text = secured(fleet, method, more="" if more == "[deploy]" else more)
    if more == "[deploy]":
        text = text.replace("[deploy]\n", "[deploy]\ndiagnostics = true\n")
    grid = loopback(fleet, tmp_path / "state")
    with pytest.raises(SettingError, match=reason):
        deployed(text, grid, tmp_path / "run")
    assert {kind for _, kind, _ in grid.sent} == {"enrol"}


@pytest.mark.parametrize("left", ["", "[]"])
def test_a_damaged_number_on_board_shuts_nobody_out(
    left: str, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = loopback(fleet, tmp_path / "state")
    vehicle = grid.vehicles[2]
    vehicle.state.mkdir(parents=True)
    (vehicle.state / "secure-sums.json").write_text(left)
    run = deployed(secured(fleet, rounds=1), grid, tmp_path / "run")
    assert read_table(run, "rounds").column("replies").to_pylist() == [0, 4]
    assert "secure-sums.json is damaged" in caplog.text
    # What is long past is still not answered a second time.
    (vehicle.state / "secure-sums.json").write_text(left)
    old = RunState.read(run / "deployment.json").exchange - 10 * 60 * 1_000_000
    assert vehicle.secrets._last("run") > old
