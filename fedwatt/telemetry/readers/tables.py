"""Read tables block by block and with progress: CSV files, also in archives, and Parquet.

Numbers are parsed by polars; a block it refuses is read again as text, and what is not a number
becomes "no reading", counted. A column that is mostly text is refused: it is the wrong column.
Quoted line breaks are not supported: telemetry has one row a line.
"""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import polars as pl
import polars.selectors as cs

from fedwatt.errors import DataError, counted
from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.readers.files import AGAIN, TableFile, listed
from fedwatt.telemetry.readers.stream import Progress

PARQUET = ".parquet"
BLOCK_BYTES = 16 << 20
BLOCK_ROWS = 400_000
NO_VALUE = ["NO DATA", "NA", "N/A", "null", "NULL", "None", "none", "#N/A", "-", "--"]
MOSTLY = 0.5
LOST = "\ufffd"
"""Stands where bytes are no letter."""

Blocks = Iterator[tuple[pl.DataFrame, Account, int, int]]
"""Rows, what was done to read them, the number of the first one, and their bytes in the file."""
Text = TypeVar("Text", pl.Expr, pl.Series)


class OtherTableError(DataError):
    """A file that is empty or has other columns: not the table that a reader asks for."""


@dataclass(frozen=True)
class TextForm:
    """Format of a text table: the table [file] of a mapping."""

    separator: str = ","
    decimal: str = "."
    thousands: str = ""
    skip_rows: int = 0
    units_row: bool = False

    def plain(self, numbers: Text) -> Text:
        """Return numbers as text without thousands and with a decimal point."""
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
    """Format of a CSV file, and the columns to read; `hint` ends the message on a missing one."""

    columns: Mapping[str, WantedColumn]
    form: TextForm = COMMAS
    hint: str = ""


def tidy(name: str) -> str:
    """Return a column name for comparison: without quotes, stray `;`, case and doubled spaces.

    >>> tidy(' "Focus  Points;" ')
    'focus points'
    """
    return " ".join(name.strip().strip('"').rstrip("; ").split()).casefold()


def as_text(raw: bytes) -> str:
    """Decode UTF-8, or GB2312 or cp1252 where more bytes break UTF-8 than there are letters.

    Letters of GB2312 are pairs of bytes beyond ASCII; single ones are cp1252.

    >>> as_text("Länge".encode()), as_text("Länge".encode("cp1252")), as_text("车速".encode("gbk"))
    ('Länge', 'Länge', '车速')
    """
    text = raw.decode("utf-8-sig", errors="replace")
    broken = text.count(LOST) - raw.count(LOST.encode())
    letters = len(text) - len(text.encode("ascii", errors="ignore")) - broken
    if broken <= letters:
        return text
    try:
        return raw.decode("gb2312")
    except UnicodeDecodeError:
        return raw.decode("cp1252", errors="replace")


def resolve(header: Sequence[str], layout: TableLayout, where: str) -> dict[str, int]:
    """Return the position of every wanted column in the header."""
    positions: dict[str, int] = {}
    for number, name in enumerate(header):
        positions.setdefault(tidy(name), number)
    indices: dict[str, int] = {}
    for name, column in layout.columns.items():
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
            raise OtherTableError(f"{where} has no column '{name}'.{guess} {layout.hint}".rstrip())
    return indices


@dataclass(frozen=True)
class CsvTable:
    """A CSV file whose header is read: where its columns are, and how wide its rows are.

    Frames have the wanted columns under the reader's names: Float64, or String for text.
    """

    where: str
    layout: TableLayout
    columns: Mapping[str, int]
    width: int

    def frame(self, block: bytes, first_row: int) -> tuple[pl.DataFrame, Account]:
        """Return the rows of a block, and what became of readings that are no numbers."""
        try:
            if not self.layout.form.thousands:
                return self._scan(block, text=False), Account()
        except pl.exceptions.PolarsError:
            pass  # read again as text
        form = self.layout.form
        numbers = [name for name in self.columns if not self.layout.columns[name].text]
        try:
            frame = self._scan(block, text=True)
            # In a number a broken byte is a fault. In a name it is a letter of another encoding.
            if _lost(frame if not form.thousands.isascii() else frame.drop(numbers)):
                frame = self._scan(as_text(block).encode(), text=True)
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"{self.where}, from row {first_row}: not a table with {self.width} columns "
                f"separated by '{form.separator}' ({str(error).splitlines()[0]})."
            ) from error
        broken = _lost(frame)
        frame = frame.with_columns(form.plain(pl.col(numbers)))
        frame, account = as_numbers(frame, self.layout, self.where, first_row)
        return frame, account + Account.of("repaired", "values", broken, "bytes that are not UTF-8")

    def _scan(self, block: bytes, *, text: bool) -> pl.DataFrame:
        # Own names: real headers may be doubled, and every block must have the same width.
        schema: dict[str, type[pl.DataType]] = {f"c{at}": pl.String for at in range(self.width)}
        for name, at in self.columns.items():
            if not text and not self.layout.columns[name].text:
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
        chosen = [pl.col(f"c{at}").alias(name) for name, at in self.columns.items()]
        return frame.select(chosen).collect()


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
        if layout.columns[name].text:
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


def read_csv(path: Path, layout: TableLayout, where: str) -> Blocks:
    """Yield the rows of a CSV file."""
    table = None
    row = layout.form.skip_rows + 2 + layout.form.units_row
    for block in _blocks(path, where):
        rows = block
        if table is None:
            table, rows = _read_header(block, layout, where)
        if rows.strip():
            frame, account = table.frame(rows, row)
            yield frame, account, row, len(block)
            row += frame.height


