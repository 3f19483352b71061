"""The gain is elevation, and nothing that is learned has seen a test trip's energy."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import add_elevation, learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.evaluation import Personalisation, PersonalisedModel, personalise
from fedwatt.federation import Federation, Training
from fedwatt.randomness import generator
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings, build_fleet
from fedwatt.windows.client import Client, split_of_trips
from tests.elevation.test_faults import error_wh, moved
from tests.elevation.toys import fleet

OPEN = ElevationSettings(minimum_vehicles=1, private=False)
SPEED = DataSettings(features="speed")


def shuffled(vehicle: Vehicle) -> Vehicle:
    """Every trip with the positions of another, driven to and fro where that one is shorter."""
    order = generator(0, "shuffled positions", vehicle.name).permutation(len(vehicle.trips))
    trips = []
    for trip, other in zip(vehicle.trips, order, strict=True):
        channels = vehicle.trips[other].channels
        places = [
            np.resize(np.concatenate([channels[name], channels[name][::-1]]), trip.seconds)
            for name in ("latitude_deg", "longitude_deg")
        ]
        trips.append(moved(trip, *places))
    return replace(vehicle, trips=tuple(trips))


def fleet_error_wh(vehicles: list[Vehicle], learned) -> float:
    return float(np.sqrt(np.mean([error_wh(v, learned(v.name)) ** 2 for v in vehicles])))


@pytest.mark.parametrize(
    ("vehicles", "gain"),
    # A ridge on speed alone knows little of the town's traffic, so hills are a smaller part.
    [(fleet(5, trips=20), 0.4), (list(synthetic_vehicles(6, trips=25)), 0.1)],
    ids=["toy hills", "synthetic town"],
)
def test_shuffling_positions_among_trips_destroys_the_gain(vehicles, gain):
    level = fleet_error_wh(vehicles, lambda _: empty_map(Grid()))
    true = fleet_error_wh(vehicles, learn(vehicles, OPEN, SPEED).maps.__getitem__)
    wrong = [shuffled(vehicle) for vehicle in vehicles]
    false = fleet_error_wh(wrong, learn(wrong, OPEN, SPEED).maps.__getitem__)
    assert true < (1 - gain) * level
    assert false > 0.97 * level


def perturbed(vehicle: Vehicle, data: DataSettings) -> Vehicle:
    """Other energy in all test trips."""
    split = split_of_trips(vehicle, data)
    trips = [
        trip
        if split.get(trip.name) != "test"
        else Trip(trip.name, {**trip.channels, "energy_wh": 99 - 3 * trip.channels["energy_wh"]})
        for trip in vehicle.trips
    ]
    return replace(vehicle, trips=tuple(trips))


def test_energy_of_test_trips_changes_no_field_feature_scaler_or_personal_model():
    """From telemetry to personalised weights, twice; only what test trips measured differs."""
    data = DataSettings(features="speed, elevation", window=20, stride=10)
    settings = ElevationSettings(minimum_vehicles=3)
    tune = Personalisation(enabled=True, rates=(0.01,), steps=(5, 10), batch=32)
    true = fleet(5, trips=10)
    seen = []
    for vehicles in (true, [perturbed(vehicle, data) for vehicle in true]):
        learned = learn(vehicles, settings, data)
        built = build_fleet(add_elevation(vehicles, learned), data, "toys")
        training = Training(rounds=2, participation=1.0, precision="float64")
        federation = Federation(built, training=training, seeds=(1,), device="cpu")
        personal_models: list[PersonalisedModel] = []
        weights = federation.train("fedavg").state.best_weights
        personalise(federation, weights, tune, keep=personal_models.append)
        seen.append((learned, built.clients, weights, personal_models))
    (fields, clients, weights, personal_models), (fields2, clients2, weights2, own2) = seen
    for name in fields.maps:
        assert (fields.maps[name].elevation_m == fields2.maps[name].elevation_m).all()
    for client, other in zip(clients, clients2, strict=True):
        assert_equal_but_for_test_labels(client, other)
    assert (weights == weights2).all()
    for model, model2 in zip(personal_models, own2, strict=True):
        assert (model.weights == model2.weights).all()
        assert (model.learning_rate, model.steps) == (model2.learning_rate, model2.steps)
    assert any(model.steps for model in personal_models)


def assert_equal_but_for_test_labels(one: Client, other: Client) -> None:
    assert (one.series == other.series).all()
    assert (one.scaler.center == other.scaler.center).all()
    assert (one.scaler.scale == other.scaler.scale).all()
    assert one.label_center_wh == other.label_center_wh
    assert one.label_scale_wh == other.label_scale_wh
    for split in ("train", "validation"):
        assert (one.labels[split] == other.labels[split]).all()
    assert (one.labels["test"] != other.labels["test"]).any()
