"""Read tables block by block: CSV text fed as bytes (a file or a member of an archive), Parquet.

Numbers are parsed by polars; a block it refuses is read again as text, and what is not a number
becomes "no reading", counted. A column that is mostly text is refused: it is the wrong column.
Quoted line breaks are not supported: telemetry has one row a line.

Go through the files of an import, whatever their kind, block by block and with progress.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from typing import TypeVar

import polars as pl

from fedwatt.errors import DataError
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.readers.files import FoundTable, read_members
from fedwatt.telemetry.readers.stream import Progress

BLOCK_BYTES = 16 << 20
BLOCK_ROWS = 400_000
NO_VALUE = ["NO DATA", "NA", "N/A", "null", "NULL", "None", "none", "#N/A", "-", "--"]
MOSTLY = 0.5
LOST = "\ufffd"
"""Stands where bytes are no letter."""
# A file may be one's own export or a download.
AGAIN = "Export or download it again"

# Takes rows, what was done to read them, and the number of the first row.
Sink = Callable[[pl.DataFrame, Account, int], None]
Text = TypeVar("Text", pl.Expr, pl.Series)


@dataclass(frozen=True)
class TextForm:
    """Format of a text table: the table [file] of a mapping."""

    separator: str = ","
    decimal: str = "."
    thousands: str = ""
    skip_rows: int = 0
    units_row: bool = False

    def plain(self, numbers: Text) -> Text:
        """Numbers as text without thousands and with a decimal point."""
        if self.thousands:
            numbers = numbers.str.replace_all(self.thousands, "", literal=True)
        return numbers.str.replace(",", ".", literal=True) if self.decimal == "," else numbers


COMMAS = TextForm()
"""As CSV files usually are."""


@dataclass(frozen=True)
class WantedColumn:
    """A column a reader asks for; `aliases` are other spellings of its name."""

    aliases: tuple[str, ...] = ()
    text: bool = False
    required: bool = True


@dataclass(frozen=True)
class TableLayout:
    """Format of a CSV file, and the columns to read.

    A file none of whose columns is in `any_of` is not meant for this reader: it is passed over.
    """

    wanted: Mapping[str, WantedColumn]
    form: TextForm = COMMAS
    any_of: tuple[str, ...] = ()
    hint: str = ""


def tidy(name: str) -> str:
    """Column name as compared: quotes, a stray `;`, case and doubled spaces do not count.

    >>> tidy(' "Focus  Points;" ')
    'focus points'
    """
    return " ".join(name.strip().strip('"').rstrip("; ").split()).casefold()


def as_text(raw: bytes) -> str:
    """Text in UTF-8, or in cp1252 where more bytes break UTF-8 than there are letters beyond ASCII.

    >>> as_text("Länge".encode()), as_text("Länge".encode("cp1252"))
    ('Länge', 'Länge')
    """
    text = raw.decode("utf-8-sig", errors="replace")
    broken = text.count(LOST) - raw.count(LOST.encode())
    letters = len(text) - len(text.encode("ascii", errors="ignore")) - broken
    return raw.decode("cp1252", errors="replace") if broken > letters else text


def resolve(header: Sequence[str], layout: TableLayout, where: str) -> dict[str, int] | None:
    """Position of every wanted column in the header; None when the file is to be passed over."""
    positions: dict[str, int] = {}
    for number, name in enumerate(header):
        positions.setdefault(tidy(name), number)
    if layout.any_of and not any(tidy(name) in positions for name in layout.any_of):
        return None
    indices: dict[str, int] = {}
    for name, column in layout.wanted.items():
        spellings = [tidy(spelling) for spelling in (name, *column.aliases)]
        position = next((positions[s] for s in spellings if s in positions), None)
        # A file may have both `t`, its time, and `T`, a temperature.
        if name in header:
            position = header.index(name)
        if position is not None:
            indices[name] = position
        elif column.required:
            near = get_close_matches(tidy(name), list(positions), n=1, cutoff=0.75)
            guess = f" Did you mean '{header[positions[near[0]]].strip()}'?" if near else ""
            raise DataError(f"{where} has no column '{name}'.{guess} {layout.hint}".rstrip())
    return indices


@dataclass
class CsvFeed:
    """Takes a CSV file as bytes, in pieces of any size, and hands frames of its rows to `sink`.

    Frames have the wanted columns under the reader's names: Float64, or String for text.
    """

    where: str
    layout: TableLayout
    sink: Sink
    passed_over: bool = False
    _pieces: list[bytes] = field(default_factory=list)
    _size: int = 0
    _row: int = 0
    _columns: dict[str, int] | None = None
    _width: int = 0

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the file."""
        if self.passed_over:
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size >= BLOCK_BYTES:
            block = b"".join(self._pieces)
            border = block.rfind(b"\n") + 1
            if not border:
                raise DataError(
                    f"{self.where}, row {self._row}: a line is longer than {BLOCK_BYTES >> 20} MB, "
                    f"so it is no table. {AGAIN}, or leave it out."
                )
            self._pieces = [block[border:]]
            self._size = len(block) - border
            self._parse(block[:border])

    def finish(self) -> None:
        """Take the end of the file."""
        block = b"".join(self._pieces)
        self._pieces = []
        self._size = 0
        if self._columns is None and not self.passed_over and not block.strip():
            raise DataError(
                f"{self.where} is empty ({len(block)} bytes). {AGAIN}, or leave it out."
            )
        self._parse(block)

    def _parse(self, block: bytes) -> None:
        if self._columns is None and not self.passed_over:
            block = self._read_header(block)
        if self.passed_over or self._columns is None or not block.strip():
            return
        try:
            if self.layout.form.thousands:
                frame, account = self._scan_text(block)
            else:
                frame = self._scan(block, text=False)
                account = Account()
        except pl.exceptions.PolarsError:
            frame, account = self._scan_text(block)
        self.sink(frame, account, self._row)
        self._row += frame.height

    def _read_header(self, block: bytes) -> bytes:
        form = self.layout.form
        for _ in range(form.skip_rows):
            block = block.partition(b"\n")[2]
        line, _, block = block.partition(b"\n")
        if b"\x00" in line:
            raise DataError(
                f"{self.where}, row 1: the header is not UTF-8 text. Save the file as UTF-8 CSV."
            )
        names = next(csv.reader([as_text(line).rstrip("\r")], delimiter=form.separator))
        self._columns = resolve(names, self.layout, self.where)
        self.passed_over = self._columns is None
        self._width = len(names)
        self._row = form.skip_rows + 2 + form.units_row
        return block.partition(b"\n")[2] if form.units_row else block

    def _scan(self, block: bytes, *, text: bool) -> pl.DataFrame:
        assert self._columns is not None
        # Own names: real headers may be doubled, and every block must have the same width.
        schema: dict[str, type[pl.DataType]] = {f"c{at}": pl.String for at in range(self._width)}
        for name, at in self._columns.items():
            if not text and not self.layout.wanted[name].text:
                schema[f"c{at}"] = pl.Float64
        form = self.layout.form
        header = form.separator.join(schema).encode() + b"\n"
        frame = pl.scan_csv(
            header + block,
            separator=form.separator,
            decimal_comma=form.decimal == "," and not text,
            schema=schema,
            null_values=NO_VALUE,
            encoding="utf8-lossy" if text else "utf8",
            truncate_ragged_lines=True,
        )
        chosen = [pl.col(f"c{at}").alias(name) for name, at in self._columns.items()]
        return frame.select(chosen).collect()

    def _scan_text(self, block: bytes) -> tuple[pl.DataFrame, Account]:
        assert self._columns is not None
        form = self.layout.form
        columns = self.layout.wanted
        numbers = [name for name in self._columns if not columns[name].text]
        try:
            frame = self._scan(block, text=True)
            # In a number a broken byte is a fault. In a name it is a letter of another encoding.
            if _lost(frame if not form.thousands.isascii() else frame.drop(numbers)):
                frame = self._scan(as_text(block).encode(), text=True)
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"{self.where}, from row {self._row}: not a table with {self._width} columns "
                f"separated by '{form.separator}' ({str(error).splitlines()[0]})."
            ) from error
        broken = _lost(frame)
        frame = frame.with_columns(form.plain(pl.col(numbers)))
        frame, account = as_numbers(frame, self.layout, self.where, self._row)
        return frame, account + Account.of("repaired", "values", broken, "bytes that are not UTF-8")


