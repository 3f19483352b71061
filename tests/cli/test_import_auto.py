"""`fedwatt data import auto`, as typed: it shows, keeps its mapping, and can be repeated."""

import sys
from pathlib import Path
from zipfile import ZipFile

import polars as pl
import pytest

from fedwatt.cli.data.shared import say_made
from fedwatt.runs.config import from_tables
from fedwatt.runs.source import open_fleet
from fedwatt.telemetry.recognise.understand import understand
from fedwatt.telemetry.store import read_fleet
from tests.telemetry.conftest import VED_HEADER, ved_rows
from tests.telemetry.recognise.drives import comma, drives, fleet, write_sheets, write_workbook
from tests.telemetry.recognise.test_formats import leaf_spy


@pytest.fixture
def german(tmp_path: Path) -> Path:
    """Five vans in one file: other names, decimal commas, a row every 15 s."""
    when = pl.from_epoch(pl.col("t").cast(pl.Int64))
    rows = fleet(5, trips=4, step=15.0).select(
        **{"Kennzeichen": "van", "Datum": when.dt.strftime("%d.%m.%Y")},
        **{"Uhrzeit": when.dt.strftime("%H:%M:%S")},
        **{"Geschwindigkeit [km/h]": pl.col("speed") * 3.6, "HV-Spannung [V]": "volt"},
        **{"HV-Strom [A]": -pl.col("amp"), "Ladezustand [%]": pl.col("soc") * 100},
    )
    path = tmp_path / "flotte.csv"
    comma(rows).write_csv(path, separator=";")
    return path


def test_a_dry_run_shows_everything_and_writes_nothing(type_in, german, tmp_path) -> None:
    status, printed = type_in("data", "import", "auto", german.name, "--dry-run")
    assert status == 0, printed
    for words in ("Kennzeichen", "speed_mps", "current_a", "M-AB 100", "by column 'Kennzeichen'"):
        assert words in printed
    assert "rows are usually 15 s apart. Gaps up to 38 s are bridged" in printed
    assert "a reading of the pack only every 15 s" in printed
    assert "20 trips kept; 0 dropped" in printed
    assert "All of this can be imported; nothing is written." in printed
    assert [path.name for path in tmp_path.iterdir()] == [german.name]


def test_five_vans_become_five_vehicles_and_the_way_on_is_told(type_in, german, tmp_path) -> None:
    status, printed = type_in("data", "import", "auto", german.name, "--out", "own")
    assert status == 0, printed
    assert "20 trips kept; 0 dropped" in printed
    vehicles = list(read_fleet(tmp_path / "own"))
    assert [vehicle.name for vehicle in vehicles] == [f"M-AB {100 + n}" for n in range(5)]
    for trip in vehicles[0].trips:
        # 885 s at 5 kW; held for 15 s, so 2 % of it may be missing.
        assert trip.channels["energy_wh"].sum() == pytest.approx(5000 * 885 / 3600, rel=0.02)
    assert "fedwatt run --data own" in printed
    assert "fedwatt export runs/own --vehicle own/M-AB%20100" in printed
    assert "fedwatt predict car.onnx own/M-AB%20100/2024-03-" in printed


def test_commands_to_copy_are_whole_whatever_the_folder_is_called(type_in, german, capfd) -> None:
    out = "the vans of our second depot in the north of the town"
    _, printed = type_in("data", "import", "auto", german.name, "--out", out)
    assert f"fedwatt data import csv PATH --map '{out}.mapping.toml' --out OTHER" in printed
    say_made(Path(out))
    assert f"Train on it with: fedwatt run --data '{out}'\n" in capfd.readouterr().out


def test_the_mapping_beside_the_fleet_repeats_the_import(type_in, german, tmp_path) -> None:
    type_in("data", "import", "auto", german.name, "--out", "own")
    remaining = tmp_path / "own.mapping.toml"
    status, printed = type_in(
        "data", "import", "csv", german.name, "--map", remaining.name, "--out", "again"
    )
    assert status == 0, printed
    for first, other in zip(
        read_fleet(tmp_path / "own"), read_fleet(tmp_path / "again"), strict=True
    ):
        assert [trip.name for trip in first.trips] == [trip.name for trip in other.trips]
    # Another limit than the mapping's can be asked for, and is then too low.
    status, printed = type_in(
        *("data", "import", "csv", german.name, "--map", remaining.name, "--max-gap", "12"),
        *("--out", "short"),
    )
    assert status == 2
    assert "20 rows about 15 s apart, over the gap limit of 12 s" in printed
    assert "--max-gap 38 bridges them" in printed
    # The usual limit counts as asked for, too.
    status, printed = type_in(
        *("data", "import", "csv", german.name, "--map", remaining.name, "--max-gap", "10"),
        *("--out", "usual"),
    )
    assert status == 2
    assert "over the gap limit of 10 s" in printed


