"""Find the files an import is pointed at: files by name, folders by what lies in them.

Read the CSV members of a .7z archive as a stream: nothing is unpacked to disk.
"""

import lzma
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedwatt.errors import DataError, optional
from fedwatt.files import MOST_TIMES, unpacked_bound

if TYPE_CHECKING:
    from fedwatt.telemetry.readers.tables import CsvFeed

TABLES = (".csv", ".tsv", ".parquet", ".7z")
# In a folder, text is rather a note than a table.
NAMED_ONLY = (".txt",)


@dataclass(frozen=True)
class FoundTable:
    """A table to read; `named` tells a file the user named from one met in a folder."""

    path: Path
    named: bool

    @property
    def kind(self) -> str:
        """csv (text, whatever separates its columns), parquet or 7z."""
        suffix = self.path.suffix.lower().lstrip(".")
        return suffix if suffix in ("parquet", "7z") else "csv"

    def size(self) -> int:
        """Bytes to read, unpacked."""
        if self.kind == "7z":
            return sum(csv_members(self.path).values())
        return self.path.stat().st_size


def find_tables(paths: Iterable[str | Path]) -> list[FoundTable]:
    """CSV, Parquet and .7z files, each once; folders are searched with everything below them."""
    tables: dict[Path, FoundTable] = {}
    paths = as_paths(paths)
    for path in paths:
        if path.is_dir():
            inside = [file for file in sorted(path.rglob("*")) if _is_table(file)]
            if not inside and not any(path.rglob("*.xlsx")):
                raise DataError(f"{path} holds no .csv, .parquet or .7z file.")
            for file in inside:
                tables.setdefault(file.resolve(), FoundTable(file, False))
        elif not path.exists():
            raise DataError(f"{path} does not exist.")
        elif _is_table(path) or path.suffix.lower() in NAMED_ONLY:
            tables[path.resolve()] = FoundTable(path, True)
        elif path.suffix.lower() != ".xlsx":
            raise DataError(
                f"{path.name} cannot be read: telemetry is {', '.join(TABLES)} "
                "(and .xlsx for VED's static data). Unpack archives and save spreadsheets as CSV."
            )
    if not tables:
        raise DataError(
            f"No telemetry to read among {', '.join(map(str, paths))}. Save spreadsheets as CSV."
        )
    return list(tables.values())


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


def _is_table(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in TABLES and not path.name.startswith(".")


def csv_members(path: Path) -> dict[str, int]:
    """Name and size in bytes of every CSV file in the archive."""
    py7zr = _py7zr(path)
    if not path.stat().st_size:
        raise DataError(f"{path.name} is empty (0 bytes). Download it again or leave it out.")
    try:
        with path.open("rb") as file, py7zr.SevenZipFile(file) as archive:
            files = [member for member in archive.list() if not member.is_directory]
    except _broken(py7zr) as error:
        raise _damaged(path, error) from error
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


def read_members(path: Path, feed: "Callable[[str], CsvFeed]", seen: Callable[[int], None]) -> None:
    """Stream every CSV member into the feed made for it; `seen` is told the bytes of each piece."""
    py7zr = _py7zr(path)
    sizes = csv_members(path)
    members = _Members(sizes, feed, seen)
    try:
        # An open file, not a path: py7zr then unpacks one member after the other, in one thread.
        with path.open("rb") as file, py7zr.SevenZipFile(file) as archive:
            archive.extract(targets=list(sizes), factory=members)
    except DataError:
        raise
    except _broken(py7zr) as error:
        raise _damaged(path, error) from error
    # Versions of py7zr before 1.1 do not close what they have written.
    for member in members.made:
        member.close()


def _py7zr(path: Path) -> Any:
    return optional(
        "py7zr",
        f"{path.name}: .7z archives need py7zr: pip install 'fedwatt[ved]'. "
        "Or unpack the archive and import the folder.",
    )


def _broken(py7zr: Any) -> tuple[type[Exception], ...]:
    """Return the exceptions that py7zr raises for a truncated or overwritten archive."""
    raised = (py7zr.exceptions.ArchiveError, py7zr.exceptions.UnsupportedCompressionMethodError)
    packing = (lzma.LZMAError, zlib.error, EOFError, struct.error, OSError)
    # Headers cut in the middle show as missing attributes or impossible numbers.
    return (*raised, *packing, TypeError, AttributeError, ValueError, IndexError, MemoryError)


def _damaged(path: Path, error: Exception) -> DataError:
    return DataError(
        f"{path.name} is truncated or damaged ({type(error).__name__}). Download it again; "
        "none of it was used."
    )


class _Member:
    """Passes what py7zr unpacks to a feed (the interface of py7zr.io.Py7zIO)."""

    def __init__(self, feed: "CsvFeed", size: int, seen: Callable[[int], None]) -> None:
        self._feed = feed
        self._expected = size
        self._seen = seen
        self._written = 0
        self._finished = False

    def write(self, s: bytes | bytearray) -> int:
        self._written += len(s)
        if self._written > self._expected >= 0:
            raise DataError("A member of the archive is longer than the archive says.")
        self._feed.feed(bytes(s))
        self._seen(len(s))
        return len(s)

    def close(self) -> None:
        # Also called while an error unwinds: half a member is not a file.
        if self._written == self._expected and not self._finished:
            self._finished = True
            self._feed.finish()

    def read(self, size: int | None = None) -> bytes:
        return b""

    def seek(self, offset: int, whence: int = 0) -> int:
        return 0

    def flush(self) -> None:
        return None

    def size(self) -> int:
        return self._written


class _Members:
    """Makes a `_Member` for every file (the interface of py7zr.io.WriterFactory)."""

    def __init__(
        self, sizes: dict[str, int], feed: "Callable[[str], CsvFeed]", seen: Callable[[int], None]
    ) -> None:
        self.made: list[_Member] = []
        self._sizes = sizes
        self._feed = feed
        self._seen = seen

    def create(self, filename: str) -> _Member:
        # py7zr may hand out the name with its own folder before it.
        name = next((n for n in self._sizes if Path(filename).as_posix().endswith(n)), filename)
        self.made.append(_Member(self._feed(name), self._sizes.get(name, -1), self._seen))
        return self.made[-1]
