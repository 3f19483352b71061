"""Cells on one machine within a given time."""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from reproduction.batch import STEP_S, core_seconds, write_plan
from reproduction.cell import Cell, key_of
from reproduction.record import read_records
from reproduction.scale import SCALES


def test_a_plan_is_carried_out_with_what_it_follows(tmp_path) -> None:
    fedavg = Cell(dataset="synthetic", method="fedavg", vehicles=3, seeds=(1,))
    matched = replace(fedavg, follow="matched rate")
    trial = replace(fedavg, purpose="trial", seeds=(1, 2))  # of several seeds: a core's, too
    write_plan(tmp_path / "plan.json", [matched, trial])
    command = ["-m", "reproduction.batch", str(tmp_path / "plan.json"), "--scale", "smoke"]
    places = ["--out", str(tmp_path / "out"), "--records", str(tmp_path / "records")]
    usual = ["--stacks", "0", "--cores", "1", "--seconds", "300"]
    subprocess.run([sys.executable, *command, *places, *usual], check=True, timeout=300)
    found = read_records(tmp_path / "records")
    fo = replace(fedavg, method="fo-fedavg")
    assert {key_of(own, SCALES["smoke"]) for own in (fo, trial)} < set(found) and len(found) == 3
    (rate,) = (dict(r.cell.settings)["rate"] for r in found.values() if r.cell.settings)
    assert 0.005 < rate < 0.05
    assert json.loads((tmp_path / "plan.json").read_text())[0]["follow"] == "matched rate"


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        # Ten vehicles with 100 windows are two batches each; 3 take part, 5 seeds, 300 rounds.
        ({}, 9_000),
        ({"epochs": 5, "seeds": (1,), "rounds": 20}, 600),
        ({"participation": 1.0, "seeds": (1, 2)}, 12_000),
    ],
)
def test_a_core_is_asked_for_what_it_can_finish(changed, steps) -> None:
    client = SimpleNamespace(ends={"train": range(100)})
    fleet = SimpleNamespace(clients=[client] * 10)
    cell = Cell(dataset="ved", method="fedavg", **changed)
    assert core_seconds(cell, SCALES["paper"], fleet) == pytest.approx(STEP_S * steps)
