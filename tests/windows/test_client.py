"""From vehicles to clients: splits, windows, labels and scaling hang together."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.elevation.climb import with_measured_elevation
from fedwatt.errors import DataError, SettingError
from fedwatt.synthetic.electrify import electrified_vehicle
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import SPLITS, DataSettings, build_client, build_fleet
from fedwatt.windows.features import trip_features
from fedwatt.windows.scaling import SCALINGS

from .toys import LABELS, make_trip, make_vehicle, vehicles

SHORT = DataSettings(window=5, evaluation_stride=2)
any_settings = st.builds(
    DataSettings,
    window=st.integers(1, 5),
    stride=st.integers(1, 4),
    evaluation_stride=st.integers(1, 4),
    scaling=st.sampled_from(sorted(SCALINGS)),
    label_scaling=st.sampled_from(["vehicle", "fleet"]),
    split_seed=st.integers(0, 3),
)


def trip_of_each_row(vehicle, window):
    """Name of the trip and second within it, for every row of the client's series."""
    remaining = [trip for trip in vehicle.trips if trip.seconds >= window]
    return [(trip, second) for trip in remaining for second in range(trip.seconds)]


@settings(max_examples=60, deadline=None)
@given(vehicle=vehicles, data=any_settings)
def test_windows_stay_in_one_trip_of_their_split_and_labels_are_direct_sums(vehicle, data):
    client = build_client(vehicle, data)
    rows = trip_of_each_row(vehicle, data.window)
    assert client.series.shape == (len(rows), len(client.features))
    for split in SPLITS:
        energy_wh = client.energy_wh(client.labels[split])
        assert len(energy_wh) == len(client.ends[split]) > 0
        for end, energy in zip(client.ends[split], energy_wh, strict=True):
            covered = rows[end - data.window + 1 : end + 1]
            trips = {trip.name for trip, _ in covered}
            assert len(covered) == data.window
            assert len(trips) == 1
            assert trips <= set(client.trips[split])
            direct = sum(trip.channels["energy_wh"][second] for trip, second in covered)
            # Labels are float32: seven digits of values around 10.
            assert energy == pytest.approx(direct, abs=1e-5)


@settings(max_examples=40, deadline=None)
@given(vehicle=vehicles, seed=st.integers(0, 3))
def test_no_trip_is_in_two_splits_and_every_split_has_one(vehicle, seed):
    client = build_client(vehicle, replace(SHORT, split_seed=seed))
    used = [name for split in SPLITS for name in client.trips[split]]
    assert len(used) == len(set(used))
    assert set(used) == {trip.name for trip in vehicle.trips if trip.seconds >= 5}
    assert all(client.trips[split] for split in SPLITS)


@settings(max_examples=40, deadline=None)
@given(vehicle=vehicles, scaling=st.sampled_from(sorted(SCALINGS)), changed_split=st.booleans())
def test_scaling_sees_training_trips_only(vehicle, scaling, changed_split):
    data = replace(SHORT, scaling=scaling)
    client = build_client(vehicle, data)
    victims = client.trips["test" if changed_split else "validation"]
    trips = tuple(
        make_trip(trip.name, trip.seconds, seed=99) if trip.name in victims else trip
        for trip in vehicle.trips
    )
    other = build_client(replace(vehicle, trips=trips), data)
    assert client.trips == other.trips
    assert np.array_equal(client.scaler.center, other.scaler.center)
    assert np.array_equal(client.scaler.scale, other.scaler.scale)
    assert client.label_center_wh == other.label_center_wh
    assert client.label_scale_wh == other.label_scale_wh
    assert np.array_equal(client.labels["train"], other.labels["train"])
    names = [trip.name for trip, _ in trip_of_each_row(vehicle, 5)]
    training = np.isin(names, client.trips["train"])
    assert np.array_equal(client.series[training], other.series[training])


@settings(max_examples=40, deadline=None)
@given(vehicle=vehicles, scale=st.floats(-3, 3))
def test_pack_channels_change_no_feature(vehicle, scale):
    changed = tuple(
        Trip(t.name, {c: v * scale if c in LABELS else v for c, v in t.channels.items()})
        for t in vehicle.trips
    )
    before = build_client(vehicle, SHORT)
    after = build_client(replace(vehicle, trips=changed), SHORT)
    assert before.series.tobytes() == after.series.tobytes()
    assert before.trips == after.trips


