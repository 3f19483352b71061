"""Logs of any make are understood alike by a dry run, a proposed mapping and an import."""

import gzip
from collections.abc import Callable
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import polars as pl
import pytest

from fedwatt.telemetry.readers import import_csv
from fedwatt.telemetry.readers.mapping import parse_mapping
from fedwatt.telemetry.recognise.understand import mapping_text, refuse_incomplete, understand
from fedwatt.windows.features import trip_features
from tests.telemetry.recognise import test_formats
from tests.telemetry.recognise.drives import comma, drive, fleet, write_workbook

Write = Callable[[Path], None]
HEATER_W = 1500.0


def vans(**how: float) -> pl.DataFrame:
    """Three drives of each of two vans, at 5 and 6 °C, with a heater that swings by 1 kW."""
    rows = fleet(2, trips=3, step=5.0, **how)
    heater = HEATER_W + 1000 * (pl.col("t") * (2 * np.pi / 60)).sin()
    return rows.with_columns(heat=heater, watt=pl.col("volt") * pl.col("amp"))


def stamp(form: str) -> pl.Expr:
    return pl.from_epoch(pl.col("t").cast(pl.Int64)).dt.strftime(form)


def german(folder: Path) -> None:
    rows = vans().select(
        **{"Kennzeichen": "van", "Zeitstempel": stamp("%d.%m.%Y %H:%M:%S")},
        **{"Geschwindigkeit": pl.col("speed") * 3.6, "HV-Spannung": "volt"},
        **{"HV-Strom": -pl.col("amp"), "Außentemperatur": "temp"},
        **{"Heizleistung [kW]": pl.col("heat") / 1000, "Breite": "lat", "Länge": "lon"},
    )
    comma(rows).write_csv(folder / "flotte.csv", separator=";")


def chinese_rows() -> pl.DataFrame:
    return vans().select(
        **{"车辆编号": "van", "采集时间": stamp("%Y-%m-%d %H:%M:%S")},
        **{"车速(km/h)": pl.col("speed") * 3.6, "总电压(V)": "volt", "总电流(A)": "amp"},
        **{"环境温度(℃)": "temp", "加热功率(kW)": pl.col("heat") / 1000},
        **{"纬度": "lat", "经度": "lon"},
    )


def chinese(folder: Path) -> None:
    chinese_rows().write_csv(folder / "log.csv")


def chinese_gb2312(folder: Path) -> None:
    (folder / "log.csv").write_bytes(chinese_rows().write_csv().encode("gb2312"))


def chinese_workbook(folder: Path) -> None:
    write_workbook(folder / "log.xlsx", chinese_rows())


def american(folder: Path) -> None:
    vans().with_columns(temp=pl.col("temp") * 1.8 + 32).select(
        **{"Vehicle": "van", "Timestamp": stamp("%m/%d/%Y %I:%M:%S %p")},
        **{"Speed (mph)": pl.col("speed") / 0.44704, "Pack Voltage (V)": "volt"},
        **{"Pack Current (A)": "amp", "Outside Temp (F)": "temp", "Heater Power (W)": "heat"},
        **{"Lat": "lat", "Lon": "lon"},
    ).write_csv(folder / "log.csv")


def laboratory(folder: Path) -> None:
    vans().select(
        car="van", time="t", vehSpd=pl.col("speed") * 3.6, REESSVoltage="volt",
        REESSCurrent=-pl.col("amp"), tempAmb="temp", heater="heat", lat="lat", lon="lon",
    ).write_csv(folder / "log.csv")  # fmt: skip


def dated(zone: str, power: str) -> Write:
    """Return a writer of times with this zone and power in kW of this sign."""

    def write(folder: Path) -> None:
        sign = -1.0 if power == "negative" else 1.0
        vans().select(
            car="van", time=stamp("%Y-%m-%dT%H:%M:%S") + zone, speed_kmh=pl.col("speed") * 3.6,
            power_kw=sign * pl.col("watt") / 1000, outside_temp="temp", heater_w="heat",
            latitude="lat", longitude="lon",
        ).write_csv(folder / "log.csv")  # fmt: skip

    return write


def milliseconds(folder: Path) -> None:
    vans().select(
        vin="van", terminalTime=(pl.col("t") * 1000).cast(pl.Int64), speed=pl.col("speed") * 3.6,
        totalVoltage="volt", totalCurrent="amp", tempAmb="temp", heater="heat",
        latitude="lat", longitude="lon",
    ).write_csv(folder / "log.csv")  # fmt: skip


def each_vehicle(folder: Path) -> None:
    for name, rows in vans().partition_by("van", as_dict=True).items():
        plain(rows, stamp("%Y-%m-%d %H:%M:%S")).write_csv(folder / f"{name[0]}.csv")


def plain(rows: pl.DataFrame, time: pl.Expr) -> pl.DataFrame:
    return rows.select(
        time=time, speed_kmh=pl.col("speed") * 3.6, voltage="volt", current="amp",
        ambient="temp", heater="heat", latitude="lat", longitude="lon",
    )  # fmt: skip


