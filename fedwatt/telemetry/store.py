"""A fleet on disk: one folder per vehicle, which holds data of no other vehicle.

    FLEET/fleet.json                 format, interval_s, source
    FLEET/<vehicle>/vehicle.json     format, name, kind, labels, facts, and of each trip its length,
                                     its start_time_s if known, and its recording where it is a
                                     later part of one
    FLEET/<vehicle>/trips.parquet    column `trip` and one float64 column per channel

A fleet gets its fleet.json last, when it is complete. A channel that a trip does not have is null
in its rows. Deleting a vehicle's folder takes it out of the fleet.

Merging keeps names that occur in one fleet, because splits are drawn from names; a name that occurs
in several gets the name of its fleet's folder before it.
"""

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedwatt.errors import DataError, counted
from fedwatt.files import parse_json
from fedwatt.telemetry.channels import STORED
from fedwatt.telemetry.trip import INTERVAL_S, FloatArray, Trip, Vehicle
from fedwatt.windows.client import DataSettings, Fleet
from fedwatt.windows.lazy import Maker
from fedwatt.windows.splits import natural_key

FORMAT = 1
LONGEST_FOLDER_NAME = 200
AGAIN = "Import or generate the fleet again."


def folder_name(vehicle: str) -> str:
    """Return the name of a vehicle's folder, safe on any file system.

    >>> folder_name("car-007"), folder_name("../bus 1")
    ('car-007', '%2E%2E%2Fbus%201')
    """
    name = quote(vehicle, safe="").replace(".", "%2E")
    if len(name) > LONGEST_FOLDER_NAME:
        raise DataError(
            f"The vehicle name '{vehicle[:40]}...' makes a folder name of {len(name)} characters. "
            f"Use at most {LONGEST_FOLDER_NAME}, best plain letters and digits."
        )
    return name


def write_vehicle(folder: Path, vehicle: Vehicle, *, unlabelled: bool = False) -> None:
    """Write a vehicle into the new folder `folder`; `unlabelled` allows trips without energy."""
    if not unlabelled:
        vehicle.refuse_unless_trainable()
    description = {
        "format": FORMAT,
        "name": vehicle.name,
        "kind": vehicle.kind,
        "labels": vehicle.labels,
        "facts": dict(vehicle.facts),
        "trips": [_trip_description(trip) for trip in vehicle.trips],
    }
    with _writing(folder):
        folder.mkdir(parents=True)
        _write_json(folder / "vehicle.json", description)
        pq.write_table(_table(vehicle), folder / "trips.parquet", compression="zstd")


def read_vehicle(folder: Path) -> Vehicle:
    """Read the vehicle in `folder`."""
    description = _read_json(Path(folder) / "vehicle.json")
    names, columns = _read_table(Path(folder) / "trips.parquet")
    try:
        name, kind, labels = (str(description[key]) for key in ("name", "kind", "labels"))
        vehicle = Vehicle(name, (), kind, labels, dict(description["facts"]))
        lengths = [int(trip["seconds"]) for trip in description["trips"]]
        trips = [_trip(trip) for trip in description["trips"]]
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DataError(f"{folder}/vehicle.json is damaged: {problem!r}. {AGAIN}") from problem
    # The sum comes first: a damaged length could ask for more names than memory holds, and two of
    # them, one below 0, could cancel.
    total = sum(map(abs, lengths))
    listed = (trip.name for trip, n in zip(trips, lengths, strict=True) for _ in range(n))
    if total != len(names) or names != list(listed):
        raise DataError(
            f"{folder}: trips.parquet does not hold the {len(trips)} trips ({total} s) "
            f"that vehicle.json lists. {AGAIN}"
        )
    start = 0
    for place, seconds in enumerate(lengths):
        rows = slice(start, start + seconds)
        held = {c: values[rows] for c, (values, null) in columns.items() if not null[rows].all()}
        trips[place] = replace(trips[place], channels=held)
        start += seconds
    return replace(vehicle, trips=tuple(trips))


def _trip(description: Mapping[str, Any]) -> Trip:
    """Return the trip of an entry of vehicle.json, without its channels."""
    recording = str(description.get("recording", ""))
    start_time_s = float(description.get("start_time_s", math.nan))
    return Trip(str(description["name"]), {}, recording, start_time_s=start_time_s)


