"""The vehicles of the method comparison: three independent datasets in six partitions.

Each partition has two cases, without and with elevation, of which two are impossible. A case is
opened once, its elevation map learned, and its windows kept in one file of plain arrays, from which
every process of a comparison reads them.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np

from fedwatt.elevation.learn import with_climb_channels
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError
from fedwatt.files import write_atomically
from fedwatt.synthetic.fleet import synthetic_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_fleet
from fedwatt.windows import SPLITS, Client, DataSettings, Fleet, build_fleet
from fedwatt.windows.experiments import repartition
from fedwatt.windows.splits import natural_key
from reproduction.data import with_known_climate

TRIPS: Final = 20
"""Trips of an electrified vehicle that are used: its first ones."""
NO_POSITIONS: Final = (
    "the traces have no positions and their energy is simulated on level roads: there is no "
    "elevation to learn"
)


@dataclass(frozen=True)
class Dataset:
    """A partition of a fleet's trips, without or with elevation."""

    fleet: str
    elevation: bool
    description: str
    """The vehicles, in words."""
    unseen: int
    """Vehicles that never train."""
    participation: float = 0.3
    stored: str = ""
    """Which stored fleet it is made of; empty: none."""
    recipe: str = "natural"
    vehicles: int = 0
    """How many of the stored ones; 0: all."""
    impossible: str = ""
    """Why it cannot be run."""

    @property
    def name(self) -> str:
        """Return a name such as "ved elevation"."""
        return f"{self.fleet} {'elevation' if self.elevation else 'base'}"

    @property
    def independent(self) -> str:
        """Return the dataset that its trips are of; partitions of one fleet have the same."""
        return self.stored or "synthetic"

    @property
    def settings(self) -> DataSettings:
        """Return how its telemetry becomes windows."""
        features = "base, elevation" if self.elevation else "base"
        # Neighbouring windows share 59 of 60 seconds: a few of them apart, none is missed.
        return DataSettings(features=features, stride=3, evaluation_stride=20, held_out=self.unseen)


def _both(fleet: str, description: str, unseen: int, **settings: Any) -> tuple[Dataset, Dataset]:
    """Return a fleet without elevation, and with it unless it has no positions."""
    base = Dataset(fleet, False, description, unseen, **settings)
    lost = NO_POSITIONS if settings.get("stored") == "electrified" else ""
    return base, replace(base, elevation=True, impossible=lost)


DATASETS: Final[dict[str, Dataset]] = {
    dataset.name: dataset
    for dataset in (
        *_both("ved", "16 cars of VED as they are, measured energy", 3, stored="ved"),
        *_both("moderate", "VED's trips dealt to 16 clients, moderate skew of speeds", 3,
               stored="ved", recipe="moderate"),
        *_both("severe", "VED's trips dealt to 16 clients, severe skew of speeds", 3,
               stored="ved", recipe="severe"),
        *_both("electrified-50", "50 hybrid and petrol cars of VED driven as electric ones", 8,
               stored="electrified", vehicles=50),
        *_both("electrified-175", "all 175 of them", 25, participation=0.1, stored="electrified"),
        *_both("synthetic", "20 simulated cars of one hilly town", 3),
    )
}  # fmt: skip


def open_dataset(dataset: Dataset, stored: Mapping[str, Path]) -> Fleet:
    """Return the vehicles of a dataset; `stored` are folders of fleets made by `fedwatt data`."""
    if dataset.impossible:
        raise DataError(f"'{dataset.name}' cannot be run: {dataset.impossible}.")
    if dataset.stored and dataset.stored not in stored:
        raise DataError(
            f"'{dataset.name}' needs the stored fleet '{dataset.stored}'. Make it with "
            f"'fedwatt data import' and name it with --stored {dataset.stored}=FOLDER."
        )
    vehicles = _vehicles(dataset, stored)
    climbing = with_climb_channels(lambda: iter(vehicles), dataset.settings, ElevationSettings())
    return build_fleet(climbing, dataset.settings, dataset.description)


def _vehicles(dataset: Dataset, stored: Mapping[str, Path]) -> Sequence[Vehicle]:
    if not dataset.stored:
        return list(synthetic_vehicles(20))
    vehicles: Iterable[Vehicle] = map(with_known_climate, read_fleet(stored[dataset.stored]))
    if dataset.stored == "electrified":
        vehicles = (first_trips(vehicle, TRIPS) for vehicle in vehicles)
    vehicles = islice(vehicles, dataset.vehicles or None)
    if dataset.recipe == "natural":
        return list(vehicles)
    everyone = list(vehicles)
    return repartition(everyone, dataset.recipe, len(everyone))


def first_trips(vehicle: Vehicle, count: int) -> Vehicle:
    """Return the vehicle with its first `count` recorded trips, and of these what base features
    need.
    """
    first = set(sorted({trip.recording for trip in vehicle.trips}, key=natural_key)[:count])
    needed = ("speed_mps", "ambient_c", "ac_w", "heater_w", "energy_wh")
    trips = tuple(
        replace(trip, channels={name: trip.channels[name] for name in needed})
        for trip in vehicle.trips
        if trip.recording in first
    )
    return replace(vehicle, trips=trips)


NUMBERS: Final = ("name", "label_center_wh", "label_scale_wh", "held_out", "label_typical", "kind")


def write_windows(file: Path, fleet: Fleet) -> None:
    """Keep what a model is trained and evaluated on."""
    arrays: dict[str, Any] = {}
    for k, client in enumerate(fleet.clients):
        arrays[f"{k} series"] = client.series
        for split in SPLITS:
            arrays[f"{k} {split} ends"] = client.ends[split]
            arrays[f"{k} {split} labels"] = client.labels[split]
    clients = [{name: getattr(client, name) for name in NUMBERS} for client in fleet.clients]
    description = {"source": fleet.source, "settings": asdict(fleet.settings), "clients": clients}
    arrays["about"] = np.frombuffer(json.dumps(description).encode(), np.uint8)

    def write(path: Path) -> None:
        with path.open("wb") as out:
            np.savez(out, **arrays)

    file.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(file, write)


def read_windows(file: Path) -> Fleet:
    """Return the fleet that `write_windows` kept; its vehicles' names of trips are not known."""
    with np.load(file, allow_pickle=False) as arrays:
        description = json.loads(arrays["about"].tobytes())
        settings = DataSettings(**description["settings"])
        clients = tuple(
            Client(
                features=settings.columns,
                window=settings.window,
                series=arrays[f"{k} series"],
                ends={split: arrays[f"{k} {split} ends"] for split in SPLITS},
                labels={split: arrays[f"{k} {split} labels"] for split in SPLITS},
                strata={},
                trips={},
                **client,
            )
            for k, client in enumerate(description["clients"])
        )
    return Fleet(clients, settings, description["source"])


Say = Callable[[str], None]


def windows_file(dataset: Dataset, stored: Mapping[str, Path], folder: Path, say: Say) -> Path:
    """Return the file of a dataset's windows, made where it is missing."""
    file = folder / f"{dataset.name.replace(' ', '-')}.npz"
    if not file.exists():
        say(f"opening {dataset.name}: {dataset.description}")
        write_windows(file, open_dataset(dataset, stored))
    return file