def test_scaled_series_and_labels_by_hand():
    vehicle = make_vehicle(lengths=(6, 7, 8, 9))
    client = build_client(vehicle, SHORT)
    training = [trip for trip in vehicle.trips if trip.name in client.trips["train"]]
    assert len(training) == 2
    raw = np.concatenate([trip_features(trip, client.features, "car") for trip in training])
    start = sum(trip.seconds for trip in vehicle.trips[: vehicle.trips.index(training[0])])
    scaled = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    length = training[0].seconds
    assert client.series.dtype == np.float32
    assert client.series[start : start + length] == pytest.approx(scaled[:length], abs=1e-5)
    assert client.labels["train"].mean() == pytest.approx(0, abs=1e-6)
    assert client.labels["train"].std() == pytest.approx(1, abs=1e-6)


def test_a_fleet_constant_scales_labels_without_moving_them():
    data = replace(SHORT, label_scaling="fleet", label_scale_wh=50.0)
    client = build_client(make_vehicle(), data)
    assert (client.label_center_wh, client.label_scale_wh) == (0.0, 50.0)


def test_strides_are_separate_for_training_and_evaluation():
    client = build_client(make_vehicle(lengths=(14, 14, 14)), replace(SHORT, stride=3))
    # Windows of 5 in 14 seconds end at 4..13: every third is 4, every second is 5.
    counts = {split: len(client.ends[split]) for split in SPLITS}
    assert counts == {"train": 4, "validation": 5, "test": 5}


def test_strata_of_test_windows_by_hand():
    def trip(name, kmh, ambient_c):
        speed_mps = np.full(10, kmh / 3.6)
        return make_trip(name, 10, speed_mps=speed_mps, ambient_c=np.full(10, ambient_c))

    trips = [trip("slow", 19.0, 4.9), trip("town", 20.5, 20.0), trip("fast", 61.0, 19.9)]
    codes = {}
    for seed in range(30):
        client = build_client(Vehicle("car", tuple(trips)), replace(SHORT, split_seed=seed))
        codes[client.trips["test"][0]] = tuple(
            client.strata[name][1].tolist() for name in ("speed", "temperature")
        )
    assert codes == {
        "slow": ([0, 0, 0], [0, 0, 0]),
        "town": ([1, 1, 1], [2, 2, 2]),
        "fast": ([2, 2, 2], [1, 1, 1]),
    }
    assert client.strata["speed"][0] == ("under 20 km/h", "20 to 60 km/h", "over 60 km/h")


def test_stop_and_go_and_grade_of_test_windows_by_hand():
    # Windows of 5 of 10 s end at 4, 6 and 8. At 10 m/s, 0.2 m per second are a grade of 2 %; the
    # vehicle stands in second 8, which is a fifth of the last window.
    speed_mps = np.full(10, 10.0)
    speed_mps[8] = 0.0
    climb = {"climb_m": np.full(10, 0.2), "descent_m": np.zeros(10), "climb_known": np.ones(10)}
    channels = {"speed_mps": speed_mps, "ambient_c": np.full(10, 10.0), **climb}
    up = [make_trip(str(n), 10, **channels) for n in range(3)]
    client = build_client(Vehicle("car", tuple(up)), SHORT)
    names, codes = client.strata["stop-and-go"]
    assert [names[code] for code in codes] == [
        "never standing", "never standing", "standing under 25 %",
    ]  # fmt: skip
    assert client.strata["grade"][1].tolist() == [2, 2, 2]
    down = {"climb_m": np.zeros(10), "descent_m": np.full(10, 0.2)}
    trips = [make_trip(str(n), 10, **channels | down) for n in range(3)]
    client = build_client(Vehicle("car", tuple(trips)), SHORT)
    assert client.strata["grade"][1].tolist() == [0, 0, 0]
    known = np.ones(10)
    known[0] = 0.0
    trips = [make_trip(str(n), 10, **channels | {"climb_known": known}) for n in range(3)]
    names, codes = build_client(Vehicle("car", tuple(trips)), SHORT).strata["grade"]
    assert [names[code] for code in codes] == ["not known", "over 1 %", "over 1 %"]


