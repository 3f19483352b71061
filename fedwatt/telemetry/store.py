"""A fleet on disk: one folder a vehicle, and nothing in it from another.

    FLEET/fleet.json                 format, interval_s, source
    FLEET/<vehicle>/vehicle.json     format, name, kind, labels, facts, and of each trip its length,
                                     its start_time_s if known, and its recording where it is a
                                     later part of one
    FLEET/<vehicle>/trips.parquet    column `trip` and one float64 column a channel

What is written appears under its name only once it is complete. A channel that a trip does not have
is null in its rows. Deleting a vehicle's folder takes it out of the fleet.

Put fleets together in one folder, with the names of their vehicles kept apart.

A name that occurs in one fleet alone stays as it is, so that its trips are split as before: splits
are drawn from names. One that occurs in several gets the name of its fleet's folder before it, in
every one of them.
"""

import json
import math
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fedwatt.errors import DataError, counted
from fedwatt.files import parse_json
from fedwatt.telemetry.channels import POSITION, STORED
from fedwatt.telemetry.trip import INTERVAL_S, FloatArray, Trip, Vehicle
from fedwatt.windows.client import DataSettings, Fleet
from fedwatt.windows.makers import Maker
from fedwatt.windows.split import natural_key

FORMAT = 1
LONGEST_FOLDER_NAME = 200
AGAIN = "Import or generate the fleet again."


def folder_name(vehicle: str) -> str:
    """Name of a vehicle's folder, safe on any file system.

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


def write_vehicle(folder: Path, vehicle: Vehicle) -> None:
    """Write a vehicle into `folder`, replacing what was there once the new one is complete."""
    vehicle.refuse_unless_trainable()
    description = {
        "format": FORMAT,
        "name": vehicle.name,
        "kind": vehicle.kind,
        "labels": vehicle.labels,
        "facts": dict(vehicle.facts),
        "trips": [_about_trip(trip) for trip in vehicle.trips],
    }
    with _appearing(Path(folder)) as fresh:
        _write_json(fresh / "vehicle.json", description)
        with _writing(folder):
            pq.write_table(_table(vehicle), fresh / "trips.parquet", compression="zstd")


def read_vehicle(folder: Path) -> Vehicle:
    """Read the vehicle in `folder`."""
    description = _read_json(Path(folder) / "vehicle.json")
    names, columns = _read_table(Path(folder) / "trips.parquet")
    try:
        lengths = {str(trip["name"]): int(trip["seconds"]) for trip in description["trips"]}
        recordings = {
            str(trip["name"]): str(trip.get("recording", "")) for trip in description["trips"]
        }
        starts = {
            str(trip["name"]): float(trip.get("start_time_s", math.nan))
            for trip in description["trips"]
        }
        name = str(description["name"])
        kind = str(description["kind"])
        labels = str(description["labels"])
        facts = dict(description["facts"])
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise DataError(f"{folder}/vehicle.json is damaged: {problem!r}. {AGAIN}") from problem
    # The sum comes first: a damaged length could ask for more names than memory holds, and two of
    # them, one below 0, could cancel.
    total = sum(abs(seconds) for seconds in lengths.values())
    if total != len(names) or names != [n for n, count in lengths.items() for _ in range(count)]:
        raise DataError(
            f"{folder}: trips.parquet does not hold the {len(lengths)} trips ({total} s) "
            f"that vehicle.json lists. {AGAIN}"
        )
    trips = []
    start = 0
    for trip, seconds in lengths.items():
        rows = slice(start, start + seconds)
        held = {c: values[rows] for c, (values, null) in columns.items() if not null[rows].all()}
        trips.append(Trip(trip, held, recordings[trip], start_time_s=starts[trip]))
        start += seconds
    return Vehicle(name, tuple(trips), kind, labels, facts)


def write_fleet(path: Path, vehicles: Iterable[Vehicle], source: str) -> None:
    """Write all vehicles into the new folder `path`, holding one in memory at a time."""
    path = Path(path)
    if path.is_file() or (path.is_dir() and any(path.iterdir())):
        raise DataError(f"{path} exists and is not empty. Choose a new folder, or delete it first.")
    written: set[str] = set()
    with _filling(path) if path.is_dir() else _appearing(path) as fresh:
        for vehicle in vehicles:
            folder = folder_name(vehicle.name)
            # Some file systems do not tell capitals from small letters.
            if folder.lower() in written:
                raise DataError(
                    f"Two vehicles are named '{vehicle.name}' (capitals aside). "
                    "Names must be unique within a fleet: rename or merge them."
                )
            written.add(folder.lower())
            write_vehicle(fresh / folder, vehicle)
        if not written:
            raise DataError(f"There are no vehicles to write to {path} (from {source}).")
        description = {"format": FORMAT, "interval_s": INTERVAL_S, "source": source}
        _write_json(fresh / "fleet.json", description)


def read_fleet(path: Path) -> Iterator[Vehicle]:
    """Vehicles of a fleet folder in natural order of their names, one in memory at a time."""
    return (read_vehicle(folder) for folder in vehicle_folders(path))


def vehicle_folders(path: Path) -> list[Path]:
    """Folders of a fleet's vehicles, in natural order of their names."""
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
        """Read from their folders."""
        return [read_vehicle(self._folders[place]) for place in places]


def load_fleet(path: Path, settings: DataSettings | None = None) -> Fleet:
    """Clients of a fleet folder; default settings if none are given."""
    return StoredVehicles(str(path)).fleet(settings)


