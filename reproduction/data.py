"""The fleets of a reproduction, by name.

ved                  vehicles of the Vehicle Energy Dataset: EVs and all-electric PHEV trips
ved-electrified      VED's hybrid and petrol cars, driven as electric ones: real speed, simulated
                     energy
ved-enriched         trips of `ved` that posts of a terrain model cover, with climb and descent
eved                 VED with elevation, speed limits and road attributes
synthetic            the built-in synthetic fleet
synthetic-enriched   the same with grade, climb, speed limit and road attributes as features

Recorded driving without energy, which electrified vehicles are made of, is stored as unlabelled
vehicles.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from fedwatt.elevation.climb import with_measured_elevation
from fedwatt.errors import DataError
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.synthetic.electrify import electrified_vehicle
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.store import read_fleet, read_vehicle, vehicle_folders, write_fleet
from fedwatt.telemetry.trip import UNLABELLED, Trip
from fedwatt.windows import DataSettings, Fleet, build_fleet
from fedwatt.windows.experiments import corrupt_some, repartition
from fedwatt.windows.features import MAY_BE_UNKNOWN
from fedwatt.windows.splits import natural_key

CHANNELS: Final = ("speed_mps", "ambient_c", "ac_w", "heater_w")


def driving(vehicle: Vehicle) -> Vehicle:
    """Return the vehicle with the channels that electrifying its trips needs."""
    trips = []
    for trip in vehicle.trips:
        channels = {
            name: trip.channels[name]
            for name in CHANNELS
            if name in trip.channels and not np.isnan(trip.channels[name]).all()
        }
        trips.append(Trip(trip.name, channels, trip.recording))
    return replace(vehicle, trips=tuple(trips))


PLAIN: Final = ("ved", "ved-electrified", "synthetic")
"""Datasets that can take the place of the paper's VED."""
RICH: Final = ("eved", "ved-enriched", "synthetic-enriched")
"""Datasets that can take the place of its eVED."""
DATASETS: Final = (*PLAIN, *RICH)
RECORDED: Final = ("ved", "ved-enriched", "eved")
"""Datasets whose energy was measured."""
PURE_EVS: Final = "VED holds three pure EVs; the other vehicles are PHEVs on all-electric trips."
PRINTED_AS: Final = {"ved": "VED", "eved": "eVED"}
"""Our dataset → the paper's; a number of any other dataset stands beside no printed one."""
QUALIFY: Final = 20
"""Trips that a recorded vehicle needs: its split has at least four test trips then."""
USUAL: Final = 10
"""Vehicles of a fleet that is not recorded, and clients that trips are dealt to: the paper's K."""
ENOUGH: Final = 200
"""Trips of a fleet below which they are dealt to a `FEW` clients: some regimes are rare."""
FEW: Final = 3
NOISE: Final = 1.0
"""Standard deviations by which a noisy minute of energy is off."""
COVERED: Final = 0.95
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sources:
    """Sources of recorded fleets: stored ones, and raw files that become stored ones."""

    stored: dict[str, Path] = field(default_factory=dict)
    """"ved", "eved", "ved-electrified passenger", ... → folder of a fleet"""
    raw: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    """"ved", "eved", "traces", "posts" → files"""

    def has(self, dataset: str) -> bool:
        """Return whether a dataset can be opened."""
        if dataset.startswith("synthetic"):
            return True
        if dataset == "ved-electrified":
            electrified = any(name.startswith(dataset) for name in self.stored)
            return electrified or "traces" in {*self.raw, *self.stored}
        if dataset == "ved-enriched" and {"ved", "posts"} <= self.raw.keys():
            return True
        return dataset in self.stored or dataset in self.raw