def test_without_temperature_there_is_no_temperature_stratum():
    trips = tuple(make_trip(str(n), 8, ambient_c=None) for n in range(3))
    client = build_client(Vehicle("car", trips), replace(SHORT, features="speed"))
    assert "temperature" not in client.strata and "speed" in client.strata


def climbing_vehicle() -> Vehicle:
    """Five trips of 30 s that climb 1, 2, ... m a second."""
    seconds = np.arange(30.0)
    trips = []
    for number in range(5):
        climb = {"climb_m": np.full(30, 1.0 + number), "descent_m": 0 * seconds}
        channels = {"speed_mps": seconds, "energy_wh": np.ones(30), **climb}
        trips.append(Trip(f"t{number}", channels | {"climb_known": np.ones(30)}))
    return Vehicle("v", tuple(trips))


def test_one_training_window_in_sixteen_is_repeated_with_its_elevation_masked():
    data = DataSettings(features="speed, elevation", window=4, split=(0.6, 0.2, 0.2))
    client = build_client(climbing_vehicle(), data)
    # Of a trip's 27 windows the first and the seventeenth; three trips train.
    assert (client.recorded_windows, client.masked) == (3 * 27, 3 * 2)
    ascent, known = (client.features.index(name) for name in ("ascent", "climb_known"))
    recorded, masked = np.split(client.ends["train"], [3 * 27])
    assert (client.series[recorded][:, [ascent, known]] > 0).all()
    rows = masked[:, None] + np.arange(-3, 1)
    assert (client.series[rows][:, :, [ascent, known]] == 0).all()
    speed = client.features.index("speed")
    copied = np.concatenate([recorded[first : first + 27 : 16] for first in (0, 27, 54)])
    assert (client.series[copied][:, speed] == client.series[masked][:, speed]).all()
    assert (
        client.labels["train"][81:] == client.labels["train"][:81].reshape(3, 27)[:, ::16].ravel()
    ).all()
    assert all((client.series[client.ends[s]][:, known] == 1).all() for s in ("validation", "test"))


def test_as_recorded_leaves_out_masked_windows():
    data = DataSettings(features="speed, elevation", window=4)
    client = build_client(climbing_vehicle(), data)
    plain = build_client(climbing_vehicle(), DataSettings(features="speed, ascent", window=4))
    assert plain.masked == 0 and plain.as_recorded() is plain
    for name in ("ends", "labels"):
        arrays = getattr(client.as_recorded(), name)["train"]
        assert np.array_equal(arrays, getattr(plain, name)["train"])


def test_short_trips_are_left_out():
    client = build_client(make_vehicle(lengths=(4, 5, 6, 4, 7)), SHORT)
    assert sorted(name for split in SPLITS for name in client.trips[split]) == ["2", "3", "5"]
    assert len(client.series) == 5 + 6 + 7


@pytest.mark.parametrize("lengths", [(), (50,), (50, 50), (4, 50, 50)])
def test_too_few_trips_are_refused_with_what_to_do(lengths):
    usable = sum(length >= 5 for length in lengths)
    with pytest.raises(DataError) as refusal:
        build_client(make_vehicle("car-7", lengths), SHORT)
    words = f"Vehicle 'car-7' has {len(lengths)} trips, {usable} of them at least 5 s long"
    assert words in str(refusal.value)
    assert "leave the vehicle out" in str(refusal.value)


def cut_vehicle() -> Vehicle:
    """Six recordings of which the first three were cut in two."""
    trips = make_vehicle("car", (9, 8, 12, 7, 10, 6, 9, 8, 11)).trips
    recordings = ("1", "2", "3", "1", "2", "3", "7", "8", "9")
    return Vehicle(
        "car", tuple(replace(t, recording=r) for t, r in zip(trips, recordings, strict=True))
    )


@pytest.mark.parametrize("seed", range(10))
def test_no_recorded_trip_is_in_two_splits(seed):
    client = build_client(cut_vehicle(), replace(SHORT, split_seed=seed))
    split_of = {trip: split for split in SPLITS for trip in client.trips[split]}
    assert [split_of[first] for first in "123"] == [split_of[later] for later in "456"]
    assert len(split_of) == 9


