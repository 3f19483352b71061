"""Real speed traces of cars without pack signals, where they are at hand, electrified."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedwatt.synthetic.electrify import electrified_vehicle
from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.windows import DataSettings, build_fleet
from tests.real_data import real_file


@pytest.fixture(scope="module")
def recordings(tmp_path_factory):
    """Three hybrid or petrol cars of VED."""
    some = tmp_path_factory.mktemp("ved") / "some.parquet"
    table = pl.scan_parquet(real_file("ved/HEV_ICE_speed.parquet"))
    few = table.select(pl.col("VehId").unique().sort()).head(4).collect()["VehId"]
    table.filter(pl.col("VehId").is_in(few.to_list())).collect().write_parquet(some)
    unlabelled = replace(VED_CLEANING, unlabelled=True)
    return list(import_ved([some], powertrain=("hev", "ice"), cleaning=unlabelled))


@pytest.mark.parametrize(("kind", "low", "high"), [("passenger", 90, 280), ("truck", 200, 800)])
def test_real_driving_gives_plausible_simulated_energy(recordings, kind, low, high):
    vehicles = [electrified_vehicle(recording, kind=kind) for recording in recordings]
    assert len(vehicles) == len(recordings) >= 3
    for vehicle, recording in zip(vehicles, recordings, strict=True):
        assert vehicle.labels == "simulated"
        assert [t.name for t in vehicle.trips] == [t.name for t in recording.trips]
        km = sum(trip.channels["speed_mps"].sum() for trip in vehicle.trips) / 1000
        wh = sum(trip.channels["energy_wh"].sum() for trip in vehicle.trips)
        assert low < wh / km < high
        assert all(np.isfinite(v).all() for t in vehicle.trips for v in t.channels.values())
    fleet = build_fleet(vehicles, DataSettings(), "electrified")
    assert all(client.simulated for client in fleet.clients)
