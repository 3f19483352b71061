"""Hills learned from energy, held against hills that are known."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.climb import trip_rise_m
from fedwatt.elevation.grid import Grid, find
from fedwatt.elevation.learn import learn, learn_alone
from fedwatt.elevation.normal_equations import (
    Contribution,
    add,
    conjugate_gradients,
    contribution,
    factorised,
    neighbour_ties,
    solve_map,
    system,
)
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Survey, residual, validation_errors_wh
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.synthetic.town import (
    CENTRE_LATITUDE_DEG,
    CENTRE_LONGITUDE_DEG,
    EARTH_RADIUS_M,
    town,
)
from fedwatt.telemetry import Trip
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from tests.elevation.toys import DEGREE_M, fleet, hill_m, survey

GRID = Grid(cell_m=80.0)
DATA = DataSettings(features="speed")
OPEN = ElevationSettings(minimum_vehicles=1, private=False)


def truth_m(field):
    latitude, longitude = field.grid.positions(field.keys)
    east = (longitude + 83) * DEGREE_M * np.cos(np.radians(42))
    return hill_m(east, (latitude - 42) * DEGREE_M)


@pytest.fixture(scope="module")
def vehicles():
    return fleet(6)


@pytest.fixture(scope="module")
def messages(vehicles) -> list[Contribution]:
    surveys = [survey(v, GRID, 8, DATA) for v in vehicles]
    return [contribution(vehicle_survey, residual(vehicle_survey)) for vehicle_survey in surveys]


def test_toy_hills_are_found(vehicles):
    field = learn(vehicles, OPEN, DATA).shared
    often = field.passes >= 5
    elevation_m = field.elevation_m[often]
    true = truth_m(field)[often]
    assert np.corrcoef(elevation_m, true)[0, 1] > 0.97
    # In metres, not only in shape: a slope of 1 up to what the prior shrinks.
    assert np.polyfit(true, elevation_m, 1)[0] == pytest.approx(1.0, abs=0.15)


def test_the_synthetic_towns_hills_are_found():
    vehicles = list(synthetic_vehicles(8, seed=0, trips=30))
    field = learn(vehicles, OPEN, DataSettings()).shared
    latitude, longitude = field.grid.positions(field.keys)
    shrink = np.cos(np.radians(CENTRE_LATITUDE_DEG))
    east = np.radians(longitude - CENTRE_LONGITUDE_DEG) * EARTH_RADIUS_M * shrink
    north = np.radians(latitude - CENTRE_LATITUDE_DEG) * EARTH_RADIUS_M
    true = town(0).landscape.elevation_m(east, north)
    often = np.flatnonzero(field.passes >= 5)
    first, other = np.random.default_rng(0).choice(often, (2, 4000))
    same = (field.region[first] == field.region[other]) & (first != other)
    result = field.elevation_m[first] - field.elevation_m[other]
    assert same.sum() > 1000
    assert np.corrcoef(result[same], (true[first] - true[other])[same])[0, 1] >= 0.95


def test_the_federated_field_is_that_of_the_pooled_data(vehicles, messages):
    """The pooled problem is written down row by row, as if all segments were in one place."""
    federated = solve_map(GRID, add(messages), 0.03)
    keys = federated.keys
    rows = []
    target = []
    for vehicle in vehicles:
        vehicle_survey = survey(vehicle, GRID, 8, DATA)
        residuals = residual(vehicle_survey)
        for segment in np.flatnonzero(vehicle_survey.placed):
            row = np.zeros(len(keys))
            at, _ = find(keys, vehicle_survey.keys[segment])
            reference = vehicle_survey.weights[segment] != 0
            np.add.at(row, at[reference], vehicle_survey.weights[segment][reference])
            rows.append(row * residuals.slope_wh_per_m[segment] / residuals.noise_wh)
            target.append(residuals.residual_wh[segment] / residuals.noise_wh)
    ties = neighbour_ties(GRID, keys).toarray() / (0.03 * 80)
    anchor = np.eye(len(keys)) / 300
    stacked = np.vstack([np.array(rows), ties, anchor])
    goal = np.concatenate([target, np.zeros(len(ties) + len(anchor))])
    pooled = np.linalg.lstsq(stacked, goal, rcond=None)[0]
    mean = np.bincount(federated.region, pooled) / np.bincount(federated.region)
    assert federated.elevation_m == pytest.approx(pooled - mean[federated.region], abs=1e-8)


def test_conjugate_gradients_agree_with_the_factorisation(messages, monkeypatch):
    monkeypatch.setattr("fedwatt.elevation.normal_equations.TOLERANCE", 1e-12)
    equations = system(GRID, add(messages), 0.03)
    direct = factorised(equations.matrix)(equations.right)
    solution = conjugate_gradients(GRID, equations)
    assert solution == pytest.approx(direct, abs=1e-6)


def test_sums_add_in_any_order_and_late_vehicles_join(messages):
    at_once = add(messages)
    later = add([add(messages[3:]), *messages[:3]])
    assert (later.keys == at_once.keys).all()
    assert later.right == pytest.approx(at_once.right, abs=1e-9)
    assert abs(later.matrix - at_once.matrix).max() < 1e-9
    assert (later.vehicles == at_once.vehicles).all()


def test_towns_far_apart_are_regions_of_one_field():
    here = fleet(2)
    present = fleet(2, latitude=-33.0, longitude=151.0)
    present = [replace(v, name=f"far-{v.name}") for v in present]
    field = learn([*here, *present], OPEN, DATA).shared
    latitude, _ = field.grid.positions(field.keys)
    assert not set(field.region[latitude > 0]) & set(field.region[latitude < 0])
    alone = learn(here, OPEN, DATA).shared
    assert field.elevation_m[latitude > 0] == pytest.approx(alone.elevation_m, abs=1e-6)


def test_test_trips_change_no_field(vehicles):
    """Energy of test trips may be anything: fields are learned and chosen without it."""
    from fedwatt.windows.client import split_of_trips

    def spoiled(vehicle):
        split = split_of_trips(vehicle, DATA)
        trips = [
            trip
            if split[trip.name] != "test"
            else Trip(trip.name, {**trip.channels, "energy_wh": 99 - trip.channels["energy_wh"]})
            for trip in vehicle.trips
        ]
        return replace(vehicle, trips=tuple(trips))

    both = ElevationSettings(minimum_vehicles=3)
    learned = learn(vehicles, both, DATA)
    other = learn([spoiled(v) for v in vehicles], both, DATA)
    for name in learned.maps:
        assert (learned.maps[name].elevation_m == other.maps[name].elevation_m).all()


def test_climb_read_on_test_trips_is_the_true_one(vehicles):
    field = learn(vehicles, OPEN, DATA).shared
    trip = vehicles[0].trips[0]
    latitude = trip.channels["latitude_deg"]
    longitude = trip.channels["longitude_deg"]
    east = (longitude + 83) * DEGREE_M * np.cos(np.radians(42))
    true = np.diff(hill_m(east, (latitude - 42) * DEGREE_M), prepend=np.nan)[1:]
    assert np.corrcoef(trip_rise_m(trip, field)[1:], true)[0, 1] > 0.9


def test_wrong_hills_look_harmless_only_to_a_model_that_may_value_them_at_nothing():
    """A level road of no energy at all, told to go a metre up and a metre down by turns."""
    many = 200
    events = np.where(np.arange(many) % 2, 1.0, -1.0)
    nowhere = np.zeros((many, 8))
    vehicle_survey = Survey(
        physics=np.ones((many, 1)),
        energy_wh=np.zeros(many),
        keys=nowhere.astype(np.int64),
        weights=nowhere,
        placed=np.ones(many, dtype=bool),
        wh_per_m=4.0,
    )
    vehicle_survey, climbs_m = replace(vehicle_survey, validation=vehicle_survey), (events, events)
    assert validation_errors_wh(vehicle_survey, climbs_m) == pytest.approx(
        np.zeros(many), abs=1e-12
    )
    # Four Wh a metre, and nothing else to explain them away.
    errors = validation_errors_wh(vehicle_survey, climbs_m, at_face_value=True)
    assert np.abs(errors) == pytest.approx(np.full(many, 4.0))


MAP_PARTS = ("keys", "elevation_m", "region", "passes", "vehicles")


@pytest.mark.parametrize("changes", [{}, {"minimum_vehicles": 1}, {"private": False}])
def test_a_vehicle_alone_has_the_map_that_it_learns_as_the_only_one_of_a_fleet(vehicles, changes):
    alone = learn_alone(vehicles, ElevationSettings(**changes), DATA)
    assert alone.shared.nodes == 0 and not alone.contributors
    for vehicle in vehicles:
        map_alone = alone.maps[vehicle.name]
        only = learn([vehicle], ElevationSettings(), DATA).maps[vehicle.name]
        assert map_alone.nodes > 0
        assert map_alone.prior == only.prior
        for part in MAP_PARTS:
            assert np.array_equal(getattr(map_alone, part), getattr(only, part)), part


def test_a_vehicle_alone_learns_nothing_from_other_vehicles_or_from_test_trips(vehicles):
    split = split_of_trips(vehicles[0], DATA)

    def spoiled(vehicle, splits):
        trips = tuple(
            replace(t, channels={**t.channels, "energy_wh": -9 * t.channels["energy_wh"]})
            if split[t.name] in splits
            else t
            for t in vehicle.trips
        )
        return replace(vehicle, trips=trips)

    fleets = {
        "as recorded": vehicles[:2],
        "other vehicle": [vehicles[0], spoiled(vehicles[1], {"train", "validation", "test"})],
        "test trips": [spoiled(vehicles[0], {"test"}), vehicles[1]],
    }
    maps = {
        name: learn_alone(alone, ElevationSettings(), DATA).maps[vehicles[0].name]
        for name, alone in fleets.items()
    }
    for name in ("other vehicle", "test trips"):
        for part in MAP_PARTS:
            assert np.array_equal(getattr(maps[name], part), getattr(maps["as recorded"], part)), (
                name
            )


def test_only_learners_have_a_map_alone(vehicles):
    learners = frozenset({vehicles[1].name})
    alone = learn_alone(vehicles[:2], ElevationSettings(), DATA, learners=learners)
    assert alone.maps[vehicles[0].name].nodes == 0
    assert alone.maps[vehicles[1].name].nodes > 0
