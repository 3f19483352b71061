"""The result tables of the FO-RI-FedAvg paper, as printed.

One TOML file a table: its label and caption in the paper, the dataset as the paper states it, what
contradicts it elsewhere in the paper, and every entry as the text that is printed, "mean ± std"
where the paper gives both and "NR" where a threshold was not reached.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf, nan

from fedwatt.errors import SettingError, unknown


@dataclass(frozen=True)
class Entry:
    """A printed number and its standard deviation; NaN where none is printed."""

    mean: float
    std: float = nan

    def __str__(self) -> str:
        """Return as in "55.62 ± 0.65"; "NR" for a threshold that was not reached."""
        if self.mean == inf:
            return "NR"
        return f"{self.mean:g}" + (f" ± {self.std:g}" if self.std == self.std else "")


@dataclass(frozen=True)
class Printed:
    """A table of the paper."""

    name: str
    label: str
    caption: str
    dataset: str
    columns: tuple[str, ...]
    notes: tuple[str, ...]
    rows: dict[str, tuple[Entry, ...]]

    def entry(self, row: str, column: str) -> Entry | None:
        """Return what is printed in a row and column; None where the table has no such place."""
        if row not in self.rows or column not in self.columns:
            return None
        return self.rows[row][self.columns.index(column)]


def entry(text: str) -> Entry:
    """Return a printed text as numbers.

    >>> entry("55.62 ± 0.65"), entry("156").mean, entry("NR").mean
    (Entry(mean=55.62, std=0.65), 156.0, inf)
    """
    if text == "NR":
        return Entry(inf)
    mean, _, std = text.partition(" ± ")
    return Entry(float(mean), float(std) if std else nan)


def names() -> list[str]:
    """Return names of all tables."""
    files_here = [file.name for file in files(__name__).iterdir()]
    return sorted(name.removesuffix(".toml") for name in files_here if name.endswith(".toml"))


@cache
def printed(name: str) -> Printed:
    """Return the table called `name`."""
    file = files(__name__) / f"{name}.toml"
    if not file.is_file():
        raise SettingError(unknown("table of the paper", name, names()))
    table = tomllib.loads(file.read_text(encoding="utf-8"))
    return Printed(
        name,
        table["label"],
        table["caption"],
        table["dataset"],
        tuple(table["columns"]),
        tuple(table.get("notes", ())),
        {row: tuple(entry(text) for text in texts) for row, texts in table["rows"].items()},
    )
