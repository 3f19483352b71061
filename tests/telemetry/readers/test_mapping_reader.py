from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry.readers import (
    PLAIN_CLEANING,
    import_csv,
    load_mapping,
    shipped_mappings,
)
from fedwatt.telemetry.readers.mapping import parse_mapping

UNLABELLED = replace(PLAIN_CLEANING, unlabelled=True)
MAPPING = """
[time]
column = "t"
unit = "s"
[vehicle]
column = "car"
[trip]
column = "drive"
[channels.speed_mps]
column = "v"
unit = "km/h"
[channels.voltage_v]
column = "U"
unit = "V"
[channels.current_a]
column = "I"
unit = "A"
discharge = "positive"
"""


def table(seconds=200, current=20.0):
    """36 km/h, 360 V, 20 A: 400 Wh in 200 s. Speed and current wobble evenly."""
    wobble = [0.5 if second % 2 else -0.5 for second in range(seconds + 1)]
    return pl.DataFrame(
        {
            "t": [float(second) for second in range(seconds + 1)],
            "car": ["bus-7"] * (seconds + 1),
            "drive": ["morning"] * (seconds + 1),
            "v": [36 + w for w in wobble],
            "U": [360.0] * (seconds + 1),
            "I": [current + w for w in wobble],
        }
    )


@pytest.fixture
def mapping_file(tmp_path):
    def write(text=MAPPING):
        path = tmp_path / "map.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_mapped_table(tmp_path, mapping_file, kind):
    path = tmp_path / f"log.{kind}"
    getattr(table(), f"write_{kind}")(path)
    text = 'kind = "bus"\n' + MAPPING + "[facts]\nmass_kg = 12000\n"
    (vehicle,) = import_csv([path], mapping_file(text))
    assert (vehicle.name, vehicle.kind, vehicle.labels) == ("bus-7", "bus", "measured")
    assert vehicle.facts["mass_kg"] == 12000
    (trip,) = vehicle.trips
    assert trip.name == "morning"
    assert trip.channels["energy_wh"].sum() == pytest.approx(400.0)
    assert trip.channels["speed_mps"].mean() == pytest.approx(10.0)


@pytest.mark.parametrize("encoding", ["cp1252", "utf-8"])
@pytest.mark.parametrize("numbers", ["", '\n[file]\nthousands = "\u00a0"'])
def test_names_keep_their_letters_in_any_encoding(tmp_path, mapping_file, encoding, numbers):
    cars = ("K-Ü 1", "K-Ö 1", "K-Ä 1")
    rows = pl.concat(table().with_columns(car=pl.lit(car), driver=pl.lit("Jörg")) for car in cars)
    text = rows.write_csv().replace("360.0", "0\u00a0360.0" if numbers else "360.0")
    (tmp_path / "log.csv").write_bytes(text.encode(encoding))
    vehicles = import_csv([tmp_path / "log.csv"], mapping_file(MAPPING + numbers))
    assert {vehicle.name for vehicle in vehicles} == set(cars)
    assert vehicles.account.count("repaired", "values") == 0


@pytest.mark.parametrize("lost", [b"\xff", "\ufffd".encode()])
def test_names_without_all_their_letters_are_refused(tmp_path, mapping_file, lost):
    text = table().with_columns(car=pl.lit("Köln")).write_csv().encode()
    (tmp_path / "log.csv").write_bytes(text.replace("Köln".encode(), b"K" + lost + b"ln", 1))
    with pytest.raises(DataError, match=r"log\.csv, row 2, column 'car': a letter of the name"):
        list(import_csv([tmp_path / "log.csv"], mapping_file()))


def test_the_sign_of_the_current(tmp_path, mapping_file):
    path = tmp_path / "log.csv"
    table(current=-20.0).write_csv(path)
    negative = MAPPING.replace('"positive"', '"negative"')
    (vehicle,) = import_csv([path], mapping_file(negative))
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0)


def test_units_separator_decimal_comma_and_units_row(tmp_path, mapping_file):
    rows = ["t;v;U;I", "ms;m/s;kV;mA"]
    for second in range(201):
        wobble = 0.5 if second % 2 else -0.5
        speed = f"{10 + wobble}".replace(".", ",")
        current = f"{(20 + wobble) * 1000:.0f}"
        rows.append(f"{second * 1000};{speed};0,36;{current}")
    (tmp_path / "car-1").mkdir()
    path = tmp_path / "car-1" / "monday.csv"
    path.write_text("\n".join(rows))
    text = """
[file]
separator = ";"
decimal = ","
units_row = true
[time]
column = "t"
unit = "ms"
[vehicle]
from = "folder"
[trip]
from = "file"
[channels.speed_mps]
column = "v"
unit = "m/s"
[channels.voltage_v]
column = "U"
unit = "kV"
[channels.current_a]
column = "I"
unit = "mA"
"""
    (vehicle,) = import_csv([path], mapping_file(text))
    assert (vehicle.name, vehicle.trips[0].name) == ("car-1", "monday")
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0)


