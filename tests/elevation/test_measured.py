from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.climb import measured_rise_m, trip_rise_m, vehicle_rise_m
from fedwatt.elevation.compare import compare_with_reference
from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import add_elevation, learn, survey_fleet, with_climb_channels
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Survey, measured_error_m, residual, segment_residual
from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.channels import POSITION
from fedwatt.windows import DataSettings
from tests.elevation.toys import Hills, fleet, without_positions

DATA = DataSettings(features="speed, elevation")
AUTO = ElevationSettings(minimum_vehicles=2)


def changed(vehicle, **channels):
    trips = []
    for trip in vehicle.trips:
        new_channels = {name: make(trip) for name, make in channels.items()}
        trips.append(replace(trip, channels={**trip.channels, **new_channels}))
    return replace(vehicle, trips=tuple(trips))


def truth_m(trip):
    """The toys' ground under a trip."""
    return Hills().elevation_m(*(trip.channels[name] for name in POSITION))


def survey_of(climb, energy_wh, measured):
    many = len(climb)
    return Survey(
        np.zeros((many, 0)),
        energy_wh,
        np.zeros((many, 8), dtype=np.int64),
        np.ones((many, 8)),
        np.ones(many, dtype=bool),
        4.0,
        measured_m=measured,
    )


def test_a_vehicle_knows_how_far_to_trust_what_it_measures():
    rng = np.random.default_rng(1)
    climb = 2 * rng.standard_normal(20_000)
    energy = 4 * (climb + 1.5 * rng.standard_normal(len(climb)))
    measured = climb + 0.8 * rng.standard_normal(len(climb))
    vehicle_survey = survey_of(climb, energy, measured)
    assert measured_error_m(vehicle_survey) == pytest.approx(0.8, abs=0.05)
    # With what either says weighted by its precision, the climb is better known than by each.
    both = segment_residual(vehicle_survey, empty_map(Grid()))
    by_energy = residual(vehicle_survey)
    error = np.std(both.residual_wh / both.slope_wh_per_m - climb)
    assert error < 0.8 < np.std(by_energy.residual_wh / by_energy.slope_wh_per_m - climb)
    # Segments that were not measured keep what energy says.
    half = replace(vehicle_survey, measured_m=np.where(np.arange(len(climb)) % 2, measured, np.nan))
    remaining = segment_residual(half, empty_map(Grid()))
    assert remaining.residual_wh[::2] == pytest.approx(by_energy.residual_wh[::2])


def test_too_few_measured_climbs_count_for_nothing():
    climb = np.linspace(-3, 3, 20)
    assert measured_error_m(survey_of(climb, 4 * climb, climb)) == np.inf


@pytest.fixture(scope="module")
def mixed():
    """Three with positions alone, one with elevation besides, one with elevation and no positions,
    one with neither.
    """
    cars = fleet(6, trips=10)
    truth = [changed(car, elevation_m=truth_m) for car in cars]
    return [*cars[:3], truth[3], without_positions(truth[4]), without_positions(cars[5])]


def test_every_vehicle_reads_what_it_has(mixed):
    learned = learn(mixed, AUTO, DATA)
    reads = {name: field.measured for name, field in learned.maps.items()}
    names = [car.name for car in mixed]
    assert [reads[name] for name in names] == [False, False, False, True, True, False]
    reference = [
        np.mean([trip.channels["climb_known"].mean() for trip in car.trips])
        for car in add_elevation(mixed, learned)
    ]
    assert min(reference[:3]) > 0.5
    assert reference[3:5] == pytest.approx([1.0, 1.0])
    assert reference[5] == 0.0
    # Its elevation helps the others, too.
    alone = learn(mixed, replace(AUTO, source="learn"), DATA)
    both = [compare_with_reference(maps.shared, Hills()).rms_m for maps in (learned, alone)]
    assert both[0] < both[1]


def test_measured_seconds_come_first_and_the_field_fills_the_rest(mixed):
    learned = learn(mixed, AUTO, DATA)
    trip = mixed[3].trips[0]
    field = learned.maps[mixed[3].name]
    half = trip.channels["elevation_m"].copy()
    half[len(half) // 2 :] = np.nan
    partly = replace(trip, channels={**trip.channels, "elevation_m": half})
    rise = vehicle_rise_m(partly, field)
    middle = len(half) // 2
    assert rise[:middle] == pytest.approx(measured_rise_m(trip)[:middle])
    by_field = trip_rise_m(trip, field)[middle:]
    assert rise[middle:] == pytest.approx(by_field, nan_ok=True)


def test_elevation_that_is_wrong_is_not_read(mixed):
    rng = np.random.default_rng(2)
    wrong = changed(mixed[3], elevation_m=lambda t: np.cumsum(rng.standard_normal(t.seconds)))
    learned = learn([*mixed[:3], wrong], AUTO, DATA)
    assert not learned.maps[wrong.name].measured


def test_measured_alone_leaves_the_climb_of_others_unknown_and_says_so(mixed, caplog):
    settings = ElevationSettings(source="measured")
    cars = list(with_climb_channels(lambda: mixed, DATA, settings))
    assert [car.trips[0].channels["climb_known"].mean() for car in cars[2:5]] == [0.0, 1.0, 1.0]
    assert "4 of 6 vehicles have no measured elevation" in caplog.text
    with pytest.raises(DataError, match="No vehicle has a channel 'elevation_m'"):
        list(with_climb_channels(lambda: mixed[:3], DATA, settings))


def test_a_vehicle_of_charge_alone_contributes_nothing():
    flat = {"speed_mps": np.full(90, 10.0), "soc": np.linspace(1, 0.9, 90)}
    charge = Vehicle("charge", tuple(Trip(str(n), flat) for n in range(4)), labels="measured")
    cars = [*fleet(2, trips=4), charge]
    names, surveys = survey_fleet(cars, None, AUTO, DATA)
    assert names[-1] == "charge"
    assert "charge" not in surveys
