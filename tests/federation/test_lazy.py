"""Rounds of vehicles that are made when they take part."""

import numpy as np
import pytest
import torch

from fedwatt.federation import Asynchronous, Availability, Federation, Training
from fedwatt.federation.participation import (
    first_available,
    lost_replies,
    next_available,
    participants,
)
from fedwatt.randomness import generator
from fedwatt.synthetic import synthetic_fleet
from fedwatt.synthetic.fleet import TownVehicles
from fedwatt.windows import lazy

TRAINING = Training(rounds=2, participation=0.5, steps=3, batch=16)
LOSSY = Availability(reply_loss=0.3, p_leave=0.2, p_join=0.5, speeds=(1.0, 0.5))


@pytest.mark.parametrize("method", ["fo-ri-fedavg", "ditto"])
def test_a_round_is_that_of_the_same_vehicles_made_ahead(method):
    result = []
    for fleet in (synthetic_fleet(6, trips=3), TownVehicles(6, 0, 3).lazy_fleet()):
        federation = Federation(
            fleet, training=TRAINING, availability=LOSSY, seeds=(1, 2), device="cpu"
        )
        result.append(federation.train(method))
    assert torch.equal(result[0].state.weights, result[1].state.weights)
    assert repr(result[0].history.rounds) == repr(result[1].history.rounds)
    assert repr(result[0].history.clients) == repr(result[1].history.clients)


def test_a_buffer_takes_vehicles_on_demand():
    result = []
    for fleet in (synthetic_fleet(5, trips=3), TownVehicles(5, 0, 3).lazy_fleet()):
        buffered = Asynchronous(buffer=2, concurrency=3)
        federation = Federation(fleet, training=TRAINING, asynchronous=buffered, device="cpu")
        result.append(federation.train("fedavg").state.weights)
    assert torch.equal(*result)


def test_only_a_sample_and_the_participants_are_ever_made(monkeypatch):
    monkeypatch.setattr("fedwatt.federation.state.DENSE_BYTES", 0)
    monkeypatch.setattr(lazy, "SAMPLE", 30)
    fleet = TownVehicles(100_000, 0, 3).lazy_fleet()
    training = Training(rounds=3, participation=1e-4, steps=1, evaluate_vehicles=20)
    federation = Federation(fleet, training=training, device="cpu")
    trained = federation.train("scaffold")
    assert len(fleet.clients.stay) == 30 and len(fleet.clients.here) == 10
    rows = trained.history.clients
    assert len(rows) == 30
    (table,) = trained.state.client_state.values()
    assert sorted(fleet.name(k) for k in table.rows[0]) == sorted({r["vehicle"] for r in rows})
    last = trained.history.rounds[-1]
    assert 0 < last["test_rmse_margin"] < last["test_rmse"]
    assert {row["vehicle"] for row in federation.vehicle_rows(trained.state.weights)} == {
        fleet.name(k) for k in fleet.sample(20)
    }


def test_draws_that_decide_nothing_are_left_out_and_others_stay():
    ideal = Availability()
    lossy = LOSSY
    assert first_available(1, 9, ideal).all() and not lost_replies(1, 0, 9, ideal).any()
    present = first_available(1, 9, lossy)
    draw = generator(1, "churn", 4).random(9)
    assert np.array_equal(
        next_available(1, 4, present, lossy), np.where(present, draw >= 0.2, draw < 0.5)
    )
    assert next_available(1, 4, ~present, ideal).tolist() == (~present).tolist()
    for count in (40, 100_000):
        rng = generator(3, "participation", 2)
        chosen = rng.choice(np.arange(count), size=count // 10, replace=False)
        everybody = np.ones(count, dtype=bool)
        assert np.array_equal(participants(3, 2, everybody, 0.1), np.sort(chosen))


def test_no_vehicle_of_a_round_is_made_twice_for_it(monkeypatch):
    """Vehicles of the next round are made while this one trains, and stay until it begins."""
    made: list[list[int]] = []
    make = lazy.Workers.make

    def noted(workers, maker, settings, places):
        made.append(sorted(places))
        return make(workers, maker, settings, places)

    monkeypatch.setattr(lazy.Workers, "make", noted)
    monkeypatch.setattr(lazy, "SAMPLE", 2)
    fleet = TownVehicles(400, 0, 3).lazy_fleet()
    training = Training(rounds=4, participation=0.01, steps=1, evaluate_every=4)
    trained = Federation(fleet, training=training, device="cpu").train("fedavg")
    requests = [row["vehicle"] for row in trained.history.clients]
    often = [fleet.name(place) for places in made for place in places]
    sampled = {fleet.name(place) for place in fleet.sample(2)}
    for vehicle in set(requests) - sampled:
        assert often.count(vehicle) <= requests.count(vehicle)
