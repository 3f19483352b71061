"""A temporary file a vehicle: rows go in file by file and come out vehicle by vehicle.

This is what keeps memory flat: while files are read only one block is held, while vehicles are
cleaned only one vehicle is.
"""

from pathlib import Path

import numpy as np

from fedwatt.data.cleaning.records import FloatArray


class Spill:
    """Appends float64 matrices [rows, columns] under a vehicle's key."""

    def __init__(self, folder: Path, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self._folder = folder
        self._rows: dict[str, int] = {}

    @property
    def rows(self) -> dict[str, int]:
        """Number of rows of every vehicle so far."""
        return dict(self._rows)

    def add(self, key: str, matrix: FloatArray) -> None:
        """Append rows [rows, columns] to a vehicle."""
        self._rows.setdefault(key, 0)
        self._rows[key] += len(matrix)
        with self._path(key).open("ab") as file:
            np.ascontiguousarray(matrix, dtype=np.float64).tofile(file)

    def take(self, key: str) -> FloatArray:
        """All rows of a vehicle, [rows, columns], in the order they came; its file is removed."""
        path = self._path(key)
        matrix = np.fromfile(path, dtype=np.float64).reshape(-1, len(self.columns))
        path.unlink()
        return matrix

    def _path(self, key: str) -> Path:
        # Numbered, since a user's vehicle may be called "../x" or "CON".
        return self._folder / f"{list(self._rows).index(key)}.f64"
