"""Sample the tables of a recording, and recognise how text tables are written.

A sample has the head of a file and pieces from all over it, because its second vehicle may begin in
the last third. Of text tables the separator, header, units, decimal and thousands signs are found.
"""

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import takewhile
from pathlib import Path

import polars as pl

from fedwatt.errors import DataError
from fedwatt.telemetry.readers.files import find_tables
from fedwatt.telemetry.readers.tables import (
    COMMAS,
    NO_VALUE,
    PARQUET,
    TextForm,
    as_text,
    left_out,
    refuse_unreadable,
    scan_parquet,
    tidy,
)
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
FULL = 0.75
"""Share of the cells of a header that hold a name."""
MOSTLY = 0.5


@dataclass(frozen=True)
class TextLayout:
    """The columns of a text file, their units where a row states them, and how it is written."""

    names: tuple[str, ...]
    units: tuple[str, ...] = ()
    form: TextForm = COMMAS

    @property
    def header_lines(self) -> int:
        """Number of lines before the first row."""
        return self.form.skip_rows + 1 + self.form.units_row


def text_layout(lines: Sequence[str], where: str) -> TextLayout:
    """Return how the first lines of a file are written; refuse what is no table."""
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
    numbers = sum(bool(NUMBER.match(name)) or not name for name in names)
    if numbers > MOSTLY * len(names):
        raise DataError(
            f"{where} has no header: its first line holds numbers. "
            "Put a line with the columns' names on top."
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
    """Return the table's width and the line of its header; (0, 0) if lines differ in width.

    The header is the first line that is as wide as most lines after it, and filled: what stands
    above it is a preamble. A separator at the end of each row adds no column.
    """
    rows = _cells(lines, separator)
    widths = [len(row) for row in rows]
    usual = Counter(widths[1:] or widths).most_common(1)[0][0]
    for width in (usual, usual - 1):
        if width < 2 or width not in widths:
            continue
        at = _names_below(rows, widths.index(width))
        numbers = sum(map(_is_number, rows[at]))
        # Below a line of another width, numbers are no names: that line was the header.
        if at == 0 or numbers < NAMES_SHARE * width:
            return width, at
    return 0, 0


def _names_below(rows: Sequence[Sequence[str]], at: int) -> int:
    """Return the row of names, from row `at` on: titles and merged cells above it are half empty.

    >>> _names_below([["Motion", "", ""], ["time", "speed", "power"], ["1", "2", "3"]], 0)
    1
    """
    texts = takewhile(lambda row: not any(map(_is_number, row)), rows[at:])
    filled = [sum(bool(cell.strip()) for cell in row) / max(len(row), 1) for row in texts]
    full = [place for place, share in enumerate(filled) if share >= FULL]
    return at + (full[0] if full else filled.index(max(filled, default=0)) if filled else 0)


def _is_number(cell: str) -> bool:
    return bool(NUMBER.match(cell.strip()))


def _begins_with_names(lines: Sequence[str], at: int, separator: str) -> bool:
    """Return whether most cells of a line begin with another letter than a digit, as names do."""
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
    if any(map(_is_number, first)) or not any(map(_is_number, body[1])):
        return ()
    units = [cell for cell in first if cell.casefold() in unit_of_word()]
    return tuple(first) if units else ()


def number_style(cells: Sequence[str]) -> tuple[bool, str]:
    """Return whether the decimal sign is a comma, and what stands between thousands ("" for
    nothing).

    >>> number_style(["12,5", "7"]), number_style(["1.234,5"]), number_style(["1,234.5", "2.5"])
    ((True, ''), (True, '.'), (False, ','))
    >>> number_style(["12,5", "359.12", "359.125"])
    (True, '')
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
    # "359.12" beside "12,5" shows that a point is another column's decimal sign.
    if not signs and any(POINT_DECIMAL.match(cell) and not GROUPED.match(cell) for cell in cells):
        del between["."]
    if not decimal_comma and not signs and commas == 0:
        between = Counter({sign: n for sign, n in between.items() if sign not in ".,"})
    return decimal_comma, between.most_common(1)[0][0] if between else ""


HEAD_BYTES = 1 << 20
HEAD_ROWS = 20_000
PIECE_BYTES = 1 << 15
PIECE_ROWS = 500
PIECES = 24
HEADER_BYTES = 1 << 17
LOOKED_AT = 40
"""Files that are looked into; of more, these are spread over all of them."""


@dataclass(frozen=True, eq=False)
class TableSample:
    """Rows of one file as text, and how the file is written.

    The column `#` of `rows` numbers the piece that a row is from: between pieces rows are missing.
    """

    path: Path
    rows: pl.DataFrame
    layout: TextLayout
    _numbers: dict[str, pl.Series] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        """Names of the file's columns."""
        return [name for name in self.rows.columns if name != "#"]

    def numbers(self, column: str) -> pl.Series:
        """Return a column as numbers; what is none is null."""
        if column not in self._numbers:
            text = self.layout.form.plain(self.rows[column].cast(pl.String).str.strip_chars())
            self._numbers[column] = text.cast(pl.Float64, strict=False).fill_nan(None)
        return self._numbers[column]

    def spelled(self, spellings: Mapping[str, str]) -> "TableSample":
        """Return the sample with columns spelled as in `spellings`, which are by tidy names."""
        # A file may have both `t`, its time, and `T`, a temperature.
        names = {
            name: spellings[tidy(name)]
            for name in self.columns
            if spellings.get(tidy(name), name) not in self.columns
        }
        layout_names = tuple(names.get(name, name) for name in self.layout.names)
        layout = replace(self.layout, names=layout_names)
        return replace(self, rows=self.rows.rename(names), layout=layout, _numbers={})

    def unit_row(self, column: str) -> str:
        """Return a column's entry in the row of units, or ""."""
        at = self.layout.names.index(column)
        return self.layout.units[at] if at < len(self.layout.units) else ""

    @cached_property
    def filled(self) -> dict[str, int]:
        """Number of non-empty rows of each column."""
        return {name: int(self.rows[name].is_not_null().sum()) for name in self.columns}


@dataclass(frozen=True)
class Kind:
    """A group of files with the same columns, and samples of the longest of them."""

    files: list[Path]
    samples: list[TableSample]


def survey(paths: Sequence[Path]) -> tuple[Kind, list[Kind], tuple[str, ...]]:
    """Return the most frequent kind of files, the others, and sentences on unreadable files.

    Every file's header is looked at, so that what is accepted here can be read later.
    """
    problems: dict[str, str] = {}
    kinds: dict[tuple[frozenset[str], object], list[Path]] = {}
    for path in paths:
        try:
            layout = _header_of(path)
        except DataError as error:
            if len(paths) == 1:
                raise
            problems[path.name] = str(error)
            continue
        written = layout.form.separator, layout.form.skip_rows, layout.form.units_row
        kinds.setdefault((frozenset(map(tidy, layout.names)), written), []).append(path)
    if not kinds:
        raise DataError(f"No file can be read. {' '.join(left_out(problems))}")
    usual = _kind(kinds.pop(max(kinds, key=lambda kind: (len(kinds[kind]), len(kind[0])))))
    spellings = {tidy(name): name for name in usual.samples[0].columns}
    every_kind = [usual, *map(_kind, kinds.values())]
    for kind in every_kind:
        kind.samples[:] = [sample.spelled(spellings) for sample in kind.samples]
    return usual, every_kind[1:], left_out(problems)


def _kind(files: list[Path]) -> Kind:
    """Return files of one kind, with samples spread over them."""
    samples = [read_sample(path) for path in files[:: -(-len(files) // LOOKED_AT)]]
    samples.sort(key=lambda sample: -sample.rows.height)
    return Kind(files, samples)


def _header_of(path: Path) -> TextLayout:
    """Return how a file is written; refuse one without rows."""
    if path.suffix.lower() == PARQUET:
        _, names, rows = scan_parquet(path, path.name)
        layout = TextLayout(tuple(names))
    else:
        with path.open("rb") as file:
            lines = _decoded(file.read(HEADER_BYTES), path.name).splitlines()
        layout = text_layout(lines, path.name)
        rows = sum(bool(line.strip()) for line in lines[layout.header_lines :])
    if not rows:
        raise DataError(f"{path.name} has no rows, only a header. Export the recording again.")
    return layout


def neighbours(path: Path) -> list[Path]:
    """Return the table of the file `path`, and those of files beside it with the same columns."""
    beside = [table.path for table in find_tables(path)]
    names = _header_of(beside[0]).names
    # A folder may hold one recording in several formats: only those of its own ending count.
    for other in sorted(path.parent.glob(f"*{path.suffix}")):
        with suppress(DataError):
            tables = [table.path for table in find_tables(other)]
            beside += [t for t in tables if t not in beside and _header_of(t).names == names]
    return beside


def read_sample(path: Path) -> TableSample:
    """Return a sample of the rows of a file."""
    if path.suffix.lower() == PARQUET:
        return _typed(path)
    layout = _header_of(path)
    pieces = [as_text(piece).splitlines() for piece in _pieces(path)]
    pieces[0] = pieces[0][layout.header_lines :]
    frames = [_frame(lines, layout, number) for number, lines in enumerate(pieces)]
    return TableSample(path, pl.concat(frames), layout)


def _decoded(head: bytes, where: str) -> str:
    if not head:
        raise DataError(f"{where} is empty (0 bytes). Name a file with rows.")
    refuse_unreadable(head, where)
    if head[:4] in (b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"\x1f\x8b\x08\x08"):
        raise DataError(f"{where} is a packed file. Unpack it and name what is inside.")
    # A letter may be cut in two at the end of what was read.
    return as_text(head[: head.rfind(b"\n") + 1 or None])


def _pieces(path: Path) -> list[bytes]:
    """Return whole lines: all of a small file, of a large one its head and pieces of the rest."""
    size = path.stat().st_size
    if size <= HEAD_BYTES + PIECES * PIECE_BYTES:
        return [path.read_bytes()]
    with path.open("rb") as file:
        head = file.read(HEAD_BYTES)
        pieces = [head[: head.rfind(b"\n") + 1]]
        for place in range(1, PIECES + 1):
            file.seek(HEAD_BYTES + (size - HEAD_BYTES - PIECE_BYTES) * place // PIECES)
            piece = file.read(PIECE_BYTES)
            pieces.append(piece[piece.find(b"\n") + 1 : piece.rfind(b"\n") + 1])
    return [piece for piece in pieces if piece]


def _frame(lines: list[str], layout: TextLayout, piece: int) -> pl.DataFrame:
    column_names = [f"c{at}" for at in range(len(layout.names))]
    separator = layout.form.separator
    rows = "\n".join([separator.join(column_names), *(line for line in lines if line.strip())])
    frame = pl.read_csv(
        rows.encode(),
        separator=separator,
        schema=dict.fromkeys(column_names, pl.String),
        null_values=[*NO_VALUE, ""],
        truncate_ragged_lines=True,
    )
    # Of columns with the same name the first is read, as in an import; one without a name is not.
    first = {name: f"c{layout.names.index(name)}" for name in layout.names if name}
    return frame.select(pl.lit(piece).alias("#"), **first)


def _typed(path: Path) -> TableSample:
    table, names, total = scan_parquet(path, path.name)
    texts = table.select(pl.all().cast(pl.String))
    parts = {0: total}
    if total > HEAD_ROWS + PIECES * PIECE_ROWS:
        between = total - HEAD_ROWS - PIECE_ROWS
        pieces = range(1, PIECES + 1)
        parts = {HEAD_ROWS + between * piece // PIECES: PIECE_ROWS for piece in pieces}
        parts = {0: HEAD_ROWS, **parts}
    try:
        frames = [
            texts.slice(start, rows).select(pl.lit(piece).alias("#"), pl.all()).collect()
            for piece, (start, rows) in enumerate(parts.items())
        ]
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path.name} is not a readable Parquet file.") from error
    return TableSample(path, pl.concat(frames), TextLayout(tuple(names)))


def is_numeric(column: pl.Series, numbers: pl.Series) -> bool:
    """Return whether most of what a column holds are numbers."""
    filled = int(column.is_not_null().sum())
    return filled > 0 and int(numbers.is_not_null().sum()) > 0.5 * filled
