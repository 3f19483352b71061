"""Samples of files: all rows of a small one, each once.

How text tables are written: separators, preambles, units, decimal signs, encodings.
"""

from datetime import date, time, timedelta
from pathlib import Path

import polars as pl
import pytest

from fedwatt.errors import DataError
from fedwatt.telemetry.readers import import_csv
from fedwatt.telemetry.readers.files import find_tables
from fedwatt.telemetry.readers.mapping import mapping_of, parse_mapping
from fedwatt.telemetry.recognise.table_sample import (
    HEAD_BYTES,
    PIECE_BYTES,
    PIECES,
    number_style,
    read_sample,
)
from fedwatt.telemetry.recognise.understand import mapping_text, understand
from tests.telemetry.recognise.drives import drives, write_sheets


@pytest.mark.parametrize(
    ("cells", "style"),
    [
        (["1,5", "2,25"], (True, "")),
        (["1.5", "2.25"], (False, "")),
        (["1.234,5", "12"], (True, ".")),
        (["1.234,5", "2.10"], (True, ".")),
        (["1,234.5", "12"], (False, ",")),
        (["1 234,5"], (True, " ")),
        (["1'234.5"], (False, "'")),
        (["360", "12"], (False, "")),
        # A position with three digits behind its point is no number of thousands.
        (["48.123", "360.5"], (False, "")),
        (["48,123", "360,5"], (True, "")),
        (["2024-03-09", "12:00:00"], (False, "")),
    ],
)
def test_decimal_sign_and_thousands(cells, style) -> None:
    assert number_style(cells) == style


def table(separator: str, *, comma: bool) -> str:
    rows = drives(2, step=2.0).select(
        time=pl.from_epoch(pl.col("t").cast(pl.Int64)).dt.strftime("%d.%m.%Y %H:%M:%S"),
        speed=(pl.col("speed") * 3.6).round(2),
        power=(pl.col("volt") * pl.col("amp")).round(1),
    )
    text = rows.rename({"speed": "Geschwindigkeit", "power": "Leistung"}).write_csv(
        separator=separator, float_precision=2
    )
    if comma:
        head, _, body = text.partition("\n")
        text = head + "\n" + body.replace(".", ",").replace(",03,2024", ".03.2024")
    return text


def energy_wh(path) -> list[float]:
    layout = understand(path)
    mapping = parse_mapping(mapping_text(layout), "kept.toml")
    (vehicle,) = import_csv(layout.paths, mapping)
    return [float(trip.channels["energy_wh"].sum()) for trip in vehicle.trips]


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (table(",", comma=False), "utf-8"),
        (table(";", comma=True), "utf-8-sig"),
        (table("\t", comma=True), "utf-8"),
        (table("|", comma=False), "utf-8"),
        ("Logger 2.1; serial 77\nsep=;\n\n" + table(";", comma=True), "utf-8"),
        (table(";", comma=True).replace("keit", "keit über Grund"), "cp1252"),
        (table(";", comma=True).replace("\n", "\n;km/h;W\n", 1), "utf-8"),
        (table(";", comma=False).replace("\n", "\r\n"), "utf-8"),
        (table(";", comma=True).replace("\n", ";\n").replace(";\n", "\n", 1), "utf-8"),
    ],
    ids=["comma", "bom", "tab", "bar", "preamble", "latin", "units", "windows", "trailing"],
)
def test_a_table_is_read_however_it_is_written(tmp_path, text, encoding) -> None:
    (tmp_path / "log.csv").write_bytes(text.encode(encoding))
    # 900 s at 5 kW, without the last two seconds.
    assert energy_wh(tmp_path) == pytest.approx([1247.2, 1247.2], rel=0.01)


