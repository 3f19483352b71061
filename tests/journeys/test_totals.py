"""Seconds from windows: totals are exact for a perfect model, whatever the trip and the stride."""

from dataclasses import replace

import numpy as np
import pyarrow.parquet as pq
import pytest

from fedwatt.edge.card import ModelCard
from fedwatt.edge.trips import predict_trip
from fedwatt.journeys.totals import energy_by_second, exact_windows, tile_ends
from fedwatt.synthetic import synthetic_vehicles
from tests.real_data import real_file


@pytest.mark.parametrize("seconds", [60, 61, 89, 119, 120, 121, 1000])
def test_a_perfect_model_gives_the_trip_its_energy(seconds):
    # Periodic with the window's length, which no window inside the trip can see, and a spike.
    energy_wh = 5 + 20 * np.sin(2 * np.pi * np.arange(seconds) / 60 + 0.3)
    energy_wh[-1] += 1000.0
    idle_wh = (0.4, 1.3)
    windows_wh = exact_windows(energy_wh, window=60, idle_wh=idle_wh)
    energy = energy_by_second(windows_wh, seconds, window=60, idle_wh=idle_wh)
    assert len(energy) == seconds
    assert energy.sum() == pytest.approx(energy_wh.sum(), rel=1e-12)


def test_a_constant_power_is_found_in_every_second():
    windows_wh = exact_windows(np.full(130, 2.0), window=60, idle_wh=(0.5, 0.0))
    energy = energy_by_second(windows_wh, 130, window=60, idle_wh=(0.5, 0.0))
    assert energy == pytest.approx(np.full(130, 2.0))


def test_seconds_by_hand():
    # Windows of 2 s over 1, 2, 6 Wh and nothing outside. Tiles from 0 on: (1 2)(6 .), where the
    # last is spread with its neighbour, so 3 each; from 1 on: (. 1)(2 6), likewise 3 each.
    assert tile_ends(3, window=2).tolist() == [0, 1, 2, 3]
    energy = energy_by_second(np.array([1.0, 3.0, 8.0, 6.0]), 3, window=2)
    assert energy == pytest.approx([3.0, 3.0, 3.0])
    # Over 1, 2, 6, 3 Wh the tiles from 0 on fit, 1.5 1.5 4.5 4.5; those from 1 on are all one.
    energy = energy_by_second(np.array([1.0, 3.0, 8.0, 9.0, 3.0]), 4, window=2)
    assert energy == pytest.approx([2.25, 2.25, 3.75, 3.75])


class Perfect:
    """A model whose windows are right: the sum of what each second's features are worth."""

    field = None

    def __init__(self, features, worth_wh, idle_wh):
        subject = {"method": "", "run_hash": "", "library": "", "backbone": "", "units": ()}
        self.card = ModelCard(features=features, window=60, interval_s=1.0, output="Wh", **subject)
        self.worth_wh = np.array(worth_wh)
        self.idle_wh = idle_wh

    def refuse_unless_telemetry(self):
        pass

    def seconds_wh(self, series):
        return series @ self.worth_wh + self.idle_wh

    def energies(self, series, ends):
        total = np.concatenate([[0.0], np.cumsum(self.seconds_wh(series))])
        return total[ends + 1] - total[ends - 59]


def test_a_perfect_model_predicts_whole_trips_rightly():
    model = Perfect(("speed", "driving", "heater"), (0.1, 0.4, 0.28), 0.08)
    (vehicle,) = synthetic_vehicles(1, trips=6)
    for trip in vehicle.trips:
        # Cut so that it neither begins nor ends at a standstill, nor after whole minutes.
        cut = replace(
            trip, channels={name: channel[37:-11] for name, channel in trip.channels.items()}
        )
        channels = cut.channels
        prediction = predict_trip(model, cut, vehicle.name)
        expected = predict_by_second(model, channels)
        assert prediction.total_wh == pytest.approx(expected, rel=1e-9)


def predict_by_second(model, channels):
    speed = channels["speed_mps"]
    padded = np.pad(speed, 2, mode="edge")
    change = (padded[4:] + padded[3:-1] - padded[1:-3] - padded[:-4]) / 6
    columns = [speed, np.maximum(speed * change, 0), channels["heater_w"] / 1000]
    return float(model.seconds_wh(np.stack(columns, axis=1)).sum())


def test_trips_of_real_vehicles_get_their_energy():
    names = ["Trip", "Timestamp(ms)", "HV Battery Current[A]", "HV Battery Voltage[V]"]
    file = real_file("ved/EV_PHEV.parquet")
    table = pq.read_table(file, columns=names, filters=[("VehId", "=", 10)])
    trip, time_ms, current_a, voltage_v = (table[name].to_numpy() for name in names)
    tried = 0
    for number in np.unique(trip):
        rows = np.flatnonzero((trip == number) & np.isfinite(current_a) & np.isfinite(voltage_v))
        rows = rows[np.argsort(time_ms[rows], kind="stable")]
        power_w = -current_a[rows] * voltage_v[rows]
        second = np.arange(time_ms[rows].max(initial=0) // 1000)
        if len(second) < 60:
            continue
        energy_wh = np.interp(second, time_ms[rows] / 1000, power_w) / 3600
        energy = energy_by_second(exact_windows(energy_wh, window=60), len(second), window=60)
        assert energy.sum() == pytest.approx(energy_wh.sum(), rel=1e-3, abs=1e-6)
        tried += 1
    assert tried > 100
