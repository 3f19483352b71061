"""Recognition of vehicles: columns, folders, names of files and their contents."""

from pathlib import Path

import polars as pl
import pytest

from fedwatt.errors import SettingError
from fedwatt.telemetry.readers import import_csv
from fedwatt.telemetry.readers.mapping import parse_mapping
from fedwatt.telemetry.recognise.understand import ImportAnswers, mapping_text, understand
from tests.telemetry.recognise.drives import START, drive, drives, fleet

CHANNELS = {"speed_mps": "speed", "voltage": "volt", "current": "amp", "lat": "lat", "lon": "lon"}


def write(path: Path, rows: pl.DataFrame, **more: str | pl.Expr) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    time = pl.from_epoch(pl.col("t").cast(pl.Int64)).dt.strftime("%Y-%m-%d %H:%M:%S")
    rows.select(time=time, **more, **CHANNELS).write_csv(path)


def imported(path: Path, answers: ImportAnswers | None = None) -> dict[str, int]:
    """Vehicles and how many trips each has, after an import by the mapping."""
    layout = understand(path, answers)
    mapping = parse_mapping(mapping_text(layout), "kept.toml")
    return {vehicle.name: len(vehicle.trips) for vehicle in import_csv(layout.paths, mapping)}


VANS = {"M-AB 100": 2, "M-AB 101": 2, "M-AB 102": 2}


@pytest.mark.parametrize("name", ["van", "VIN", "Kennzeichen", "vehicle_id", "车辆编号", "Kolonne"])
@pytest.mark.parametrize("order", ["below each other", "by time"])
def test_vans_in_one_file_are_told_apart(tmp_path, name, order) -> None:
    rows = fleet(3, trips=2, seconds=600)
    write(
        tmp_path / "log.csv",
        rows if order == "below each other" else rows.sort("t"),
        **{name: "van"},
    )
    assert imported(tmp_path) == VANS


def test_a_column_of_trips_is_no_column_of_vehicles(tmp_path) -> None:
    rows = pl.concat([drive(begin=START + 900 * n).with_columns(n=pl.lit(n)) for n in range(4)])
    write(tmp_path / "bus.csv", rows, Fahrt="n")
    assert imported(tmp_path) == {"bus": 4}  # without a pause in between


def test_states_of_a_vehicle_are_asked_about_but_not_taken(tmp_path) -> None:
    gear = pl.when(pl.col("speed") > 5).then(pl.lit("D")).otherwise(pl.lit("N"))
    write(tmp_path / "bus.csv", drives(3), gear=gear)
    layout = understand(tmp_path)
    assert layout.tables["vehicle"] == {"from": "file"}
    assert "Nothing uses 'gear' (2 values: N, D)" in layout.questions[0]


def test_the_user_has_the_last_word(tmp_path) -> None:
    part = pl.when(pl.col("t") < START + 3000).then(pl.lit("a")).otherwise(pl.lit("b"))
    write(tmp_path / "log.csv", drives(4), van=pl.lit("x"), part=part)
    assert imported(tmp_path) == {"x": 4}
    assert imported(tmp_path, ImportAnswers(vehicle="part")) == {"a": 1, "b": 3}
    assert understand(tmp_path, ImportAnswers(trip="part")).tables["trip"] == {"column": "part"}
    with pytest.raises(SettingError, match="Unknown column 'prat'"):
        understand(tmp_path, ImportAnswers(vehicle="prat"))


@pytest.mark.parametrize(
    ("files", "vehicles"),
    [
        # One file a trip of one vehicle, by name, by date or by what they hold.
        (["TripA01", "TripA02", "TripB01"], {"logs": 3}),
        (["2024-03-09", "2024-03-10", "2024-03-11"], {"logs": 3}),
        (["x1", "x2", "x3"], {"logs": 3}),
        # One folder a vehicle.
        (["T1/a", "T1/b", "T2/c"], {"T1": 2, "T2": 1}),
        (["T1/log", "T2/log"], {"T1": 1, "T2": 1}),
        # A name before the date.
        (["van1_20240309", "van1_20240310", "van2_20240309"], {"van1": 2, "van2": 1}),
        # A date before the name, or before what a day's drives are called.
        (
            ["20240309-0800_VAN 1", "20240310-0800_VAN 1", "20240311-0800_VAN 2"],
            {"VAN 1": 2, "VAN 2": 1},
        ),
        (["2024-03-09_home", "2024-03-10_home", "2024-03-10_work"], {"logs": 3}),
    ],
)
def test_names_of_files_tell_trips_from_vehicles(tmp_path, files, vehicles) -> None:
    for number, name in enumerate(files):
        write(tmp_path / "logs" / f"{name}.csv", drive(begin=START + 86_400 * number))
    assert imported(tmp_path / "logs") == vehicles


def test_a_drive_over_midnight_is_one_drive_by_times_of_day(tmp_path) -> None:
    # At 23:53, 8:00 and 17:00 on the clock: the first drive ends after midnight.
    for name, begin in (("van1_1", 85_980), ("van1_2", 28_800), ("van2_1", 61_200)):
        rows = drive(begin=float(begin)).with_columns(pl.col("t") % 86_400)
        time = pl.from_epoch(pl.col("t").cast(pl.Int64)).dt.strftime("%H:%M:%S")
        rows.select(time=time, **CHANNELS).write_csv(tmp_path / f"{name}.csv")
    assert understand(tmp_path).tables["trip"] == {"from": "file"}
    # It is cut at midnight, where the clock was set back.
    assert imported(tmp_path) == {"van1": 3, "van2": 1}


