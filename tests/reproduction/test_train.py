"""Trainings of a cell: federations, controls, the length of fractional steps."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from fedwatt.federation import Federation, Training
from fedwatt.federation.participation import participants
from fedwatt.methods import get
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings
from reproduction.cell import Cell
from reproduction.lab import Lab, grouped
from reproduction.record import ROUNDS, VEHICLES, Record, columns_of
from reproduction.train import pooled_client, step_scale, train_group
from reproduction.tuning import score
from tests.reproduction.small import TINY, Counting, cells_of_a_run


@pytest.fixture(scope="module")
def small_fleet():
    return synthetic_fleet(3, trips=4, settings=DataSettings(stride=20, evaluation_stride=60))


def test_step_scale_of_a_constant_preconditioner_is_that_constant(small_fleet) -> None:
    federation = Federation(small_fleet, training=Training(rounds=1, participation=1.0, batch=16))
    start, _ = federation.start(get("fedavg"))
    half = get("fo-fedavg", p_min=0.5, p_max=0.5)
    scale = step_scale(federation, half, {0: start.weights})
    assert scale == pytest.approx({"length": 0.5, "coordinate": 0.5}, rel=1e-5)  # float32
    fractional = step_scale(federation, get("fo-fedavg"), {0: start.weights})
    assert 0.2 <= fractional["coordinate"] <= fractional["length"] < 0.7


def test_pooling_keeps_every_window_and_label(small_fleet) -> None:
    pooled = pooled_client(small_fleet.clients)
    assert len(pooled.ends["train"]) == small_fleet.windows("train")
    last = small_fleet.clients[-1]
    end = pooled.ends["train"][-1]
    assert np.array_equal(pooled.series[end], last.series[last.ends["train"][-1]])
    assert pooled.labels["test"][-1] == last.labels["test"][-1]


def test_one_vehicle_alone_is_a_federation_of_one(tmp_path) -> None:
    alone = Cell(dataset="synthetic", method="fedavg", vehicles=1, participation=1.0, work="local")
    lab = Lab(TINY, tmp_path, device="cpu")
    lab.run([alone, replace(alone, work="federated")], Counting())
    record = lab.get(alone)
    federated = lab.get(replace(alone, work="federated"))
    assert record.final("test_rmse") == federated.final("test_rmse")


@pytest.mark.parametrize("work", ["local", "pooled", "federated"])
def test_a_control_that_diverges_is_told_as_diverged(tmp_path, work: str) -> None:
    wild = Cell(dataset="synthetic", method="fedavg", vehicles=2, participation=1.0, work=work)
    wild = wild.with_settings({"learning_rate": 1e4})
    lab = Lab(TINY, tmp_path, device="cpu")
    lab.run([wild], Counting())
    assert set(lab.get(wild).diverged) == set(TINY.seeds)
    assert lab.get(wild).final("test_rmse") == {}


@pytest.mark.parametrize("purpose", ["trial", "result"])
def test_a_seed_that_diverges_between_two_evaluations_is_told(small_fleet, purpose: str) -> None:
    """The last vehicle trains on nothing finite: a seed diverges in the round that draws it."""
    *sound, last = small_fleet.clients
    nothing = np.full_like(last.labels["train"], np.nan)
    wild = replace(last, labels={**last.labels, "train": nothing})
    everyone = np.ones(3, dtype=bool)
    rounds = 4
    drawn = {
        seed: [t for t in range(rounds) if 2 in participants(seed, t, everyone, 0.3)]
        for seed in range(60)
    }
    well = next(seed for seed, at in drawn.items() if not at)
    ill = next(seed for seed, at in drawn.items() if at and at[0] in (0, 1))
    cell = Cell(dataset="synthetic", method="fedavg", vehicles=3, participation=0.3)
    cell = replace(cell, purpose=purpose, rounds=rounds, seeds=(well, ill))
    fleet = replace(small_fleet, clients=(*sound, wild))
    scale = replace(TINY, evaluate_every=rounds)
    (record,) = train_group([cell], scale, fleet, "cpu", lambda done, rounds: None)
    assert record.diverged == {ill: drawn[ill][0] + 1}
    assert set(record.final("validation_rmse")) == {well}
    assert score(record) == inf


def test_seeds_without_their_last_rows_and_blow_ups_have_diverged() -> None:
    rows = [
        {"seed": seed, "round": at, "test_rmse": error, "validation_rmse": error, "diverged": False}
        for seed, errors in {1: (90.0, 60.0, 50.0), 2: (90.0,), 3: (90.0, 60.0, 91.0)}.items()
        for at, error in zip((0, 100, 300), errors, strict=False)
    ]
    cell = Cell(dataset="ved", method="scaffold", seeds=(1, 2, 3, 4))
    record = Record(cell, {}, columns_of(rows, ROUNDS), columns_of([], VEHICLES))
    assert record.diverged == {2: 100, 3: 300, 4: 100}
    assert record.final("test_rmse") == {1: 50.0}
    assert score(record) == inf


def test_cells_in_one_stack_reach_what_each_reaches_alone(lab) -> None:
    fo = cells_of_a_run()[0]
    slow = fo.with_settings({"learning_rate": 0.01})
    small = replace(fo, method="fedavg")
    assert grouped([fo, small, slow, replace(fo, purpose="time")], TINY) == [
        [fo, slow],
        [small],
        [replace(fo, purpose="time")],
    ]
    fleet = lab.fleet(fo)
    both = train_group([fo, slow], TINY, fleet, "cpu", lambda done, rounds: None)
    alone = lab.get(fo)
    assert both[0].rounds["test_rmse"] == pytest.approx(alone.rounds["test_rmse"], rel=1e-4)
    assert both[1].final("test_rmse") != both[0].final("test_rmse")
    assert both[0].facts["step_scale"] == pytest.approx(alone.facts["step_scale"], rel=1e-3)
