"""Ways to break an import, and the diagnosis that each must get.

Every file is the same small fleet, spoiled in one way; what is asserted is what the user reads: the
right cause, and what to do about it.
"""

import re
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from fedwatt.cli.console import console
from tests.telemetry.recognise.drives import comma, fleet

ISO = "%Y-%m-%d %H:%M:%S"
Spoil = Callable[[Path], None]


def stamp(form: str) -> pl.Expr:
    return pl.from_epoch(pl.col("t").cast(pl.Int64), time_unit="s").dt.strftime(form)


def good(**how: float) -> pl.DataFrame:
    """Two vans, three drives each of ten minutes, a row every 2 s."""
    rows = fleet(2, trips=3, seconds=600, step=how.get("step", 2.0))
    return rows.select(
        van="van",
        time=stamp(ISO),
        speed_kmh=pl.col("speed") * 3.6,
        voltage_v="volt",
        current_a="amp",
        soc="soc",
        lat="lat",
        lon="lon",
        t="t",
    ).drop("t")


def rows(change: Callable[[pl.DataFrame], pl.DataFrame], **how: float) -> Spoil:
    """A CSV file of the fleet after a change."""
    return lambda path: change(good(**how)).write_csv(path)


def text(change: Callable[[str], str]) -> Spoil:
    """A CSV file whose text is changed."""
    return lambda path: path.write_text(change(good().write_csv()))


def dates(days: tuple[str, ...]) -> Spoil:
    """Each of three drives on a day of its own."""

    def write(path: Path) -> None:
        frame = good().filter(pl.col("van") == "M-AB 100").drop("van")
        third = len(frame) // 3
        parts = [
            frame.slice(n * third, third).with_columns(
                time=pl.lit(f"{day} ") + pl.col("time").str.slice(11)
            )
            for n, day in enumerate(days)
        ]
        pl.concat(parts).write_csv(path)

    return write


def times(name: str, factor: float) -> Callable[[pl.DataFrame], pl.DataFrame]:
    return lambda frame: frame.with_columns(pl.col(name) * factor)