def test_an_edited_mapping_is_not_lost(type_in, german, tmp_path) -> None:
    (tmp_path / "own.mapping.toml").write_text("# mine\n")
    _, printed = type_in("data", "import", "auto", german.name, "--out", "own")
    assert "own.mapping.toml.bak" in printed
    assert (tmp_path / "own.mapping.toml.bak").read_text() == "# mine\n"


def test_a_fleet_has_to_have_a_name(type_in, german) -> None:
    status, printed = type_in("data", "import", "csv", german.name)
    assert status == 2
    assert "--out FLEET" in printed
    status, printed = type_in("data", "import", "auto", german.name)
    assert status == 2
    assert "--out FLEET, or --dry-run to leave it at this" in printed


def test_answers_are_for_auto_and_must_be_known(type_in, german) -> None:
    for inputs in (("--vehicle-column", "Kennzeichen"), ("--dates", "day first")):
        status, printed = type_in("data", "import", "csv", german.name, *inputs, "--out", "x")
        assert status == 2
        assert f"Only 'data import auto' takes {inputs[0]}" in printed
    status, printed = type_in("data", "import", "auto", german.name, "--dates", "days first")
    assert status == 2
    assert "Did you mean 'day first'?" in printed


def test_a_fleet_of_one_warns_at_import_and_in_a_run(type_in, tmp_path, caplog) -> None:
    rows = drives(4).rename({"t": "time", "volt": "voltage", "amp": "current"})
    rows.write_csv(tmp_path / "log.tsv", separator="\t")
    status, printed = type_in("data", "import", "auto", "log.tsv", "--out", "own")
    assert status == 0, printed
    assert "Warning: the fleet has one vehicle" in printed
    config = from_tables({"fleet": {"data": str(tmp_path / "own")}})
    open_fleet(config)
    open_fleet(config)
    assert caplog.text.count("has one vehicle, so there is nothing to federate") == 1


def test_a_fleet_that_reports_its_charge_is_told_what_it_lacks(type_in, tmp_path) -> None:
    rows = fleet(2, trips=4).select("van", time="t", speed="speed", soc=pl.col("soc") * 100)
    rows.write_csv(tmp_path / "log.csv")
    status, printed = type_in("data", "import", "auto", "log.csv", "--out", "own")
    assert status == 0, printed
    assert "predicts points of charge" in printed
    assert "pack_capacity_wh = 42000" in printed
    remaining = tmp_path / "own.mapping.toml"
    remaining.write_text(remaining.read_text() + "\n[facts]\npack_capacity_wh = 40000\n")
    type_in("data", "import", "csv", "log.csv", "--map", remaining.name, "--out", "again")
    for vehicle in read_fleet(tmp_path / "again"):
        assert vehicle.facts["pack_capacity_wh"] == 40_000


@pytest.fixture
def leaf_logs(tmp_path: Path) -> Path:
    """57 logs of one Leaf, two of them without a header line and one without a row."""
    leaf_spy(tmp_path)
    (whole_log,) = tmp_path.glob("Log_*.csv")
    header, *rows = whole_log.read_text().splitlines()
    folder = tmp_path / "leaf"
    folder.mkdir()
    whole_log.unlink()
    for number in range(54):
        log = "\n".join([header, *rows[number * 10 : number * 10 + 10]])
        (folder / f"Log_{number:03}.csv").write_text(log + "\n")
    for number in (54, 55):
        (folder / f"Log_{number:03}.csv").write_text("\n".join(rows[:20]) + "\n")
    (folder / "Log_056.csv").write_text(header + "\n")
    return folder


