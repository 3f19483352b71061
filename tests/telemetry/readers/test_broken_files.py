"""Broken files: each is repaired and counted, or refused with the place named."""

import gzip
from dataclasses import replace
from zipfile import ZipFile

import numpy as np
import py7zr
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.telemetry.readers.files import find_tables

LOOSE = {"cleaning": replace(VED_CLEANING, minimum_trips=1)}
TRIP = 2
TIME = 3
SPEED = 6
CURRENT = 15
VOLTAGE = 17


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7, 0.95, 0.999])
def test_a_truncated_archive_is_refused(write_ved, rows, tmp_path, share):
    source = write_ved(rows(seconds=3000))
    path = tmp_path / "part1.7z"
    with py7zr.SevenZipFile(path, "w") as archive:
        archive.write(source, source.name)
    complete = path.read_bytes()
    path.write_bytes(complete[: int(len(complete) * share)])
    with pytest.raises(DataError, match=r"part1\.7z is truncated or damaged"):
        list(import_ved([path], **LOOSE))


def test_a_bad_byte_inside_an_archive_is_refused(write_ved, rows, tmp_path):
    source = write_ved(rows(seconds=3000))
    path = tmp_path / "part1.7z"
    with py7zr.SevenZipFile(path, "w") as archive:
        archive.write(source, source.name)
    complete = bytearray(path.read_bytes())
    complete[len(complete) // 2] ^= 0xFF
    path.write_bytes(complete)
    with pytest.raises(DataError, match=r"part1\.7z is truncated or damaged"):
        list(import_ved([path], **LOOSE))


def test_an_archive_without_tables_is_refused(tmp_path):
    (tmp_path / "readme.txt").write_text("hello")
    with py7zr.SevenZipFile(tmp_path / "part1.7z", "w") as archive:
        archive.write(tmp_path / "readme.txt", "readme.txt")
    with pytest.raises(DataError, match="holds no telemetry"):
        list(import_ved([tmp_path / "part1.7z"]))


def test_a_missing_column_is_named_with_the_nearest(write_ved, rows):
    from tests.telemetry.conftest import VED_HEADER

    header = VED_HEADER.replace("HV Battery Voltage[V]", "HV Batery Voltage[V]")
    path = write_ved(rows(), header=header)
    expected = (
        r"VED_171101_week\.csv has no column 'HV Battery Voltage\[V\]'\. "
        r"Did you mean 'HV Batery Voltage\[V\]'\?"
    )
    with pytest.raises(DataError, match=expected):
        list(import_ved([path], **LOOSE))
    # Also when the file was met in a folder and is passed over.
    with pytest.raises(DataError, match=r"1 file is left out .*Did you mean 'HV Batery"):
        list(import_ved([path.parent], **LOOSE))


def test_a_file_of_another_kind_is_passed_over_in_a_folder_and_refused_by_name(write_ved, rows):
    path = write_ved(rows())
    other = path.with_name("notes.csv")
    other.write_text("a,b\n1,2\n")
    vehicles = import_ved([path.parent], **LOOSE)
    assert len(list(vehicles)) == 1
    assert vehicles.passed_over[0].startswith(
        "1 file is left out (notes.csv): has no column 'VehId'"
    )
    with pytest.raises(DataError, match=r"notes\.csv has no column 'VehId'"):
        list(import_ved([other], **LOOSE))


@pytest.mark.parametrize(
    ("name", "content"),
    [("VED_171101_week.csv", b""), ("VED.csv", b"\n"), ("VED.parquet", b""), ("part1.7z", b"")],
)
def test_an_empty_file_is_refused(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} is empty .*[Dd]ownload it again"):
        list(import_ved([path]))


def test_a_file_that_is_no_parquet_is_refused(tmp_path):
    path = tmp_path / "VED.parquet"
    path.write_bytes(b"PAR1 this is not a table PAR1")
    with pytest.raises(DataError, match=r"VED\.parquet is not a readable Parquet file"):
        list(import_ved([path]))


def test_text_in_a_number_column_becomes_no_reading(write_ved, rows):
    table = rows()
    table[50][SPEED] = "fast"
    table[60][VOLTAGE] = "NO DATA"  # the dataset's own word for missing
    table[70][TIME] = "soon"
    vehicles = import_ved([write_ved(table)], **LOOSE)
    (vehicle,) = vehicles
    # One row lost: the current of the row before, 1 A off, is held for its second (0.1 Wh).
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0, abs=0.11)
    account = vehicles.account
    assert account.count("repaired", "values", "text in column 'Vehicle Speed[km/h]'") == 1
    assert account.count("repaired", "values", "text in column 'Timestamp(ms)'") == 1
    assert account.count("dropped", "rows", "no vehicle, trip or time") == 1