def _lost(frame: pl.DataFrame) -> int:
    """Return the number of undecodable letters in a frame of texts."""
    return sum(int(column.str.count_matches(LOST, literal=True).sum()) for column in frame)


def as_numbers(
    frame: pl.DataFrame, layout: TableLayout, where: str, first_row: int
) -> tuple[pl.DataFrame, Account]:
    """Return the frame with every number column as Float64; text in it becomes null and is
    counted.
    """
    accounts = []
    columns = []
    for name in frame.columns:
        column = frame[name]
        if layout.wanted[name].text:
            columns.append(column.cast(pl.String))
            continue
        if column.dtype == pl.String:
            column = column.str.strip_chars()
            # Loggers that are started again write their header again.
            filled = column.is_not_null() & (column != "") & (column != name.strip())
            numbers = column.cast(pl.Float64, strict=False)
            bad = (filled & numbers.is_null()).fill_null(False)
            count = int(bad.sum())
            if count:
                row = int(bad.arg_max() or 0)
                if count > MOSTLY * int(filled.sum()):
                    raise DataError(
                        f"{where}, row {first_row + row}, column '{name}': {column[row]!r} is not "
                        f"a number, nor are {count - 1} others in this column. Is it the right "
                        "column, separator and decimal sign?"
                    )
                accounts.append(Account.of("repaired", "values", count, f"text in column '{name}'"))
            columns.append(numbers)
        elif column.dtype.is_temporal():
            raise DataError(
                f"{where}, column '{name}' holds dates or times ({column.dtype}) where a number "
                'belongs. For a time column set unit = "iso".'
            )
        else:
            columns.append(column.cast(pl.Float64))
    return pl.DataFrame(columns), Account.total(accounts)


