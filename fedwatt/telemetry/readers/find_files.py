"""Find the files an import is pointed at: files by name, folders by what lies in them."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from fedwatt.errors import DataError
from fedwatt.telemetry.readers.archive import csv_members

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
