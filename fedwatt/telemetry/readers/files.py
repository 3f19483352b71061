"""Find the tables an import is pointed at: files, folders, and the members of .7z archives."""

import lzma
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from errno import ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from typing import Any

from fedwatt.errors import DataError, optional
from fedwatt.files import MOST_TIMES, unpacked_bound

TABLES = (".csv", ".tsv", ".parquet", ".xlsx", ".7z")
# In a folder, text is rather a note than a table.
NAMED_ONLY = (".txt",)
NAMES_LISTED = 3


@dataclass(frozen=True)
class TableFile:
    """A table to read; `named` tells a file the user named from one met in a folder."""

    path: Path
    named: bool

    @property
    def kind(self) -> str:
        """csv (text, whatever separates its columns), parquet, xlsx or 7z."""
        suffix = self.path.suffix.lower().lstrip(".")
        return suffix if suffix in ("parquet", "xlsx", "7z") else "csv"

    def size(self) -> int:
        """Bytes to read, unpacked."""
        if self.kind == "7z":
            return sum(csv_members(self.path).values())
        return self.path.stat().st_size


def find_tables(
    paths: Iterable[str | Path] | str | Path, *, workbooks: bool = True
) -> list[TableFile]:
    """Return the tables among files and folders, each once; folders with everything below them.

    Without `workbooks`, .xlsx files are passed by.
    """
    tables: dict[Path, TableFile] = {}
    paths = as_paths(paths)
    suffixes = tuple(suffix for suffix in TABLES if workbooks or suffix != ".xlsx")
    for path in paths:
        suffix = path.suffix.lower()
        if path.is_dir():
            for file in sorted(path.rglob("*")):
                if file.is_file() and file.suffix.lower() in suffixes and not _is_hidden(file):
                    tables.setdefault(file.resolve(), TableFile(file, False))
        elif not path.exists():
            raise DataError(f"{path} does not exist.")
        elif suffix in (*suffixes, *NAMED_ONLY):
            tables[path.resolve()] = TableFile(path, True)
        elif suffix != ".xlsx":
            raise DataError(
                f"{path.name} cannot be read: telemetry is {', '.join(TABLES)}. Unpack archives "
                "and save other spreadsheets as CSV."
            )
    if not tables:
        raise DataError(f"{listed(map(str, paths))}: no {', '.join(suffixes)} file to read.")
    return list(tables.values())


def _is_hidden(path: Path) -> bool:
    """Return whether a file is hidden, or the lock of an open spreadsheet."""
    return path.name.startswith((".", "~"))


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
            if "static" in file.name.lower() and not file.name.startswith("~"):
                files.setdefault(file.resolve(), file)
    return list(files.values())


def as_paths(paths: Iterable[str | Path] | str | Path) -> list[Path]:
    """Return the paths as a list; a single path is a list of one."""
    return [Path(p) for p in ([paths] if isinstance(paths, str | Path) else paths)]


def csv_members(path: Path) -> dict[str, int]:
    """Return the name and size in bytes of every CSV file in the archive."""
    with _opened(path) as archive:
        files = [member for member in archive.list() if not member.is_directory]
    # A Mac adds a hidden twin "._name.csv" to every file it packs.
    visible = [file for file in files if not Path(file.filename).name.startswith(".")]
    tables = [file for file in visible if file.filename.lower().endswith(".csv")]
    sizes = {file.filename: int(file.uncompressed) for file in tables}
    if (total := sum(sizes.values())) > unpacked_bound(path):
        raise DataError(
            f"{path.name} would unpack to {total / 1e9:,.1f} GB, more than {MOST_TIMES} times its "
            "size, and no telemetry is packed so tightly. Is it damaged? Unpack it to import it."
        )
    if not sizes:
        raise DataError(f"{path.name} holds no CSV file. Is it VED's dynamic data?")
    return sizes


@contextmanager
def unpacked(path: Path) -> Iterator[dict[str, Path]]:
    """Yield the CSV files of an archive by name, unpacked into a temporary folder."""
    members = list(csv_members(path))
    with TemporaryDirectory(prefix="fedwatt-") as folder:
        with _opened(path) as archive:
            archive.extract(folder, targets=members)
        yield {name: Path(folder) / name for name in members}


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yield a .7z archive; refuse one that is truncated or overwritten."""
    how = "pip install 'fedwatt[ved]'. Or unpack the archive and import the folder"
    py7zr = optional("py7zr", f"{path.name}: .7z archives need py7zr: {how}.")
    if not path.stat().st_size:
        raise DataError(f"{path.name} is empty (0 bytes). Download it again or leave it out.")
    raised = (py7zr.exceptions.ArchiveError, py7zr.exceptions.UnsupportedCompressionMethodError)
    packing = (lzma.LZMAError, zlib.error, EOFError, struct.error, OSError)
    # Headers cut in the middle show as missing attributes or impossible numbers.
    headers = (TypeError, AttributeError, ValueError, IndexError, MemoryError)
    try:
        with path.open("rb") as file, py7zr.SevenZipFile(file) as archive:
            yield archive
    except (*raised, *packing, *headers) as error:
        if getattr(error, "errno", None) == ENOSPC:
            raise DataError(f"No space to unpack {path.name} in {gettempdir()}.") from error
        raise DataError(
            f"{path.name} is truncated or damaged ({type(error).__name__}). Download it again; "
            "none of it was used."
        ) from error
