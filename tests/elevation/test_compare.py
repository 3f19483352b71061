"""A learned field held against elevation that is known."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.compare import compare
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings
from tests.elevation.toys import DEGREE_M, fleet, hill_m

GRID = Grid()


def with_elevation(vehicle: Vehicle) -> Vehicle:
    """The toy vehicle with the true height of its hills."""
    trips = []
    for trip in vehicle.trips:
        east = (trip.channels["longitude_deg"] + 83) * DEGREE_M * np.cos(np.radians(42))
        north = (trip.channels["latitude_deg"] - 42) * DEGREE_M
        trips.append(Trip(trip.name, {**trip.channels, "elevation_m": 100 + hill_m(east, north)}))
    return replace(vehicle, trips=tuple(trips))


def slope(heights: float) -> ElevationMap:
    """A field that rises `heights` metres a kilometre to the north, whatever its region's zero."""
    vehicles = fleet(2, trips=4)
    places = [(t.channels["latitude_deg"], t.channels["longitude_deg"]) for t in vehicles[0].trips]
    keys = np.unique(np.concatenate([GRID.corners(*place)[0].ravel() for place in places]))
    latitude, _ = GRID.positions(keys)
    elevation = heights * (latitude - 42) * DEGREE_M / 1000
    zero = np.zeros(len(keys), dtype=np.int64)
    return ElevationMap(GRID, keys, elevation - 7, zero, np.ones(len(keys)), zero)


def test_half_the_height_has_half_the_scale_and_the_same_shape():
    (vehicle, _) = fleet(2, trips=4)
    field = slope(20.0)
    half = slope(10.0)
    trips = []
    for trip in vehicle.trips:
        height, _ = field.read(trip.channels["latitude_deg"], trip.channels["longitude_deg"])
        trips.append(Trip(trip.name, {**trip.channels, "elevation_m": 250 + height}))
    measured = [replace(vehicle, trips=tuple(trips))]
    same = compare(field, measured)
    assert same.covered == 1.0
    assert same.seconds == 4 * 400
    assert same.minutes == 4 * 6  # 400 s hold six minutes
    assert same.scale == pytest.approx(1.0)
    # A constant offset is no difference: the field's zero is its own.
    assert same.difference_m == pytest.approx(0.0, abs=1e-9)
    flat = compare(half, measured)
    assert flat.scale == pytest.approx(0.5)
    assert flat.correlation == pytest.approx(1.0)
    assert flat.climb_difference_m == pytest.approx(flat.climb_m / 2)


def test_learned_hills_agree_with_the_true_ones_in_toys_and_in_the_synthetic_town():
    open_to_all = ElevationSettings(minimum_vehicles=1, private=False)
    toys = [with_elevation(vehicle) for vehicle in fleet(6)]
    agreement = compare(learn(toys, open_to_all, DataSettings(features="speed")).shared, toys)
    assert agreement.correlation > 0.95
    town = list(synthetic_vehicles(6, trips=20))
    agreement = compare(learn(town, open_to_all, DataSettings()).shared, town)
    assert agreement.covered > 0.9
    assert agreement.correlation > 0.95
    assert agreement.scale == pytest.approx(1.0, abs=0.1)
    assert agreement.climb_difference_m < 0.3 * agreement.climb_m


def test_without_measured_elevation_there_is_nothing_to_compare():
    with pytest.raises(DataError, match="nothing to compare"):
        compare(slope(1.0), fleet(1))
    far = fleet(1, latitude=10.0)[0]
    trips = [Trip(t.name, {**t.channels, "elevation_m": np.zeros(t.seconds)}) for t in far.trips]
    with pytest.raises(DataError, match="Is it a map of this fleet"):
        compare(slope(1.0), [replace(far, trips=tuple(trips))])
