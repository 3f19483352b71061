"""A table, and its forms: Markdown, CSV, and rows of text for a page."""

import csv
import io
from dataclasses import astuple, dataclass, fields
from math import isinf, isnan

from fedwatt.report.load import Predicted
from fedwatt.report.statistics import Estimate

Cell = str | int | float | Estimate


@dataclass(frozen=True)
class TableColumn:
    """A heading, the unit below it and how many decimals its numbers have."""

    title: str
    unit: str = ""
    digits: int = 1

    @property
    def heading(self) -> str:
        """Title and unit in one line."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


@dataclass(frozen=True)
class ReportTable:
    """Rows of cells under columns, and a note that says what the numbers are."""

    name: str
    title: str
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def text_rows(self) -> list[list[str]]:
        """Return the text of every cell."""
        return [
            [cell_text(cell, column.digits) for cell, column in zip(row, self.columns, strict=True)]
            for row in self.rows
        ]

    def markdown(self) -> str:
        """Return the table in Markdown, with its title above and its note below."""
        head = [_markdown(column.heading) for column in self.columns]
        lines = [head, ["---", *["--:"] * (len(head) - 1)]]
        lines += [[_markdown(cell) for cell in row] for row in self.text_rows()]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"**{self.title}**\n\n{body}\n" + (f"\n{self.note}\n" if self.note else "")

    def csv(self) -> str:
        """Return the numbers at full precision; an estimate takes five columns."""
        parts = [field.name for field in fields(Estimate)]
        lines: list[list[Cell]] = [[] for _ in range(len(self.rows) + 1)]
        for i, column in enumerate(self.columns):
            cells = [row[i] for row in self.rows]
            wide = any(isinstance(cell, Estimate) for cell in cells)
            lines[0] += [f"{column.heading} {part}" for part in parts] if wide else [column.heading]
            for line, cell in zip(lines[1:], cells, strict=True):
                if isinstance(cell, Estimate):
                    line += astuple(cell)
                else:
                    line += [cell, *[""] * (len(parts) - 1 if wide else 0)]
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(lines)
        return out.getvalue()


def cell_text(cell: Cell, digits: int = 1) -> str:
    """Return a cell as it is shown to people.

    An interval needs three seeds: from two, Student's t stretches the spread ninefold, below zero
    for an error that cannot be. Numbers of a million and more have three digits and an exponent.

    >>> cell_text(Estimate(52.91, 0.42, 51.87, 53.95, 3))
    '52.9 ± 0.4 [51.9, 54.0]'
    >>> cell_text(Estimate(108.8, 18.8, -59.8, 277.4, 2))
    '108.8 ± 18.8'
    >>> cell_text(-0.25, 2), cell_text(float("nan")), cell_text(float("inf"))
    ('−0.25', '–', 'never')
    >>> cell_text(123456.7), cell_text(-1.5e38)
    ('123456.7', '−1.5e+38')
    """
    if isinstance(cell, Estimate):
        if isnan(cell.std):
            return cell_text(cell.mean, digits)
        if cell.seeds < 3 or cell.copies:
            return mean_and_spread(cell, digits)
        interval = f"[{cell_text(cell.low, digits)}, {cell_text(cell.high, digits)}]"
        return f"{mean_and_spread(cell, digits)} {interval}"
    if isinstance(cell, float):
        if isnan(cell):
            return "–"
        if isinf(cell):
            return "never"
        return f"{cell:{'.3g' if abs(cell) >= 1e6 else f'.{digits}f'}}".replace("-", "−")
    return str(cell)


def amount(target: Predicted, value: float, digits: int = 1) -> str:
    """Return a number in the unit of what windows predict; `digits` are those of one in Wh.

    >>> amount(Predicted(), 53.94), amount(Predicted(unit="points", typical=1.0), 0.5394)
    ('53.9 Wh', '0.539 points')
    """
    return f"{cell_text(value, target.digits(digits))} {target.unit}"


def mean_and_spread(estimate: Estimate, digits: int = 1) -> str:
    """Return an estimate without its interval; the mean alone if there is one seed.

    >>> mean_and_spread(Estimate(52.91, 0.42, 51.87, 53.95, 3))
    '52.9 ± 0.4'
    """
    mean = cell_text(estimate.mean, digits)
    return mean if isnan(estimate.std) else f"{mean} ± {cell_text(estimate.std, digits)}"


def _markdown(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
