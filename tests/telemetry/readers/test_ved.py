from dataclasses import replace

import polars as pl
import py7zr
import pytest

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry.readers import VED_CLEANING, VehicleStream, import_ved
from tests.telemetry.recognise.drives import write_workbook

LOOSE = {"cleaning": replace(VED_CLEANING, minimum_trips=1)}
ENGINE = 8
AC_KW = 12
AC_W = 13
SOC = 16


def test_units_signs_and_names(write_ved, rows):
    (vehicle,) = import_ved([write_ved(rows())], **LOOSE)
    assert vehicle.name == "ved-10"
    assert vehicle.labels == "measured"
    (trip,) = vehicle.trips
    assert trip.name == "706"
    assert trip.seconds == 200
    channels = trip.channels
    # 36 km/h = 10 m/s; 20 A out of 360 V for 200 s = 400 Wh; the file's -20 A is a discharge.
    assert channels["speed_mps"].mean() == pytest.approx(10.0)
    assert channels["energy_wh"].sum() == pytest.approx(400.0)
    assert channels["current_a"].mean() == pytest.approx(20.0)
    assert set(channels["soc"]) == {0.8}
    assert set(channels["ac_w"]) == {300.0}
    assert set(channels["heater_w"]) == {100.0}
    assert set(channels["ambient_c"]) == {5.0}
    assert channels["latitude_deg"][-1] == pytest.approx(42 + 2000 / 111_195)


def test_trips_start_on_the_clock_of_their_vehicle(write_ved, rows):
    late = rows(trip=707, day=3.25, seconds=500)
    table = rows(day=1.5) + late[:201] + late[300:]
    (vehicle,) = import_ved([write_ved(table)], **LOOSE)
    starts = {trip.name: trip.start_time_s for trip in vehicle.trips}
    # Days of 86,400 s; the part after the gap begins 300 s into its recording.
    assert starts == {"706": 129_600.0, "707": 280_800.0, "707b": 281_100.0}


def test_air_conditioning_in_kilowatts(write_ved, rows):
    table = rows()
    for row in table:
        row[AC_KW] = "1.2"
        row[AC_W] = ""
    (vehicle,) = import_ved([write_ved(table)], **LOOSE)
    assert set(vehicle.trips[0].channels["ac_w"]) == {1200.0}


def test_a_state_of_charge_of_zero_is_no_reading(write_ved, rows):
    table = rows()
    for row in table:
        row[SOC] = "0.0"
    (vehicle,) = import_ved([write_ved(table)], **LOOSE)
    assert "soc" not in vehicle.trips[0].channels


def test_powertrain_is_inferred_and_engine_trips_are_told_apart(write_ved, rows):
    mixed = rows(vehicle=20, trip=2, engine_rpm="0")
    mixed[100][ENGINE] = "900"
    table = rows() + rows(vehicle=20, trip=1, engine_rpm="0") + mixed
    path = write_ved(table)
    (car,) = import_ved([path], powertrain=("ev",), **LOOSE)
    assert (car.name, car.facts["powertrain_from"]) == ("ved-10", "inferred from its signals")
    vehicles = import_ved([path], powertrain=("phev-electric",), **LOOSE)
    (hybrid,) = vehicles
    assert hybrid.name == "ved-20"
    assert hybrid.facts["powertrain"] == "phev-electric"
    assert [trip.name for trip in hybrid.trips] == ["1"]
    assert vehicles.account.reasons("dropped", "trips") == {"engine ran": 1}
    assert vehicles.account.reasons("dropped", "vehicles") == {"ev, not asked for": 1}
    (hybrid,) = import_ved([path], powertrain=("phev",), **LOOSE)
    assert [trip.name for trip in hybrid.trips] == ["1", "2"]
    assert [v.name for v in import_ved([path], powertrain=("all",), **LOOSE)] == [
        "ved-10",
        "ved-20",
    ]


def test_static_files_give_type_and_mass(write_ved, rows, tmp_path):
    path = write_ved(rows() + rows(vehicle=11))
    table = {
        "VehId": [10, 11],
        "Vehicle Type": ["EV", "NO DATA"],
        "Vehicle Class": ["Car", "NO DATA"],
        "Generalized_Weight": ["3500", "NO DATA"],
    }
    write_workbook(tmp_path / "VED_Static_Data_PHEV&EV.xlsx", pl.DataFrame(table))
    first, second = import_ved([path], **LOOSE)
    assert first.facts["mass_kg"] == 1587.6  # 3,500 lb
    assert first.facts["class"] == "Car"
    assert first.facts["powertrain_from"] == "static file"
    assert "mass_kg" not in second.facts
    assert second.facts["powertrain_from"] == "inferred from its signals"


@pytest.fixture
def everywhere(write_ved, rows, tmp_path):
    """Write one trip as loose CSV, as Parquet and inside a .7z archive, in three folders."""
    path = write_ved(rows())
    for folder in ("csv", "parquet", "archive"):
        (tmp_path / folder).mkdir()
    table = pl.read_csv(path, infer_schema_length=None)
    table.write_parquet(tmp_path / "parquet" / "week.parquet")
    with py7zr.SevenZipFile(tmp_path / "archive" / "part1.7z", "w") as archive:
        archive.write(path, "folder/VED_171101_week.csv")
    path.rename(tmp_path / "csv" / path.name)
    return tmp_path


