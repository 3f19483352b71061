"""The real files, where they are at hand: facts that a wrong reader would break."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedwatt.telemetry.cleaning.glitches import _speed_over_position
from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import MAY_BE_UNKNOWN

# Vehicles with at least 20 usable all-electric trips.
NATURAL_CLIENTS = (10, 11, 371, 398, 443, 453, 455, 457, 492, 550, 554, 561)
EVS = (10, 455, 541)
ALL_TRIPS = replace(VED_CLEANING, minimum_trips=1, minimum_metres=0)


@pytest.fixture(scope="session")
def raw_trips(ved_folder):
    """Direct integral of -V I over held samples (Wh) and length (s) of every EV trip."""
    expected = ("VehId", "Trip", "Timestamp(ms)", "HV Battery Current[A]", "HV Battery Voltage[V]")
    table = (
        pl.scan_parquet(ved_folder / "EV_PHEV.parquet")
        .filter(pl.col("VehId").is_in(EVS))
        .select(expected)
        .collect()
    )
    result = {}
    for (vehicle, trip), part in table.partition_by("VehId", "Trip", as_dict=True).items():
        time_s = part["Timestamp(ms)"].to_numpy() / 1000
        current, voltage = (part[name].cast(pl.Float64).to_numpy() for name in expected[3:])
        energy = float((-voltage[:-1] * current[:-1] * np.diff(time_s)).sum() / 3600)
        result[f"ved-{vehicle}", str(trip)] = energy, time_s[-1]
    return result


def test_no_recorded_trip_of_ved_is_in_two_splits(ved_folder):
    vehicles = import_ved([ved_folder / "EV_PHEV.parquet"], powertrain=("ev", "phev-electric"))
    splits: dict[tuple[str, str], set[str]] = {}
    parts = 0
    for vehicle in vehicles:
        split_of = split_of_trips(vehicle, DataSettings())
        parts += len(split_of)
        for trip in vehicle.trips:
            seen_splits = splits.setdefault((vehicle.name, trip.recording), set())
            seen_splits.add(split_of[trip.name])
    assert (parts, len(splits)) == (1676, 1661)  # fifteen trips are cut in two
    assert {len(split) for split in splits.values()} == {1}


def test_energy_of_every_ev_trip_is_conserved(ved_folder, raw_trips):
    """With no limits, so that nothing is cut off or left out: all 504 trips."""
    vehicles = import_ved(
        [ved_folder / "EV_PHEV.parquet"],
        cleaning=replace(
            VED_CLEANING, minimum_trips=1, minimum_seconds=0, minimum_metres=0, maximum_gap_s=1e6
        ),
    )
    names = []
    for vehicle in vehicles:
        for trip in vehicle.trips:
            names.append((vehicle.name, trip.name))
            direct, _ = raw_trips[names[-1]]
            # Tighter than the 0.1 % asked for: only rounding is left.
            assert trip.channels["energy_wh"].sum() == pytest.approx(direct, rel=1e-9, abs=1e-9)
    assert set(names) == set(raw_trips)


def test_energy_is_conserved_with_the_default_limits(ved_vehicles, raw_trips):
    compared = 0
    for vehicle in EVS:
        for trip in ved_vehicles[f"ved-{vehicle}"].trips:
            direct, seconds = raw_trips[f"ved-{vehicle}", trip.name.rstrip("bcdefgh")]
            if trip.seconds == int(np.ceil(round(seconds, 6))):  # not cut, nothing taken out
                compared += 1
                assert trip.channels["energy_wh"].sum() == pytest.approx(direct, rel=1e-9)
    assert compared > 400


def test_a_falling_state_of_charge_means_energy_was_used(ved_vehicles):
    checked = 0
    for vehicle in EVS:
        for trip in ved_vehicles[f"ved-{vehicle}"].trips:
            soc = trip.channels["soc"]
            if soc[0] - soc[-1] > 0.01:
                checked += 1
                assert trip.channels["energy_wh"].sum() > 0, (vehicle, trip.name)
                # The charge that left agrees in sign, + = discharge.
                assert trip.channels["current_a"].sum() > 0, (vehicle, trip.name)
    assert checked > 300


def test_the_natural_clients_have_twenty_trips(ved_folder):
    """Also by the strict rule: at least 2 minutes, and no gap over 10 s even at standstill."""
    vehicles = import_ved(
        [ved_folder / "EV_PHEV.parquet"],
        powertrain=("ev", "phev-electric"),
        cleaning=replace(VED_CLEANING, minimum_trips=20, maximum_standing_gap_s=10),
    )
    trips = {vehicle.name: len(vehicle.trips) for vehicle in vehicles}
    for number in NATURAL_CLIENTS:
        assert trips[f"ved-{number}"] >= 20


def test_the_defaults_keep_the_natural_clients(ved_vehicles):
    for number in NATURAL_CLIENTS:
        trips = ved_vehicles[f"ved-{number}"].trips
        assert sum(trip.metres >= 500 for trip in trips) >= 20


def test_channels_are_complete_finite_and_within_the_known_ranges(ved_vehicles):
    for vehicle in ved_vehicles.values():
        assert _speed_over_position(vehicle.trips) == pytest.approx(1.0, abs=0.05)
        for trip in vehicle.trips:
            for name, values in trip.channels.items():
                unknown = name in MAY_BE_UNKNOWN and np.isnan(values).all()
                assert unknown or np.isfinite(values).all(), (vehicle.name, trip.name, name)
                assert len(values) == trip.seconds
            assert {"ambient_c", "ac_w", "heater_w", "energy_wh", "soc"} <= trip.channels.keys()
    leaf = np.concatenate([t.channels["energy_wh"] for t in ved_vehicles["ved-10"].trips])
    kilowatts = leaf * 3.6
    assert kilowatts.min() >= -45
    assert kilowatts.max() <= 110


def test_static_files_are_joined(ved_vehicles):
    assert ved_vehicles["ved-10"].facts["powertrain"] == "ev"
    assert ved_vehicles["ved-10"].facts["mass_kg"] == 1587.6
    assert ved_vehicles["ved-371"].facts["powertrain"] == "phev-electric"
    assert ved_vehicles["ved-371"].facts["engine"] == "4-GAS/ELECTRIC 2.0L"


def test_the_archive_and_the_parquet_file_agree(ved_folder, ved_vehicles):
    (leaf,) = (
        vehicle
        for vehicle in import_ved([ved_folder / "VED_DynamicData_sample.7z"], cleaning=ALL_TRIPS)
        if vehicle.name == "ved-10"
    )
    reference = {trip.name: trip for trip in ved_vehicles["ved-10"].trips}
    assert len(leaf.trips) >= 1
    for trip in leaf.trips:
        assert trip.channels["energy_wh"].sum() == pytest.approx(
            reference[trip.name].channels["energy_wh"].sum(), rel=1e-6
        )


def test_inference_agrees_with_the_static_files(ved_folder, tmp_path):
    (tmp_path / "EV_PHEV.parquet").symlink_to(ved_folder / "EV_PHEV.parquet")
    vehicles = import_ved([tmp_path], powertrain=("ev",), cleaning=ALL_TRIPS)
    result = {vehicle.name: vehicle.facts["powertrain_from"] for vehicle in vehicles}
    assert result == {f"ved-{number}": "inferred from its signals" for number in EVS}