def test_a_column_of_text_is_refused_with_file_row_and_column(write_ved, rows):
    table = rows()
    for row in table[3:]:
        row[VOLTAGE] = "high"
    expected = (
        r"VED_171101_week\.csv, row 5, column 'HV Battery Voltage\[V\]': 'high' is not a number"
    )
    with pytest.raises(DataError, match=expected):
        list(import_ved([write_ved(table)], **LOOSE))


def test_bytes_that_are_not_utf8_are_counted(write_ved, rows):
    path = write_ved(rows())
    text = path.read_bytes().splitlines()
    cells = text[40].split(b",")
    cells[SPEED] = b"36\xff\xfe"
    text[40] = b",".join(cells)
    path.write_bytes(b"\n".join(text) + b"\n")
    vehicles = import_ved([path], **LOOSE)
    assert len(list(vehicles)) == 1
    assert vehicles.account.count("repaired", "values", "bytes that are not UTF-8") == 2
    assert vehicles.account.count("repaired", "values", "text in column 'Vehicle Speed[km/h]'") == 1


def test_utf16_is_refused(write_ved, rows):
    path = write_ved(rows())
    path.write_text(path.read_text(), encoding="utf-16")
    with pytest.raises(DataError, match="is UTF-16 or no text at all"):
        list(import_ved([path], **LOOSE))


def test_short_and_long_lines_windows_ends_and_a_mark_are_read(write_ved, rows):
    path = write_ved(rows())
    lines = path.read_text().splitlines()
    lines[10] = ",".join(lines[10].split(",")[:15])  # cut before the pack signals
    lines[20] += ",9,9,9"
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(lines).encode() + b"\r\n")
    (vehicle,) = import_ved([path], **LOOSE)
    # In the short line's second the current before is held: 1 A off, 0.1 Wh.
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0, abs=0.11)


def test_the_same_rows_twice_count_once(write_ved, rows):
    vehicles = import_ved([write_ved(rows() + rows())], **LOOSE)
    (vehicle,) = vehicles
    assert [trip.name for trip in vehicle.trips] == ["706"]
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0)
    assert vehicles.account.count("dropped", "rows", "row written twice") == 201


def test_each_row_doubled_counts_once(write_ved, rows):
    vehicles = import_ved([write_ved([row for row in rows() for _ in range(2)])], **LOOSE)
    (vehicle,) = vehicles
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0)
    assert vehicles.account.count("dropped", "rows", "row written twice") == 201


def test_a_clock_that_goes_backwards_is_sorted(write_ved, rows):
    table = rows()
    table[80], table[81] = table[81], table[80]
    vehicles = import_ved([write_ved(table)], **LOOSE)
    (vehicle,) = vehicles
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0)
    assert vehicles.account.count("repaired", "rows", "clock went backwards, sorted") == 1


def test_a_channel_without_any_reading(write_ved, rows):
    table = rows() + rows(trip=707)
    for row in table[201:]:
        row[CURRENT] = "nan"
    for row in table:
        row[10] = ""  # outside temperature
    vehicles = import_ved([write_ved(table)], **LOOSE)
    (vehicle,) = vehicles
    assert [trip.name for trip in vehicle.trips] == ["706"]
    assert vehicles.account.reasons("dropped", "trips") == {"no pack current": 1}
    assert set(vehicle.trips[0].channels["ambient_c"]) == {20.0}
    assert vehicles.account.count("repaired", "parts", "no ambient_c, taken as 20") == 1


def test_speeds_in_another_unit_are_refused(write_ved, rows):
    # Metres a second in a column that says km/h: 10 instead of 36, while the positions tell 10 m/s.
    table = rows(seconds=600)
    for row in table:
        row[SPEED] = f"{float(row[SPEED]) / 3.6:.4f}"
    with pytest.raises(DataError, match=r"0\.28 times .*is speed in m/s read as km/h\?"):
        list(import_ved([write_ved(table)], **LOOSE))


def test_no_output_is_ever_nan(write_ved, rows):
    table = rows()
    for row in table[20:28]:
        row[SPEED] = row[VOLTAGE] = row[4] = ""
    (vehicle,) = import_ved([write_ved(table)], **LOOSE)
    for name, values in vehicle.trips[0].channels.items():
        assert np.isfinite(values).all(), name


def test_an_archive_of_something_else_in_a_folder_is_passed_by(write_ved, rows, tmp_path):
    write_ved(rows())
    with ZipFile(tmp_path / "photos.zip", "w") as archive:
        archive.writestr("car.jpg", b"x")
    (vehicle,) = import_ved([tmp_path], cleaning=replace(VED_CLEANING, minimum_trips=1))
    assert vehicle.facts["file_kind"] == "csv"


def test_a_compressed_table_that_grows_beyond_its_bound_is_refused(tmp_path):
    (tmp_path / "log.csv.gz").write_bytes(gzip.compress(bytes(70_000_000)))
    with pytest.raises(DataError, match=r"log\.csv\.gz is truncated or damaged"):
        find_tables([tmp_path])
