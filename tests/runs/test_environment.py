"""The description of the fleet in a run folder."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.runs.provenance import coverage, describe_fleet
from fedwatt.windows import DataSettings, build_fleet
from tests.windows.toys import make_vehicle


def test_held_out_vehicles_have_no_part_in_the_training_windows():
    vehicles = [make_vehicle(name, (9, 8, 12, 7, 10)) for name in ("car-1", "car-2", "car-3")]
    fleet = build_fleet(vehicles, DataSettings(window=5, held_out=1), "toys")
    (out,) = (client for client in fleet.clients if client.held_out)
    described = describe_fleet(fleet)
    assert described["held_out"] == [out.name]
    training = sum(len(c.ends["train"]) for c in fleet.clients if c is not out)
    assert described["windows"]["train"] == training
    # It is evaluated like the others.
    for split in ("validation", "test"):
        assert described["windows"][split] == sum(len(c.ends[split]) for c in fleet.clients)


def test_driving_is_counted_coarsely():
    vehicles = [make_vehicle(name, (600, 600, 600, 600, 600)) for name in ("car-1", "car-2")]
    fleet = build_fleet(vehicles, DataSettings(window=5), "toys")
    covered = coverage(fleet)
    # Two vehicles, five trips of ten minutes each: 100 minutes.
    assert covered["hours"] == 1.7
    speeds = np.concatenate([t.channels["speed_mps"][::60] for v in vehicles for t in v.trips])
    assert covered["kilometres"] == pytest.approx(
        float(f"{speeds.sum() * 60 / 1000:.2g}"), rel=0.05
    )
    low, high = covered["ambient_c"]
    assert low % 5 == high % 5 == 0 and low < high
    assert coverage(replace(fleet, clients=())) == {}
