"""Bad, missing and strange positions: never much worse than having no elevation at all."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.climb import trip_rise_m
from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.randomness import generator
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.scaling import ridge
from fedwatt.windows.splits import window_ends, window_means, window_sums
from tests.elevation.toys import DEGREE_M, fleet

DATA = DataSettings(features="speed")
SETTINGS = ElevationSettings(minimum_vehicles=2)


def positions(trip: Trip) -> tuple[np.ndarray, np.ndarray]:
    return trip.channels["latitude_deg"].copy(), trip.channels["longitude_deg"].copy()


def moved(trip: Trip, latitude, longitude) -> Trip:
    return Trip(trip.name, {**trip.channels, "latitude_deg": latitude, "longitude_deg": longitude})


def leaps(trip, rng):
    latitude, longitude = positions(trip)
    for _ in range(8):
        at = rng.integers(0, trip.seconds - 10)
        latitude[at : at + rng.integers(1, 10)] += rng.normal(0, 0.01)
    return moved(trip, latitude, longitude)


def frozen(trip, rng):
    latitude, longitude = positions(trip)
    at = rng.integers(0, trip.seconds // 2)
    latitude[at:], longitude[at:] = latitude[at], longitude[at]
    return moved(trip, latitude, longitude)


def nothing(trip, rng):
    channels = {n: v for n, v in trip.channels.items() if not n.endswith("_deg")}
    return Trip(trip.name, channels)


def tunnel(trip, rng):
    latitude, longitude = positions(trip)
    latitude[100:160] = np.nan
    return moved(trip, latitude, longitude)


def ferry(trip, rng):
    """In the middle the wheels stand for 200 s, energy is 0, and the position goes on."""
    latitude, longitude = positions(trip)
    half = trip.seconds // 2
    still = np.zeros(200)
    drift = np.linspace(0, 0.01, 200)

    def with_stop(values, stop):
        return np.concatenate([values[:half], stop, values[half:]])

    return Trip(
        trip.name,
        {
            "speed_mps": with_stop(trip.channels["speed_mps"], still),
            "energy_wh": with_stop(trip.channels["energy_wh"], still),
            "latitude_deg": with_stop(latitude, latitude[half] + drift),
            "longitude_deg": with_stop(longitude, np.full(200, longitude[half])),
        },
    )


def garage(trip, rng):
    """The first two minutes go round and round under a roof: the fix stays at the gate."""
    latitude, longitude = positions(trip)
    latitude[:120], longitude[:120] = latitude[120], longitude[120]
    return moved(trip, latitude, longitude)


def null_island(trip, rng):
    return moved(trip, np.zeros(trip.seconds), np.zeros(trip.seconds))


def elsewhere(trip, rng):
    """Positions of nowhere near: each trip shifted by its own tens of kilometres."""
    latitude, longitude = positions(trip)
    return moved(trip, latitude + rng.normal(0, 0.3), longitude)


def beside(trip, rng):
    """A kilometre to the north in every trip, with other elevations in each."""
    latitude, longitude = positions(trip)
    return moved(trip, latitude + 1000 / DEGREE_M, longitude)


def wandering(trip, rng):
    """About 30 m beside the street, another 30 m every half minute."""
    latitude, longitude = positions(trip)
    knots = np.arange(0, trip.seconds + 30, 30)
    for values in (latitude, longitude):
        values += (
            np.interp(np.arange(trip.seconds), knots, rng.normal(0, 30, len(knots))) / DEGREE_M
        )
    return moved(trip, latitude, longitude)


def seldom(trip, rng):
    return trip if rng.random() < 0.15 else nothing(trip, rng)


FAULTS = (
    leaps,
    frozen,
    nothing,
    seldom,
    tunnel,
    ferry,
    garage,
    null_island,
    elsewhere,
    beside,
    wandering,
)


def error_wh(vehicle: Vehicle, field) -> float:
    """Test RMSE of the vehicle's own ridge on window means of speed and climb."""
    split_of = split_of_trips(vehicle, DATA)
    rows: dict[str, list] = {"train": [], "test": [], "validation": []}
    for trip in vehicle.trips:
        rise = np.nan_to_num(trip_rise_m(trip, field))
        columns = (trip.channels["speed_mps"], np.maximum(rise, 0), np.maximum(-rise, 0))
        ends = window_ends(trip.seconds, stride=5)
        means = [window_means(c, ends) for c in columns]
        energy = window_sums(trip.channels["energy_wh"], ends)
        rows[split_of[trip.name]].append(np.stack([*means, energy], axis=1))
    train = np.concatenate(rows["train"])
    test = np.concatenate(rows["test"])
    beta = ridge(train[:, :-1], train[:, -1])
    return float(np.sqrt(np.mean((test[:, :-1] @ beta[:-1] + beta[-1] - test[:, -1]) ** 2)))


def spoiled(vehicle: Vehicle, fault) -> Vehicle:
    rng = generator(0, "fault", vehicle.name)
    return replace(vehicle, trips=tuple(fault(trip, rng) for trip in vehicle.trips))


@pytest.fixture(scope="module")
def sound() -> list[Vehicle]:
    return fleet(5, trips=20)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_spoiled_vehicle_is_not_worse_off_nor_are_the_others(sound, fault):
    vehicles = [spoiled(sound[0], fault), *sound[1:]]
    learned = learn(vehicles, SETTINGS, DATA)
    level = empty_map(Grid())
    for vehicle in vehicles:
        field = learned.maps[vehicle.name]
        assert np.isfinite(field.elevation_m).all()
        assert error_wh(vehicle, field) <= 1.02 * error_wh(vehicle, level)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fleet_in_which_all_are_spoiled_is_not_worse_off(sound, fault):
    vehicles = [spoiled(vehicle, fault) for vehicle in sound]
    learned = learn(vehicles, SETTINGS, DATA)
    with_field = np.mean([error_wh(v, learned.maps[v.name]) ** 2 for v in vehicles])
    without = np.mean([error_wh(v, empty_map(Grid())) ** 2 for v in vehicles])
    assert np.sqrt(with_field) <= 1.02 * np.sqrt(without)


@pytest.mark.parametrize(
    ("latitude", "longitude"), [(89.9, 0.0), (-89.95, 0.0), (0.0, 179.99), (60.0, -0.02)]
)
def test_hills_are_learned_at_the_ends_of_the_map(latitude, longitude):
    vehicles = []
    for vehicle in fleet(4, trips=20, latitude=latitude, longitude=longitude):
        wrapped = [
            moved(t, t.channels["latitude_deg"], (t.channels["longitude_deg"] + 180) % 360 - 180)
            for t in vehicle.trips
        ]
        vehicles.append(replace(vehicle, trips=tuple(wrapped)))
    learned = learn(vehicles, SETTINGS, DATA)
    for vehicle in vehicles:
        better = error_wh(vehicle, learned.maps[vehicle.name])
        assert better < 0.8 * error_wh(vehicle, empty_map(Grid()))
