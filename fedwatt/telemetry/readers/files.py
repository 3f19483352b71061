"""Find the tables an import is pointed at: files, folders, and what is packed in archives.

Archives (.7z, .zip and .csv.gz) are unpacked into a temporary folder that goes with the process. So
are workbooks (.xlsx): each of their sheets becomes a CSV file.
"""

import atexit
import gzip
import lzma
import shutil
import struct
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from errno import ENOSPC
from functools import cache
from pathlib import Path
from tempfile import gettempdir, mkdtemp
from zipfile import BadZipFile, ZipFile

import polars as pl
import polars.selectors as cs

from fedwatt.errors import DataError, optional
from fedwatt.files import MOST_TIMES, Bounded, unpacked_bound

TABLES = (".csv", ".tsv", ".parquet")
# In a folder, text is rather a note than a table.
NAMED_ONLY = (".txt",)
PACKED = (".7z", ".zip", ".gz", ".xlsx")
NAMES_LISTED = 3
FIRST_YEAR = 1900  # of spreadsheets: day 0 is its eve
NAMELESS = "__UNNAMED__"
"""How polars calls a column of a sheet whose first cell is empty."""
# A file may be one's own export or a download.
AGAIN = "Export or download it again"
# Headers cut in the middle show as missing attributes or impossible numbers.
BROKEN = (
    *(BadZipFile, lzma.LZMAError, zlib.error, EOFError, struct.error, OSError, RuntimeError),
    *(TypeError, AttributeError, ValueError, IndexError, MemoryError),
)
"""What an archive raises that is truncated, overwritten or locked."""


@dataclass(frozen=True)
class TableFile:
    """A table that an import may read, and its origin.

    named    the user named it, or an archive of it alone; otherwise it was met among others
    where    its name in messages, that of its archive included
    kind     csv (text, whatever separates its columns), parquet, xlsx (a sheet as text); or how
             it was packed
    problem  why it cannot be read
    """

    path: Path
    named: bool
    where: str
    kind: str
    problem: str = ""


def find_tables(paths: Iterable[str | Path] | str | Path) -> list[TableFile]:
    """Return the tables among files and folders, each once; folders with everything below them.

    A damaged archive is refused if the user named it, and a table with a problem in a folder.
    """
    tables: dict[Path, TableFile] = {}
    paths = as_paths(paths)
    for path in paths:
        if not path.exists():
            raise DataError(f"{path} does not exist.")
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                try:
                    for table in _tables(file, TABLES, named=False):
                        tables.setdefault(table.path.resolve(), table)
                except DataError as error:
                    tables[file] = TableFile(file, False, file.name, "csv", str(error))
            continue
        named = _tables(path, (*TABLES, *NAMED_ONLY), named=True)
        tables |= {table.path.resolve(): table for table in named}
        if not named and path.suffix.lower() not in TABLES:
            raise DataError(
                f"{path.name} is or holds no telemetry: {', '.join(TABLES)}, as they are or in "
                f"{', '.join(PACKED)}. Save other spreadsheets as CSV."
            )
    if all(table.problem for table in tables.values()):
        why = " ".join(table.problem for table in tables.values())
        suffixes = ", ".join((*TABLES, *PACKED))
        raise DataError(f"{listed(map(str, paths))}: no {suffixes} file to read. {why}".rstrip())
    return list(tables.values())


def _tables(file: Path, suffixes: tuple[str, ...], *, named: bool) -> list[TableFile]:
    """Return the table that a file is, or those that are packed in it."""
    suffix = file.suffix.lower()
    kind = suffix.lstrip(".")
    if not file.is_file() or (_is_hidden(file.name) and not named):
        return []
    if suffix in suffixes or file.is_relative_to(_workspace()):
        kind = kind if kind in ("parquet", "xlsx") else "csv"
        return [TableFile(file, named, file.name, kind)]
    if suffix not in PACKED or (suffix == ".gz" and not file.stem.lower().endswith(suffixes)):
        return []
    members = unpacked(file.resolve(), file.stat().st_mtime_ns)
    named = named and len(members) == 1
    return [
        TableFile(path, named, f"{file.name}/{name}".removesuffix(f"/{file.name}"), kind)
        for name, path in members.items()
    ]


def _is_hidden(name: str) -> bool:
    """Return whether a file is hidden, the lock of an open spreadsheet, or a Mac's "._name"."""
    return name.startswith((".", "~"))


def listed(names: Iterable[str]) -> str:
    """Return the first names and the number of the others.

    >>> listed("abcde"), listed("ab")
    ('a, b, c and 2 more', 'a, b')
    """
    texts = list(names)
    more = len(texts) - NAMES_LISTED
    return ", ".join(texts[:NAMES_LISTED]) + (f" and {more} more" if more > 0 else "")


def find_static(paths: Iterable[str | Path]) -> list[Path]:
    """Return static .xlsx files: named, in the folders named, or beside the files named."""
    files: dict[Path, Path] = {}
    for path in as_paths(paths):
        if path.suffix.lower() == ".xlsx":
            files[path.resolve()] = path
            continue
        inside = path.rglob("*.xlsx") if path.is_dir() else path.parent.glob("*.xlsx")
        for file in sorted(inside):
            if "static" in file.name.lower() and not _is_hidden(file.name):
                files.setdefault(file.resolve(), file)
    return list(files.values())