def write_fleet(
    path: Path, vehicles: Iterable[Vehicle], source: str, *, unlabelled: bool = False
) -> None:
    """Write all vehicles into the new folder `path`, holding one in memory at a time."""
    path = Path(path)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise DataError(f"{path} exists and is not empty. Choose a new folder, or delete it first.")
    written: set[str] = set()
    with _filling(path) as fresh:
        for vehicle in vehicles:
            folder = folder_name(vehicle.name)
            # Some file systems do not tell capitals from small letters.
            if folder.lower() in written:
                raise DataError(
                    f"Two vehicles are named '{vehicle.name}' (capitals aside). "
                    "Names must be unique within a fleet: rename or merge them."
                )
            written.add(folder.lower())
            write_vehicle(fresh / folder, vehicle, unlabelled=unlabelled)
        if not written:
            raise DataError(f"There are no vehicles to write to {path} (from {source}).")
        description = {"format": FORMAT, "interval_s": INTERVAL_S, "source": source}
        _write_json(fresh / "fleet.json", description)


def read_fleet(path: Path) -> Iterator[Vehicle]:
    """Read a fleet's vehicles in natural order of their names, one in memory at a time."""
    return (read_vehicle(folder) for folder in vehicle_folders(path))


def vehicle_folders(path: Path) -> list[Path]:
    """Return the folders of a fleet's vehicles, in natural order of their names."""
    fleet_source(path)
    folders = [f for f in Path(path).iterdir() if f.is_dir() and not f.name.startswith(".")]
    if not folders:
        raise DataError(f"The fleet {path} has no vehicles. {AGAIN}")
    return sorted(folders, key=lambda folder: natural_key(unquote(folder.name)))


@dataclass(frozen=True)
class StoredVehicles(Maker):
    """The first vehicles of a fleet folder, or all (0); opening it reads no vehicle."""

    folder: str
    number: int = 0

    @property
    def source(self) -> str:
        """Origin of the data, as written when the fleet was made."""
        return fleet_source(Path(self.folder))

    @property
    def origin(self) -> Mapping[str, str | int]:
        """The folder, and how many of its vehicles if not all."""
        return {"data": self.folder, **({"vehicles": self.number} if self.number else {})}

    @cached_property
    def _folders(self) -> list[Path]:
        return vehicle_folders(Path(self.folder))

    @property
    def stored(self) -> int:
        """Vehicles in the folder."""
        return len(self._folders)

    @property
    def count(self) -> int:
        """Number of vehicles that are selected and present."""
        return min(self.number or self.stored, self.stored)

    def name(self, place: int) -> str:
        """Return the name of the vehicle's folder."""
        return unquote(self._folders[place].name)

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """Read the vehicles at these places from their folders."""
        return [read_vehicle(self._folders[place]) for place in places]


def load_fleet(path: Path, settings: DataSettings | None = None) -> Fleet:
    """Return the clients of a fleet folder, with default settings if none are given."""
    return StoredVehicles(str(path)).fleet(settings)


def fleet_source(path: Path) -> str:
    """Return the origin of a fleet's data, as written when it was made."""
    path = Path(path)
    if not (path / "fleet.json").is_file():
        no_fleet = "is not a fleet folder: it has no fleet.json"
        raise DataError(
            f"{path} {no_fleet if path.exists() else 'does not exist'}. 'fedwatt data generate' "
            "and 'fedwatt data import' make one."
        )
    description = _read_json(path / "fleet.json")
    if description.get("interval_s") != INTERVAL_S:
        raise DataError(
            f"{path} is sampled every {description.get('interval_s')} s; "
            f"only {INTERVAL_S} s is known. "
            f"{AGAIN}"
        )
    return str(description.get("source", "unknown"))


def _trip_description(trip: Trip) -> dict[str, Any]:
    description: dict[str, Any] = {"name": trip.name, "seconds": trip.seconds}
    if trip.recording != trip.name:
        description["recording"] = trip.recording
    if math.isfinite(trip.start_time_s):
        description["start_time_s"] = trip.start_time_s
    return description


def _table(vehicle: Vehicle) -> pa.Table:
    """Return all trips as one table, columns in the order of `STORED`."""
    seconds = [trip.seconds for trip in vehicle.trips]
    index = np.repeat(np.arange(len(seconds), dtype=np.int32), seconds)
    names = pa.array([trip.name for trip in vehicle.trips], pa.string())
    columns: dict[str, pa.Array | pa.ChunkedArray] = {
        "trip": pa.DictionaryArray.from_arrays(pa.array(index), names)
    }
    for channel in STORED:
        if any(channel in trip.channels for trip in vehicle.trips):
            pieces = [
                pa.array(trip.channels[channel], pa.float64())
                if channel in trip.channels
                else pa.nulls(trip.seconds, pa.float64())
                for trip in vehicle.trips
            ]
            columns[channel] = pa.chunked_array(pieces)
    return pa.table(columns)


