"""Recognition of a text table's format: separator, header, units, decimal and thousands signs."""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fedwatt.errors import DataError
from fedwatt.telemetry.readers.table_blocks import COMMAS, TextForm
from fedwatt.telemetry.recognise.header_words import unit_of_word

SEPARATORS = (",", ";", "\t", "|")
LINES = 60
"""Lines at the head of a file that show how it is written."""
NUMBER = re.compile(r"^[-+]?(\d+[.,]?\d*|[.,]\d+)([eE][-+]?\d+)?$")
COMMA_DECIMAL = re.compile(r"^[-+]?\d+,\d+$")
POINT_DECIMAL = re.compile(r"^[-+]?\d+\.\d+$")
GROUPED = re.compile(r"^[-+]?\d{1,3}(?:([.,' \u00a0\u202f’])\d{3})+(?:([.,])\d+)?$")
TWICE_AS_WIDE = 1.5
NAMES_SHARE = 0.3


@dataclass(frozen=True)
class TextLayout:
    """The columns of a text file, their units where a row states them, and how it is written."""

    names: tuple[str, ...]
    units: tuple[str, ...] = ()
    form: TextForm = COMMAS


def text_layout(lines: Sequence[str], where: str) -> TextLayout:
    """Decide how the first lines of a file are written; refuse what is no table."""
    head = [line for line in lines[:LINES] if line.strip()]
    if not head:
        raise DataError(f"{where} is empty. Export the recording again.")
    layouts = [(*_header(head, separator), separator) for separator in SEPARATORS]
    # A name begins with a letter: a comma in times or numbers does not cut a header off the data.
    width, at, separator = max(
        layouts,
        key=lambda layout_score: (
            layout_score[0] > 1 and _begins_with_names(head, *layout_score[1:]),
            layout_score[0],
        ),
    )
    if width < 2:
        raise DataError(_no_table(head, where))
    rows = _cells(head, separator)
    names = tuple(name.strip() for name in rows[at])
    if all(NUMBER.match(name) or not name for name in names):
        raise DataError(
            f"{where} has no header: its first line holds numbers only ({', '.join(names[:3])}, "
            "...). Put a line with the columns' names on top."
        )
    body = rows[at + 1 :]
    units = _units(body)
    cells = [cell.strip() for row in body for cell in row]
    decimal_comma, thousands = number_style(cells)
    header = list(lines).index(head[at])
    decimal = "," if decimal_comma else "."
    form = TextForm(separator, decimal, thousands, header, units_row=bool(units))
    return TextLayout(names, units, form)


def _cells(lines: Iterable[str], separator: str) -> list[list[str]]:
    return list(csv.reader(lines, delimiter=separator))


def _header(lines: Sequence[str], separator: str) -> tuple[int, int]:
    """Columns of the table and the line of its header; (0, 0) if lines differ in width.

    The header is the first line that is as wide as most lines after it: what stands above it is a
    preamble. A separator at the end of each row adds no column.
    """
    rows = _cells(lines, separator)
    widths = [len(row) for row in rows]
    usual = Counter(widths[1:] or widths).most_common(1)[0][0]
    for width in (usual, usual - 1):
        if width < 2 or width not in widths:
            continue
        at = widths.index(width)
        numbers = sum(bool(NUMBER.match(cell.strip())) for cell in rows[at])
        # Below a line of another width, numbers are no names: that line was the header.
        if at == 0 or numbers < NAMES_SHARE * width:
            return width, at
    return 0, 0


def _begins_with_names(lines: Sequence[str], at: int, separator: str) -> bool:
    """Return whether most cells of a line begin like names."""
    cells = _cells(lines, separator)[at]
    return len(cells) > 1 and sum(cell.strip()[:1].isdigit() for cell in cells) < len(cells) / 2


def _no_table(lines: Sequence[str], where: str) -> str:
    """Return the reason why the lines are no table: a decimal comma between commas, or no separator
    at all.
    """
    rows = _cells(lines, ",")
    names = len(rows[0])
    usual = Counter(map(len, rows[1:])).most_common(1)
    if names > 1 and usual and usual[0][0] >= TWICE_AS_WIDE * names:
        return (
            f"{where} has {names} names in its header and {usual[0][0]} values in its rows: "
            "decimal commas look like separators. Export it with ';' between the columns or with "
            "decimal points."
        )
    return (
        f"{where} is not a table: no separator (comma, semicolon, tab or |) cuts its lines into "
        f"the same number of columns. Its first line is {lines[0][:60]!r}."
    )


def _units(body: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the units in the row below the names, if that row holds units and no number."""
    if len(body) < 2:
        return ()
    first = [cell.strip().strip("[]()") for cell in body[0]]
    if any(NUMBER.match(cell) for cell in first) or not any(
        NUMBER.match(cell.strip()) for cell in body[1]
    ):
        return ()
    units = [cell for cell in first if cell.casefold() in unit_of_word()]
    return tuple(first) if units else ()


def number_style(cells: Sequence[str]) -> tuple[bool, str]:
    """Return whether the decimal sign is a comma, and what stands between thousands ("" for
    nothing).

    >>> number_style(["12,5", "7"]), number_style(["1.234,5"]), number_style(["1,234.5", "2.5"])
    ((True, ''), (True, '.'), (False, ','))
    """
    commas = sum(bool(COMMA_DECIMAL.match(cell)) for cell in cells)
    points = sum(bool(POINT_DECIMAL.match(cell)) for cell in cells)
    grouped = [match for cell in cells if (match := GROUPED.match(cell))]
    signs = {match[2] for match in grouped if match[2] and match[1] != match[2]}
    if signs:
        decimal_comma = "," in signs
    else:
        # "1,234" alone may be thousands; three digits behind every comma and a point elsewhere.
        only_groups = all(GROUPED.match(c) for c in cells if COMMA_DECIMAL.match(c))
        decimal_comma = commas > 0 and not (only_groups and points > commas)
    decimal = "," if decimal_comma else "."
    between = Counter(
        match[1] for match in grouped if match[1] != decimal and (match[2] or decimal) == decimal
    )
    if not decimal_comma and not signs and commas == 0:
        between = Counter({sign: n for sign, n in between.items() if sign not in ".,"})
    return decimal_comma, between.most_common(1)[0][0] if between else ""
