"""Every column of every table of a run, declared once, in tables.csv.

Records, Parquet files, messages, report and documentation take names, types, units and what stands
for an unknown value from here. Error columns follow `metrics.METRICS`, so a further metric is one
entry there. What a local rule records of a vehicle's round is a `Column` in its `records`: the
columns of fedwatt's own rules are there, too; a rule of your own declares its in its own file.
"""

import csv
from collections.abc import Iterable
from dataclasses import dataclass
from math import isnan, nan
from pathlib import Path
from typing import Any

from fedwatt.errors import check
from fedwatt.metrics import METRICS, PARTS

UNKNOWN: dict[type, Any] = {str: "", int: 0, float: nan, bool: False}
"""What stands in a column of each type where there is no value."""


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    kind: type
    """`str`, `int`, `float` or `bool`."""
    meaning: str
    unit: str = ""
    filled_by: str = "rules"
    """A function, or the part of a run; "rules" are those with the column in their `records`."""
    title: str = ""
    """Its label in tables and figures of a report."""
    digits: int = 1
    """Decimals that a report shows."""

    def __post_init__(self) -> None:
        check(self, "kind", self.kind in UNKNOWN, "str, int, float or bool")

    @property
    def unknown(self) -> Any:
        """Placeholder where there is no value."""
        return UNKNOWN[self.kind]

    def value(self, number: float) -> Any:
        """Return a recorded number as this column holds it; NaN is no value.

        >>> Column("probed", bool, "whether it was probed").value(1.0)
        True
        """
        return self.unknown if isnan(number) else self.kind(number)


@dataclass(frozen=True)
class Table:
    """The declaration of a table of a run folder; columns in the order of its file."""

    description: str
    columns: tuple[Column, ...]

    def __getitem__(self, name: str) -> Column:
        return {column.name: column for column in self.columns}[name]

    def filled_by(self, function: str) -> tuple[Column, ...]:
        """Return the columns that one function fills."""
        return tuple(column for column in self.columns if column.filled_by == function)


def blank(columns: Iterable[Column]) -> dict[str, Any]:
    """Return a row of which nothing is known.

    >>> blank([DRIFT, PROBED])
    {'drift': nan, 'probed': False}
    """
    return {column.name: column.unknown for column in columns}


TRAINING = "training_columns"
EVALUATION = "evaluation_columns"
OUTCOME = "clients"
ERRORS = "error_columns"
"""Functions that fill columns, as tables.csv names them."""

KINDS = {"text": str, "whole number": int, "number": float, "flag": bool}
with Path(__file__).with_suffix(".csv").open(encoding="utf-8", newline="") as _file:
    _DECLARED = list(csv.DictReader(_file))


TABLES = {
    "rounds": "A row for each method, seed and round; round 0 is the initial model. Errors pool "
    "the test windows of all vehicles that train, unless their column says otherwise.",
    "clients": "A row for each vehicle that was called in a round.",
    "vehicles": 'Test errors of the final models ("final": as a rule the mean of the other two), '
    'of the best-validated ("best") and the last ones ("last"), and of personalised models '
    '("personalised"). In a run with mixtures they are mixed.',
    "baselines": "Test errors of models that are not federated: each vehicle's mean, ridge and "
    "network from its own trips, the one of these that validates best, and one network on pooled "
    "data, which only a simulation can have. Missing where baselines are switched "
    "off and for a deployed fleet.",
    "timing": "Wall-clock time of each round of a whole stack; apart from the rest, because time "
    "does not reproduce.",
}
"""What each table holds, by its name."""


def declared(table: str) -> Table:
    """Return the declared columns of a table; "*" stands for all metrics or times.

    What rules record beyond `RECORDED` is not in that of clients.
    """
    columns: list[Column] = []
    for row in (row for row in _DECLARED if row["table"] == table):
        prefix = row["name"].rstrip("*")
        by = row["filled_by"]
        if row["kind"]:
            texts = (row["meaning"], row["unit"], by, row["title"])
            columns.append(Column(row["name"], KINDS[row["kind"]], *texts))
        elif table == "timing":
            columns += [Column(name, float, text, "s", by) for name, text in PARTS.items()]
        else:
            columns += [
                Column(
                    prefix + name,
                    float,
                    metric.meaning,
                    metric.unit,
                    by,
                    metric.title,
                    metric.digits,
                )
                for name, metric in METRICS.items()
            ]
    return Table(TABLES[table], tuple(columns))


RECORDED = tuple(
    declared("clients")[name]
    for name in ("drift", "roughness", "pull", "kappa", "runtime", "staleness", "probed")
)
"""What every run's table of clients has of a vehicle's local work."""
DRIFT, ROUGHNESS, PULL, KAPPA, RUNTIME, STALENESS, PROBED = RECORDED


def recorded(rule_columns: Iterable[Column]) -> tuple[Column, ...]:
    """Return all columns about local work: `RECORDED`, then those that rules add."""
    return tuple(dict.fromkeys((*RECORDED, *rule_columns)))


def markdown() -> str:
    """Return all tables and their columns as Markdown."""
    words = {kind: name for name, kind in KINDS.items()}
    parts = []
    for name, description in TABLES.items():
        lines = ["| column | type | unit | meaning |", "|---|---|---|---|"]
        for column in declared(name).columns:
            meaning = column.meaning.replace("|", r"\|")
            lines.append(f"| `{column.name}` | {words[column.kind]} | {column.unit} | {meaning} |")
        parts.append("\n".join([f"#### {name}.parquet", "", description, "", *lines]))
    return "\n\n".join(parts)