def _read_table(file: Path) -> tuple[list[str], dict[str, tuple[FloatArray, Any]]]:
    """Read the trip of each row and, for each channel, its values and where they are null."""
    try:
        table = pq.read_table(file, partitioning=None)
        names = table.column("trip").cast(pa.string()).to_pylist()
        channels = [name for name in table.column_names if name != "trip"]
        columns = {c: (table[c].to_numpy(), table[c].is_null().to_numpy()) for c in channels}
    except FileNotFoundError:
        raise DataError(f"{file} does not exist. {AGAIN}") from None
    except (OSError, KeyError, pa.ArrowException) as problem:
        reason = str(problem).splitlines()[0].rstrip(".")
        raise DataError(f"{file} is damaged: {reason}. {AGAIN}") from problem
    return names, columns


def _read_json(file: Path) -> Mapping[str, Any]:
    try:
        content = parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"{file} does not exist. {AGAIN}") from None
    except (OSError, ValueError) as problem:
        raise DataError(f"{file} is damaged: {problem}. {AGAIN}") from problem
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise DataError(f"{file} is not of format {FORMAT}, the one this version reads. {AGAIN}")
    return content


def _write_json(file: Path, content: Mapping[str, Any]) -> None:
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise DataError(
            f"{file.name}: facts must be plain finite JSON values: {problem}."
        ) from problem
    with _writing(file):
        file.write_text(text + "\n", encoding="utf-8")


@contextmanager
def _filling(folder: Path) -> Iterator[Path]:
    """Yield a fresh folder whose entries move into `folder` if the body succeeds."""
    made = not folder.exists()
    fresh = folder / ".partial"
    with _writing(folder):
        fresh.mkdir(parents=True)
    try:
        yield fresh
        with _writing(folder):
            # Without its fleet.json it is no fleet yet.
            for entry in sorted(fresh.iterdir(), key=lambda entry: entry.name == "fleet.json"):
                entry.rename(folder / entry.name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
        if made and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem).splitlines()[0]
        raise DataError(
            f"Could not write {path}: {reason}. Free some space or choose another folder."
        ) from problem


def merge_fleets(fleets: Sequence[Path], out: Path) -> list[str]:
    """Write the vehicles of all `fleets` into the new fleet `out`; return a sentence on each."""
    if len(fleets) < 2 or len({path.resolve() for path in fleets}) < len(fleets):
        raise DataError("Name two or more different fleets to put together.")
    # Some file systems do not tell capitals from small letters.
    folders = [folder for path in fleets for folder in vehicle_folders(path)]
    times = Counter(unquote(folder.name).lower() for folder in folders)
    sources = "; ".join(fleet_source(path) for path in fleets)
    sentences = []

    def vehicles() -> Iterator[Vehicle]:
        for fleet_name, fleet in zip(fleet_names(fleets), fleets, strict=True):
            counts: Counter[str] = Counter()
            for vehicle in read_fleet(fleet):
                clash = times[vehicle.name.lower()] > 1
                trips = len(vehicle.trips)
                without = any("energy_wh" not in trip.channels for trip in vehicle.trips)
                counts.update(vehicle=1, trip=trips, renamed=clash, without_energy=without)
                name = f"{fleet_name}-{vehicle.name}" if clash else vehicle.name
                facts = {**vehicle.facts, "merged_from": fleet_source(fleet)}
                yield replace(vehicle, name=name, facts=facts)
            sentences.append(_merged(fleet_name, counts))

    write_fleet(out, vehicles(), source=f"merged: {sources}")
    return sentences


def _merged(fleet: str, counts: Mapping[str, int]) -> str:
    """Return a sentence on what came from a fleet."""
    text = f"{fleet}: {counted(counts['vehicle'], 'vehicle')}, {counted(counts['trip'], 'trip')}."
    if counts["renamed"]:
        text += f" {counted(counts['renamed'], 'vehicle')} got '{fleet}-' before the name."
    if counts["without_energy"]:
        text += f" {counted(counts['without_energy'], 'vehicle')} only fit data.target = soc."
    return text


def fleet_names(fleets: Sequence[Path]) -> list[str]:
    """Return a name for each fleet: its folder's, with a number where several have the same.

    >>> fleet_names([Path("a/ved"), Path("b/ved"), Path("town")])
    ['ved', 'ved2', 'town']
    """
    names: list[str] = []
    for path in fleets:
        name = path.resolve().name
        number = 2
        while name in names:
            name, number = f"{path.resolve().name}{number}", number + 1
        names.append(name)
    return names