def test_logs_without_a_header_are_reported_and_left_out(type_in, leaf_logs, tmp_path) -> None:
    status, dry = type_in("data", "import", "auto", "leaf", "--dry-run")
    assert status == 0, dry
    assert "Files: 54 files in the format of Leaf Spy Pro" in dry
    assert "2 files are left out (Log_054.csv, Log_055.csv): has no header" in dry
    assert "1 file is left out (Log_056.csv): has no rows, only a header." in dry
    status, printed = type_in("data", "import", "auto", "leaf", "--out", "own")
    assert status == 0, printed
    assert "3 trips kept; 0 dropped" in printed
    assert "Log_004" not in printed
    (vehicle,) = read_fleet(tmp_path / "own")
    # Degrees and minutes: the drives begin at 48° north, 11° east.
    assert vehicle.trips[0].channels["latitude_deg"][0] == pytest.approx(48.0, abs=1e-3)
    assert vehicle.trips[0].channels["longitude_deg"].mean() == pytest.approx(11.0, abs=1e-6)
    _, described = type_in("data", "describe", "own")
    assert "Log_000.csv, Log_001.csv, Log_002.csv and 51 more" in " ".join(described.split())


def test_a_mapping_of_one_file_is_that_of_its_folder(leaf_logs, tmp_path) -> None:
    of_folder = understand(leaf_logs)
    of_file = understand(leaf_logs / "Log_003.csv")
    assert of_file.tables == of_folder.tables
    assert [path.name for path in of_file.paths] == ["Log_003.csv"]


def test_a_spreadsheet_reads_like_the_csv_beside_it(type_in, tmp_path) -> None:
    when = pl.from_epoch(pl.col("t").cast(pl.Int64)).dt.strftime("%Y-%m-%d %H:%M:%S")
    rows = fleet(2, trips=3, seconds=600).select(
        car="van", time=when, velocity=pl.col("speed") * 3.6, REESSVoltage="volt",
        REESSCurrent=-pl.col("amp"), tempAmb="temp",
    )  # fmt: skip
    write_workbook(tmp_path / "log.xlsx", rows)
    rows.write_csv(tmp_path / "log.csv")
    for name in ("xlsx", "csv"):
        status, printed = type_in("data", "import", "auto", f"log.{name}", "--out", name)
        assert status == 0, printed
        assert "6 trips kept; 0 dropped" in printed
    for sheet, text in zip(
        read_fleet(tmp_path / "xlsx"), read_fleet(tmp_path / "csv"), strict=True
    ):
        for trip, other in zip(sheet.trips, text.trips, strict=True):
            assert trip.name == other.name
            assert set(trip.channels) >= {"energy_wh", "voltage_v", "ambient_c"}
            for channel in trip.channels:
                assert trip.channels[channel] == pytest.approx(other.channels[channel], nan_ok=True)


def test_sheets_of_a_workbook_are_tables(type_in, tmp_path) -> None:
    rows = fleet(2, trips=3).select("van", time="t", v=pl.col("speed") * 3.6, power=pl.lit(2000.0))
    header = tuple(rows.columns)
    data = rows.rows()
    sheets = {"about": [("Export of March",)], "first": [header, *data[:2700]]}
    write_sheets(tmp_path / "log.xlsx", sheets | {"second": [header, *data[2700:]]})
    status, printed = type_in("data", "import", "auto", "log.xlsx", "--out", "own")
    assert status == 0, printed
    assert "1 file is left out (about.csv): is not a table" in printed
    for vehicle in read_fleet(tmp_path / "own"):
        # 2 kW over 899 s.
        energies = [trip.channels["energy_wh"].sum() for trip in vehicle.trips]
        assert energies == pytest.approx([2000 * 899 / 3600] * 3)


def test_damaged_archives_in_a_folder_are_reported_and_left_out(type_in, german, tmp_path) -> None:
    (tmp_path / "logs").mkdir()
    german.rename(tmp_path / "logs" / german.name)
    for name in ("a.zip", "b.xlsx"):
        (tmp_path / "logs" / name).write_bytes(b"PK\x03\x04 broken")
    again = ("csv", "logs", "--map", "own.mapping.toml", "--out", "again")
    for words in (("auto", "logs", "--out", "own"), again):
        status, printed = type_in("data", "import", *words)
        assert status == 0, printed
        assert "2 files are left out (a.zip, b.xlsx): is truncated or damaged" in printed
        assert "20 trips kept" in printed


