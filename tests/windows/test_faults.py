"""Noisy labels: wrong in training trips, as much as asked, and nowhere else."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.experiments import corrupt_some, corrupted, repartition
from tests.windows.toys import make_vehicle, same_trips

SETTINGS = DataSettings(window=60)
CAR = make_vehicle("car", (600, 700, 650, 800, 900, 610, 70))


def training(vehicle: Vehicle) -> list[Trip]:
    split_of = split_of_trips(vehicle, SETTINGS)
    return [trip for trip in vehicle.trips if split_of[trip.name] == "train"]


def test_only_energy_in_training_trips_changes():
    made = corrupted(CAR, 0.5, SETTINGS)
    split_of = split_of_trips(CAR, SETTINGS)
    for before, after in zip(CAR.trips, made.trips, strict=True):
        for channel, values in before.channels.items():
            same = np.array_equal(values, after.channels[channel])
            assert same != (channel == "energy_wh" and split_of[before.name] == "train")
    assert made.facts["label_noise"] == 0.5


def test_label_noise_is_as_large_as_asked_over_a_minute():
    made = corrupted(CAR, 2.0, SETTINGS)

    def minutes(vehicle):
        series = [trip.channels["energy_wh"] for trip in training(vehicle)]
        return np.concatenate(
            [values[: len(values) // 60 * 60].reshape(-1, 60).sum(axis=1) for values in series]
        )

    error = minutes(made) - minutes(CAR)
    # About fifty minutes: their spread is known to 10 %.
    assert error.std() == pytest.approx(2 * minutes(CAR).std(), rel=0.35)
    assert abs(error.mean()) < error.std()


def test_who_is_corrupted_depends_on_the_name_alone():
    cars = [make_vehicle(f"car-{n}", (70, 80, 90, 100)) for n in range(60)]
    made = list(corrupt_some(cars, 0.3, 0.5, SETTINGS))
    marked = {vehicle.name for vehicle in made if "label_noise" in vehicle.facts}
    # 18 expected, standard deviation 3.5.
    assert 8 <= len(marked) <= 28
    few = list(corrupt_some(cars[:20], 0.3, 0.5, SETTINGS))
    assert {v.name for v in few if "label_noise" in v.facts} == marked & {c.name for c in cars[:20]}
    assert all("label_noise" not in v.facts for v in corrupt_some(cars, 0.0, 0.5, SETTINGS))
    assert all("label_noise" in v.facts for v in corrupt_some(cars, 1.0, 0.5, SETTINGS))


def test_noise_repeats():
    assert same_trips(corrupted(CAR, 0.5, SETTINGS), corrupted(CAR, 0.5, SETTINGS))


def test_noise_and_partition_keep_the_recording_of_a_trip():
    trips = make_vehicle("car", (60, 61, 62, 63, 64, 65)).trips
    recordings = ("1", "2", "3", "1", "5", "6")
    cut = tuple(replace(t, recording=r) for t, r in zip(trips, recordings, strict=True))
    vehicle = Vehicle("car", cut)
    noisy = corrupted(vehicle, 0.5, SETTINGS)
    assert tuple(trip.recording for trip in noisy.trips) == recordings
    (dealt,) = repartition([vehicle], "mild", 1)
    by_name = {trip.name: trip.recording for trip in dealt.trips}
    assert (by_name["car/4"], by_name["car/6"]) == ("car/1", "car/6")


def test_a_missing_channel_and_a_wrong_noise_are_refused():
    channels = {"speed_mps": np.ones(80), "soc": np.ones(80)}
    bare = Vehicle("car", tuple(Trip(str(number), channels) for number in range(4)))
    with pytest.raises(DataError, match="no channel 'energy_wh'"):
        corrupted(bare, 0.5, SETTINGS)
    for noise in (0.0, -1.0, float("nan")):
        with pytest.raises(SettingError, match="must be a positive number"):
            corrupt_some([CAR], 0.2, noise, SETTINGS)