# What is broken; how; whether there is a fleet all the same; what is said.
BREAKS: list[tuple[str, Spoil, bool, tuple[str, ...]]] = [
    (
        "no column names the vans",
        rows(lambda f: f.filter(pl.col("van") == "M-AB 100").drop("van")),
        True,
        ("one file, and no column names vehicles", "the fleet has one vehicle, so there is"),
    ),
    (
        "the vans stand in a column with another name",
        rows(lambda f: f.rename({"van": "Gruppe"})),
        True,
        ("by column 'Gruppe' (it tells rows of the same instant apart)", "2 vehicles kept"),
    ),
    (
        "a column with few values that may name vehicles",
        rows(lambda f: f.filter(pl.col("van") == "M-AB 100").with_columns(
            van=pl.Series(["north"] * 450 + ["south"] * 450)
        ).rename({"van": "depot"})),
        True,
        ("Nothing uses 'depot' (2 values: north, south)", "add --vehicle-column NAME"),
    ),
    (
        "rows in random order",
        rows(lambda f: f.sample(fraction=1.0, shuffle=True, seed=1)),
        True,
        ("6 trips kept; 0 dropped", "rows not in order of time, sorted"),
    ),
    ("the last row first", rows(pl.DataFrame.reverse), True, ("6 trips kept; 0 dropped", "sorted")),
    (
        "every row twice",
        rows(lambda f: pl.concat([f, f])),
        True,
        ("6 trips kept", "1,800 row written twice"),
    ),
    (
        "15 s logging",
        rows(lambda f: f, step=15.0),
        True,
        ("rows are usually 15 s apart. Gaps up to 38 s are bridged", "6 trips kept; 0 dropped"),
    ),
    (
        "decimal commas and semicolons",
        lambda path: comma(good()).write_csv(path, separator=";"),
        True,
        ("6 trips kept; 0 dropped",),
    ),
    (
        "decimal commas between commas",
        text(lambda t: t.partition("\n")[0] + "\n" + t.partition("\n")[2].replace(".", ",")),
        False,
        ("decimal commas look like separators", "Export it with ';'"),
    ),
    (
        "speed below zero",
        rows(times("speed_kmh", -1.0)),
        False,
        ("6 speed_mps mostly below 0 m/s", "turn its sign with factor = -1 in the mapping"),
    ),
    (
        "speed in m/s called km/h",
        rows(times("speed_kmh", 1 / 3.6)),
        False,
        ("is speed in m/s read as km/h?", "Correct the unit or sign"),
    ),
    (
        "speed in mph called km/h",
        rows(times("speed_kmh", 0.6214)),
        False,
        ("is speed in mph read as km/h?",),
    ),
    (
        "a state of charge from 0 to 1 called per cent",
        rows(lambda f: f.rename({"soc": "SoC [%]"})),
        True,
        ("its readings reach 0.8", "6 trips kept"),
    ),
    (
        "current below zero while driving",
        rows(times("current_a", -1.0)),
        True,
        ("discharge is negative: smaller while speed rises", "6 trips kept"),
    ),
    (
        "a row for each signal",
        rows(lambda f: f.with_columns(
            pl.when(pl.int_range(pl.len()) % 2 == (name != "speed_kmh")).then(name)
            for name in ("speed_kmh", "voltage_v", "current_a")
        )),
        True,
        ("discharge is positive: larger while speed rises", "6 trips kept"),
    ),
    (
        "current without its sign",
        rows(lambda f: f.with_columns(pl.col("current_a").abs())),
        True,
        ("no energy goes back into the pack", "energies are too high"),
    ),
    (
        "a counter without what braking gives back",
        rows(lambda f: f.select(
            pl.exclude("voltage_v", "current_a"), Energy_Wh=pl.col("current_a").clip(0).cum_sum(),
        )),
        True,
        ("no energy goes back into the pack",),
    ),
    (
        "times without seconds",
        rows(lambda f: f.with_columns(pl.col("time").str.slice(0, 16))),
        True,
        ("Warning: most rows have the time of another row", "export the recording again"),
    ),
    (
        "no energy at all",
        rows(lambda f: f.drop("voltage_v", "current_a", "soc")),
        False,
        ("no column looks like energy", "pack voltage and current, power"),
    ),
    (
        "voltage without current",
        rows(lambda f: f.drop("current_a", "soc")),
        False,
        ("no column looks like energy",),
    ),
    (
        "no speed",
        rows(lambda f: f.rename({"speed_kmh": "q7"})),
        False,
        ("no column looks like the vehicle's speed", "q7", "writes a mapping to complete"),
    ),
    (
        "speed as text",
        rows(lambda f: f.with_columns(speed_kmh=pl.lit("fast"))),
        False,
        ("no column looks like the vehicle's speed in numbers",),
    ),
    (
        "no time",
        rows(lambda f: f.drop("time")),
        False,
        ("no column looks like a time", "Call the right one 'time'"),
    ),
    (
        "a time that cannot be read",
        rows(lambda f: f.with_columns(time=pl.lit("kurz nach acht"))),
        False,
        ("column 'time': 'kurz nach acht' is not a time in any format that is known",),
    ),
    (
        "days and months that cannot be told apart",
        dates(("03/04/2024", "05/02/2024", "02/03/2024")),
        False,
        ("may be day first or month first", "--dates 'day first' or --dates 'month first'"),
    ),
    (
        "months first, as a day above 12 shows",
        dates(("03/09/2024", "03/10/2024", "03/31/2024")),
        True,
        ("month first: some number is above 12", "3 trips kept"),
    ),
    (
        "no header",
        text(lambda t: re.sub("M-AB|[-: ]", "", t.partition("\n")[2])),
        False,
        ("has no header: its first line holds numbers.", "Put a line with the columns' names"),
    ),
    ("only a header", rows(lambda f: f.head(0)), False, ("log.csv has no rows, only a header",)),
    ("no bytes", lambda path: path.write_bytes(b""), False, ("log.csv is empty (0 bytes)",)),
    (
        "no table",
        lambda path: path.write_text("Dear all,\nplease find attached\nthe logs.\n"),
        False,
        ("is not a table: no separator", "'Dear all"),
    ),
    (
        "UTF-16",
        lambda path: path.write_bytes(good().write_csv().encode("utf-16")),
        False,
        ("is UTF-16 or no text at all", "UTF-8"),
    ),
    (
        "drives under two minutes",
        rows(lambda f: f.filter(pl.col("time").str.slice(14, 2).cast(pl.Int32) % 10 == 0)),
        False,
        ("under 120 s", "Lower the minimum seconds"),
    ),
    (
        "a logger that stands still",
        rows(lambda f: f.with_columns(speed_kmh=pl.lit(36.0), current_a=pl.lit(12.0))),
        False,
        ("speed_mps stuck", "The log repeats old readings"),
    ),
    (
        "rows while parked and charging",
        rows(lambda f: pl.concat([f, f.with_columns(
            time=pl.col("time").str.to_datetime().dt.offset_by("20m").dt.strftime(ISO),
            speed_kmh=pl.lit(0.0), current_a=pl.lit(-30.0),
        )])),
        True,
        ("6 trips kept", "parked: standing for over 5 min"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("spoil", "made", "sentence"), [case[1:] for case in BREAKS], ids=[case[0] for case in BREAKS]
)
def test_a_broken_file_gets_the_right_diagnosis(
    type_in, monkeypatch, tmp_path, spoil, made, sentence
) -> None:
    monkeypatch.setattr(console, "width", 250)  # one line for each column of the file
    spoil(tmp_path / "log.csv")
    status, printed = type_in("data", "import", "auto", "log.csv", "--out", "fleet")
    for words in sentence:
        assert words in printed
    assert status == (0 if made else 2), printed
    assert (tmp_path / "fleet").exists() == made
    if "seconds" not in " ".join(sentence):
        assert "Lower the minimum" not in printed


def test_there_are_enough_ways_to_break_an_import() -> None:
    assert len({case[0] for case in BREAKS}) >= 25
