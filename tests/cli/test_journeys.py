"""From files to a predicted trip, by the commands that the import prints, typed as they are."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from tests.telemetry.conftest import VED_HEADER, ved_rows
from tests.telemetry.recognise.drives import comma, drives, fleet, write_workbook
from tests.telemetry.recognise.test_formats import leaf_spy

QUICK = ("--rounds", "1", "--seeds", "1", "--no-baselines", "--set", "data.stride=30")
"""Added to the printed training, so that it takes seconds."""


def ved(folder: Path) -> None:
    """Two electric cars with ten trips each."""
    lines = [
        ",".join(row)
        for car in (10, 455)
        for trip in range(10)
        for row in ved_rows(car, trip, speed_kmh=30.0 + 2 * trip, day=1.5 + trip)
    ]
    (folder / "VED_171101_week.csv").write_text("\n".join([VED_HEADER, *lines]) + "\n")


def changchun_rows() -> pl.DataFrame:
    """Four trips of one car, each with a clock that starts at 0."""
    trip = ((pl.col("t") - pl.col("t").min()) // 4500).cast(pl.Int64)
    rows = drives(4).with_columns(trip=pl.format("00{}", trip))
    return rows.select(
        "trip",
        time_s=pl.col("t") - pl.col("t").min().over("trip"),
        latitude_deg="lat",
        longitude_deg="lon",
        elevation_m="alt",
        speed_kmh=pl.col("speed") * 3.6,
        voltage_v="volt",
        current_a=-pl.col("amp"),
        ambient_c="temp",
    )


def changchun_csv(folder: Path) -> None:
    changchun_rows().write_csv(folder / "trips.csv")


def changchun_workbook(folder: Path) -> None:
    write_workbook(folder / "trips.xlsx", changchun_rows())


def twizy(folder: Path) -> None:
    """One trajectory with four drives, in a folder of its own; only the state of charge."""
    (folder / "T1").mkdir()
    when = pl.from_epoch(pl.col("t").cast(pl.Int64))
    for number in range(4):
        drives(1, begin=1_710_000_000 + 86_400 * number).select(
            **{"Date": when.dt.strftime("%m/%d/%Y"), "Time": when.dt.strftime("%H:%M:%S")},
            **{"Soc": pl.col("soc") * 100, "Speed": pl.col("speed") * 3.6, "Mode": pl.lit("D")},
            **{"LAT": "lat", "LON": "lon", "ALT": "alt", "GpsSpeed": pl.col("speed") * 3.6},
            **{"Temperature": "temp", "WindSpeedAv": pl.lit(2.5)},
            **{"Traffic": pl.lit(0), "SpeedLimit": pl.lit(60)},
        ).write_csv(folder / "T1" / f"T1_{number}.csv")


def leaf_folder(folder: Path) -> None:
    """Logs of one Leaf, the last of them without a header."""
    leaf_spy(folder)
    (log,) = folder.iterdir()
    header, *rows = log.read_text().splitlines()
    log.unlink()
    for number in range(6):
        lines = [header, *rows[90 * number : 90 * number + 90]]
        (folder / f"Log_{number}.csv").write_text("\n".join(lines) + "\n")
    (folder / "Log_6.csv").write_text("\n".join(rows[:90]) + "\n")


def five_vans(folder: Path) -> None:
    """One file of five vans with a row every 15 s, in German."""
    when = pl.from_epoch(pl.col("t").cast(pl.Int64)).dt.strftime("%d.%m.%Y %H:%M:%S")
    rows = fleet(5, trips=4, step=15.0).select(
        **{"Kennzeichen": "van", "Zeit": when, "Geschwindigkeit [km/h]": pl.col("speed") * 3.6},
        **{"HV-Spannung [V]": "volt", "HV-Strom [A]": -pl.col("amp"), "Breite": "lat"},
        **{"Länge": "lon"},
    )
    comma(rows).write_csv(folder / "flotte.csv", separator=";")


@pytest.mark.parametrize(
    ("write", "vehicles"),
    [
        (ved, 2),
        (changchun_csv, 1),
        (changchun_workbook, 1),
        (twizy, 1),
        (leaf_folder, 1),
        (five_vans, 5),
    ],
)
def test_printed_commands_lead_to_a_predicted_trip(
    type_in, tmp_path, write: Callable[[Path], None], vehicles: int
) -> None:
    (tmp_path / "logs").mkdir()
    write(tmp_path / "logs")
    status, dry = type_in("data", "import", "auto", "logs", "--dry-run")
    assert status == 0, dry
    status, printed = type_in("data", "import", "auto", "logs", "--out", "own")
    assert status == 0, printed
    assert f"{vehicles} vehicle" in printed
    commands = re.findall(r"fedwatt (?:run|export|predict) .*?(?= fedwatt |$)", printed)
    assert [command.split()[1] for command in commands] == ["run", "export", "predict"]
    for command in commands:
        _, *words = shlex.split(command)
        status, printed = type_in(*words, *(QUICK if words[0] == "run" else ()))
        assert status == 0, printed
    assert re.search(r"[Tt]he trip (takes|is predicted to take) −?[\d,]+ Wh", printed)
    assert "<svg" in (tmp_path / "trip.html").read_text()
