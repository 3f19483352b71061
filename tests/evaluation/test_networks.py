"""Networks without a federation: alone means alone, pooled means all of it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedwatt.evaluation import REFERENCES, reference_rows
from fedwatt.evaluation import networks as networks_module
from fedwatt.evaluation.networks import alone_predictions, initial_models, pooled_predictions
from fedwatt.federation import Federation, Training
from fedwatt.models import MLP
from tests.federation.toys import random_fleet

TRAINING = Training(rounds=4, participation=0.5, batch=4, rate=0.1, precision="float64")


def federation(fleet, **changes) -> Federation:
    model = MLP(fleet.window, len(fleet.features), (4,))
    return Federation(fleet, model, training=replace(TRAINING, **changes), seeds=(1, 2))


def test_a_vehicle_alone_is_the_same_in_any_fleet():
    fleet = random_fleet((70, 33, 50))
    alone = replace(fleet, clients=fleet.clients[1:2])
    one = alone_predictions([federation(alone)], [0], 0.5)
    among = alone_predictions([federation(fleet)], [1], 0.5)
    # Stacks of other sizes multiply in another order: float64, so 1e-12.
    assert one == pytest.approx(among, abs=1e-12)
    assert one.shape == (2, len(alone.clients[0].ends["test"]))


def test_a_vehicle_alone_takes_its_share_of_the_rounds(monkeypatch):
    steps = []

    def counted(job):
        steps.append((job.rate, job.steps))
        return torch.zeros_like(job.anchor)

    monkeypatch.setattr(networks_module, "train", counted)
    fleet = random_fleet((70,))
    own = federation(fleet)
    alone_predictions([own], [0], 0.5)
    each = -(-len(fleet.clients[0].ends["train"]) // 4)
    # Half of four rounds, at the rates of rounds 0 and 2, for two seeds at two rates.
    rates = [factor * own.terms.rate(t) for factor in networks_module.RATES for t in (0, 2)]
    assert steps == [(pytest.approx(rate), (each, each)) for rate in rates]


def test_one_network_is_trained_on_the_windows_of_all(monkeypatch):
    drawn = []

    def recorded(job):
        drawn.append(job.batches.draws[0].windows)
        starts, _, share = job.batches.tensors
        seen.update(starts[share > 0].tolist())
        return torch.zeros_like(job.anchor)

    seen: set[int] = set()
    monkeypatch.setattr(networks_module, "train", recorded)
    fleet = random_fleet((70, 33, 50))
    fleet = replace(fleet, clients=(*fleet.clients[:2], replace(fleet.clients[2], held_out=True)))
    own = federation(fleet, rounds=8, participation=1.0)
    pooled_predictions(own, [0, 1], 1.0)
    every = sum(len(client.ends["train"]) for client in fleet.clients[:2])
    assert set(drawn) == {every}
    wanted = own.pool.train.of([0, 1]).starts.tolist()
    assert seen == set(wanted)


def test_training_helps_and_nothing_diverges_into_the_rows():
    fleet = random_fleet((70, 33, 50))
    learnable = tuple(
        replace(c, labels={s: c.series[c.ends[s], 0].astype(np.float32) for s in c.ends})
        for c in fleet.clients
    )
    own = federation(replace(fleet, clients=learnable), rounds=40)
    begun = own.prediction_rows(
        networks_module.predict(own.model, initial_models(own), own.pool, own.pool.test)
    )
    rows = reference_rows(own, 0.5)

    def mean(found):
        return np.mean([row["rmse"] for row in found if row["stratum"] == "all"])

    by_name = {name: [row for row in rows if row["reference"] == name] for name in REFERENCES}
    assert mean(by_name["network"]) < 0.7 * mean(begun)
    assert mean(by_name["pooled"]) < 0.7 * mean(begun)
    assert {row["seed"] for row in by_name["network"]} == {1, 2}
    assert {row["seed"] for row in by_name["ridge"]} == {0}


def test_held_out_vehicles_have_no_reference():
    fleet = random_fleet((70, 33, 50))
    fleet = replace(fleet, clients=(replace(fleet.clients[0], held_out=True), *fleet.clients[1:]))
    rows = reference_rows(federation(fleet), 0.5)
    assert {row["vehicle"] for row in rows} == {client.name for client in fleet.clients[1:]}