@pytest.mark.parametrize("folder", ["csv", "parquet", "archive"])
def test_every_kind_of_file_gives_the_same_trip(everywhere, folder):
    (reference,) = import_ved([everywhere / "csv"], **LOOSE)
    (vehicle,) = import_ved([everywhere / folder], **LOOSE)
    assert vehicle.trips[0].channels.keys() == reference.trips[0].channels.keys()
    for name, values in vehicle.trips[0].channels.items():
        assert values.tolist() == reference.trips[0].channels[name].tolist(), name


def test_the_same_trip_in_three_files_is_imported_once(everywhere):
    vehicles = import_ved([everywhere], **LOOSE)
    (vehicle,) = vehicles
    assert [trip.name for trip in vehicle.trips] == ["706"]
    assert vehicle.facts["file_kind"] == "7z+csv+parquet"
    assert vehicles.account.count("dropped", "rows", "trip also in another file") == 402
    assert vehicles.account.count("read", "rows") == 603


def test_a_trip_number_used_again_on_another_day_is_another_trip(write_ved, rows):
    (vehicle,) = import_ved([write_ved(rows() + rows(day=30.25))], **LOOSE)
    assert [trip.name for trip in vehicle.trips] == ["706", "706b"]


def test_one_bad_vehicle_never_spoils_a_fleet(write_ved, rows):
    vehicles = import_ved(
        [write_ved(rows(current_a=20.0, seconds=700) + rows(vehicle=11))], **LOOSE
    )
    assert [vehicle.name for vehicle in vehicles] == ["ved-11"]
    (reason,) = vehicles.account.reasons("dropped", "vehicles")
    assert "driving charges the pack" in reason


def test_the_account_balances(write_ved, rows):
    table = rows() + rows(trip=707, seconds=50) + rows(vehicle=30, engine_rpm="0")
    vehicles = import_ved([write_ved(table)], **LOOSE)
    list(vehicles)
    account = vehicles.account
    for unit in ("rows", "trips", "vehicles"):
        dropped = account.count("dropped", unit)
        assert account.count("read", unit) == account.count("kept", unit) + dropped, unit
    assert account.count("read", "rows") == 201 + 51 + 201


def test_nothing_is_read_before_the_first_vehicle_is_asked_for(write_ved, rows):
    calls = []
    vehicles = import_ved([write_ved(rows())], progress=lambda *call: calls.append(call), **LOOSE)
    assert isinstance(vehicles, VehicleStream)
    assert not calls
    list(vehicles)
    size = calls[0][1]
    assert calls[0] == (size, size, "reading VED_171101_week.csv")
    assert calls[1:] == [(0, 201, "cleaning ved-10"), (201, 201, "cleaned")]


def test_blocks_do_not_change_the_result(write_ved, rows, monkeypatch):
    path = write_ved(rows())
    (complete,) = import_ved([path], **LOOSE)
    monkeypatch.setattr("fedwatt.telemetry.readers.tables.BLOCK_BYTES", 1000)
    (blocks,) = import_ved([path], **LOOSE)
    energy = [vehicle.trips[0].channels["energy_wh"].tolist() for vehicle in (complete, blocks)]
    assert energy[0] == energy[1]
    assert complete.facts["account"] == blocks.facts["account"]


def test_a_vehicle_alone_equals_the_vehicle_in_a_fleet(write_ved, rows):
    alone = next(import_ved([write_ved(rows(), "a.csv")], **LOOSE))
    fleet = next(import_ved([write_ved(rows(vehicle=11, speed_kmh=50) + rows(), "b.csv")], **LOOSE))
    for name, values in alone.trips[0].channels.items():
        assert values.tobytes() == fleet.trips[0].channels[name].tobytes(), name


def test_driving_without_pack_signals(write_ved, rows):
    table = rows(engine_rpm="1500")
    for row in table:
        row[15] = row[16] = row[17] = ""
    path = write_ved(table)
    driving = replace(VED_CLEANING, unlabelled=True, minimum_trips=1)
    (car,) = import_ved([path], powertrain=("ice",), cleaning=driving)
    assert car.labels == "none"
    assert "energy_wh" not in car.trips[0].channels
    with pytest.raises(SettingError, match="unlabelled"):
        import_ved([path], powertrain=("ice",))


def test_an_unknown_powertrain_is_refused(write_ved, rows):
    with pytest.raises(SettingError, match="Did you mean 'phev-electric'"):
        import_ved([write_ved(rows())], powertrain=("phev-electrik",))


def test_nothing_left_says_why(write_ved, rows):
    with pytest.raises(DataError, match=r"1 dropped: 1 under 120 s"):
        list(import_ved([write_ved(rows(seconds=30))], **LOOSE))


def test_a_missing_path_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not exist"):
        import_ved([tmp_path / "nowhere"])
    with pytest.raises(DataError, match=r"no \.csv, \.tsv"):
        import_ved([tmp_path])