def test_thousands_are_read(tmp_path) -> None:
    lines = ["time;v;Leistung"]
    lines += [f"{second};{30 + second % 7};1.{234 + second % 3},5" for second in range(300)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert read_sample(tmp_path / "log.csv").layout.form.thousands == "."
    # 1,235.5 W on average over 299 s.
    assert energy_wh(tmp_path) == pytest.approx([1235.5 * 299 / 3600], rel=1e-3)


def test_a_large_file_is_looked_at_everywhere(tmp_path) -> None:
    rows = pl.DataFrame({"time": pl.int_range(300_000, eager=True), "speed": 1.5, "van": "a"})
    rows = rows.with_columns(
        van=pl.when(pl.col("time") > 200_000).then(pl.lit("b")).otherwise("van")
    )
    for write in (rows.write_csv, rows.write_parquet):
        path = tmp_path / f"log.{write.__name__.removeprefix('write_')}"
        write(path)
        sample = read_sample(path)
        assert sample.rows["#"].n_unique() > 1
        assert sample.rows.height < 150_000
        assert set(sample.rows["van"]) == {"a", "b"}


def test_quoted_decimal_commas_between_commas(tmp_path) -> None:
    lines = ['"time","v (km/h)","power (W)"']
    lines += [f'"{s}","{30 + s % 7},5","{1234 + s % 3},5"' for s in range(300)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert energy_wh(tmp_path) == pytest.approx([1235.5 * 299 / 3600], rel=1e-3)


def test_doubled_and_nameless_columns_do_no_harm(tmp_path) -> None:
    lines = ["time,speed_kmh,power_w,speed_kmh,"]
    lines += [f"{s},{30 + s % 7},{1234 + s % 3},0," for s in range(300)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert energy_wh(tmp_path) == pytest.approx([1235 * 299 / 3600], rel=1e-3)


ROW = "2024-03-01 08:00:00,12.5,360.0\n"
LARGEST = HEAD_BYTES + PIECES * PIECE_BYTES


@pytest.mark.parametrize("size", [HEAD_BYTES // 2, HEAD_BYTES + 100_000, LARGEST - 100])
def test_rows_that_head_and_pieces_would_cover_are_read_once(tmp_path: Path, size: int) -> None:
    rows = size // len(ROW)
    (tmp_path / "log.csv").write_text("time,speed,voltage\n" + ROW * rows)
    sample = read_sample(tmp_path / "log.csv")
    assert set(sample.rows["#"]) == {0}
    assert sample.rows.height == rows


def test_one_broken_byte_does_not_spoil_the_header(tmp_path: Path) -> None:
    text = ("time,Länge,Straße\n" + ROW * 3).encode().replace(b"360.0", b"36\xff", 1)
    (tmp_path / "log.csv").write_bytes(text)
    assert read_sample(tmp_path / "log.csv").columns == ["time", "Länge", "Straße"]


def test_a_larger_file_is_looked_into_here_and_there(tmp_path: Path) -> None:
    rows = 2 * LARGEST // len(ROW)
    (tmp_path / "log.csv").write_text("time,speed,voltage\n" + ROW * rows)
    sample = read_sample(tmp_path / "log.csv")
    assert sample.rows["#"].n_unique() == PIECES + 1
    assert sample.rows.height < rows


def test_a_title_and_merged_cells_stand_above_the_header(tmp_path: Path) -> None:
    rows = [(s, 30.0 + s % 7, 1234.5 + s % 3) for s in range(300)]
    titles = [("Fleet of March", None, None), ("Clock", "Motion", None)]
    header = ("time", "v", "power")
    units = ("s", "mph", "W")
    write_sheets(tmp_path / "log.xlsx", {"log": [*titles, header, units, *rows]})
    sample = read_sample(find_tables(tmp_path)[0].path)
    assert sample.columns == ["time", "v", "power"]
    assert sample.unit_row("v") == "mph"
    # 1,235.5 W on average over 299 s.
    assert energy_wh(tmp_path) == pytest.approx([1235.5 * 299 / 3600], rel=1e-3)


def test_a_date_and_a_time_of_day_of_a_spreadsheet_are_read(tmp_path: Path) -> None:
    header = ("Datum", "Uhrzeit", "v", "power")
    rows = [
        (date(2024, 3, 9), time(8, s // 60, s % 60), 30.0 + s % 7, 1234.5 + s % 3)
        for s in range(300)
    ]
    write_sheets(tmp_path / "log.xlsx", {"log": [header, *rows]})
    assert understand(tmp_path).tables["time"]["column"] == ["Datum", "Uhrzeit"]
    # 1,235.5 W on average over 299 s.
    assert energy_wh(tmp_path) == pytest.approx([1235.5 * 299 / 3600], rel=1e-3)


def test_an_elapsed_time_of_a_spreadsheet_is_in_seconds(tmp_path: Path) -> None:
    rows = [(timedelta(seconds=s), 30.0 + s % 7, 1234.5 + s % 3) for s in range(300)]
    write_sheets(tmp_path / "log.xlsx", {"log": [("Time", "v", "power"), *rows]})
    # 1,235.5 W on average over 299 s.
    assert energy_wh(tmp_path) == pytest.approx([1235.5 * 299 / 3600], rel=1e-3)


def test_elapsed_times_and_lists_in_parquet_do_no_harm(tmp_path: Path) -> None:
    second = pl.int_range(300, eager=True)
    rows = pl.DataFrame({"v": 30.0 + second % 7, "power": 1234.5 + second % 3}).with_columns(
        time=pl.duration(seconds=second), cells=pl.lit([3.9, 4.0]), raw=pl.lit(b"\xff\x00")
    )
    rows.write_parquet(tmp_path / "log.parquet")
    # 1,235.5 W on average over 299 s.
    assert energy_wh(tmp_path) == pytest.approx([1235.5 * 299 / 3600], rel=1e-3)


def test_a_point_may_be_the_decimal_sign_of_another_column(tmp_path: Path) -> None:
    lines = ["time;v;power"]
    # 1234.125 alone could be a million; 1234.5 shows that it is not.
    lines += [f"{s};{30 + s % 7},5;{1234.125 if s % 2 else 1234.5}" for s in range(300)]
    (tmp_path / "log.csv").write_text("\n".join(lines))
    assert energy_wh(tmp_path) == pytest.approx([1234.3125 * 299 / 3600], rel=1e-3)


def test_lines_that_end_in_a_carriage_return_alone_are_refused(tmp_path: Path) -> None:
    lines = ["time,v,power", *(f"{s},{30 + s % 7},1234.5" for s in range(300))]
    (tmp_path / "log.csv").write_bytes("\r".join(lines).encode())
    with pytest.raises(DataError, match=r"log\.csv: a carriage return alone ends its lines"):
        understand(tmp_path)
    tables = {"time": {"column": "time"}, "vehicle": {"name": "car"}, "trip": {"from": "gaps"}}
    tables["channels"] = {
        "speed_mps": {"column": "v", "unit": "km/h"},
        "power_w": {"column": "power", "unit": "W"},
    }
    with pytest.raises(DataError, match=r"log\.csv: a carriage return alone ends its lines"):
        list(import_csv([tmp_path / "log.csv"], mapping_of(tables, "map.toml")))
