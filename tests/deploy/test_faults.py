"""Replies that are lost, late, stale or wrong: the model is that of the others, exactly."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr")

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from safetensors.torch import load_file

from fedwatt.deploy.messages import from_records, to_records
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import BOARD, config_text, deployed, loopback, make_fleet, weights

EVERYBODY = ("participation = 0.7", "participation = 1.0")
IMPATIENT = ("round_seconds = 5", "round_seconds = 0.05")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("faults") / "fleet")


def text(fleet: Path, method: str = "fedavg", rounds: int = 2, more: str = "") -> str:
    return config_text(fleet, method, rounds, more).replace(*EVERYBODY).replace(*IMPATIENT)


def change(**new: object) -> Callable[[RecordDict], RecordDict]:
    """The reply with some fields replaced or added."""

    def changed(reply: RecordDict) -> RecordDict:
        content = from_records(reply)
        values = dict(content.values) | {k: v for k, v in new.items() if not _array(v)}
        arrays = dict(content.arrays) | {k: v for k, v in new.items() if _array(v)}
        return to_records(type(content)(values, arrays))

    return changed


def _array(value: object) -> bool:
    return isinstance(value, np.ndarray)


def lying_header(reply: RecordDict) -> RecordDict:
    """A few bytes that say they are a terabyte."""
    true = reply.array_records["arrays"]["delta"]
    small = np.zeros(3, dtype=np.float32)
    data = Array(small).data.replace(b"'shape': (3,), }           ", b"'shape': (300000000000,), }")
    assert b"300000000000" in data
    forged = Array(dtype=true.dtype, shape=true.shape, stype=true.stype, data=data)
    return RecordDict(
        {"arrays": ArrayRecord({"delta": forged}), "values": reply.config_records["values"]}
    )


WRONG = {
    "not a number": lambda r: change(delta=_like(r) * np.float32(np.nan))(r),
    "infinite": lambda r: change(delta=_like(r) + np.float32(np.inf))(r),
    "wrong shape": lambda r: change(delta=_like(r)[:-1])(r),
    "another type": lambda r: change(delta=_like(r).astype(np.float64))(r),
    "huge": lambda r: change(delta=np.zeros(10_000_000, dtype=np.float32))(r),
    "a stale round": change(round=-1),
    "no round": lambda r: RecordDict({"arrays": r.array_records["arrays"]}),
    "more than was asked for": change(roughness=0.5),
    "an undeclared array": change(telemetry=np.zeros(4)),
    "another record": lambda r: RecordDict({**dict(r), "more": r.config_records["values"]}),
    "a lying header": lying_header,
    "other windows than enrolled": change(windows=7),
    "more windows than there can be": change(windows=2**62),
    "windows enough to own the mean": change(windows=10**15),
    "nothing": lambda r: None,
}


def _like(reply: RecordDict) -> np.ndarray:
    return from_records(reply).arrays["delta"]


@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_reply_does_not_count(wrong: str, fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "state")
    kept: dict[int, tuple[int, np.ndarray]] = {}

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        if kind != "train":
            return reply
        if node == 2:
            return WRONG[wrong](reply)
        content = from_records(reply)
        kept[node] = content.values["windows"], content.arrays["delta"].astype(float)
        return reply

    grid.tamper = tamper
    run = deployed(text(fleet, rounds=1), grid, tmp_path / "run")

    # FedAvg over the three that are left, worked out here: w_1 = w_0 + Σ n_k Δ_k / Σ n_k.
    n = sum(windows for windows, _ in kept.values())
    step = sum(windows * delta for windows, delta in kept.values()) / n
    state = load_file(run / "checkpoint" / "fedavg" / "round-000001" / "state.safetensors")
    assert len(kept) == 3
    # One float32 rounding of weights below 1.
    assert state["weights"][0].numpy() == pytest.approx(grid.models[0] + step, abs=1e-7)
    rows = read_table(run, "rounds").to_pylist()[-1]
    lost = wrong == "nothing"
    assert (rows["replies"], rows["lost"], rows["rejected"]) == (3, int(lost), int(not lost))
    assert not rows["diverged"]


@pytest.mark.parametrize("method", ["scaffold", "feddyn", "moon"])
def test_a_lost_reply_leaves_no_trace_on_board(method: str, fleet: Path, tmp_path: Path) -> None:
    # Trained, remembered and lost on the way, or never there: the others cannot tell.
    def lose(kind: str, node: int, reply: RecordDict) -> RecordDict | None:
        lost = kind == "train" and node == 2 and from_records(reply).values["round"] == 1
        return None if lost else reply

    grid = loopback(fleet, tmp_path / "lost")
    grid.tamper = lose
    lost = deployed(text(fleet, method, rounds=4), grid, tmp_path / "a")

    away = loopback(fleet, tmp_path / "away")
    away.before_push = lambda grid: grid.offline.__init__({2} if grid.training == 1 else ())
    absent = deployed(text(fleet, method, rounds=4), away, tmp_path / "b")
    assert _same(lost, absent)


@pytest.mark.parametrize("method", ["scaffold", "fo-ri-fedavg", "fedel"])
@pytest.mark.parametrize("moment", ["between rounds", "in mid-round"])
def test_a_killed_server_goes_on(moment: str, method: str, fleet: Path, tmp_path: Path) -> None:
    whole = deployed(text(fleet, method, 4), loopback(fleet, tmp_path / "x"), tmp_path / "whole")
    grid = loopback(fleet, tmp_path / "y")
    if moment == "in mid-round":

        def kill(kind: str, node: int, reply: RecordDict) -> RecordDict:
            # Two of four vehicles have trained and remembered round 3 when the server dies.
            if kind == "train" and from_records(reply).values["round"] == 2 and node == 3:
                raise KeyboardInterrupt
            return reply

        grid.tamper = kill
    with pytest.raises(KeyboardInterrupt):
        deployed(text(fleet, method, 4), grid, tmp_path / "killed", stop=2)
    # New processes everywhere: nothing but the two folders is left of the first ones.
    grid = loopback(fleet, tmp_path / "y")
    deployed(text(fleet, method, 4), grid, tmp_path / "killed", resume=True)
    assert _same(whole, tmp_path / "killed")
    assert _rows(whole) == _rows(tmp_path / "killed")


def test_a_vehicle_that_restarts_keeps_its_memory(fleet: Path, tmp_path: Path) -> None:
    still = deployed(text(fleet, "scaffold", 3), loopback(fleet, tmp_path / "x"), tmp_path / "a")
    grid = loopback(fleet, tmp_path / "y")

    def restart(kind: str, node: int, reply: RecordDict) -> RecordDict:
        old = grid.vehicles[node]
        grid.vehicles[node] = Vehicle(old.folder, old.state, board=BOARD)
        return reply

    grid.tamper = restart
    restarted = deployed(text(fleet, "scaffold", 3), grid, tmp_path / "b")
    assert _same(still, restarted)


def test_a_vehicle_that_lost_its_memory_begins_anew(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "x")

    def forget(kind: str, node: int, reply: RecordDict) -> RecordDict:
        for file in grid.vehicles[node].state.rglob("round-*.safetensors"):
            file.write_bytes(file.read_bytes()[:100])  # what a failing disk leaves
        return reply

    grid.tamper = forget
    run = deployed(text(fleet, "scaffold", 3), grid, tmp_path / "a")
    assert [row["replies"] for row in _rows(run)[1:]] == [4, 4, 4]


def test_vehicles_come_and_go(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "x")
    away = {0: set(), 1: {3}, 2: {3, 4}, 3: set()}
    grid.before_push = lambda grid: grid.offline.__init__(away.get(grid.training, set()))
    run = deployed(text(fleet, rounds=4), grid, tmp_path / "a")
    assert [row["available"] for row in _rows(run)[1:]] == [4, 3, 2, 4]
    assert [row["replies"] for row in _rows(run)[1:]] == [4, 3, 2, 4]


def test_a_vehicle_that_joins_late_takes_part(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "x")
    late = grid.vehicles.pop(4)
    grid.before_push = lambda grid: grid.vehicles.update({4: late} if grid.training >= 1 else {})
    run = deployed(
        text(fleet, rounds=4).replace("\nvehicles = 4", "\nvehicles = 3"), grid, tmp_path / "a"
    )
    replies = [row["replies"] for row in _rows(run)[1:]]
    assert replies[:2] == [3, 3]
    assert replies[-1] == 4


def test_a_vehicle_that_comes_back_with_other_windows_counts_with_those(
    fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "x")
    grid.tamper = lambda kind, node, reply: (
        change(windows=100)(reply) if (kind, node) == ("train", 3) else reply
    )
    run = deployed(text(fleet, rounds=3), grid, tmp_path / "a")
    assert [(row["replies"], row["rejected"]) for row in _rows(run)[1:]] == [(3, 1), (4, 0), (4, 0)]
    asked = read_table(run, "clients").select(["vehicle", "windows"]).to_pylist()
    name = grid.vehicles[3].folder.name
    enrolled, *later = [row["windows"] for row in asked if row["vehicle"] == name]
    assert enrolled != 100
    assert later == [100, 100]


def test_too_few_replies_make_no_model(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "x")
    grid.tamper = lambda kind, node, reply: None if kind == "train" and node > 2 else reply
    config = text(fleet).replace("poll_seconds", "minimum_replies = 3\npoll_seconds")
    run = deployed(config, grid, tmp_path / "a")
    assert [row["replies"] for row in _rows(run)] == [0, 0, 0]
    assert _same_models(weights(run, "last"), weights(run, "best"))
    assert _same_models(weights(run, "last"), weights(run, "kept"))


def test_all_being_wrong_ends_nothing(fleet: Path, tmp_path: Path) -> None:
    grid = loopback(fleet, tmp_path / "x")
    grid.tamper = lambda kind, node, reply: (
        change(delta=_like(reply)[:-1])(reply) if kind == "train" else reply
    )
    rows = _rows(deployed(text(fleet), grid, tmp_path / "a"))
    assert [row["rejected"] for row in rows] == [0, 4, 4]
    assert not rows[-1]["diverged"]


def test_forged_error_sums_do_not_count(fleet: Path, tmp_path: Path) -> None:
    honest = deployed(text(fleet), loopback(fleet, tmp_path / "x"), tmp_path / "a")
    grid = loopback(fleet, tmp_path / "y")
    grid.tamper = lambda kind, node, reply: (
        change(test=np.full(6, np.nan))(reply) if kind == "evaluate" and node == 1 else reply
    )
    rows = _rows(deployed(text(fleet), grid, tmp_path / "b"))
    assert all(np.isfinite(row["test_rmse"]) for row in rows)
    assert rows[-1]["test_rmse"] != _rows(honest)[-1]["test_rmse"]


@pytest.mark.parametrize("away", [0, 2])
def test_a_round_is_not_the_best_because_a_hard_vehicle_was_away(
    away: int, fleet: Path, tmp_path: Path
) -> None:
    def rows(name: str, away: int | None) -> list[dict]:
        grid, asked = loopback(fleet, tmp_path / name), []

        def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
            if kind != "evaluate" or node != 1:
                return reply
            asked.append(node)
            sums = from_records(reply).arrays["validation"].copy()
            sums[1] = 1e9  # Σ e², the same for every model
            silent = len(asked) - 1 == away
            return change(validation=sums * np.nan if silent else sums)(reply)

        grid.tamper = tamper
        run = deployed(text(fleet, rounds=3), grid, tmp_path / f"{name}-run")
        return read_table(run, "rounds").to_pylist()

    always, gap = rows("always", None), rows("gap", away)
    # At the beginning nothing is known of it, and when it comes the best is chosen anew.
    first = 0 if away else 1
    assert [row["validation_rmse"] for row in gap[first:]] == [
        row["validation_rmse"] for row in always[first:]
    ]
    assert gap[-1]["best_round"] == always[-1]["best_round"] > 0
    assert gap[away]["test_rmse"] != always[away]["test_rmse"]


STRATA = {
    "not a number": lambda own: (own["strata"], own["sums"] * np.nan),
    "infinite": lambda own: (own["strata"], own["sums"] + np.inf),
    "negative": lambda own: (own["strata"], -own["sums"] - 1),
    "too few names": lambda own: (own["strata"][:-1], own["sums"]),
    "too few sums": lambda own: (own["strata"], own["sums"][:-1]),
    "a name twice": lambda own: (own["strata"][:1] * len(own["strata"]), own["sums"]),
    "impossible windows": lambda own: (own["strata"], own["sums"] + 1e300),
}


@pytest.mark.parametrize("wrong", STRATA)
def test_forged_strata_are_left_out_and_end_nothing(
    wrong: str, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    grid = loopback(fleet, tmp_path / "x")

    def tamper(kind: str, node: int, reply: RecordDict) -> RecordDict:
        if kind != "strata" or node != 1:
            return reply
        content = from_records(reply)
        strata, sums = STRATA[wrong]({**content.values, **content.arrays})
        return change(strata=strata, sums=sums)(reply)

    grid.tamper = tamper
    run = deployed(text(fleet, rounds=1), grid, tmp_path / "run")
    named = set(read_table(run, "vehicles").column("vehicle").to_pylist())
    assert named == {vehicle.name for node, vehicle in grid.vehicles.items() if node != 1}
    assert f"no errors of {grid.vehicles[1].name} by stratum" in caplog.text


@pytest.mark.parametrize("told", [0.0, -5.0, 1e-300, 1e300, np.nan])
def test_a_reply_that_nova_cannot_divide_by_does_not_count(
    told: float, fleet: Path, tmp_path: Path
) -> None:
    grid = loopback(fleet, tmp_path / "x")
    grid.tamper = lambda kind, node, reply: (
        change(accumulation=np.array(told))(reply) if kind == "train" and node == 2 else reply
    )
    run = deployed(text(fleet, "fednova", rounds=1), grid, tmp_path / "run")
    last = _rows(run)[-1]
    assert (last["replies"], last["rejected"]) == (3, 1)
    assert all(tensor.isfinite().all() for tensor in weights(run).values())


def _rows(run: Path) -> list[dict]:
    columns = ["round", "available", "participants", "replies", "lost", "rejected", "diverged"]
    return read_table(run, "rounds").select([*columns, "test_rmse"]).to_pylist()


def _same(one: Path, other: Path) -> bool:
    return _same_models(weights(one), weights(other))


def _same_models(one: dict, other: dict) -> bool:
    pairs = zip(one.values(), other.values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)