@pytest.mark.parametrize(
    ("stamp", "form"),
    [
        ("2024-05-01T12:{m:02d}:{s:02d}Z", ""),
        ("2024-05-01 12:{m:02d}:{s:02d}.000+02:00", ""),
        ("01.05.2024 12:{m:02d}:{s:02d}", ""),
        ("05/01/24 12:{m:02d}:{s:02d}", "%m/%d/%y %H:%M:%S"),
    ],
)
def test_times_as_text(tmp_path, mapping_file, stamp, form):
    frame = table().with_columns(
        pl.Series("t", [stamp.format(m=second // 60, s=second % 60) for second in range(201)])
    )
    path = tmp_path / "log.csv"
    frame.write_csv(path)
    text = MAPPING.replace('unit = "s"', f'unit = "iso"\nformat = "{form}"')
    (vehicle,) = import_csv([path], mapping_file(text))
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(400.0)


def test_times_that_cannot_be_read_are_refused(tmp_path, mapping_file):
    path = tmp_path / "log.csv"
    table().with_columns(pl.lit("noon").alias("t")).write_csv(path)
    text = MAPPING.replace('unit = "s"', 'unit = "iso"')
    with pytest.raises(DataError, match=r"log\.csv, row 2, column 't': 'noon' is not a time"):
        list(import_csv([path], mapping_file(text)))


def test_a_trip_in_two_files_is_joined(tmp_path, mapping_file):
    complete = table(seconds=400)
    complete.head(200).write_csv(tmp_path / "b.csv")
    complete.tail(201).write_csv(tmp_path / "a.csv")
    (vehicle,) = import_csv([tmp_path / "a.csv", tmp_path / "b.csv"], mapping_file())
    assert [trip.seconds for trip in vehicle.trips] == [400]


def test_swapped_units_are_refused(tmp_path, mapping_file):
    path = tmp_path / "log.csv"
    table().with_columns(pl.col("v") * 1.6).write_csv(path)  # 58 km/h, said to be m/s
    text = MAPPING.replace("km/h", "m/s")
    with pytest.raises(DataError, match=r"is speed in km/h read as m/s\?"):
        list(import_csv([path], mapping_file(text)))


def test_a_wrong_sign_is_told_once_for_all_vehicles(tmp_path, mapping_file):
    # 6 km each at 36 km/h; the first takes in 200 Wh/km, the second 100 Wh/km.
    first = table(seconds=600, current=-20.0)
    second = table(seconds=600, current=-10.0)
    both = pl.concat([first, second.with_columns(pl.lit("bus-8").alias("car"))])
    path = tmp_path / "log.csv"
    both.write_csv(path)
    with pytest.raises(DataError) as error:
        list(import_csv([path], mapping_file()))
    assert str(error.value) == (
        "No vehicle is left to use. 0 vehicles kept; 2 dropped: 2 driving charges the pack (is the "
        "sign of current or power the other way round?). Correct the unit or sign, in the mapping "
        "if there is one, and import again."
    )


def test_positions_tell_mph_read_as_mps_even_where_it_is_too_fast(tmp_path, mapping_file):
    # 26 m/s due north, written as 58 mph.
    frame = table().with_columns(
        pl.col("v") * 1.6, (42 + pl.col("t") * 26 / 111_195).alias("lat"), pl.lit(0.0).alias("lon")
    )
    path = tmp_path / "log.csv"
    frame.write_csv(path)
    text = MAPPING.replace("km/h", "m/s")
    for channel, column in (("latitude_deg", "lat"), ("longitude_deg", "lon")):
        text += f'[channels.{channel}]\ncolumn = "{column}"\nunit = "degree"\n'
    with pytest.raises(DataError, match=r"is speed in mph read as m/s\?"):
        list(import_csv([path], mapping_file(text)))


def test_files_without_a_usable_row_are_refused(tmp_path, mapping_file):
    path = tmp_path / "log.csv"
    other = tmp_path / "more.csv"
    table().head(0).write_csv(path)
    with pytest.raises(DataError, match=r"^No rows in log\.csv, only a header\."):
        list(import_csv([path], mapping_file()))
    table().head(0).write_csv(other)
    with pytest.raises(DataError, match=r"^No rows in log\.csv and 1 more, only a header\."):
        list(import_csv([path, other], mapping_file()))
    table().with_columns(pl.lit("").alias("car")).write_csv(path)
    with pytest.raises(DataError, match=r"None of the 201 rows in log\.csv .*\[vehicle\]"):
        list(import_csv([path], mapping_file()))


def test_an_empty_file_of_ones_own_need_not_be_downloaded(tmp_path, mapping_file):
    path = tmp_path / "log.csv"
    path.write_bytes(b"")
    with pytest.raises(DataError, match="Export or download it again, or leave it out"):
        list(import_csv([path], mapping_file()))


def test_fahrenheit_is_read_and_a_capital_is_another_column(tmp_path, mapping_file):
    # The file also has `t`, its time.
    path = tmp_path / "log.csv"
    table().with_columns(pl.lit(41.0).alias("T")).write_csv(path)
    text = MAPPING + '[channels.ambient_c]\ncolumn = "T"\nunit = "°F"\n'
    (vehicle,) = import_csv([path], mapping_file(text))
    assert vehicle.trips[0].channels["ambient_c"] == pytest.approx(np.full(200, 5.0))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[channels.speed_mps]", "[channels.sped_mps]", r"Did you mean 'speed_mps'"),
        ('unit = "km/h"', 'unit = "kmh"', r"\[channels\.speed_mps\]: Unknown unit 'kmh'\. Did you"),
        ('discharge = "positive"', 'discharge = "plus"', r"Unknown discharge 'plus'.*positive"),
        ('column = "v"\n', "", r"\[channels\.speed_mps\]: column must be"),
        ('column = "v"\n', "column = 5\n", r"\[channels\.speed_mps\]: column must be"),
        ('unit = "V"', 'unit = "V"\naliases = 5', "aliases must be a column's name, or a list"),
        ('[trip]\ncolumn = "drive"', "[trip]\ncolumn = 5", r"column must be a text in quotes"),
        ("[time]", '[file]\nskip_rows = "two"\n[time]', r"skip_rows must be a whole number"),
        ('[trip]\ncolumn = "drive"', '[trip]\nfrom = "vehicle"', r"\[trip\]: Unknown from"),
        ('[trip]\ncolumn = "drive"', "[trip]", r"\[trip\] must hold exactly one of column or from"),
        ('unit = "s"', 'unit = "sec"', r"\[time\]: Unknown unit 'sec'.*ms"),
        ('unit = "V"', 'unit = "V"\ndischarge = "positive"', "discharge is only for current_a"),
        ("[time]", "[tiem]", r"Did you mean 'time'"),
        ("[time]", "[time", "not valid TOML"),
    ],
)
def test_mapping_errors_name_file_key_and_what_is_allowed(old, new, message):
    assert old in MAPPING
    with pytest.raises(SettingError, match=message) as error:
        parse_mapping(MAPPING.replace(old, new), "map.toml")
    assert str(error.value).startswith("map.toml")


def test_one_alias_needs_no_brackets(tmp_path):
    path = tmp_path / "log.csv"
    table().rename({"U": "volts"}).write_csv(path)
    mapping = parse_mapping(MAPPING.replace('column = "U"', 'column = "U"\naliases = "volts"'), "m")
    (vehicle,) = import_csv([path], mapping)
    assert vehicle.trips[0].channels["voltage_v"].mean() == pytest.approx(360.0)


def test_a_mapping_without_energy_is_refused_unless_unlabelled(tmp_path, mapping_file):
    path = tmp_path / "log.csv"
    table().write_csv(path)
    text = MAPPING.partition("[channels.voltage_v]")[0]
    with pytest.raises(SettingError, match="maps no energy"):
        import_csv([path], mapping_file(text))
    (vehicle,) = import_csv([path], mapping_file(text), cleaning=UNLABELLED)
    assert vehicle.labels == "none"


def test_a_missing_column_names_file_and_mapping(tmp_path, mapping_file):
    path = tmp_path / "log.csv"
    table().rename({"U": "voltage"}).write_csv(path)
    with pytest.raises(DataError, match=r"log\.csv has no column 'U'.*'map' asks for it"):
        list(import_csv([path], mapping_file()))


def test_an_unknown_mapping_is_refused():
    with pytest.raises(SettingError, match="Did you mean 'sumo'"):
        load_mapping("sumoo")


def test_shipped_mappings_load():
    assert shipped_mappings() == (
        *("abrp", "bmw-i3", "carla", "changchun", "cruise-m", "geotab", "leaf-spy", "ovms", "sumo"),
        *("teslamate", "torque-pro", "twizy"),
    )
    for name in shipped_mappings():
        measured = name not in ("carla", "cruise-m", "sumo")
        assert load_mapping(name).labels == ("measured" if measured else "simulated")


def test_a_twizy_has_dates_and_times_in_two_columns_and_no_energy(tmp_path):
    lines = ["Date,Time,Soc,Speed,Temperature,LAT,LON,ALT,SpeedLimit"]
    for s in range(301):  # across midnight, with a month of one digit; half a point a minute
        day, clock = divmod(86_400 - 100 + s, 86_400)
        time = f"{clock // 3600:02d}:{clock // 60 % 60:02d}:{clock % 60:02d}"
        north = 34 + s * 10.05 / 111_195
        lines.append(
            f"7/{1 + day}/2021,{time},{90 - s // 60 / 2},{36 + s % 2 / 5},21,{north},-6,9,40"
        )
    (tmp_path / "T1").mkdir()
    (tmp_path / "T1" / "ride.csv").write_text("\n".join(lines))
    (vehicle,) = import_csv([tmp_path], "twizy")
    (trip,) = vehicle.trips
    assert (vehicle.name, vehicle.labels, trip.name, trip.seconds) == (
        "T1",
        "measured",
        "ride",
        300,
    )
    assert "energy_wh" not in trip.channels
    assert trip.channels["soc"][[0, -1]] == pytest.approx([0.9, 0.875])
    assert vehicle.facts["pack_capacity_wh"] == 6100


def test_a_trip_without_a_state_of_charge_is_dropped_where_that_is_all(tmp_path, mapping_file):
    text = MAPPING.partition("[channels.voltage_v]")[0]
    text += '[channels.soc]\ncolumn = "soc"\nunit = "%"\n'
    path = tmp_path / "log.csv"
    table().with_columns(soc=pl.lit(None, pl.Float64)).write_csv(path)
    with pytest.raises(DataError, match="no state of charge"):
        list(import_csv([path], mapping_file(text)))


def test_sumo_battery_output(tmp_path):
    lines = ["timestep_time;vehicle_energyConsumed;vehicle_id;vehicle_speed"]
    lines += [
        f"{s}.00;{2.0 if s % 2 else 1.0};{ev};{10 + s % 2}"
        for s in range(201)
        for ev in ("ev1.0", "ev1.1", "ev2")
    ]
    path = tmp_path / "battery.csv"
    path.write_text("\n".join(lines))
    first, second = import_csv([path], "sumo")
    assert (first.name, second.name) == ("ev1", "ev2")
    # A vehicle of SUMO drives once: its number is the trip.
    assert [trip.name for trip in first.trips] == ["ev1.0", "ev1.1"]
    assert [trip.name for trip in second.trips] == ["ev2"]
    # Steps 1 to 200: a hundred of 2 Wh and a hundred of 1 Wh.
    assert first.trips[0].channels["energy_wh"].sum() == pytest.approx(300.0)


def test_carla_velocity_is_the_length_of_a_vector(tmp_path):
    lines = ["frame,timestamp,actor_id,x,y,z,vx,vy,vz"]
    lines += [f"{s},{s * 0.5},87,0,0,{s * 0.01},{6 + s % 2 * 0.1},{-8},0" for s in range(401)]
    path = tmp_path / "town.csv"
    path.write_text("\n".join(lines))
    (vehicle,) = import_csv([path], "carla", cleaning=UNLABELLED)
    assert vehicle.trips[0].channels["speed_mps"].mean() == pytest.approx(10.0, abs=0.05)
    assert vehicle.trips[0].channels["elevation_m"][-1] == pytest.approx(4.0)


def test_cruise_m_results(tmp_path):
    lines = ["Time;Vehicle Velocity;Battery Voltage;Battery Current;Battery SOC", "s;km/h;V;A;%"]
    lines += [f"{s};{36 + s % 2};360;{20 + s % 2};80" for s in range(201)]
    (tmp_path / "truck-1").mkdir()
    path = tmp_path / "truck-1" / "wltp.csv"
    path.write_text("\n".join(lines))
    (vehicle,) = import_csv([path], "cruise-m")
    # (20 + 21) / 2 A * 360 V * 200 s = 410 Wh
    assert vehicle.trips[0].channels["energy_wh"].sum() == pytest.approx(410.0)
    assert set(vehicle.trips[0].channels["soc"]) == {0.8}


def test_dated_trips_start_on_one_clock_and_others_at_an_unknown_time(tmp_path, mapping_file):
    dated = table().with_columns(pl.col("t") + 1.6e9)
    dated.write_csv(tmp_path / "dated.csv")
    (vehicle,) = import_csv([tmp_path / "dated.csv"], mapping_file())
    assert vehicle.trips[0].start_time_s == 1.6e9
    table().write_csv(tmp_path / "plain.csv")
    (vehicle,) = import_csv([tmp_path / "plain.csv"], mapping_file())
    assert np.isnan(vehicle.trips[0].start_time_s)