def each_trip(name: str) -> Write:
    """Return a writer of one file a trip, named `name` with the van and the trip in it."""

    def write(folder: Path) -> None:
        for (van,), rows in vans().partition_by("van", as_dict=True).items():
            for trip in range(3):
                path = folder / name.format(van=van, trip=trip)
                path.parent.mkdir(exist_ok=True)
                driven = rows.slice(trip * 180, 180)
                plain(driven, pl.col("t") - driven["t"][0]).write_csv(path)

    return write


def gzipped(folder: Path) -> None:
    each_vehicle(folder)
    for file in list(folder.glob("*.csv")):
        file.with_suffix(".csv.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


def zipped(folder: Path) -> None:
    each_vehicle(folder)
    with ZipFile(folder / "logs.zip", "w") as archive:
        for file in list(folder.glob("*.csv")):
            archive.write(file, f"export/{file.name}")
            file.unlink()


LOGS: dict[str, Write] = {
    write.__name__: write
    for write in (
        *(german, chinese, chinese_gb2312, chinese_workbook, american, laboratory, milliseconds),
        *(each_vehicle, gzipped, zipped),
    )
}
LOGS |= {
    "Z": dated("Z", "positive"),
    "offset": dated("+01:00", "negative"),
    "zone's name": dated("+01:00[Europe/Berlin]", "positive"),
    "unknown zone": dated(" EST", "negative"),
    "trips in folders": each_trip("{van}/{trip:03}.csv"),
    "numbered trips": each_trip("{van}_trip{trip:03}.csv"),
}


@pytest.mark.parametrize("log", LOGS)
def test_a_log_of_any_make_is_read_right(tmp_path, log) -> None:
    LOGS[log](tmp_path)
    understanding = understand(tmp_path)
    refuse_incomplete(understanding)
    mapping = parse_mapping(mapping_text(understanding), "kept.toml")
    vehicles = list(import_csv(understanding.paths, mapping))
    assert [vehicle.name for vehicle in vehicles] == ["M-AB 100", "M-AB 101"]
    for vehicle, ambient_c in zip(vehicles, (5.0, 6.0), strict=True):
        assert len(vehicle.trips) == 3
        for trip in vehicle.trips:
            # Rows every 5 s, held and cut off at the end: 2 % of the drive's mean.
            assert trip.channels["speed_mps"].mean() == pytest.approx(10.0, rel=0.02)
            watts = trip.channels["energy_wh"].mean() * 3600
            assert watts == pytest.approx(5000, rel=0.02)
            assert trip.channels["ambient_c"].mean() == pytest.approx(ambient_c, abs=0.01)
            assert trip.channels["heater_w"].mean() == pytest.approx(HEATER_W, rel=0.02)
            assert np.isnan(trip.channels["ac_w"]).all()
            assert trip.channels["longitude_deg"].mean() == pytest.approx(11.0, abs=0.11)


MADE = [
    *(pytest.param(write, id=log) for log, write in LOGS.items()),
    *(
        getattr(test_formats, name)
        for name in ("leaf_spy", "teslamate", "ovms", "torque_pro", "bmw_i3", "abrp", "geotab")
    ),
]


@pytest.mark.parametrize("write", MADE)
def test_a_file_is_understood_as_its_folder_is(tmp_path, write) -> None:
    write(tmp_path)
    of_folder = understand(tmp_path)
    of_file = understand(next(file for file in sorted(tmp_path.rglob("*")) if file.is_file()))
    for key in ("time", "trip", "channels", "file"):
        assert of_file.tables[key] == of_folder.tables[key], key
    # A file alone cannot show what tells it from files in other folders and other archives.
    assert of_file.tables["vehicle"].get("column") == of_folder.tables["vehicle"].get("column")


def test_a_heater_that_is_filled_in_warm_trips_only_is_unknown_in_cold_ones(tmp_path) -> None:
    begins = [(1.71e9 + 7200 * trip, temperature) for trip, temperature in enumerate((-5, 2, 18))]
    rows = pl.concat(
        drive(begin=begin).with_columns(temp=pl.lit(float(temperature)))
        for begin, temperature in begins
    )
    # Off is reported as 0 in the warm trip; in the cold ones nothing is reported.
    warm = pl.when(pl.col("temp") > 10).then(0.0)
    plain(rows.with_columns(heat=warm), pl.col("t")).write_csv(tmp_path / "car.csv")
    understanding = understand(tmp_path / "car.csv")
    mapping = parse_mapping(mapping_text(understanding), "kept.toml")
    (vehicle,) = import_csv(understanding.paths, mapping)
    assert [float(np.mean(trip.channels["heater_w"])) for trip in vehicle.trips] == pytest.approx(
        [np.nan, np.nan, 0.0], nan_ok=True
    )
    # After 300 s, usual powers of 23 and 16 °C of cold: 0.038 + 0.029/e kW a degree; off is 0.
    kw = [trip_features(trip, ("heater",), "car")[299, 0] for trip in vehicle.trips]
    assert kw == pytest.approx([23 * 0.04867, 16 * 0.04867, 0.0], rel=2e-3)