def test_names_of_all_files_are_judged_whichever_are_looked_into(tmp_path) -> None:
    # 60 cars on two days each; of every third file, which is looked into, each has another name.
    write(tmp_path / "one.csv", drive(300))
    text = (tmp_path / "one.csv").read_text()
    (tmp_path / "logs").mkdir()
    for car in range(60):
        for day in (1, 2):
            (tmp_path / "logs" / f"car-{car:02d}_2024-03-0{day}.csv").write_text(text)
    layout = understand(tmp_path / "logs")
    assert layout.reasons["vehicle"] == "60 names before the files' dates"


def test_files_that_overlap_in_time_are_of_different_vehicles(tmp_path) -> None:
    for name in ("x", "y"):
        write(tmp_path / f"{name}.csv", drives(2))
    assert imported(tmp_path) == {"x": 2, "y": 2}


def test_a_clock_that_starts_with_each_file_keeps_files_apart(tmp_path) -> None:
    for name in ("one", "two"):
        rows = pl.concat([drive(begin=0.0), drive(begin=2000.0)])
        rows.select(t="t", **CHANNELS).write_csv(tmp_path / f"{name}.csv")
    assert sum(imported(tmp_path).values()) == 4


def test_files_with_other_columns_are_left_out(tmp_path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"trip_{name}.csv", drive(begin=START + ord(name) * 10_000.0))
    (tmp_path / "drivers.csv").write_text("name,birthday\nAda,1815\n")
    layout = understand(tmp_path)
    assert [path.name for path in layout.paths] == ["trip_a.csv", "trip_b.csv"]
    remark, advice = layout.remarks
    assert remark.startswith(
        "1 file is left out (drivers.csv): without 'current', 'speed_mps', 'time'"
    )
    assert "'fedwatt data merge'" in advice


def test_files_may_spell_columns_in_other_letters(tmp_path) -> None:
    rows = drives(3).select(Time="t", speed="speed", voltage="volt", current="amp", T="temp", t="t")
    rows.write_csv(tmp_path / "van 1.csv")
    capital = {"speed": "SPEED", "voltage": "Voltage", "Time": "time"}
    rows.reverse().rename(capital).write_csv(tmp_path / "van 2.csv")
    layout = understand(tmp_path)
    assert len(layout.paths) == 2
    mapping = parse_mapping(mapping_text(layout), "kept.toml")
    for vehicle in import_csv(layout.paths, mapping):
        # 5 kW over 899 s on average, three times.
        energies = [trip.channels["energy_wh"].sum() for trip in vehicle.trips]
        assert energies == pytest.approx([5000 * 899 / 3600] * 3, rel=0.01)


def test_vans_with_other_sensors_are_read_along(tmp_path) -> None:
    sensors = {"a": {"temp": "ambient_c"}, "b": {"alt": "elevation_m", "soc": "soc"}, "c": {}}
    for van, sensor in sensors.items():
        rows = drives(2).with_columns(van=pl.lit(van), time=pl.col("t"))
        remaining = rows.select(
            "van", "time", "speed", volt="volt", amp="amp", **{n: c for c, n in sensor.items()}
        )
        remaining.rename({"volt": "voltage", "amp": "current"}).write_csv(tmp_path / f"{van}.csv")
    layout = understand(tmp_path)
    assert layout.remarks == ("Not all files have the columns elevation_m, soc, ambient_c.",)
    mapping = parse_mapping(mapping_text(layout), "kept.toml")
    vans = {
        vehicle.name: vehicle.trips[0].channels for vehicle in import_csv(layout.paths, mapping)
    }
    assert set(vans["a"]["ambient_c"]) == {5.0}
    assert vans["b"]["elevation_m"] == pytest.approx(500.0, abs=1.0)
    assert {"elevation_m", "soc"}.isdisjoint(vans["c"])


def test_a_file_written_in_another_way_is_not_read_along(tmp_path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"van_{name}.csv", drives(2))
    text = (tmp_path / "van_b.csv").read_text().replace(",", ";").replace("lon\n", "place\n")
    (tmp_path / "van_b.csv").write_text(text)
    layout = understand(tmp_path)
    assert len(layout.paths) == 1
    assert "another separator, decimal sign or place of the header" in layout.remarks[0]


@pytest.mark.parametrize("name", ["drive", "run", "Trip"])
def test_a_flag_of_driving_names_no_trips(tmp_path, name) -> None:
    write(tmp_path / "bus.csv", drives(3), **{name: pl.lit(1)})
    layout = understand(tmp_path)
    assert layout.tables["trip"]["from"] == "gaps"
    assert f"values of '{name}' come again after pauses" in layout.reasons["trip"]
    assert imported(tmp_path) == {"bus": 3}


def test_a_distance_names_no_trips(tmp_path) -> None:
    write(tmp_path / "bus.csv", drives(3), recorrido="odo")
    assert imported(tmp_path) == {"bus": 3}
