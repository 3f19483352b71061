"""A temporary file for each vehicle: rows go in file by file and come out trip by trip.

This is what keeps memory flat: while files are read only one block is held, while vehicles are
cleaned only one vehicle is.
"""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np

from fedwatt.telemetry.cleaning.account import Account
from fedwatt.telemetry.cleaning.order import without_copies
from fedwatt.telemetry.trip import FloatArray, RawTrip

# The first columns of every spill; channels follow.
KEYS = ("source", "day", "trip", "time_s")
# VED's day counts from 1 November 2017; a second is 1.2e-5 of it.
SAME_DAY = 1e-4
DAY_S = 86_400.0


class Spill:
    """Appends float64 matrices [rows, columns] under a vehicle's key; columns begin with `KEYS`."""

    def __init__(self, folder: Path, columns: tuple[str, ...]) -> None:
        self.columns = columns
        self.rows: dict[str, int] = {}
        """Number of rows of every vehicle so far."""
        self._folder = folder

    def add(self, key: str, matrix: FloatArray) -> None:
        """Append rows [rows, columns] to a vehicle."""
        self.rows[key] = self.rows.get(key, 0) + len(matrix)
        with self._path(key).open("ab") as file:
            np.ascontiguousarray(matrix, dtype=np.float64).tofile(file)

    def take(self, key: str, name: Callable[[int], str] = str) -> tuple[list[RawTrip], Account]:
        """Trips of a vehicle by ascending number, and the copies left out; its file is removed.

        `name` gives the name of a trip from its number.
        """
        path = self._path(key)
        matrix = np.fromfile(path, dtype=np.float64).reshape(-1, len(self.columns))
        path.unlink()
        return recorded_trips(matrix, self.columns, name)

    def _path(self, key: str) -> Path:
        # Numbered, since a user's vehicle may be called "../x" or "CON".
        return self._folder / f"{list(self.rows).index(key)}.f64"


def recorded_trips(
    matrix: FloatArray, columns: tuple[str, ...], name: Callable[[int], str]
) -> tuple[list[RawTrip], Account]:
    """Split a vehicle's rows [rows, columns] into its trips; also the account of copies left out.

    A trip is what shares a trip number and a day: VED's day is constant within a trip, so a number
    used again on another day is another trip. Rows of a trip keep their order. Channels without any
    reading in the vehicle are left out. Days count on the vehicle's clock; NaN where it has none.
    """
    source, day, trip = (matrix[:, columns.index(key)] for key in ("source", "day", "trip"))
    day_number = np.round(np.nan_to_num(day) / SAME_DAY)
    order = np.lexsort((day_number, trip))
    table = np.ascontiguousarray(matrix[order].T)
    source, trip, days = source[order], trip[order], day[order]
    borders = np.flatnonzero((np.diff(trip) != 0) | (np.diff(day_number[order]) != 0)) + 1
    channels = [c for c in range(len(KEYS), len(columns)) if np.isfinite(table[c]).any()]
    trips = []
    accounts = []
    for start, stop in pairwise([0, *borders.tolist(), len(trip)]):
        raw = RawTrip(
            name(int(trip[start])),
            table[columns.index("time_s"), start:stop],
            {columns[c]: table[c, start:stop] for c in channels},
            clock_s=float(days[start]) * DAY_S,
        )
        raw, account = without_copies(raw, source[start:stop].astype(np.int64))
        trips.append(raw)
        accounts.append(account)
    return trips, Account.total(accounts)