def _blocks(path: Path, where: str) -> Iterator[bytes]:
    """Yield a file in blocks of whole lines; at least one."""
    block = b""
    with path.open("rb") as file:
        while piece := file.read(BLOCK_BYTES):
            block += piece
            border = block.rfind(b"\n") + 1
            if not border and len(block) >= BLOCK_BYTES:
                raise DataError(
                    f"{where}: a line is longer than {BLOCK_BYTES >> 20} MB, so it is no table. "
                    f"{AGAIN}, or leave it out."
                )
            if border:
                yield block[:border]
                block = block[border:]
    if block or not path.stat().st_size:
        yield block


def refuse_unreadable(head: bytes, where: str) -> None:
    """Refuse a beginning of a file that is no text in lines."""
    if head[:2] in (b"\xff\xfe", b"\xfe\xff") or b"\x00" in head[:200]:
        raise OtherTableError(
            f"{where} is UTF-16 or no text at all. Save it as CSV in UTF-8 "
            "('CSV UTF-8' in a spreadsheet)."
        )
    if b"\n" not in head and b"\r" in head.rstrip(b"\r"):
        raise OtherTableError(
            f"{where}: a carriage return alone ends its lines. Save it as CSV in UTF-8, which ends "
            "lines as Windows or Linux do."
        )


def _read_header(block: bytes, layout: TableLayout, where: str) -> tuple[CsvTable, bytes]:
    """Return the table that begins with `block`, and the rows in it."""
    if not block.strip():
        raise OtherTableError(f"{where} is empty ({len(block)} bytes). {AGAIN}, or leave it out.")
    form = layout.form
    for _ in range(form.skip_rows):
        block = block.partition(b"\n")[2]
    line, _, block = block.partition(b"\n")
    refuse_unreadable(line, where)
    names = next(csv.reader([as_text(line).rstrip("\r")], delimiter=form.separator), [])
    table = CsvTable(where, layout, resolve(names, layout, where), len(names))
    return table, block.partition(b"\n")[2] if form.units_row else block


def scan_parquet(path: Path, where: str) -> tuple[pl.LazyFrame, list[str], int]:
    """Return the table of a Parquet file, its columns and its number of rows.

    Columns of lists and other structures are left out; elapsed times become seconds.
    """
    if not path.stat().st_size:
        raise OtherTableError(f"{where} is empty (0 bytes). {AGAIN}, or leave it out.")
    try:
        table = pl.scan_parquet(path)
        schema = table.collect_schema()
        names = [n for n, kind in schema.items() if not (kind.is_nested() or kind == pl.Binary)]
        elapsed_s = cs.duration().dt.total_microseconds() * 1e-6
        table = table.select(names).with_columns(elapsed_s)
        return table, names, int(table.select(pl.len()).collect().item())
    except (pl.exceptions.PolarsError, OSError) as error:
        raise DataError(
            f"{where} is not a readable Parquet file ({str(error).splitlines()[0]}). {AGAIN}."
        ) from error


def read_parquet(path: Path, layout: TableLayout, where: str) -> Blocks:
    """Yield the rows of a Parquet file."""
    table, header, rows = scan_parquet(path, where)
    columns = resolve(header, layout, where)
    chosen = [pl.col(header[position]).alias(name) for name, position in columns.items()]
    for start in range(0, rows, BLOCK_ROWS):
        try:
            frame = table.slice(start, BLOCK_ROWS).select(chosen).collect()
        except pl.exceptions.PolarsError as error:
            raise DataError(
                f"{where}, from row {start + 1}: the file is damaged "
                f"({str(error).splitlines()[0]}). {AGAIN}."
            ) from error
        frame, account = as_numbers(frame, layout, where, start + 1)
        yield frame, account, start + 1, path.stat().st_size * frame.height // rows


def read_tables(
    tables: Sequence[TableFile],
    layout: TableLayout,
    add: Callable[[pl.DataFrame, int, int], Account],
    progress: Progress,
) -> tuple[Account, tuple[str, ...]]:
    """Hand all rows to `add`; return their account and sentences on files that were passed over.

    `add(rows, number of the table, number of the first row)` is called block by block. A file
    without the columns is refused if the user named it, and passed over if it was met in a folder.
    """
    total = sum(table.path.stat().st_size for table in tables)
    done = 0
    accounts: list[Account] = []
    problems: dict[str, str] = {}
    for number, table in enumerate(tables):
        if table.problem:
            problems[table.where] = table.problem
            continue
        read = read_parquet if table.path.suffix.lower() == PARQUET else read_csv
        try:
            for frame, account, row, size in read(table.path, layout, table.where):
                accounts += [account, add(frame, number, row)]
                done += size
                progress(min(done, total), total, f"reading {table.where}")
        except OtherTableError as error:
            if table.named:
                raise
            problems[table.where] = str(error).removesuffix(layout.hint).strip()
    return Account.total(accounts), left_out(problems)


def left_out(problems: Mapping[str, str]) -> tuple[str, ...]:
    """Return a sentence for each reason for which files are not read, from reasons by file.

    >>> left_out({"a.csv": "a.csv has no header.", "b.csv": "b.csv has no header."})
    ('2 files are left out (a.csv, b.csv): has no header.',)
    """
    files: dict[str, list[str]] = {}
    for name, problem in problems.items():
        files.setdefault(problem.removeprefix(name).lstrip(",: "), []).append(name)
    return tuple(
        f"{counted(len(names), 'file')} {'is' if len(names) == 1 else 'are'} left out "
        f"({listed(names)}): {reason}"
        for reason, names in files.items()
    )
