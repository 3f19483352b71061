"""The field learned anew from what a network cannot explain."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.elevation.elevation_map import Field, empty_field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import Learned, learn
from fedwatt.elevation.refresh import given_climb_m, network_residual, refreshed, window_survey
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.statistics import contribution, touched_nodes
from fedwatt.elevation.survey import climb_m, survey
from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings, build_client
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.splits import window_ends, window_sums
from tests.elevation.test_learn import truth_m
from tests.elevation.toys import DEGREE_M, WH_PER_M, fleet

DATA = DataSettings(features="speed", window=20, stride=5)
OPEN = ElevationSettings(source="learn", minimum_vehicles=1, private=False, refreshes=0)
GRID = Grid()


@pytest.fixture(scope="module")
def vehicles():
    return fleet(6)


def level_road_wh(vehicle):
    """What a network that knows all but hills says of the training windows."""
    split = split_of_trips(vehicle, DATA)
    found = []
    for trip in vehicle.trips:
        if split.get(trip.name) == "train":
            ends = window_ends(trip.seconds, length=DATA.window, stride=DATA.stride)
            found.append(window_sums(0.2 * trip.channels["speed_mps"], ends, length=DATA.window))
    return np.concatenate(found)


def test_windows_are_those_of_the_client_in_their_order(vehicles):
    windows = window_survey(vehicles[0], GRID, DATA)
    client = build_client(vehicles[0], DATA)
    # Labels are float32 and scaled.
    assert windows.energy_wh == pytest.approx(client.energy_wh(client.labels["train"]), abs=1e-3)


def test_the_climb_of_a_window_is_between_its_ends(vehicles):
    field = learn(vehicles, OPEN, DATA).shared
    windows = window_survey(vehicles[0], GRID, DATA)
    climbs = climb_m(windows, field)
    trip = next(
        t for t in vehicles[0].trips if split_of_trips(vehicles[0], DATA)[t.name] == "train"
    )
    height, _ = field.read(trip.channels["latitude_deg"], trip.channels["longitude_deg"])
    # The second window ends at second 24 and was entered from second 4; the first has no start.
    assert not windows.placed[0]
    assert climbs[0] == 0
    assert climbs[1] == pytest.approx(height[24] - height[4], abs=1e-9)


def test_a_network_that_knows_all_but_hills_finds_them(vehicles):
    """It learns the hills of each refresh; what it cannot explain yet corrects the next one."""
    level = dict.fromkeys((v.name for v in vehicles), empty_field(GRID))
    learned = Learned(empty_field(GRID), level)
    for _ in range(3):
        predicted = {}
        for vehicle in vehicles:
            told = given_climb_m(vehicle, learned.own[vehicle.name], DATA)
            predicted[vehicle.name] = level_road_wh(vehicle) + WH_PER_M * told
        settings = replace(OPEN, forget=0.0)
        learned = refreshed(lambda: vehicles, learned, predicted, settings, DATA)
    field = learned.shared
    often = field.passes >= 20
    found = field.elevation_m[often]
    true = truth_m(field)[often]
    assert np.corrcoef(found, true)[0, 1] > 0.97
    # In metres too, up to what the prior shrinks.
    assert np.polyfit(true, found, 1)[0] == pytest.approx(1.0, abs=0.1)


def test_a_network_that_explains_everything_leaves_the_climb_it_was_told():
    (vehicle, *_) = vehicles = fleet(3, trips=6)
    field = learn(vehicles, OPEN, DATA).shared
    windows = window_survey(vehicle, GRID, DATA)
    told = given_climb_m(vehicle, field, DATA)
    own = network_residual(windows, windows.energy_wh, told, DATA)
    assert own.residual_wh == pytest.approx(WH_PER_M * told)
    # On known ground that is the difference between a window's ends.
    climbs = climb_m(windows, field)
    assert (np.abs(told - climbs)[climbs != 0] < 1e-9).mean() > 0.9
    # Nothing is unexplained: the least noise that is believed, for four windows that say the same.
    assert own.noise_wh == pytest.approx(1e-3 * WH_PER_M * 2)


def ramp(metres=10.0, split_at=None):
    """A road due east of 1.2 km at 10 m/s that gains 10 m in each 20 s; and its field.

    The field knows the ramp, in one region or, split at an east coordinate, in two with zeros of
    their own.
    """
    grade = metres / 200.0
    seconds = 120
    along = 10.0 * np.arange(seconds)
    east = DEGREE_M * np.cos(np.radians(42.0))
    channels = {
        "speed_mps": np.full(seconds, 10.0),
        "latitude_deg": np.full(seconds, 42.0),
        "longitude_deg": -83.0 + along / east,
        "energy_wh": np.full(seconds, 2.0 + WH_PER_M * 10.0 * grade),
    }
    car = Vehicle(
        "car", tuple(Trip(f"t{i}", channels) for i in range(10)), facts={"mass_kg": 1600.0}
    )
    corners, _ = GRID.corners(channels["latitude_deg"], channels["longitude_deg"])
    keys = np.unique(corners)
    _, longitude = GRID.positions(keys)
    where = (longitude + 83.0) * east
    region = np.zeros(len(keys), dtype=np.int64) if split_at is None else (where > split_at) * 1
    height = grade * where + 1000.0 * region
    ones = np.ones(len(keys))
    return car, Field(GRID, keys, height, region, ones, ones.astype(np.int64))


def settled(windows, own):
    """Metres of climb that a refresh takes each placed window for."""
    return (own.residual_wh / own.slope_wh_per_m)[windows.placed]


@pytest.mark.parametrize("gave_up", [True, False], ids=["own field empty", "own field shared"])
def test_a_refresh_finds_a_hill_of_ten_metres_whatever_the_vehicle_was_told(gave_up):
    """10 m in a window of 20 s: told nothing, the network leaves 10 m; told all, it leaves none."""
    car, shared = ramp()
    windows = window_survey(car, GRID, DATA)
    told = given_climb_m(car, empty_field(GRID) if gave_up else shared, DATA)
    predicted = 20 * 2.0 + WH_PER_M * told
    own = network_residual(windows, predicted, told, DATA)
    # 9.81 m/s² is the same on both sides, so this is exact up to rounding of positions.
    assert settled(windows, own) == pytest.approx(10.0, abs=1e-6)
    field = {"car": empty_field(GRID) if gave_up else shared}
    learned = Learned(shared, field, contributors=frozenset({"car"}))
    fresh = refreshed(lambda: [car], learned, {"car": predicted}, OPEN, DATA)
    published = touched_nodes(survey(car, GRID, OPEN.segment_s, DATA))
    sent = contribution(windows, own, within=published)
    assert sent.right.any()
    assert fresh.sums.right == pytest.approx(sent.right, rel=1e-9)


def test_between_two_regions_no_climb_was_told_and_none_is_added():
    """The second region's zero is 1,000 m higher, which means nothing."""
    car, shared = ramp(split_at=600.0)
    windows = window_survey(car, GRID, DATA)
    assert np.abs(climb_m(windows, shared)).max() == pytest.approx(10.0, abs=1e-6)
    told = given_climb_m(car, shared, DATA)
    across = told[windows.placed] < 9.9
    assert 0 < across.sum() < len(across)
    own = network_residual(windows, 20 * 2.0 + WH_PER_M * told, told, DATA)
    # What is left of windows across the border is larger than usual and cut as an outlier is; the
    # others are told all they climb.
    assert settled(windows, own)[~across] == pytest.approx(10.0, abs=1e-6)
    assert (settled(windows, own)[across] <= 10.0 + 1e-6).all()