def test_what_changes_a_trip_keeps_its_recording():
    made = [
        electrified_vehicle(cut_vehicle()),
        with_measured_elevation(cut_vehicle()),
    ]
    for vehicle in made:
        assert [t.recording for t in vehicle.trips] == [t.recording for t in cut_vehicle().trips]


def test_three_parts_of_two_recordings_are_too_few():
    trips = make_vehicle("car-7", (9, 8, 12)).trips
    vehicle = Vehicle("car-7", (trips[0], trips[1], replace(trips[2], recording="1")))
    with pytest.raises(DataError, match="'car-7' has 2 trips, 2 of them at least 5 s long"):
        build_client(vehicle, SHORT)


def test_a_gap_in_the_label_is_refused():
    energy_wh = np.ones(8)
    energy_wh[3] = np.nan
    trips = [make_trip(str(n), 8) for n in range(3)] + [make_trip("bad", 8, energy_wh=energy_wh)]
    with pytest.raises(DataError, match="'car-7', trip 'bad': channel 'energy_wh'"):
        build_client(Vehicle("car-7", tuple(trips)), SHORT)


def test_a_fleet_is_in_natural_order_and_each_client_as_if_alone():
    cars = [make_vehicle(f"car-{n}") for n in (10, 9, 2)]
    fleet = build_fleet(cars, SHORT, "toys")
    assert fleet.names == ("car-2", "car-9", "car-10")
    alone = build_fleet([cars[1]], SHORT, "toy")
    assert fleet.clients[1].series.tobytes() == alone.clients[0].series.tobytes()
    for split in SPLITS:
        assert np.array_equal(fleet.clients[1].ends[split], alone.clients[0].ends[split])
        assert np.array_equal(fleet.clients[1].labels[split], alone.clients[0].labels[split])


def test_held_out_vehicles_are_marked_and_count_for_evaluation_only():
    cars = [make_vehicle(f"car-{n}") for n in range(6)]
    fleet = build_fleet(cars, replace(SHORT, held_out=2), "toys")
    held_out = [client for client in fleet.clients if client.held_out]
    assert len(held_out) == 2
    everyone = build_fleet(cars, SHORT, "toys")
    assert fleet.windows("test") == everyone.windows("test")
    lost = sum(len(client.ends["train"]) for client in held_out)
    assert fleet.windows("train") == everyone.windows("train") - lost


def test_hashes_follow_what_they_stand_for():
    cars = [make_vehicle(f"car-{n}") for n in range(3)]
    fleet = build_fleet(cars, SHORT, "toys")
    again = build_fleet(cars[::-1], SHORT, "elsewhere")
    assert (fleet.split_hash(), fleet.data_hash()) == (again.split_hash(), again.data_hash())
    other_split = build_fleet(cars, replace(SHORT, split_seed=1), "toys")
    assert other_split.split_hash() != fleet.split_hash()
    other_scaling = build_fleet(cars, replace(SHORT, scaling="robust"), "toys")
    assert other_scaling.split_hash() == fleet.split_hash()
    assert other_scaling.data_hash() != fleet.data_hash()


@pytest.mark.parametrize(
    ("cars", "data", "message"),
    [
        ([], SHORT, "The fleet 'toys' has no vehicles"),
        ([make_vehicle("a"), make_vehicle("a")], SHORT, "2 vehicles named 'a'"),
        ([make_vehicle("a")], replace(SHORT, held_out=1), "Hold out at most 0"),
    ],
)
def test_fleets_that_cannot_be_built(cars, data, message):
    with pytest.raises(DataError, match=re.escape(message)):
        build_fleet(cars, data, "toys")


@pytest.mark.parametrize(
    "wrong",
    [
        {"features": "bsae"},
        {"window": 0},
        {"stride": 0},
        {"evaluation_stride": -1},
        {"scaling": "minmax"},
        {"label_scaling": "none"},
        {"label_scale_wh": 0.0},
        {"label_scale_wh": float("nan")},
        {"split": (0.7, 0.3)},
        {"split": (0.8, 0.0, 0.2)},
        {"split": (0.7, 0.2, 0.2)},
        {"held_out": -1},
    ],
    ids=str,
)
def test_settings_outside_their_range_are_refused(wrong):
    with pytest.raises(SettingError):
        DataSettings(**wrong)
