"""Coupling is read in the round that the paper names: the model of t is probed in row t + 1."""

from dataclasses import dataclass

import numpy as np
import pytest

from reproduction.catalogue import STUDIES
from reproduction.cell import Cell
from reproduction.judges import JUDGES
from reproduction.record import MADE_WITH, Record
from reproduction.scale import SCALES
from reproduction.study import Setting
from tests.reproduction.records import PROVENANCE

VEHICLES = 8
SMOKE = SCALES["smoke"]  # 6 rounds: t = 20 of 300 is round 1, 50 is 1, 100 is 2 and 200 is 4

SETTING = Setting(SMOKE, ("synthetic",), (), "synthetic")


def record(cell: Cell, drift: dict[int, int]) -> Record:
    """Eight vehicles of roughness 1 to 8; the drift of a round is that times `drift`, else 1."""
    rounds = np.arange(1, SMOKE.rounds + 1)
    rough = np.arange(1.0, VEHICLES + 1)
    signs = np.array([drift.get(int(round), 0) for round in rounds])
    vehicles = {
        "seed": np.ones(rounds.size * VEHICLES, dtype=int),
        "round": np.repeat(rounds, VEHICLES),
        "vehicle": np.tile([f"car-{k}" for k in range(VEHICLES)], rounds.size),
        "roughness": np.tile(rough, rounds.size),
        "drift": 10 + np.repeat(signs, VEHICLES) * np.tile(rough, rounds.size),
        "pull": np.full(rounds.size * VEHICLES, 0.05),
    }
    row = {name: np.ones(rounds.size) for name in ("drift_mean", "drift_cv", "test_rmse")}
    row |= {"seed": np.ones(rounds.size, dtype=int), "round": rounds}
    row |= {"diverged": np.zeros(rounds.size, dtype=bool)}
    row |= {"participants": np.full(rounds.size, VEHICLES)}
    windows = {"train": 1, "test": 1}
    fleet = {"source": "toy", "vehicles": VEHICLES, "windows": windows}
    fleet |= {"labels": {"measured": 0, "simulated": VEHICLES}}
    facts = {"fleet": fleet, "device": "cpu", "pull": 0.05, "flat": 0.0, MADE_WITH: PROVENANCE}
    return Record(cell, facts, row, vehicles)


@dataclass(frozen=True)
class Recorded:
    """A view in which every cell has one and the same outcome."""

    drift: dict[int, int]
    setting: Setting = SETTING

    def get(self, cell: Cell) -> Record:
        return record(cell, self.drift)


def first_number(study: str, view: Recorded) -> float:
    """The first method's Pearson correlation."""
    (block,) = STUDIES[study].show(view).blocks
    return block.table.rows[0][1].mean


def test_coupling_is_that_of_the_round_after_t_100() -> None:
    # Row 3 belongs to t = 2, which stands for 100. The rows beside it say the contrary.
    view = Recorded({2: -1, 3: 1, 4: -1})
    assert first_number("coupling", view) == pytest.approx(1)


def test_the_claim_on_drift_reads_the_same_round() -> None:
    view = Recorded({2: -1, 3: 1, 4: -1})
    _, _, sentences = JUDGES["C1"](view, "synthetic", view.get)
    assert "correlation of roughness with drift at t = 100 is 1.00" in " ".join(sentences)


def test_later_drift_begins_after_t_50_and_ends_with_t_100() -> None:
    # Rows 2 (t = 50) and 3 (t = 100) count, and the steeper one decides; beside them all is steeper
    # the other way.
    for shifts in ({2: 3, 3: -1}, {2: -1, 3: 3}):
        view = Recorded({1: -9, **shifts, 4: -9})
        assert first_number("early-roughness", view) == pytest.approx(1)
