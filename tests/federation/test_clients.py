"""The table of a round's vehicles, column by column."""

from math import isnan

import numpy as np
import torch
from pytest import approx

from fedwatt.federation.participation import Call, Members
from fedwatt.federation.records import Clients, clients
from fedwatt.federation.work import Work
from tests.federation.toys import random_fleet

ASKED = (Call(0, 0, 2), Call(0, 1, 4), Call(0, 2, 0), Call(1, 3, 5))
"""Of run 0 two vehicles answer and one is lost; of run 1 one answers with what is not finite."""


def two_rounds() -> Clients:
    answered = (ASKED[3], ASKED[1], ASKED[0])  # a stack has those with the most steps first
    finite = np.array([False, True, True])
    columns = {"drift": [float("nan"), 8.0, 1.0], "roughness": [0.5, 0.2, 0.1]}
    nothing = torch.zeros(3, 1)
    work = Work(answered, nothing, np.ones(3), finite, finite, {}, {}, columns, called=ASKED)
    members = Members(random_fleet((70, 33, 128, 5)), 0)
    return clients(work, 7, (11, 12), members, ())


def test_every_vehicle_that_was_asked_has_its_own_row() -> None:
    rows = two_rounds().rows
    assert [row["seed"] for row in rows] == [11, 11, 11, 12]
    assert [row["windows"] for row in rows] == [70, 33, 128, 5]
    assert {row["round"] for row in rows} == {7}
    assert [row["drift"] for row in rows[:2]] == [1.0, 8.0] and isnan(rows[2]["drift"])
    assert [row["roughness"] for row in rows[:2]] == [0.1, 0.2] and isnan(rows[2]["roughness"])


def test_a_lost_reply_is_not_a_rejected_one() -> None:
    rows = two_rounds().rows
    assert [row["replied"] for row in rows] == [True, True, False, False]
    assert [row["rejected"] for row in rows] == [False, False, False, True]


def test_a_run_counts_its_own_vehicles_alone() -> None:
    entries = dict(available=4, learning_rate=0.1, clock=0.0, agreement=0.0)
    first, second = (two_rounds().training_columns(run, **entries) for run in (0, 1))
    names = ("participants", "replies", "lost", "rejected", "steps")
    assert [first[name] for name in names] == [3, 2, 1, 0, 6]
    assert [second[name] for name in names] == [1, 0, 0, 1, 0]
    assert first["drift_mean"] == 4.5 and first["roughness_mean"] == approx(0.15)
    assert isnan(second["drift_mean"]) and isnan(second["roughness_mean"])


def test_a_vehicle_that_works_against_the_fleet_is_flagged() -> None:
    """All move as far, so only turns count: from the third one on."""
    same = {name: [1.0] * 5 for name in ("steps", "drift", "roughness", "staleness")}
    same |= {"replied": [True] * 5, "rejected": [False] * 5}
    against = {"turns_against": [0.0, 2.0, 3.0, 4.0, float("nan")]}
    flagged = [row["flagged"] for row in Clients(same | against, [0] * 5).with_lengths().rows]
    assert flagged == [False, False, True, True, False]
    rows = Clients(same, [0] * 5).with_lengths().rows  # without `+signals`
    assert [row["flagged"] for row in rows] == [False] * 5


def test_lengths_are_held_against_those_of_the_same_run() -> None:
    """Run 0 moves 1, 2, 2, 4 and 64 a step, run 1 alone moves 100."""
    steps = [1, 2, 1, 1, 1, 1]
    moved = [1.0, 4.0, 2.0, 4.0, 64.0, 100.0]
    columns = {
        "steps": steps,
        "drift": moved,
        "replied": [True] * 6,
        "rejected": [False] * 6,
        "roughness": [0.0] * 6,
        "staleness": [0.0] * 6,
    }
    rows = Clients(columns, [0, 0, 0, 0, 0, 1]).with_lengths().rows
    assert [row["length_ratio"] for row in rows[:5]] == [0.5, 1.0, 1.0, 2.0, 32.0]
    assert [row["flagged"] for row in rows] == [False, False, False, False, True, False]
    assert isnan(rows[5]["length_ratio"])  # one reply cannot be out of line