def test_a_dry_run_refuses_what_the_import_refuses(type_in, tmp_path) -> None:
    # Regenerates more than it takes: -2 kW in all of the driving.
    rows = fleet(2).select("van", time="t", v=pl.col("speed") * 3.6, power=pl.lit(-2000.0))
    rows.write_csv(tmp_path / "log.csv")
    mapping = """
        [time]\ncolumn = "time"\n[vehicle]\ncolumn = "van"\n[trip]\nfrom = "gaps"
        [channels.speed_mps]\ncolumn = "v"\nunit = "km/h"
        [channels.power_w]\ncolumn = "power"\nunit = "W"
    """
    (tmp_path / "map.toml").write_text(mapping)
    for end in (("--dry-run",), ("--out", "own")):
        status, printed = type_in("data", "import", "csv", "log.csv", "--map", "map.toml", *end)
        assert status == 2
        assert "2 driving charges the pack" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.csv", "map.toml"]


def test_an_unlikely_consumption_is_warned_of(type_in, tmp_path) -> None:
    # 36 kW over 899 s are 8,990 Wh, on 8,998 m; 7.2 kW are a car's 200 Wh/km.
    watt = pl.when(pl.col("van") == "M-AB 100").then(36_000.0).otherwise(7200.0)
    rows = fleet(2).select("van", time="t", v=pl.col("speed") * 3.6, power=watt)
    rows.write_csv(tmp_path / "log.csv")
    status, printed = type_in("data", "import", "auto", "log.csv", "--dry-run")
    assert status == 0, printed
    assert "Warning: M-AB 100 takes 999 Wh/km: a car takes 40 to 400 Wh/km." in printed


def test_a_spreadsheet_needs_an_extra(type_in, tmp_path, monkeypatch) -> None:
    write_workbook(tmp_path / "log.xlsx", drives(2))
    monkeypatch.setitem(sys.modules, "fastexcel", None)
    status, printed = type_in("data", "import", "auto", "log.xlsx", "--dry-run")
    assert status == 2
    assert "pip install 'fedwatt[excel]'" in printed


def test_files_of_ved_are_read_as_such(type_in, tmp_path) -> None:
    rows = [row for trip in range(3) for row in ved_rows(trip=706 + trip)]
    week = tmp_path / "VED_171101_week.csv"
    week.write_text("\n".join([VED_HEADER, *(",".join(row) for row in rows)]) + "\n")
    with ZipFile(tmp_path / "ved.zip", "w") as archive:
        archive.write(week, week.name)
    for number, name in enumerate((week.name, "ved.zip")):
        command = ("data", "import", "auto", name, "--min-trips", "3", "--out", f"own{number}")
        status, printed = type_in(*command)
        assert status == 0, printed
        assert "has the columns of ved: read as by 'fedwatt data import ved'." in printed
        (vehicle,) = read_fleet(tmp_path / f"own{number}")
        assert vehicle.name == "ved-10"
        assert len(vehicle.trips) == 3


def test_a_vehicle_that_cannot_be_split_is_left_out(type_in, tmp_path) -> None:
    few = fleet(2, trips=2).filter(pl.col("van") == "M-AB 101")
    rows = pl.concat([fleet(1, trips=3), few])
    rows.select(car="van", time="t", speed="speed", voltage="volt", current="amp").write_csv(
        tmp_path / "log.csv"
    )
    status, printed = type_in("data", "import", "auto", "log.csv", "--out", "own")
    assert status == 0, printed
    assert "1 vehicle kept; 1 dropped: 1 under 3 usable trips." in printed


def test_a_mapping_is_proposed_with_the_order_of_dates_that_the_user_says(
    type_in, tmp_path
) -> None:
    days = pl.Series(["03/04/2024", "05/02/2024", "02/03/2024"])
    when = pl.from_epoch(pl.col("t").cast(pl.Int64)).dt.strftime(" %H:%M:%S")
    drives(3).with_row_index().select(
        time=pl.lit(days).gather(pl.col("index") // 900) + when,
        speed_kmh=pl.col("speed") * 3.6, voltage="volt", current="amp",
    ).write_csv(tmp_path / "log.csv")  # fmt: skip
    status, printed = type_in("data", "map", "log.csv")
    assert status == 2 and "--dates 'month first'" in printed
    status, printed = type_in("data", "map", "log.csv", "--dates", "month first")
    assert status == 0 and 'format = "%m/%d/%Y' in printed
