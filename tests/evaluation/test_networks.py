"""Networks without a federation: alone means alone, pooled means all of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedwatt.evaluation import REFERENCES, baseline_rows
from fedwatt.evaluation import baselines as baselines_module
from fedwatt.evaluation.baselines import (
    RATES,
    Selected,
    centralised_network,
    initial_models,
    local_networks,
    lowest_validation_error,
    ridge_baseline,
)
from fedwatt.evaluation.finetune import Personalisation
from fedwatt.federation import Federation, Training
from fedwatt.federation.evaluate import validation_error
from fedwatt.models import MLP
from tests.federation.toys import random_fleet

TRAINING = Training(rounds=4, participation=0.5, batch=4, learning_rate=0.1, precision="float64")


def federation(fleet, **changes) -> Federation:
    model = MLP(fleet.window, len(fleet.features), (4,))
    return Federation(fleet, model, training=replace(TRAINING, **changes), seeds=(1, 2))


def test_a_local_network_does_not_depend_on_the_other_vehicles():
    fleet = random_fleet((70, 33, 50))
    alone = replace(fleet, clients=fleet.clients[1:2])
    networks = local_networks([federation(alone)], [0], 0.5)
    among = local_networks([federation(fleet)], [1], 0.5)
    # Stacks of other sizes multiply in another order: float64, so 1e-12.
    assert networks.test == pytest.approx(among.test, abs=1e-12)
    assert networks.validation_error == pytest.approx(among.validation_error, abs=1e-12)
    assert networks.test.shape == (2, len(alone.clients[0].ends["test"]))


def test_a_local_network_takes_its_share_of_the_rounds_at_every_learning_rate(monkeypatch):
    jobs = []

    def recorded(job):
        jobs.append((job.learning_rate.ravel().tolist(), job.steps))
        return torch.zeros_like(job.anchor)

    monkeypatch.setattr(baselines_module, "train", recorded)
    fleet = random_fleet((70,))
    simulation = federation(fleet)
    local_networks([simulation], [0], 0.5)
    each = -(-len(fleet.clients[0].ends["train"]) // 4)
    # Half of four rounds, with the learning rates of rounds 0 and 2, for two seeds.
    expected = [
        [factor * simulation.terms.learning_rate(t) for _ in (1, 2) for factor in RATES]
        for t in (0, 2)
    ]
    assert [learning_rate for learning_rate, _ in jobs] == [
        pytest.approx(rates) for rates in expected
    ]
    assert {steps for _, steps in jobs} == {(each,) * (2 * len(RATES))}


def learnable(fleet):
    """The fleet with labels that are a feature of a window's last second."""
    clients = tuple(
        replace(c, labels={s: c.series[c.ends[s], 0].astype(np.float32) for s in c.ends})
        for c in fleet.clients
    )
    return replace(fleet, clients=clients)


@pytest.mark.parametrize("factor", RATES)
def test_the_learning_rate_is_the_one_of_the_lowest_validation_error(monkeypatch, factor):
    """Only the candidate at `factor` moves, towards the labels: it must be chosen."""
    own = federation(learnable(random_fleet((70, 33))), schedule="constant")
    real = baselines_module.train

    def only_one_rate_learns(job):
        learning_rate = factor * TRAINING.learning_rate
        learns = (job.learning_rate / learning_rate - 1).abs() < 1e-9
        return torch.where(learns, real(replace(job, learning_rate=0.1)), 0.0)

    begun = [validation_error(own.model, w, own.pool, 0) for w in initial_models(own)]
    monkeypatch.setattr(baselines_module, "train", only_one_rate_learns)
    local = local_networks([own], [0, 1], 1.0)
    assert (local.validation_error[:, 0] < begun).all()
    central = centralised_network(own, [0, 1], 1.0)
    start = baselines_module.predict(own.model, initial_models(own), own.pool, own.pool.test)
    assert np.abs(central - start).min(axis=1).max() > 0


def test_training_stops_where_validation_is_best(monkeypatch):
    """Steps that lead away from the labels are taken back."""
    simulation = federation(learnable(random_fleet((70,))), schedule="constant", rounds=4)
    real = baselines_module.train
    turns = []

    def good_once_then_bad(job):
        turns.append(job)
        step = real(job)
        return step if len(turns) == 1 else torch.full_like(step, 10.0)

    monkeypatch.setattr(baselines_module, "train", good_once_then_bad)
    stopped = local_networks([simulation], [0], 1.0)
    turns.clear()
    once = federation(learnable(random_fleet((70,))), schedule="constant", rounds=1)
    assert stopped.test == pytest.approx(local_networks([once], [0], 1.0).test, abs=1e-12)


