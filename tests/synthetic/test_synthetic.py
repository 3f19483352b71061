"""The embedded fleet as vehicles and clients."""

import numpy as np
import pytest

from fedwatt.errors import SettingError
from fedwatt.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.telemetry import STORED
from fedwatt.windows import DataSettings
from tests.windows.toys import same_trips


def test_vehicles_are_named_and_complete():
    vehicles = list(synthetic_vehicles(2, seed=3, trips=4))
    assert [vehicle.name for vehicle in vehicles] == ["car-001", "car-002"]
    for vehicle in vehicles:
        assert [trip.name for trip in vehicle.trips] == [f"trip-00{n}" for n in (1, 2, 3, 4)]
        assert (vehicle.kind, vehicle.labels) == ("passenger", "simulated")
        for trip in vehicle.trips:
            # Climb and descent are read from an elevation field, which a vehicle does not bring.
            read = {"climb_m", "descent_m", "climb_known"}
            assert set(trip.channels) == set(STORED) - read
            assert all(np.isfinite(values).all() for values in trip.channels.values())


def test_a_vehicle_does_not_depend_on_how_many_there_are():
    (alone,) = synthetic_vehicles(1, trips=5)
    first, second, _ = synthetic_vehicles(3, trips=5)
    assert same_trips(alone, first)
    assert not same_trips(first, second)


@pytest.mark.parametrize("features", ["base", "physics", "enriched"])
def test_every_feature_set_builds(features):
    fleet = synthetic_fleet(2, trips=5, settings=DataSettings(features=features))
    for client in fleet.clients:
        assert client.simulated
        assert client.series.shape[1] == len(fleet.features)
        assert np.isfinite(client.series).all()


def test_seeds_make_different_fleets_and_the_same_seed_the_same():
    hashes = [synthetic_fleet(2, seed, trips=4).data_hash() for seed in (0, 1, 0)]
    assert hashes[0] == hashes[2] != hashes[1]


@pytest.mark.parametrize(("vehicles", "trips"), [(0, 5), (-1, 5), (3, 0)])
def test_an_empty_fleet_is_refused_at_once(vehicles, trips):
    with pytest.raises(SettingError, match="at least one"):
        synthetic_vehicles(vehicles, trips=trips)
