"""Three parameters fitted to trips that are known to come from them."""

import numpy as np
import pytest

from benchmarks.leaf_physics import calibrated, trip_energy_wh, with_factors
from fedwatt.synthetic.vehicle import LEAF_2013
from tests.synthetic.test_electrify import a_trip


def test_calibration_finds_the_factors_that_made_the_trips():
    factors = np.array([2.0, 1.3, 1.5])
    vehicle = with_factors(LEAF_2013, factors)
    trips = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        trip = a_trip(int(rng.integers(200, 900)), seed)
        trip["speed_mps"] = trip["speed_mps"] * rng.uniform(0.3, 2.0)
        wh = trip_energy_wh(vehicle, trip) / len(trip["speed_mps"])
        trips.append({**trip, "energy_wh": np.full(len(trip["speed_mps"]), wh)})
    found = calibrated(LEAF_2013, trips)
    # The prior pulls losses a little toward 1, and rolling resistance makes up for it.
    assert found.auxiliary_w / LEAF_2013.auxiliary_w == pytest.approx(2.0, rel=0.1)
    assert found.rolling_coefficient / 0.0095 == pytest.approx(1.3, rel=0.2)
    assert 1.1 < found.drivetrain.copper_w / 8000 < 1.6
    error = [abs(trip_energy_wh(found, t) / t["energy_wh"].sum() - 1) for t in trips]
    assert np.median(error) < 0.01


def test_calibration_on_trips_of_the_model_itself_changes_nothing():
    trips = [a_trip(300, seed) for seed in range(5)]
    exact = [
        {**trip, "energy_wh": np.full(300, trip_energy_wh(LEAF_2013, trip) / 300)} for trip in trips
    ]
    assert calibrated(LEAF_2013, exact).auxiliary_w == pytest.approx(LEAF_2013.auxiliary_w)