def test_a_local_network_fine_tunes_where_the_federation_does():
    simulation = federation(learnable(random_fleet((70, 33))))
    plain = local_networks([simulation], [0, 1], 0.5)
    settings = Personalisation(enabled=True, rates=(0.03,), steps=(20, 200))
    tuned = local_networks([simulation], [0, 1], 0.5, settings)
    assert (tuned.validation_error <= plain.validation_error).all()
    assert tuned.validation_error.mean() < 0.9 * plain.validation_error.mean()
    off = local_networks([simulation], [0, 1], 0.5, replace(settings, enabled=False))
    assert np.array_equal(off.test, plain.test)


def test_no_choice_looks_at_test_labels():
    """Test labels are made nonsense: every baseline predicts the same as before."""
    fleet = random_fleet((70, 33, 50))
    nonsense = tuple(
        replace(c, labels={**c.labels, "test": -1e3 * c.labels["test"] + 7}) for c in fleet.clients
    )
    settings = Personalisation(enabled=True, rates=(0.03,), steps=(5,))
    before = federation(fleet)
    after = federation(replace(fleet, clients=nonsense))
    vehicles = [0, 1, 2]
    local = [local_networks([moment], vehicles, 0.5, settings) for moment in (before, after)]
    assert np.array_equal(local[0].test, local[1].test)
    assert np.array_equal(local[0].validation_error, local[1].validation_error)
    central = [centralised_network(moment, vehicles, 0.5) for moment in (before, after)]
    assert np.array_equal(*central)
    for first, other in zip(fleet.clients, nonsense, strict=True):
        ridges = [ridge_baseline([client]) for client in (first, other)]
        assert np.array_equal(ridges[0].test, ridges[1].test)
        assert ridges[0].validation_error == ridges[1].validation_error


def test_local_only_is_the_model_of_the_lowest_validation_error():
    # Two vehicles with two and one test windows; two runs of the network, one ridge for both.
    ridge = Selected(np.array([[1.0, 1.0, 1.0]]), np.array([[0.5, 0.2]]))
    network = Selected(
        np.array([[2.0, 2.0, 2.0], [3.0, 3.0, 3.0]]), np.array([[0.4, 0.3], [9, 0.1]])
    )
    local = lowest_validation_error([ridge, network], np.array([0, 2, 3]))
    assert local.test.tolist() == [[2, 2, 1], [1, 1, 3]]
    assert local.validation_error.tolist() == [[0.4, 0.2], [0.5, 0.1]]


def test_one_network_is_trained_on_the_windows_of_all(monkeypatch):
    drawn = []

    def recorded(job):
        drawn.append(job.batches.draws[0].windows)
        starts, _, share = job.batches.tensors
        seen.update(starts[share > 0].tolist())
        return torch.zeros_like(job.anchor)

    seen: set[int] = set()
    monkeypatch.setattr(baselines_module, "train", recorded)
    fleet = random_fleet((70, 33, 50))
    fleet = replace(fleet, clients=(*fleet.clients[:2], replace(fleet.clients[2], held_out=True)))
    simulation = federation(fleet, rounds=8, participation=1.0)
    centralised_network(simulation, [0, 1], 1.0)
    every = sum(len(client.ends["train"]) for client in fleet.clients[:2])
    assert set(drawn) == {every}
    expected = simulation.pool.train.of([0, 1]).starts.tolist()
    assert seen == set(expected)


def test_training_helps_and_nothing_diverges_into_the_rows():
    simulation = federation(learnable(random_fleet((70, 33, 50))), rounds=40)
    begun = simulation.prediction_rows(
        baselines_module.predict(
            simulation.model, initial_models(simulation), simulation.pool, simulation.pool.test
        )
    )
    rows = baseline_rows(simulation, 0.5)

    def mean(result):
        return np.mean([row["rmse"] for row in result if row["stratum"] == "all"])

    by_name = {name: [row for row in rows if row["reference"] == name] for name in REFERENCES}
    assert mean(by_name["network"]) < 0.7 * mean(begun)
    assert mean(by_name["pooled"]) < 0.7 * mean(begun)
    assert {row["seed"] for row in by_name["network"]} == {1, 2}
    assert {row["seed"] for row in by_name["ridge"]} == {0}


def test_held_out_vehicles_have_no_reference():
    fleet = random_fleet((70, 33, 50))
    fleet = replace(fleet, clients=(replace(fleet.clients[0], held_out=True), *fleet.clients[1:]))
    rows = baseline_rows(federation(fleet), 0.5)
    assert {row["vehicle"] for row in rows} == {client.name for client in fleet.clients[1:]}
