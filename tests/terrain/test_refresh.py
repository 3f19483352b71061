"""The field learned anew from what a network cannot explain."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.errors import DataError
from fedwatt.fleet import DataSettings, build_client
from fedwatt.fleet.client import split_of_trips
from fedwatt.fleet.windows import window_ends, window_sums
from fedwatt.terrain import Grid, TerrainSettings, empty_field, learn
from fedwatt.terrain.learn import Learned
from fedwatt.terrain.refresh import network_residual, refreshed, window_survey
from fedwatt.terrain.survey import climb_m
from tests.terrain.test_learn import truth_m
from tests.terrain.toys import WH_PER_M, fleet

DATA = DataSettings(features="speed", window=20, stride=5)
OPEN = TerrainSettings(minimum_vehicles=1, private=False, refreshes=0)
GRID = Grid()


@pytest.fixture(scope="module")
def vehicles():
    return fleet(6)


def level_road_wh(vehicle):
    """What a network that knows all but hills says of the training windows."""
    split, found = split_of_trips(vehicle, DATA), []
    for trip in vehicle.trips:
        if split.get(trip.name) == "train":
            ends = window_ends(trip.seconds, length=DATA.window, stride=DATA.stride)
            found.append(window_sums(0.2 * trip.channels["speed_mps"], ends, length=DATA.window))
    return np.concatenate(found)


def test_windows_are_those_of_the_client_in_their_order(vehicles):
    windows, client = window_survey(vehicles[0], GRID, DATA), build_client(vehicles[0], DATA)
    # Labels are float32 and scaled.
    assert windows.energy_wh == pytest.approx(client.energy_wh(client.labels["train"]), abs=1e-3)


def test_the_climb_of_a_window_is_between_its_ends(vehicles):
    field = learn(vehicles, OPEN, DATA).shared
    windows = window_survey(vehicles[0], GRID, DATA)
    climbs = climb_m(windows, field.keys, field.elevation_m)
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
            windows, field = window_survey(vehicle, GRID, DATA), learned.shared
            climbs = climb_m(windows, field.keys, field.elevation_m)
            predicted[vehicle.name] = level_road_wh(vehicle) + WH_PER_M * climbs
        settings = replace(OPEN, forget=0.0)
        learned = refreshed(lambda: vehicles, learned, predicted, settings, DATA)
    field = learned.shared
    often = field.passes >= 20
    found, true = field.elevation_m[often], truth_m(field)[often]
    assert np.corrcoef(found, true)[0, 1] > 0.97
    # In metres too, up to what the prior shrinks.
    assert np.polyfit(true, found, 1)[0] == pytest.approx(1.0, abs=0.1)


def test_a_network_that_explains_everything_leaves_the_climb_it_was_told():
    (vehicle, *_) = vehicles = fleet(3, trips=6)
    field = learn(vehicles, OPEN, DATA).shared
    windows = window_survey(vehicle, GRID, DATA)
    own = network_residual(windows, windows.energy_wh, field, DATA)
    climbs = climb_m(windows, field.keys, field.elevation_m)
    assert own.residual_wh == pytest.approx(WH_PER_M * climbs)
    # Nothing is unexplained: the least noise that is believed, for four windows that say the same.
    assert own.noise_wh == pytest.approx(1e-3 * WH_PER_M * 2)


def test_old_sums_fade_and_late_vehicles_join(vehicles):
    early = learn(vehicles, OPEN, DATA, contributors=frozenset({"car-0", "car-1", "car-2"}))
    predicted = {"car-1": level_road_wh(vehicles[1]), "car-5": level_road_wh(vehicles[5])}

    def after(forget):
        settings = replace(OPEN, forget=forget)
        return refreshed(lambda: vehicles, early, predicted, settings, DATA)

    half, none = after(0.5), after(0.0)
    assert half.contributors == {"car-0", "car-1", "car-2", "car-5"}
    at = np.searchsorted(half.sums.keys, early.sums.keys)
    gone = half.sums.right[at] - none.sums.right[at]
    assert gone == pytest.approx(0.5 * early.sums.right, abs=1e-9)
    # car-1 contributed twice and is one vehicle still; the four that ever did are counted.
    assert half.shared.vehicles.max() <= 4
    assert half.shared.nodes > early.shared.nodes
    assert half.own["car-3"] is half.shared


def test_predictions_of_other_windows_are_refused(vehicles):
    windows = window_survey(vehicles[0], GRID, DATA)
    with pytest.raises(DataError, match="3 predictions are for"):
        network_residual(windows, np.zeros(3), empty_field(GRID), DATA)
