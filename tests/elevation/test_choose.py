from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.choose import MapErrors, map_errors
from fedwatt.elevation.compare import compare_with_reference
from fedwatt.elevation.elevation_map import Prior
from fedwatt.elevation.learn import learn, shared_map, survey_fleet
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.windows import DataSettings
from tests.elevation.toys import TownGround, fleet

DATA = DataSettings(features="speed")


def test_a_gain_must_be_large_and_sure():
    # 3 % of 200 is 6; a standard error is the root of the spread.
    assert MapErrors(np.array([200.0]), np.array([5.9, 3.0]), np.array([1.0, 1.0])).best == 0
    assert MapErrors(np.array([200.0]), np.array([6.1, 8.0]), np.array([30.0, 70.0])).best == 1
    assert MapErrors(np.array([200.0]), np.array([6.1, 8.0]), np.array([30.0, 60.0])).best == 2
    assert MapErrors(np.array([0.0]), np.zeros(2), np.zeros(2)).best == 0


def test_verdicts_add():
    map_errors_of_one = MapErrors(np.array([1.0]), np.array([2.0]), np.array([3.0]))
    both = map_errors_of_one + MapErrors(np.array([10.0]), np.array([20.0]), np.array([30.0]))
    assert (both.error[0], both.gain[0], both.spread[0]) == (11.0, 22.0, 33.0)


@pytest.fixture(scope="module")
def steep():
    """Few passes over ground far steeper than the usual prior expects."""
    import fedwatt.synthetic.town as landscape
    from fedwatt.synthetic import synthetic_vehicles
    from fedwatt.synthetic.town import town

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(landscape, "SLOPE_RMS", 3 * landscape.SLOPE_RMS)
        town.cache_clear()
        made = list(synthetic_vehicles(6, trips=20))
    town.cache_clear()
    return made


def test_mountains_are_not_flattened(steep):
    usual, chosen = (
        learn(steep, ElevationSettings(source="learn", choose_prior=choose), DATA)
        for choose in (False, True)
    )
    assert usual.shared.prior == Prior(8, 0.03)
    assert chosen.shared.prior.grade > 0.03
    before, after = (
        compare_with_reference(learned.shared, TownGround(3.0)).slope for learned in (usual, chosen)
    )
    assert before < 0.9 < after < 1.05


def test_ordinary_hills_keep_the_usual_field_bit_for_bit():
    cars = fleet(5, trips=8)
    usual, chosen = (
        learn(cars, ElevationSettings(minimum_vehicles=2, choose_prior=choose), DATA)
        for choose in (False, True)
    )
    assert chosen.shared.prior == Prior()
    assert np.array_equal(chosen.shared.elevation_m, usual.shared.elevation_m)


def test_under_masks_the_fleet_chooses_alike(steep):
    from fedwatt.telemetry.channels import POSITION

    places = np.concatenate(
        [[trip.channels[name] for name in POSITION] for car in steep for trip in car.trips], axis=1
    )
    south, west = places.min(axis=1)
    north, east = places.max(axis=1)
    area = (south - 0.001, north + 0.001, west - 0.001, east + 0.001)
    settings = ElevationSettings(source="learn", minimum_vehicles=2, area=area)
    _, surveys = survey_fleet(steep, None, settings, DATA)
    clear = shared_map(list(surveys.values()), settings)
    masked = shared_map(list(surveys.values()), settings, secure=True)
    assert masked.prior == clear.prior
    assert clear.prior.grade > 0.03
    assert np.array_equal(masked.keys, clear.keys)
    assert np.abs(masked.elevation_m - clear.elevation_m).max() < 0.01


def test_a_vehicle_without_validation_trips_has_no_say():
    settings = ElevationSettings()
    _, surveys = survey_fleet(fleet(1, trips=12), None, settings, DATA)
    (first,) = surveys.values()
    field = shared_map([first], ElevationSettings(minimum_vehicles=1, choose_prior=False))
    silent = map_errors(replace(first, validation=None), [field, field], settings)
    assert (silent.error, silent.gain.tolist()) == (0.0, [0.0])
    # Two fields that are the same: no gain, whatever the trips.
    same = map_errors(first, [field, field], replace(settings, private=False))
    assert same.error > 0
    assert same.gain.tolist() == [0.0]
