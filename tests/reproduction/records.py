"""Records made up by hand, and labs that hold them."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from fedwatt.engine.version import VERSION
from reproduction.cell import Cell, key_of
from reproduction.claims import verdicts
from reproduction.lab import Lab
from reproduction.record import MADE_WITH, ROUNDS, VEHICLES, Record, columns_of
from reproduction.scale import SCALES
from reproduction.study import Setting, View
from reproduction.timing import CONTENDERS
from reproduction.tuning import prerequisites, settled

SCALE = replace(SCALES["paper"], seeds=(1, 2, 3))
VED = Setting(SCALE, ("ved",), (), "ved-electrified")
EXACT = pa.schema([(f.name, pa.float64() if f.type == pa.float32() else f.type) for f in ROUNDS])
"""The columns of rounds at double precision, so that numbers worked out by hand come out."""
PROVENANCE = {
    "versions": {"fedwatt": "0.1.0", "torch": "2.13.0"},
    "commit": "0123456789abcdef+changes",
    "engine": VERSION,
    "device": "cpu",
    "driver": "570.1",
    "processor": "one",
    "threads": 2,
    "deterministic": True,
}
PATH = {100: 2.0, 200: 1.5, 300: 1.0}
"""Round → multiple of the final error"""


def made(cell: Cell, level: float = 50.0, diverged: dict[int, int] | None = None, **more) -> Record:
    """A record whose seeds end 0, 0.2, 0.4 … % above `level`, by way of 2 × and 1.5 ×.

    The row in which a seed diverged is its last one, as `train` leaves it.
    """
    rows = []
    for place, seed in enumerate(cell.seeds or (1, 2, 3)):
        end = (diverged or {}).get(seed, 0)
        for at in [at for at in PATH if not end or at < end] + [end] * bool(end):
            lost = at == end
            error = level * PATH.get(at, 1.0) * (1 + place / 500)
            row = {"seed": seed, "round": at, "participants": 3, "diverged": lost}
            row |= {"steps": 60, "best_round": at}
            scores = ("test_rmse", "test_mae", "validation_rmse", "drift_mean", "drift_cv")
            rows.append(row | {name: np.nan if lost else error for name in scores})
    fleet = {
        "source": "made up",
        "vehicles": cell.vehicles or 10,
        "features": ["speed"] * 8,
        "windows": {"train": 1000, "test": 100},
        "labels": {"measured": cell.vehicles or 10, "simulated": 0},
        "hash": "0",
    }
    reply = {"seed": 1, "round": 1, "vehicle": "a", "drift": 1.0, "roughness": 0.0, "pull": 0.01}
    facts = {
        "fleet": fleet,
        "device": "cpu",
        "pull": 0.01,
        "flat": 0.9,
        MADE_WITH: PROVENANCE,
    } | more
    return Record(cell, facts, columns_of(rows, EXACT), columns_of([reply], VEHICLES))


def turns_of(seconds: dict[str, dict[str, float]], rounds: int = 10) -> dict:
    """Turns in which FedAvg and the others take a second a round; `seconds` by engine and name."""
    engines = {
        engine: {
            name: [[method_seconds.get(name, 1.0), 0.0, 0.0, 0.0]] * rounds for name in CONTENDERS
        }
        for engine, method_seconds in seconds.items()
    }
    load = {"before": [0.5, 0.0, 0.0], "after": [1.0, 0.0, 0.0]}
    return {"engines": engines, "rounds": rounds, "cores": 2, "gpu": "", "load": load}


def trials_of(cell: Cell) -> list[Record]:
    """Return the trials before a cell; the second trial of each method is the best."""
    result = []
    seen = Counter[str]()
    for trial in prerequisites(cell, SCALE):
        result.append(made(trial, 40.0 if seen[trial.method] == 1 else 60.0))
        seen[trial.method] += 1
    return result


def lab_of(folder: Path, cells: list[Cell], levels=None, diverged=None, **more) -> Lab:
    """A lab in which cells have run; `levels` and `diverged` by method."""
    lab = Lab(SCALE, folder, device="cpu", setting=VED.table)
    for cell in cells:
        before = trials_of(cell)
        for record in before:
            lab._known.setdefault(key_of(record.cell, SCALE), record)
        concrete = settled(cell, before)
        level = (levels or {}).get(cell.method, 50.0)
        record = made(concrete, level, (diverged or {}).get(cell.method), **more)
        lab._known[key_of(concrete, SCALE)] = record
    return lab


def verdict(lab: Lab, claim: str, setting: Setting = VED):
    (result,) = (v for v in verdicts(View(setting, lab)) if v.claim == claim)
    return result