def fleet_source(path: Path) -> str:
    """Return the origin of a fleet's data, as written when it was made."""
    path = Path(path)
    if not (path / "fleet.json").is_file():
        no_fleet = "is not a fleet folder: it has no fleet.json"
        raise DataError(
            f"{path} {no_fleet if path.exists() else 'does not exist'}. 'fedwatt data synth' and "
            "'fedwatt data import' make one."
        )
    description = _read_json(path / "fleet.json")
    if description.get("interval_s") != INTERVAL_S:
        raise DataError(
            f"{path} is sampled every {description.get('interval_s')} s; "
            f"only {INTERVAL_S} s is known. "
            f"{AGAIN}"
        )
    return str(description.get("source", "unknown"))


def _about_trip(trip: Trip) -> dict[str, Any]:
    description: dict[str, Any] = {"name": trip.name, "seconds": trip.seconds}
    if trip.recording != trip.name:
        description["recording"] = trip.recording
    if math.isfinite(trip.start_time_s):
        description["start_time_s"] = trip.start_time_s
    return description


def _table(vehicle: Vehicle) -> pa.Table:
    """All trips as one table, columns in the order of `STORED` whatever the order in a trip."""
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
    """Trip name of each row and, for each channel, its values and where they are null."""
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
def _appearing(folder: Path) -> Iterator[Path]:
    """Yield a fresh folder that takes the place of `folder` if the body succeeds, and goes
    otherwise.
    """
    folder = folder.resolve()  # `.` has no name to make others from
    fresh, old = (folder.with_name(f".{folder.name}.{state}") for state in ("partial", "old"))
    with _writing(folder):
        if old.exists() and not folder.exists():
            old.rename(folder)  # whoever wrote last was stopped between the two renames
        for left_over in (fresh, old):
            shutil.rmtree(left_over, ignore_errors=True)
        fresh.mkdir(parents=True)
    try:
        yield fresh
        with _writing(folder):
            _swap(fresh, folder, old)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    shutil.rmtree(old, ignore_errors=True)


def _swap(fresh: Path, folder: Path, old: Path) -> None:
    """Put `fresh` in the place of `folder`, which is back in its place if that fails."""
    if folder.exists():
        folder.rename(old)
    try:
        fresh.rename(folder)
    except BaseException:  # Ctrl-C, too
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise


@contextmanager
def _filling(folder: Path) -> Iterator[Path]:
    """Yield a fresh folder whose entries move into the empty `folder`; that stays: it may be
    `.`.
    """
    fresh = folder / ".partial"
    with _writing(folder):
        fresh.mkdir()
    try:
        yield fresh
        with _writing(folder):
            # Without its fleet.json it is no fleet yet.
            for entry in sorted(fresh.iterdir(), key=lambda entry: entry.name == "fleet.json"):
                entry.rename(folder / entry.name)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or str(problem).splitlines()[0]
        raise DataError(
            f"Could not write {path}: {reason}. Free some space or choose another folder."
        ) from problem


NO_ENERGY = "none"


@dataclass
class Part:
    """One of the fleets that were put together, and what its vehicles have."""

    name: str
    vehicles: int = 0
    trips: int = 0
    seconds: int = 0
    with_positions: int = 0
    with_elevation: int = 0
    energy: Counter[str] = field(default_factory=Counter)
    renamed: int = 0

    def count(self, vehicle: Vehicle, renamed: bool) -> None:
        """Add a vehicle."""
        channels = {name for trip in vehicle.trips for name in trip.channels}
        has_energy = all("energy_wh" in trip.channels for trip in vehicle.trips)
        self.vehicles += 1
        self.trips += len(vehicle.trips)
        self.seconds += sum(trip.seconds for trip in vehicle.trips)
        self.with_positions += channels.issuperset(POSITION)
        self.with_elevation += "elevation_m" in channels
        self.energy[vehicle.labels if has_energy else NO_ENERGY] += 1
        self.renamed += renamed

    def sentence(self) -> str:
        """Return a sentence on what came from this fleet."""
        energy = ", ".join(f"{n} {kind}" for kind, n in sorted(self.energy.items()))
        renamed = f" {counted(self.renamed, 'vehicle')} got '{self.name}-' before the name."
        left_out = (
            f" Left out of a run that predicts energy, but not by data.target = soc: "
            f"{counted(self.energy[NO_ENERGY], 'vehicle')} with trips without energy."
        )
        return (
            f"{self.name}: {counted(self.vehicles, 'vehicle')}, {counted(self.trips, 'trip')}, "
            f"{self.seconds / 3600:.1f} h; {self.with_positions} with positions, "
            f"{self.with_elevation} with elevation; energy: {energy}."
            + (left_out if self.energy[NO_ENERGY] else "")
            + (renamed if self.renamed else "")
        )


def merge_fleets(fleets: Sequence[Path], out: Path) -> list[Part]:
    """Write the vehicles of all `fleets` into the new fleet `out`; what each of them brought."""
    if len(fleets) < 2 or len({path.resolve() for path in fleets}) < len(fleets):
        raise DataError("Name two or more different fleets to put together.")
    parts = [Part(name) for name in fleet_names(fleets)]
    # Some file systems do not tell capitals from small letters.
    folders = [folder for path in fleets for folder in vehicle_folders(path)]
    times = Counter(unquote(folder.name).lower() for folder in folders)
    sources = "; ".join(fleet_source(path) for path in fleets)

    def vehicles() -> Iterator[Vehicle]:
        for part, fleet in zip(parts, fleets, strict=True):
            for vehicle in read_fleet(fleet):
                clash = times[vehicle.name.lower()] > 1
                part.count(vehicle, clash)
                name = f"{part.name}-{vehicle.name}" if clash else vehicle.name
                facts = {**vehicle.facts, "merged_from": fleet_source(fleet)}
                yield replace(vehicle, name=name, facts=facts)

    write_fleet(out, vehicles(), source=f"merged: {sources}")
    return parts


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