def read_csv(path: Path, feed: CsvFeed, seen: Callable[[int], None]) -> None:
    """Feed a CSV file block by block; `seen` is told the bytes of each."""
    with path.open("rb") as file:
        while piece := file.read(BLOCK_BYTES):
            feed.feed(piece)
            seen(len(piece))
    feed.finish()


def read_parquet(
    path: Path, layout: TableLayout, sink: Sink, seen: Callable[[int], None], where: str
) -> bool:
    """Hand the rows of a Parquet file to `sink`, block by block; False if it was passed over."""
    size = path.stat().st_size
    if not size:
        raise DataError(f"{where} is empty (0 bytes). {AGAIN}, or leave it out.")
    try:
        table = pl.scan_parquet(path)
        header = table.collect_schema().names()
        rows = int(table.select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"{where} is not a readable Parquet file ({str(error).splitlines()[0]}). {AGAIN}."
        ) from error
    columns = resolve(header, layout, where)
    if columns is None:
        seen(size)
        return False
    chosen = [pl.col(header[position]).alias(name) for name, position in columns.items()]
    for start in range(0, rows, BLOCK_ROWS):
        count = min(BLOCK_ROWS, rows - start)
        try:
            frame = table.slice(start, count).select(chosen).collect()
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"{where}, from row {start + 1}: the file is damaged "
                f"({str(error).splitlines()[0]}). {AGAIN}."
            ) from error
        frame, account = as_numbers(frame, layout, where, start + 1)
        sink(frame, account, start + 1)
        seen(size * count // rows)
    return True


@dataclass(frozen=True)
class Source:
    """A file, or a member of an archive: its path, its name in messages, and its number."""

    table: FoundTable
    path: Path
    where: str
    number: int


def read_tables(
    tables: Sequence[FoundTable],
    layout_of: Callable[[FoundTable], TableLayout],
    add: Callable[[pl.DataFrame, Source, int], Account],
    progress: Progress,
) -> tuple[Account, list[str]]:
    """Hand all rows to `add`; what became of them, and the names of files that were passed over.

    `add(rows, source, number of the first row)` is called block by block.
    """
    total = sum(table.size() for table in tables)
    done = 0
    accounts: list[Account] = []
    feeds: list[CsvFeed] = []

    def seen(size: int) -> None:
        nonlocal done
        done += size
        progress(min(done, total), total, f"reading {feeds[-1].where}")

    def begin(table: FoundTable, member: str = "") -> CsvFeed:
        path = table.path / member if member else table.path
        where = f"{table.path.name}/{member}" if member else table.path.name
        source = Source(table, path, where, len(feeds))

        def sink(frame: pl.DataFrame, account: Account, first_row: int) -> None:
            accounts.append(account + add(frame, source, first_row))

        feeds.append(CsvFeed(where, layout_of(table), sink))
        return feeds[-1]

    for table in tables:
        if table.kind == "csv":
            read_csv(table.path, begin(table), seen)
        elif table.kind == "parquet":
            feed = begin(table)
            read = read_parquet(table.path, feed.layout, feed.sink, seen, feed.where)
            feed.passed_over = not read
        else:
            read_members(table.path, partial(begin, table), seen)
    return Account.total(accounts), [feed.where for feed in feeds if feed.passed_over]
