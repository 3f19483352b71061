"""The HTML page of the method comparison: all rows of results/comparison.csv, sortable."""

from typing import Final

from comparison.evaluate import Records
from comparison.page import HEADINGS, recommendation, rows
from fedwatt.report.page import fill

COLUMNS: Final = (
    ("Method", "", True),
    ("RMSE", "Wh", False),
    ("Difference", "Wh [95 %]", False),
    ("p", "corrected", False),
    ("Model", "", True),
    ("Dataset", "", True),
    ("Partition", "", True),
    ("Elevation", "", True),
    ("At equal", "", True),
    ("Learning rate", "", False),
)
"""Title, unit, and whether its cells are text."""


def report(records: Records) -> str:
    """Return the page: the recommendation, a filter and one table that sorts by any column."""
    return fill(
        "comparison",
        "comparison.html.jinja",
        recommendation=recommendation(records).replace("`", ""),
        light={},
        dark={},
        columns=COLUMNS,
        rows=[_cells(dict(zip(HEADINGS, row, strict=True))) for row in rows(records)],
    )


def _cells(row: dict[str, str]) -> list[str]:
    """Return the cells of a row of results/comparison.csv on the page."""
    interval = f" [{row['low_wh']}, {row['high_wh']}]" if row["low_wh"] else ""
    difference = f"{row['difference_wh']}{interval}".replace("-", "\N{MINUS SIGN}")
    names = ("view", "dataset", "partition", "elevation", "at_equal", "learning_rate")
    numbers = (row["rmse_wh"], difference, row["corrected_p"])
    return [row["method"], *numbers, *(row[name] for name in names)]