def find_sources(folders: Iterable[Path]) -> Sources:
    """Return what lies in `folders`: fleets made by `fedwatt data`, and files of VED or eVED."""
    stored: dict[str, Path] = {}
    raw: dict[str, tuple[Path, ...]] = {}
    for folder in folders:
        if not folder.exists():
            raise DataError(
                f"There is no data folder {folder}. Leave --recordings out, or correct it."
            )
        if (folder / "fleet.json").is_file():
            stored[_stored_name(folder)] = folder
            continue
        files_of: dict[str, tuple[Path, ...]] = {}
        for inside in (folder, *sorted(folder.iterdir())):
            files_of |= _raw_files(inside)
        raw |= files_of
        if not files_of:
            raise DataError(
                f"{folder} holds neither a fleet made by 'fedwatt data' nor files of VED or eVED."
            )
    return Sources(stored, raw)


def usual_folder() -> Path | None:
    """Return $FEDWATT_DATA, where it is set and holds files of VED or eVED."""
    if not (named := os.environ.get("FEDWATT_DATA")):
        return None
    folder = Path(named)
    return folder if _raw_files(folder / "ved") or _raw_files(folder) else None


def _stored_name(folder: Path) -> str:
    """Return which dataset a stored fleet is, from its first vehicle."""
    first = read_vehicle(vehicle_folders(folder)[0])
    channels = first.trips[0].channels
    if first.labels == UNLABELLED:
        return "traces"
    if first.labels == "simulated":
        return f"ved-electrified {first.kind}"
    if "speed_limit_mps" in channels:
        return "eved"
    return "ved-enriched" if "climb_m" in channels else "ved"


def _raw_files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Return files by kind of data, which their names tell."""
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.iterdir() if path.is_file())
    kinds = {
        "eved": [f for f in files if f.name.startswith("eVED") and f.suffix in (".csv", ".7z")],
        "traces": [f for f in files if f.name.startswith("HEV_ICE")],
        "posts": [f for f in files if f.name.startswith("srtm") and f.suffix == ".csv"],
        "ved": [
            f
            for f in files
            if f.name.startswith(("EV_PHEV", "VED_DynamicData_Part"))
            or (f.name.startswith("VED_") and f.suffix == ".csv")
        ],
    }
    weekly = tuple(f for f in kinds["ved"] if f.suffix != ".parquet")
    if weekly and not kinds["traces"]:  # the published files hold vehicles of all powertrains
        kinds["traces"] = list(weekly)
    return {name: tuple(paths) for name, paths in kinds.items() if paths}


@dataclass(frozen=True)
class Selection:
    """A fleet: dataset, how many vehicles (0: the usual), of which kind, how many of them spoiled,
    and who has which trips.
    """

    dataset: str
    vehicles: int
    kind: str
    noisy: float
    trips: int
    """Of each synthetic vehicle."""
    partition: str = "natural"


def open_dataset(
    selection: Selection, settings: DataSettings, sources: Sources, scratch: Path, say: Say
) -> Fleet:
    """Return the fleet; raw files are imported once, into `scratch`."""
    if selection.dataset.startswith("synthetic"):
        count = selection.vehicles or USUAL
        described = f"synthetic, {count} {selection.kind} vehicles, {selection.trips} trips each"
        vehicles = list(synthetic_vehicles(count, trips=selection.trips, kind=selection.kind))
    else:
        folder = stored_fleet(selection, sources, scratch, say)
        described = source_of(selection)
        vehicles = [
            electrified_vehicle(v, kind=selection.kind) if v.labels == UNLABELLED else v
            for v in chosen(selection, list(read_fleet(folder)))
        ]
    if selection.partition != "natural":
        clients = USUAL if sum(len(v.trips) for v in vehicles) >= ENOUGH else FEW
        described += f"; trips dealt to {clients} clients, {selection.partition}"
        vehicles = repartition(vehicles, selection.partition, clients)
    if selection.noisy:
        described += f"; {selection.noisy:.0%} of vehicles with noisy training labels"
        vehicles = list(corrupt_some(vehicles, selection.noisy, NOISE, settings))
    return build_fleet(vehicles, settings, described)


def chosen(selection: Selection, vehicles: Sequence[Vehicle]) -> list[Vehicle]:
    """Return the vehicles with the most trips; of a recorded fleet, all that qualify."""
    ordered = sorted(vehicles, key=lambda v: (-len(v.trips), natural_key(v.name)))
    if selection.vehicles:
        return ordered[: selection.vehicles]
    if selection.dataset in RECORDED:
        return [v for v in ordered if len(v.trips) >= QUALIFY]
    return ordered[:USUAL]


def stored_fleet(selection: Selection, sources: Sources, scratch: Path, say: Say) -> Path:
    """Return folder of the stored fleet, made from raw files where there is none yet."""
    electrified = selection.dataset == "ved-electrified"
    name = "traces" if electrified else selection.dataset
    for stored_name in (f"{selection.dataset} {selection.kind}", name):
        if stored_name in sources.stored:
            return sources.stored[stored_name]
    folder = scratch / name
    if (folder / "fleet.json").is_file():
        return folder
    raw = sources.raw.get("ved" if name == "ved-enriched" else name)
    if raw is None or not sources.has(selection.dataset):
        raise DataError(
            f"The dataset '{selection.dataset}' is not there. Name its folder with --recordings, "
            "or choose another with --dataset."
        )
    say(f"importing {name} from {raw[0].parent} (once)")
    vehicles = imported(name, raw, sources.raw.get("posts", ()))
    write_fleet(folder, vehicles, source=name, unlabelled=name == "traces")
    return folder


def source_of(selection: Selection) -> str:
    """Return where a recorded fleet's driving and energy come from, in words."""
    if selection.dataset == "ved-electrified":
        return f"VED driving, electrified as {selection.kind} vehicles"
    if selection.dataset == "ved-enriched":
        return "VED, EVs and all-electric PHEV trips, climb from SRTM posts"
    return f"{'eVED' if selection.dataset == 'eved' else 'VED'}, EVs and all-electric PHEV trips"