def test_old_sums_fade_and_late_vehicles_join(vehicles):
    early = learn(vehicles, OPEN, DATA, contributors=frozenset({"car-0", "car-1", "car-2"}))
    predicted = {"car-1": level_road_wh(vehicles[1]), "car-5": level_road_wh(vehicles[5])}

    def after(forget):
        settings = replace(OPEN, forget=forget)
        return refreshed(lambda: vehicles, early, predicted, settings, DATA)

    half = after(0.5)
    none = after(0.0)
    assert half.contributors == {"car-0", "car-1", "car-2", "car-5"}
    at = np.searchsorted(half.sums.keys, early.sums.keys)
    gone = half.sums.right[at] - none.sums.right[at]
    assert gone == pytest.approx(0.5 * early.sums.right, abs=1e-9)
    # car-1 contributed twice and is one vehicle still; the four that ever did are counted.
    assert half.shared.vehicles.max() <= 4
    assert half.shared.nodes > early.shared.nodes
    assert half.own["car-3"].nodes > half.shared.nodes


def test_predictions_of_other_windows_are_refused(vehicles):
    windows = window_survey(vehicles[0], GRID, DATA)
    with pytest.raises(DataError, match="3 predictions are for"):
        network_residual(windows, np.zeros(3), np.zeros(len(windows.energy_wh)), DATA)
