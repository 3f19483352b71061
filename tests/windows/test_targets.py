"""Labels of every target worked out by hand, and that no feature sees what makes them."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import FEATURES, DataSettings, build_client, targets
from fedwatt.windows.targets import (
    ENERGY,
    TARGETS,
    Target,
    get_target,
    with_measured_energy,
)

from .toys import make_trip, make_vehicle

TRIP = Trip(
    "7",
    {
        "speed_mps": np.array([20.0, 40.0, 60.0, 0.0, 0.0, 50.0, 50.0]),
        "energy_wh": np.array([1.0, 2.0, -4.0, 8.0, 16.0, 32.0, 64.0]),
        "soc": np.array([0.80, 0.80, 0.79, 0.79, 0.80, 0.78, 0.70]),
    },
)
FACTS = {"pack_capacity_wh": 5000}
SHORT = DataSettings(window=5, evaluation_stride=2)


def windows(name, length=2, **changes):
    ends, labels = replace(get_target(name), **changes).windows(TRIP, FACTS, "car", length=length)
    return ends.tolist(), pytest.approx(labels.tolist())


def test_energy_is_the_sum_of_the_window():
    assert windows("energy") == ([1, 2, 3, 4, 5, 6], [3, -2, 4, 24, 48, 96])


def test_charge_depletion_is_the_fall_since_the_second_before_the_window():
    # The first window begins with its trip, so its first second shows no fall.
    assert windows("soc") == ([1, 2, 3, 4, 5, 6], [0, 1, 1, -1, 1, 10])


def test_energy_from_charge_is_the_fall_times_capacity():
    # 1 % of 5000 Wh is 50 Wh.
    assert windows("energy-from-soc") == ([1, 2, 3, 4, 5, 6], [0, 50, 50, -50, 50, 500])


def test_energy_that_was_not_recorded_comes_from_the_charge():
    parked = {name: values for name, values in TRIP.channels.items() if name != "energy_wh"}
    measured = with_measured_energy(Trip("7", parked), FACTS).channels["energy_wh"]
    assert measured.tolist() == pytest.approx([0, 0, 50, 0, -50, 100, 400])
    assert with_measured_energy(TRIP, FACTS) is TRIP
    assert "energy_wh" not in with_measured_energy(Trip("7", parked), {}).channels
    unknown = Trip("7", parked | {"soc": np.where(parked["soc"] < 0.79, np.nan, 0.8)})
    assert "energy_wh" not in with_measured_energy(unknown, FACTS).channels


def test_energy_per_km_leaves_out_windows_that_hardly_move():
    # 60, 100, 60, 0, 50 and 100 metres; at least 100 are needed.
    assert windows("energy-per-km") == ([2, 6], [-20, 960])


def test_a_forecast_is_of_the_next_window_and_begins_after_what_features_see():
    # Features look two seconds ahead: the window that ends at 1 predicts seconds 4 and 5.
    assert windows("next") == ([1, 2], [48, 96])
    assert windows("next", horizon=3) == ([1], [112])


def test_a_horizon_makes_a_forecast_of_any_target():
    data = DataSettings(target="soc", horizon=1, window=2)
    assert data.predicts.ahead(2) == 3
    ends, labels = data.predicts.windows(TRIP, FACTS, "car", length=2)
    assert (ends.tolist(), labels.tolist()) == ([1, 2, 3], pytest.approx([-1, 2, 8]))
    assert data.predicts.described.endswith("state of charge, of the 1 s that follow it")
    assert DataSettings(target="next", horizon=90).predicts.described == (
        "energy that leaves the pack, of the 90 s that follow it"
    )


def test_the_grain_of_charge_is_the_median_of_its_steps():
    # Falls and rises of 1, 1, 2 and 8 points: 1.5 in the middle; energy has none.
    assert get_target("soc").grain([TRIP], FACTS, "car") == pytest.approx(1.5)
    assert get_target("energy-from-soc").grain([TRIP], FACTS, "car") == pytest.approx(75)
    assert ENERGY.grain([TRIP], FACTS, "car") == 0
    # A vehicle that joins may have no trips.
    assert get_target("soc").grain([], FACTS, "car") == 0


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_no_feature_sees_what_makes_a_target(name):
    vehicle = Vehicle("car", make_vehicle(lengths=(40, 41, 42, 43)).trips, facts=FACTS)
    data = replace(SHORT, window=12, target=name, features=", ".join(FEATURES))
    made_of = get_target(name).made_of
    client = build_client(vehicle, data)
    changed = [
        replace(trip, channels={**trip.channels, **{c: -3 * trip.channels[c] for c in made_of}})
        for trip in vehicle.trips
    ]
    other = build_client(replace(vehicle, trips=tuple(changed)), data)
    assert np.array_equal(client.series, other.series)
    assert not np.allclose(
        client.energy_wh(client.labels["train"]), other.energy_wh(other.labels["train"])
    )


def test_the_features_of_a_forecast_see_nothing_of_its_horizon():
    trips = make_vehicle(lengths=(30, 31, 32, 33)).trips
    data = replace(SHORT, target="next", features=", ".join(FEATURES))
    ends, _ = data.predicts.windows(trips[0], {}, "car", length=5)
    first = ends[0] + 1 + targets.STREAMING_DELAY_S  # the horizon of the first window
    spoiled = {
        name: np.concatenate([values[:first], values[first:] + 1])
        for name, values in trips[0].channels.items()
    }
    other = (Trip(trips[0].name, spoiled), *trips[1:])
    trips_of_client, two = (build_client(Vehicle("car", local), data) for local in (trips, other))
    raw = [
        c.series.astype(float) * c.scaler.scale + c.scaler.center for c in (trips_of_client, two)
    ]
    # Scaling uses whole training trips; what it scales must not change up to the window's end.
    assert raw[0][: ends[0] + 1] == pytest.approx(raw[1][: ends[0] + 1], abs=1e-4)


def test_a_feature_of_the_targets_own_channel_is_refused():
    heat = Target(
        name="heat",
        unit="Wh",
        meaning="energy of the heater",
        made_of=("heater_w",),
        label=lambda values, ends, length: values["heater_w"][ends],
    )
    with pytest.raises(SettingError, match="Feature 'heater' needs 'heater_w', which makes"):
        targets.refuse_leaks(heat, ("speed", "heater"))
    targets.refuse_leaks(heat, ("speed",))


@pytest.mark.parametrize(
    ("name", "trip", "message"),
    [
        ("energy", make_trip("1", 9, energy_wh=None), "no channel 'energy_wh'.*target = soc"),
        ("soc", make_trip("1", 9, soc=None), "no channel 'soc'.*data.target = energy"),
        ("energy-from-soc", make_trip("1", 9), "no number 'pack_capacity_wh'.*facts"),
    ],
)
def test_what_a_target_lacks_is_said_in_one_sentence(name, trip, message):
    vehicle = Vehicle("car", tuple(replace(trip, name=str(n), recording="") for n in range(4)))
    with pytest.raises(DataError, match=f"Vehicle 'car'.*{message}"):
        build_client(vehicle, replace(SHORT, target=name))


def test_a_vehicle_that_never_moves_far_enough_is_refused():
    still = {"speed_mps": np.zeros(9), "energy_wh": np.ones(9)}
    vehicle = Vehicle("car", tuple(make_trip(str(n), 9, **still) for n in range(4)))
    with pytest.raises(DataError, match="no train window with a label of the target 'energy-per-k"):
        build_client(vehicle, replace(SHORT, target="energy-per-km"))


def test_wrong_declarations_are_refused():
    with pytest.raises(SettingError, match=r"Unknown target 'sox'. Did you mean 'soc'"):
        DataSettings(target="sox")
    with pytest.raises(SettingError, match="Target 'x': Unknown channel 'spead_mps'"):
        replace(ENERGY, name="x", made_of=("spead_mps",))
    short = replace(ENERGY, label=lambda values, ends, length: values["energy_wh"])
    with pytest.raises(SettingError, match=r"gave labels of shape \(7,\) for 6 windows"):
        short.windows(TRIP, {}, "car", length=2)