def as_paths(paths: Iterable[str | Path] | str | Path) -> list[Path]:
    """Return the paths as a list; a single path is a list of one."""
    return [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]


@cache
def _workspace() -> Path:
    """Return the folder of this process for what archives hold."""
    folder = Path(mkdtemp(prefix="fedwatt-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@cache
def unpacked(archive: Path, changed_ns: int) -> Mapping[str, Path]:
    """Unpack the tables of an archive; return their paths by their names in it.

    They lie in a folder that is called as the archive, or as the folder of a .gz file or of a
    workbook. Refuses an archive that is truncated, overwritten, or packed more tightly than
    telemetry is.
    """
    suffix = archive.suffix.lower()
    folder = Path(mkdtemp(dir=_workspace()))
    folder /= archive.parent.name if suffix in (".gz", ".xlsx") else archive.stem
    folder.mkdir()
    broken: tuple[type[Exception], ...] = BROKEN
    if suffix == ".7z":
        how = "pip install 'fedwatt[ved]'. Or unpack the archive and import the folder"
        py7zr = optional("py7zr", f"{archive.name}: .7z archives need py7zr: {how}.")
        failed = py7zr.exceptions
        broken += (failed.ArchiveError, failed.UnsupportedCompressionMethodError)
    if suffix == ".xlsx":
        how = "pip install 'fedwatt[excel]', or save it as CSV"
        fastexcel = optional("fastexcel", f"{archive.name}: .xlsx files need fastexcel: {how}.")
        broken += (fastexcel.FastExcelError, pl.exceptions.PolarsError)
    if not archive.stat().st_size:
        raise DataError(f"{archive.name} is empty (0 bytes). Download it again or leave it out.")
    try:
        if suffix == ".gz":
            names = [archive.stem]
            with gzip.open(archive) as stream, (folder / archive.stem).open("wb") as file:
                shutil.copyfileobj(Bounded(stream, unpacked_bound(archive)), file)
        elif suffix == ".zip":
            with ZipFile(archive) as packed:
                names = _tables_in(archive, {m.filename: m.file_size for m in packed.infolist()})
                packed.extractall(folder, names)
        elif suffix == ".xlsx":
            names = _write_sheets(archive, folder)
        else:
            with py7zr.SevenZipFile(archive) as packed:
                files = [member for member in packed.list() if not member.is_directory]
                names = _tables_in(archive, {m.filename: int(m.uncompressed) for m in files})
                if names:
                    packed.extract(folder, targets=names)
    except DataError:
        raise
    except broken as error:
        if getattr(error, "errno", None) == ENOSPC:
            raise DataError(f"No space to unpack {archive.name} in {gettempdir()}.") from error
        raise DataError(
            f"{archive.name} is truncated or damaged ({type(error).__name__}). Download it again; "
            "none of it was used."
        ) from error
    return {name: folder / name for name in names}


def _write_sheets(workbook: Path, folder: Path) -> list[str]:
    """Write the sheets of a workbook as CSV; return the names of the files.

    The file of a single sheet is called as the workbook is, since it names a vehicle or a trip.
    """
    with ZipFile(workbook) as packed:
        _refuse_dense(workbook, sum(part.file_size for part in packed.infolist()))
    loaded = pl.read_excel(workbook, sheet_id=0, infer_schema_length=None, raise_if_empty=False)
    sheets = {name: sheet for name, sheet in loaded.items() if sheet.width}
    if not sheets:
        raise DataError(f"{workbook.name} is empty: no sheet has a row. {AGAIN}, or leave it out.")
    for name, sheet in sheets.items():
        # A title or merged cells above the header: all rows as text, which shows the header.
        if titled := any(column.startswith(NAMELESS) for column in sheet.columns):
            sheet = pl.read_excel(
                workbook, sheet_name=name, has_header=False, infer_schema_length=None
            )
        file = workbook.name if len(sheets) == 1 else f"{name}.csv"
        elapsed_s = cs.duration().dt.total_milliseconds() / 1000
        sheet = sheet.with_columns(elapsed_s, pl.col(_times_of_day(sheet)).dt.time())
        sheet.write_csv(folder / file, include_header=not titled, time_format="%H:%M:%S%.3f")
    return [file.name for file in sorted(folder.iterdir())]


def _times_of_day(sheet: pl.DataFrame) -> list[str]:
    """Return the columns with times of day, which a spreadsheet dates to the days around 1900."""
    dated = sheet.select(cs.datetime().dt.year().max())
    return [name for name in dated.columns if (dated[name].item() or 0) <= FIRST_YEAR]


def _tables_in(archive: Path, sizes: Mapping[str, int]) -> list[str]:
    """Return the tables among the members of an archive, whose sizes in bytes are given."""
    tables = [
        name for name in sizes if name.lower().endswith(TABLES) and not _is_hidden(Path(name).name)
    ]
    _refuse_dense(archive, sum(sizes[name] for name in tables))
    return tables


def _refuse_dense(archive: Path, total: int) -> None:
    """Refuse an archive that unpacks to more bytes than telemetry of its size does."""
    if total > unpacked_bound(archive):
        raise DataError(
            f"{archive.name} would unpack to {total / 1e9:,.1f} GB, more than {MOST_TIMES} times "
            "its size, and no telemetry is packed so tightly. Is it damaged? Unpack it to import "
            "it."
        )