def imported(name: str, raw: tuple[Path, ...], posts: tuple[Path, ...] = ()) -> Iterator[Vehicle]:
    """Yield vehicles of raw files, with the channels that a reproduction needs."""
    # Here, because only raw files need polars: a stored fleet opens without it.
    from fedwatt.telemetry.readers import VED_CLEANING, import_eved, import_ved
    from fedwatt.telemetry.terrain_model import read_terrain_model, with_elevation

    if name == "traces":
        cleaning = replace(VED_CLEANING, unlabelled=True)
        yield from map(driving, import_ved(raw, powertrain=("hev", "ice"), cleaning=cleaning))
        return
    read = import_eved if name == "eved" else import_ved
    vehicles: Iterable[Vehicle] = read(raw, powertrain=("ev", "phev-electric"))
    if name == "ved-enriched":
        terrain = read_terrain_model(posts)
        climbing = (with_elevation(vehicle, terrain) for vehicle in vehicles)
        vehicles = (v for v in map(covered, climbing) if len(v.trips) >= QUALIFY)
    for vehicle in vehicles:
        yield slim(vehicle)


def slim(vehicle: Vehicle) -> Vehicle:
    """Return the vehicle with the channels that features and labels need."""
    unused = {*POSITION, "current_a", "voltage_v", "soc", "elevation_m", "grade"}
    trips = [
        replace(trip, channels={c: v for c, v in trip.channels.items() if c not in unused})
        for trip in vehicle.trips
    ]
    return with_known_climate(replace(vehicle, trips=tuple(trips)))


def with_known_climate(vehicle: Vehicle) -> Vehicle:
    """Return the vehicle with a heater or air conditioning that never reports switched off.

    The paper's features know no unknown power.
    """
    trips = []
    for trip in vehicle.trips:
        climate = {p: np.nan_to_num(trip.channels[p], nan=0.0) for p in MAY_BE_UNKNOWN}
        trips.append(replace(trip, channels={**trip.channels, **climate}))
    return replace(vehicle, trips=tuple(trips))


def covered(vehicle: Vehicle) -> Vehicle:
    """Return the vehicle with the trips whose climb is known for at least 95 % of their seconds."""
    climbing = with_measured_elevation(vehicle).trips
    complete = [t for t in climbing if float(t.channels["climb_known"].mean()) >= COVERED]
    return replace(vehicle, trips=tuple(complete))
