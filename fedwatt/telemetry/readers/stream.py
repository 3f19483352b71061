"""Import as a stream: read every file once, then clean one vehicle at a time.

A reader (`ved`, `mapping_reader`) says how its files become rows of channels and which vehicles are
asked for; everything after that is shared. Rows go into one temporary file per vehicle and come out
trip by trip, so that memory holds one block of a file, or one vehicle.
"""

import shutil
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import mkdtemp
from typing import Protocol

import numpy as np

from fedwatt.errors import DataError
from fedwatt.telemetry.cleaning import Cleaning
from fedwatt.telemetry.cleaning.account import Account, nothing_left
from fedwatt.telemetry.cleaning.clean import clean_vehicle
from fedwatt.telemetry.cleaning.segments import without_copies
from fedwatt.telemetry.trip import FloatArray, RawTrip, Vehicle

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
        """Return a vehicle's trips by ascending number and an account of copies; remove its file.

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


Progress = Callable[[int, int, str], None]


def silent(done: int, total: int, what: str) -> None:
    """Report no progress."""


def keep_trip(trip: RawTrip) -> str:
    """Return "", no reason to leave out any trip: the usual `Candidate.reject`."""
    return ""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A vehicle to clean, still without trips, and the key of its rows in the spill.

    `reject(trip)` gives the reason a trip is not asked for, or "". `electric` says that nothing but
    the pack moves the vehicle in the trips asked for. `split`, where rows do not say which trip
    they are of, makes trips of all that was recorded.
    """

    key: str
    vehicle: Vehicle
    electric: bool = True
    trip_name: Callable[[int], str] = str
    reject: Callable[[RawTrip], str] = keep_trip
    split: Callable[[list[RawTrip]], tuple[list[RawTrip], Account]] | None = None


class Reader(Protocol):
    """The interface of a format's reader."""

    columns: tuple[str, ...]

    def read(self, spill: Spill, progress: Progress) -> tuple[Account, tuple[str, ...]]:
        """Put the rows of all vehicles that may be asked for into the spill.

        Also says which files of a folder are not for this reader, and why.
        """

    def candidates(self) -> tuple[list[Candidate], Account]:
        """Return the vehicles asked for, in order, and an account of the others. Called after
        `read`.
        """


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    # Not TemporaryDirectory: it warns when an import is left half-way, which is allowed.
    folder = Path(mkdtemp(prefix="fedwatt-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class VehicleStream(Iterator[Vehicle]):
    """Cleaned vehicles, one at a time; nothing is read before the first is asked for.

    `account` covers everything met so far, vehicles that were left out included: it is complete
    when the iterator is exhausted. `passed_over` names files of a folder that were not read.
    """

    def __init__(self, reader: Reader, cleaning: Cleaning, progress: Progress | None) -> None:
        self.account = Account()
        self.passed_over: tuple[str, ...] = ()
        self._reader = reader
        self._cleaning = cleaning
        self._progress = progress or silent
        self._vehicles = self._clean()

    def __next__(self) -> Vehicle:
        return next(self._vehicles)

    def close(self) -> None:
        """Stop early and remove temporary files."""
        self._vehicles.close()

    def _clean(self) -> Generator[Vehicle]:
        with _temporary_folder() as folder:
            spill = Spill(folder, self._reader.columns)
            read, self.passed_over = self._reader.read(spill, self._progress)
            candidates, left_out = self._reader.candidates()
            self.account = read + left_out
            total = sum(spill.rows[candidate.key] for candidate in candidates)
            done = 0
            for candidate in candidates:
                self._progress(done, total, f"cleaning {candidate.vehicle.name}")
                vehicle, account = self._cleaned(spill, candidate)
                self.account += account
                done += spill.rows[candidate.key]
                if vehicle is not None:
                    yield vehicle
            self._progress(total, total, "cleaned")
        if not self.account.count("kept", "vehicles"):
            raise DataError(f"No vehicle is left to use. {nothing_left(self.account)}")

    def _cleaned(self, spill: Spill, candidate: Candidate) -> tuple[Vehicle | None, Account]:
        trips, account = spill.take(candidate.key, candidate.trip_name)
        if candidate.split is not None:
            trips, split_account = candidate.split(trips)
            account += split_account
        # Copies and parked rows are dropped before cleaning counts what it reads.
        account += Account.of("read", "rows", account.count("dropped", "rows"))
        account += Account.of("read", "vehicles", 1)
        requested = []
        for trip in trips:
            if reason := candidate.reject(trip):
                account += Account.passed_over("trips", 1, reason)
                account += Account.passed_over("rows", trip.rows, reason)
            else:
                requested.append(trip)
        return clean_vehicle(
            candidate.vehicle,
            requested,
            self._cleaning,
            electric=candidate.electric,
            already=account,
        )
