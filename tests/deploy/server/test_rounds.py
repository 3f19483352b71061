"""Rounds without secure aggregation: kills, resume, late vehicles, buffers, noise, faults."""

from pathlib import Path

import numpy as np
import pytest
import torch

from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import RunError, SettingError
from fedwatt.files import read_rows
from fedwatt.runs.tables import read_table
from tests.deploy.fleets import (
    Loopback,
    column,
    config_text,
    deployed,
    loopback,
    make_fleet,
    secured,
    weights,
)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_fleet(tmp_path_factory.mktemp("rounds") / "fleet")


def same_bits(one: Path, other: Path) -> bool:
    first = weights(one)
    second = weights(other)
    return first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "ditto", "fedadam"])
@pytest.mark.parametrize("killed", ["after a round", "while vehicles train", "while they evaluate"])
def test_a_killed_server_continues_to_the_same_bits(
    method: str, killed: str, fleet: Path, tmp_path: Path
) -> None:
    text = config_text(fleet, method, rounds=4)
    complete = deployed(text, loopback(fleet, tmp_path / "a"), tmp_path / "whole")
    grid = loopback(fleet, tmp_path / "b")
    seen: list[str] = []

    def tamper(kind: str, node: int, reply: bytes) -> bytes:
        seen.append(kind)
        expected = {"while vehicles train": ("train", 5), "while they evaluate": ("evaluate", 10)}
        if expected.get(killed, ("", 0))[0] == kind and seen.count(kind) == expected[killed][1]:
            raise KeyboardInterrupt
        return reply

    grid.tamper = tamper
    with pytest.raises(KeyboardInterrupt):
        deployed(text, grid, tmp_path / "cut", stop=2 if killed == "after a round" else 0)
    # Vehicles restart as well.
    again = loopback(fleet, tmp_path / "b")
    resumed = deployed(text, again, tmp_path / "cut", resume=True)
    assert same_bits(resumed, complete)


def test_a_run_cannot_begin_anew_under_its_plan(fleet: Path, tmp_path: Path) -> None:
    """Vehicles answer the rounds of a plan once: another run of it gets only repeated replies."""
    text = config_text(fleet, rounds=2)
    grid = loopback(fleet, tmp_path / "state")
    first = deployed(text, grid, tmp_path / "first")
    content = (first / "plan.json").read_bytes()
    second = deployed(content, grid, tmp_path / "second")
    assert same_bits(first, second)
    changed = {kind for _, kind, _ in grid.asked}
    assert "train" in changed


def test_a_vehicle_may_join_later(fleet: Path, tmp_path: Path) -> None:
    text = config_text(fleet, rounds=4).replace("vehicles = 4", "vehicles = 3")
    text = text.replace("participation = 0.7", "participation = 1.0")
    grid = loopback(fleet, tmp_path / "state")
    grid.offline = {4}
    trained: set[str] = set()

    def tamper(kind: str, node: int, reply: bytes) -> bytes:
        if kind == "train" and len([k for k in grid.kinds() if k == "train"]) >= 3:
            grid.offline = set()
        trained.add(f"{kind} {node}")
        return reply

    grid.tamper = tamper
    run = deployed(text, grid, tmp_path / "run")
    assert "train 4" in trained
    assert read_table(run, "rounds").column("replies").to_pylist()[-1] == 4


def test_a_round_does_not_wait_for_those_called_beyond_its_participants(
    fleet: Path, tmp_path: Path
) -> None:
    text = config_text(fleet, rounds=2).replace("participation = 0.7", "participation = 0.75")
    text = text.replace("round_seconds = 5", "round_seconds = 600\nover_selection = 0.3")
    grid = loopback(fleet, tmp_path / "state")
    grid.tamper = lambda kind, node, reply: None if node == 1 and kind == "train" else reply
    run = deployed(text, grid, tmp_path / "run")
    events = [row for row in read_rows(run / "events.jsonl") if row["event"] == "spare"]
    assert {row["request"] for row in events} >= {"train"}
    assert max(row["seconds"] for row in events) < 300


def test_buffered_updates_make_models(fleet: Path, tmp_path: Path) -> None:
    text = config_text(fleet, rounds=4)
    text = text.replace("[deploy]", "[asynchronous]\nbuffer = 2\n[deploy]")
    grid = loopback(fleet, tmp_path / "a")
    complete = deployed(text, grid, tmp_path / "whole")
    rows = read_table(complete, "rounds").column("replies").to_pylist()
    assert rows == [0, 2, 2, 2, 2]
    with pytest.raises(SettingError, match="takes updates in as they come"):
        deployed(text.replace("[deploy]", "[secure]\nenabled = true\n[deploy]"), grid, tmp_path)


def test_private_sums_have_noise_of_their_own(fleet: Path, tmp_path: Path) -> None:
    more = "noise_multiplier = 1.0\nclip_norm = 0.05\n"
    text = secured(fleet, "fedavg@private", rounds=1, more=more)
    text = text.replace("batch = 16", 'batch = 16\nsampling = "poisson"')
    runs = [
        deployed(text, loopback(fleet, tmp_path / name), tmp_path / f"run-{name}")
        for name in ("a", "b")
    ]
    assert not same_bits(*runs)
    assert read_table(runs[0], "rounds").column("epsilon").to_pylist()[-1] > 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda c: Content(c.values, {"delta": c.arrays["delta"][:-1]}), "not what was declared"),
        (lambda c: Content(c.values, {"delta": c.arrays["delta"] * np.nan}), ""),
        (lambda c: Content({**c.values, "windows": 10**9}, c.arrays), "windows"),
        (lambda c: Content({**c.values, "note": "x"}, c.arrays), "not declared"),
    ],
)
def test_a_faulty_update_does_not_count(
    change, reason: str, fleet: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = config_text(fleet, rounds=1).replace("participation = 0.7", "participation = 1.0")
    grid: Loopback = loopback(fleet, tmp_path / "state")

    def tamper(kind: str, node: int, reply: bytes) -> bytes:
        return pack(change(unpack(reply))) if kind == "train" and node == 1 else reply

    grid.tamper = tamper
    run = deployed(text, grid, tmp_path / "run")
    assert column(run, "replied").count(True) == 3
    assert reason in caplog.text


def test_another_vehicles_name_is_turned_away(fleet: Path, tmp_path: Path) -> None:
    text = config_text(fleet, rounds=1).replace("enrolment_seconds = 5", "enrolment_seconds = 1")
    grid = loopback(fleet, tmp_path / "state")
    grid.names = {1: "somebody else"}
    with pytest.raises(RunError, match="3 of 4 vehicles enrolled"):
        deployed(text, grid, tmp_path / "run")
