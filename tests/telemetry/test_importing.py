"""Refusals of an import before it reads anything.

A frame in memory becomes the fleet that the same rows in a file become.
"""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from fedwatt import fleet_from_frame
from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry.importing import (
    PLAIN_CLEANING,
    import_fleet,
)
from fedwatt.telemetry.store import load_fleet
from fedwatt.windows import DataSettings


def test_what_cannot_be_imported_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"'fedwatt data map week\.csv' proposes one"):
        import_fleet(tmp_path / "fleet", "csv", [Path("week.csv")], PLAIN_CLEANING)
    assert not (tmp_path / "fleet").exists()


SETTINGS = DataSettings(window=10, stride=7)
COLUMNS = {"vehicle": "car", "trip": "ride", "time": ("ms", "ms")}
CHANNELS = {
    "speed": ("v", "km/h"),
    "ambient": "outside",
    "voltage": "U",
    "current": ("I", "A", "negative"),
}
MAPPING = """
[vehicle]
column = "car"
[trip]
column = "ride"
[time]
column = "ms"
unit = "ms"
[channels]
speed_mps = { column = "v", unit = "km/h" }
ambient_c = { column = "outside", unit = "°C" }
voltage_v = { column = "U", unit = "V" }
current_a = { column = "I", unit = "A", discharge = "negative" }
"""


@pytest.fixture(scope="module")
def frame() -> pl.DataFrame:
    """Two cars with four rides of 200 s; one row has no speed, one a time that is out of order."""
    rng = np.random.default_rng(0)
    parts = []
    for car in ("a", "b"):
        for ride in range(4):
            v = 40 + 10 * np.sin(np.arange(200) / 9) + rng.normal(0, 0.3, 200)
            part = pl.DataFrame(
                {
                    "car": [car] * 200,
                    "ride": [ride] * 200,
                    "ms": 1000 * np.arange(200),
                    "v": v,
                    "outside": np.full(200, 12.0 + ride),
                    "U": np.full(200, 350.0),
                    "I": -v / 2,
                }
            )
            parts.append(part)
    rows = pl.concat(parts)
    holes = pl.when(pl.int_range(pl.len()) == 5).then(None).otherwise(pl.col("v")).alias("v")
    return rows.with_columns(holes)


def test_the_same_fleet_as_from_a_file(frame: pl.DataFrame, tmp_path: Path) -> None:
    frame.write_csv(tmp_path / "rows.csv")
    (tmp_path / "map.toml").write_text(MAPPING)
    rows = [tmp_path / "rows.csv"]
    mapping = str(tmp_path / "map.toml")
    sentences = import_fleet(tmp_path / "fleet", "csv", rows, PLAIN_CLEANING, mapping=mapping)
    expected = load_fleet(tmp_path / "fleet", SETTINGS)
    fleet = fleet_from_frame(frame, **COLUMNS, **CHANNELS, settings=SETTINGS)
    assert fleet.data_hash() == expected.data_hash()
    assert list(fleet.account) == [line for line in sentences if line.startswith("Cleaning")]
    # There is neither ac nor heater: both are unknown, so that the heater's usual power stands in.
    assert fleet.features[-2:] == ("ac", "heater")
    assert fleet.clients[0].series[:, -1].std() > 0


def test_the_account_names_channels_that_were_lost(frame: pl.DataFrame) -> None:
    # A state of charge in per cent where a share is meant is outside its limits in every row.
    rows = frame.with_columns(charge=pl.lit(70.0))
    fleet = fleet_from_frame(rows, **COLUMNS, **CHANNELS, soc="charge", settings=SETTINGS)
    assert fleet.account[-1] == (
        "Cleaning: soc is 70 to 70, outside 0 to 1.001, and left out in 2 vehicles. "
        "Is its unit another?"
    )


def test_dates_and_frames_of_others(frame: pl.DataFrame) -> None:
    expected = fleet_from_frame(frame, **COLUMNS, **CHANNELS, settings=SETTINGS).data_hash()

    def refusal(rows, time="at") -> str:
        columns = COLUMNS | {"time": time}
        return fleet_from_frame(rows, **columns, **CHANNELS, settings=SETTINGS).data_hash()

    start = datetime(2024, 5, 1, 8)
    dated = frame.with_columns(at=pl.lit(start) + pl.duration(milliseconds="ms"))
    assert refusal(dated) == expected
    assert refusal(dated.lazy()) == expected
    assert refusal(frame.with_columns(at=pl.duration(milliseconds="ms"))) == expected
    texts = [(start + timedelta(milliseconds=t)).isoformat() for t in frame["ms"]]
    assert refusal(frame.with_columns(at=pl.Series(texts))) == expected
    assert refusal(frame.with_columns(at=pl.col("ms") / 1000)) == expected
    # What pandas hands over, and whoever else speaks Arrow.
    assert refusal(pa.table(frame.to_dict(as_series=False)), ("ms", "ms")) == expected


def test_pandas(frame: pl.DataFrame) -> None:
    pandas = pytest.importorskip("pandas")
    rows = pandas.DataFrame(frame.to_dict(as_series=False))
    fleet = fleet_from_frame(rows, **COLUMNS, **CHANNELS, settings=SETTINGS)
    expected = fleet_from_frame(frame, **COLUMNS, **CHANNELS, settings=SETTINGS)
    assert fleet.data_hash() == expected.data_hash()


def test_stored(frame: pl.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "fleet"
    fleet = fleet_from_frame(frame, **COLUMNS, **CHANNELS, settings=SETTINGS, out=out)
    assert fleet.origin == {"data": str(out)}
    assert load_fleet(out, SETTINGS).data_hash() == fleet.data_hash()


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"vehicle": "cart"}, "Unknown column 'cart'. Did you mean 'car'"),
        ({"time": "t"}, "Unknown column 't'"),
        ({"speed": ("v", "kmh")}, "Unknown unit 'kmh'. Did you mean 'km/h'"),
        ({"spede": "v"}, "Unknown channel 'spede'. Did you mean 'speed'"),
        ({"heater": "warm"}, "frame.parquet has no column 'warm'"),
        ({"current": ("I", "A", "below")}, "Unknown discharge 'below'"),
        ({"kind": "boat"}, "Unknown kind 'boat'"),
    ],
)
def test_one_clear_sentence(frame: pl.DataFrame, changed: dict, sentence: str) -> None:
    with pytest.raises((DataError, SettingError), match=sentence):
        fleet_from_frame(frame, **(COLUMNS | CHANNELS | changed), settings=SETTINGS)


def test_what_is_no_frame_and_has_no_energy(frame: pl.DataFrame) -> None:
    with pytest.raises(DataError, match="A fleet is made of a pandas or polars DataFrame, not of"):
        fleet_from_frame(object(), **COLUMNS, **CHANNELS)
    with pytest.raises(SettingError, match="frame maps no energy: map voltage_v and current_a"):
        fleet_from_frame(frame, **COLUMNS, speed="v")
