"""Spoiled vehicles: wrong in their training trips, as much as asked, and nowhere else."""

import numpy as np
import pytest

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.experiments import Fault, corrupt_some, corrupted

from .toys import make_vehicle, same_trips

SETTINGS = DataSettings(window=60)
CAR = make_vehicle("car", (600, 700, 650, 800, 900, 610, 70))
KINDS = ["label noise", "sensor bias", "stuck channel"]


def training(vehicle: Vehicle) -> list[Trip]:
    split_of = split_of_trips(vehicle, SETTINGS)
    return [trip for trip in vehicle.trips if split_of[trip.name] == "train"]


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_channel_in_training_trips_changes(kind):
    made = corrupted(CAR, Fault(kind=kind), SETTINGS)
    touched = "energy_wh" if kind == "label noise" else "speed_mps"
    split_of = split_of_trips(CAR, SETTINGS)
    for before, after in zip(CAR.trips, made.trips, strict=True):
        for channel, values in before.channels.items():
            same = np.array_equal(values, after.channels[channel])
            assert same != (channel == touched and split_of[before.name] == "train")
    assert made.facts["fault"] == {"kind": kind, "size": 0.5, "channel": touched}
    assert made.facts["corrupted_split"] == {
        "split": [0.7, 0.1, 0.2],
        "split_seed": 0,
        "window": 60,
    }


def test_label_noise_is_as_large_as_asked_over_a_minute():
    made = corrupted(CAR, Fault(kind="label noise", size=2.0), SETTINGS)

    def minutes(vehicle):
        series = [trip.channels["energy_wh"] for trip in training(vehicle)]
        return np.concatenate(
            [values[: len(values) // 60 * 60].reshape(-1, 60).sum(axis=1) for values in series]
        )

    error = minutes(made) - minutes(CAR)
    # About fifty minutes: their spread is known to 10 %.
    assert error.std() == pytest.approx(2 * minutes(CAR).std(), rel=0.35)
    assert abs(error.mean()) < error.std()


@pytest.mark.parametrize("size", [-0.5, 2.0])
def test_bias_shifts_by_standard_deviations(size):
    made = corrupted(CAR, Fault(kind="sensor bias", size=size, channel="ambient_c"), SETTINGS)
    spread = np.concatenate([trip.channels["ambient_c"] for trip in training(CAR)]).std()
    for before, after in zip(training(CAR), training(made), strict=True):
        shift = after.channels["ambient_c"] - before.channels["ambient_c"]
        assert shift == pytest.approx(np.full(before.seconds, size * spread))


def test_a_stuck_channel_repeats_one_of_its_own_values():
    made = corrupted(CAR, Fault(kind="stuck channel", size=0.25), SETTINGS)
    for before, after in zip(training(CAR), training(made), strict=True):
        changed = np.flatnonzero(before.channels["speed_mps"] != after.channels["speed_mps"])
        assert len(changed) == pytest.approx(0.25 * before.seconds, abs=2)
        assert len(np.unique(after.channels["speed_mps"][changed])) == 1
        assert after.channels["speed_mps"][changed[0]] in before.channels["speed_mps"]
    whole = corrupted(CAR, Fault(kind="stuck channel", size=1.0), SETTINGS)
    assert all(np.ptp(trip.channels["speed_mps"]) == 0 for trip in training(whole))


def test_who_is_corrupted_depends_on_the_name_alone():
    cars = [make_vehicle(f"car-{n}", (70, 80, 90, 100)) for n in range(60)]
    fault = Fault(kind="sensor bias")
    made = list(corrupt_some(cars, 0.3, fault, SETTINGS))
    marked = {vehicle.name for vehicle in made if "fault" in vehicle.facts}
    # 18 expected, standard deviation 3.5.
    assert 8 <= len(marked) <= 28
    few = list(corrupt_some(cars[:20], 0.3, fault, SETTINGS))
    assert {v.name for v in few if "fault" in v.facts} == marked & {c.name for c in cars[:20]}
    assert all("fault" not in v.facts for v in corrupt_some(cars, 0.0, fault, SETTINGS))
    assert all("fault" in v.facts for v in corrupt_some(cars, 1.0, fault, SETTINGS))


def test_the_same_seed_spoils_alike():
    fault = Fault(kind="label noise")
    assert same_trips(corrupted(CAR, fault, SETTINGS), corrupted(CAR, fault, SETTINGS))
    assert not same_trips(corrupted(CAR, fault, SETTINGS), corrupted(CAR, fault, SETTINGS, seed=1))


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "label nois"},
        {"kind": "label noise", "size": -1.0},
        {"kind": "sensor bias", "size": 0.0},
        {"kind": "stuck channel", "size": 1.5},
        {"kind": "sensor bias", "channel": "energy_wh"},
    ],
    ids=str,
)
def test_impossible_faults_are_refused(wrong):
    with pytest.raises(SettingError):
        Fault(**wrong)


def test_a_missing_channel_and_a_wrong_share_are_refused():
    bare = Vehicle(
        "car",
        tuple(Trip(str(n), {"speed_mps": np.ones(80), "energy_wh": np.ones(80)}) for n in range(4)),
    )
    with pytest.raises(DataError, match="no channel 'ambient_c'"):
        corrupted(bare, Fault(kind="sensor bias", channel="ambient_c"), SETTINGS)
    with pytest.raises(SettingError, match=r"in \[0, 1\]"):
        corrupt_some([bare], 1.2, Fault(kind="label noise"), SETTINGS)
