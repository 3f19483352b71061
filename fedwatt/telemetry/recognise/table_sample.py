"""Samples of the tables of a recording, as text: the head of each and pieces from all over it.

Pieces from everywhere, because the second vehicle of a file may begin in its last third.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import polars as pl

from fedwatt.errors import DataError
from fedwatt.telemetry.readers.table_blocks import NO_VALUE, as_text, tidy
from fedwatt.telemetry.recognise.text_layout import TextLayout, text_layout

HEAD_BYTES = 1 << 20
HEAD_ROWS = 20_000
PIECE_BYTES = 1 << 15
PIECE_ROWS = 500
PIECES = 24
LINE_START = b"\n"
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

    def unit_row(self, column: str) -> str:
        """Return a column's entry in the row of units, or ""."""
        at = self.layout.names.index(column)
        return self.layout.units[at] if at < len(self.layout.units) else ""

    @cached_property
    def filled(self) -> dict[str, int]:
        """Number of non-empty rows of each column."""
        return {name: int(self.rows[name].is_not_null().sum()) for name in self.columns}


def files_alike(
    paths: Sequence[Path],
) -> tuple[list[TableSample], list[TableSample], list[Path], list[str]]:
    """Return samples of files with the same columns, and of others; all files; sentences on empty
    ones.
    """
    readable = [path for path in paths if path.suffix.lower() != ".7z"]
    if not readable:
        raise DataError(f"{paths[0].name} is an archive. Unpack it and name what is inside.")
    step = -(-len(readable) // LOOKED_AT)
    samples = [read_sample(path) for path in readable[::step]]
    columns = {sample.path: frozenset(map(tidy, sample.columns)) for sample in samples}
    kinds = Counter(columns.values())
    usual = max(kinds, key=lambda kind: (kinds[kind], len(kind)))
    alike = [sample for sample in samples if columns[sample.path] == usual]
    different = [sample for sample in samples if columns[sample.path] != usual]
    filled = [sample for sample in alike if sample.rows.height]
    empty = [sample.path for sample in alike if not sample.rows.height] if filled else []
    remarks = [f"{path.name} has a header and no rows." for path in empty]
    # The longest file shows most of what columns hold.
    filled.sort(key=lambda sample: -sample.rows.height)
    return filled or alike, different, [path for path in readable if path not in empty], remarks


def read_sample(path: Path) -> TableSample:
    """Look at a CSV or Parquet file."""
    if not path.stat().st_size:
        raise DataError(f"{path.name} is empty (0 bytes). Name a file with rows.")
    if path.suffix.lower() == ".parquet":
        return _parquet(path)
    size = path.stat().st_size
    with path.open("rb") as file:
        # A file that head and pieces would cover is read as a whole, so that no row counts twice.
        whole_file = size <= HEAD_BYTES + PIECES * PIECE_BYTES
        head = file.read(size if whole_file else HEAD_BYTES)
        pieces = [] if whole_file else _pieces(file, size)
    text = _decoded(head, path.name)
    complete_lines = text[: text.rfind("\n") + 1] if pieces else text
    layout = text_layout(complete_lines.splitlines(), path.name)
    body = complete_lines.splitlines()[layout.form.skip_rows + 1 + layout.form.units_row :]
    if pieces:
        body = body[:HEAD_ROWS]
    blocks = [body, *(as_text(piece).splitlines()[:PIECE_ROWS] for piece in pieces)]
    frames = [_frame(lines, layout, number) for number, lines in enumerate(blocks)]
    return TableSample(path, pl.concat(frames), layout)


def _decoded(head: bytes, where: str) -> str:
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in head[:200]:
        raise DataError(
            f"{where} is UTF-16 or no text at all. Save it as CSV in UTF-8 "
            "('CSV UTF-8' in a spreadsheet)."
        )
    if head[:4] in (b"PK\x03\x04", b"\x1f\x8b\x08\x00", b"\x1f\x8b\x08\x08"):
        raise DataError(f"{where} is a packed file. Unpack it and name what is inside.")
    # A letter may be cut in two at the end of what was read.
    return as_text(head[: head.rfind(b"\n") + 1 or None])


def _pieces(file: BinaryIO, size: int) -> list[bytes]:
    """Whole lines from places spread over the rest of a file."""
    pieces = []
    for place in range(1, PIECES + 1):
        file.seek(HEAD_BYTES + (size - HEAD_BYTES - PIECE_BYTES) * place // PIECES)
        piece = file.read(PIECE_BYTES)
        pieces.append(piece[piece.find(LINE_START) + 1 : piece.rfind(LINE_START) + 1])
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
    chosen = frame.select(pl.col(column).alias(name) for name, column in first.items())
    return chosen.with_columns(pl.lit(piece, dtype=pl.Int64).alias("#"))


def _parquet(path: Path) -> TableSample:
    try:
        table = pl.scan_parquet(path)
        names = table.collect_schema().names()
        total = int(table.select(pl.len()).collect().item())
        starts = [0] + [
            HEAD_ROWS + (total - HEAD_ROWS - PIECE_ROWS) * n // PIECES for n in range(1, PIECES + 1)
        ] * (total > HEAD_ROWS + PIECES * PIECE_ROWS)
        head = total if len(starts) == 1 else HEAD_ROWS
        frames = [
            table.slice(start, PIECE_ROWS if n else head)
            .select(pl.all().cast(pl.String))
            .collect()
            .with_columns(pl.lit(n, dtype=pl.Int64).alias("#"))
            for n, start in enumerate(starts)
        ]
    except pl.exceptions.PolarsError as error:
        raise DataError(f"{path.name} is not a readable Parquet file.") from error
    return TableSample(path, pl.concat(frames), TextLayout(tuple(names)))


def is_numeric(column: pl.Series, numbers: pl.Series) -> bool:
    """Return whether most of what a column holds are numbers."""
    filled = int(column.is_not_null().sum())
    return filled > 0 and int(numbers.is_not_null().sum()) > 0.5 * filled
