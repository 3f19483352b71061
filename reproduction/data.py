"""The fleets of a reproduction, by name.

ved                  vehicles of the Vehicle Energy Dataset: EVs and all-electric PHEV trips
ved-electrified      VED's hybrid and petrol cars, driven as electric ones: real speed, simulated
                     energy
eved                 VED with elevation, speed limits and road attributes
synthetic            the embedded fleet
synthetic-enriched   the same with grade, climb, speed limit and road attributes as features
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Final

from fedwatt.data import DataSettings, Fleet, Vehicle, build_fleet, synthetic_vehicles
from fedwatt.data.faults import Fault, spoil_some
from fedwatt.data.split import natural_key
from fedwatt.data.store import fleet_source, read_fleet, read_vehicle, vehicle_folders, write_fleet
from fedwatt.errors import DataError

PLAIN: Final = ("ved", "ved-electrified", "synthetic")
"""Datasets that can take the place of the paper's VED."""
RICH: Final = ("eved", "synthetic-enriched")
"""Datasets that can take the place of its eVED."""
DATASETS: Final = (*PLAIN, *RICH)
RECORDED: Final = ("ved", "eved")
"""Datasets whose energy was measured."""
PURE_EVS: Final = "VED holds three pure EVs; the other vehicles are PHEVs on all-electric trips."
SPLIT_BY_PART: Final = (
    "recorded when the parts of a trip that was cut at a gap could be in different splits, which "
    "the import no longer allows"
)
"""Of records from before a split dealt whole recorded trips."""
NOISE: Final = Fault(kind="label noise", size=1.0)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Sources:
    """Where recorded fleets come from: stored ones, and raw files that become stored ones."""

    stored: dict[str, Path] = field(default_factory=dict)
    """"ved", "eved", "ved-electrified passenger", ... → folder of a fleet"""
    raw: dict[str, tuple[Path, ...]] = field(default_factory=dict)
    """"ved", "eved", "traces" → files"""

    def has(self, dataset: str) -> bool:
        """Whether a dataset can be opened."""
        if dataset.startswith("synthetic"):
            return True
        if dataset == "ved-electrified":
            electrified = any(name.startswith(dataset) for name in self.stored)
            return electrified or "traces" in self.raw
        return dataset in self.stored or dataset in self.raw


def find_sources(folders: Iterable[Path]) -> Sources:
    """What lies in `folders`: fleets made by `fedwatt data`, and files of VED or eVED."""
    stored: dict[str, Path] = {}
    raw: dict[str, tuple[Path, ...]] = {}
    for folder in folders:
        if not folder.exists():
            raise DataError(f"There is no data folder {folder}. Leave --data out, or correct it.")
        if (folder / "fleet.json").is_file():
            stored[_stored_name(folder)] = folder
            continue
        inside = folder / "ved" if (folder / "ved").is_dir() else folder
        raw |= _raw_files(inside)
        if not _raw_files(inside):
            raise DataError(
                f"{folder} holds neither a fleet made by 'fedwatt data' nor files of VED or eVED."
            )
    return Sources(stored, raw)


def usual_folder() -> Path | None:
    """$FEDWATT_DATA, where it is set and holds files of VED or eVED."""
    if not (named := os.environ.get("FEDWATT_DATA")):
        return None
    folder = Path(named)
    return folder if _raw_files(folder / "ved") or _raw_files(folder) else None


def _stored_name(folder: Path) -> str:
    """Which dataset a stored fleet is, from its first vehicle."""
    first = read_vehicle(vehicle_folders(folder)[0])
    if first.labels == "simulated":
        return f"ved-electrified {first.kind}"
    return "eved" if "speed_limit_mps" in first.trips[0].channels else "ved"


def _raw_files(folder: Path) -> dict[str, tuple[Path, ...]]:
    """Files by kind of data, which their names tell."""
    if not folder.is_dir():
        return {}
    files = sorted(path for path in folder.iterdir() if path.is_file())
    kinds = {
        "eved": [f for f in files if f.name.startswith("eVED") and f.suffix in (".csv", ".7z")],
        "traces": [f for f in files if f.name.startswith("HEV_ICE")],
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
    return {name: tuple(found) for name, found in kinds.items() if found}


@dataclass(frozen=True)
class Wanted:
    """A fleet: dataset, how many vehicles (0: all), of which kind, how many of them spoiled."""

    dataset: str
    vehicles: int
    kind: str
    noisy: float
    trips: int
    """Of each synthetic vehicle."""


def open_dataset(
    wanted: Wanted, settings: DataSettings, sources: Sources, scratch: Path, say: Say
) -> Fleet:
    """The fleet; raw files are imported once, into `scratch`."""
    if wanted.dataset.startswith("synthetic"):
        count = wanted.vehicles or 20
        described = f"synthetic, {count} {wanted.kind} vehicles, {wanted.trips} trips each"
        vehicles: Iterable[Vehicle] = synthetic_vehicles(
            count, trips=wanted.trips, kind=wanted.kind
        )
    else:
        folder = stored_fleet(wanted, sources, scratch, say)
        described = fleet_source(folder)
        vehicles = most_driven(folder, wanted.vehicles)
    if wanted.noisy:
        described += f"; {wanted.noisy:.0%} of vehicles with noisy training labels"
        vehicles = spoil_some(vehicles, wanted.noisy, NOISE, settings)
    return build_fleet(vehicles, settings, described)


def most_driven(folder: Path, count: int) -> Iterable[Vehicle]:
    """The `count` vehicles of a stored fleet with the most trips; 0: all of them."""
    if not count:
        return read_fleet(folder)
    vehicles = sorted(read_fleet(folder), key=lambda v: (-len(v.trips), natural_key(v.name)))
    return islice(vehicles, count)


def stored_fleet(wanted: Wanted, sources: Sources, scratch: Path, say: Say) -> Path:
    """Folder of the stored fleet, made from raw files where there is none yet."""
    electrified = wanted.dataset == "ved-electrified"
    name = f"{wanted.dataset} {wanted.kind}" if electrified else wanted.dataset
    if name in sources.stored:
        return sources.stored[name]
    folder = scratch / name.replace(" ", "-")
    if (folder / "fleet.json").is_file():
        return folder
    raw = sources.raw.get("traces" if electrified else wanted.dataset)
    if raw is None:
        raise DataError(
            f"The dataset '{name}' is not there. Name its folder with --data, or choose another "
            "with --dataset."
        )
    say(f"importing {name} from {raw[0].parent} (once)")
    write_fleet(folder, _imported(wanted, raw, electrified), source=_source(wanted, electrified))
    return folder


def _source(wanted: Wanted, electrified: bool) -> str:
    if electrified:
        return f"VED driving, electrified as {wanted.kind} vehicles"
    return f"{'eVED' if wanted.dataset == 'eved' else 'VED'}, EVs and all-electric PHEV trips"


def _imported(wanted: Wanted, raw: tuple[Path, ...], electrified: bool) -> Iterable[Vehicle]:
    # Here, because only raw files need polars: a stored fleet opens without it.
    from fedwatt.data.electrified import electrified_vehicles
    from fedwatt.data.readers import VED_CLEANING, import_eved, import_ved

    if electrified:
        unlabelled = replace(VED_CLEANING, unlabelled=True)
        traces = import_ved(raw, powertrain=("hev", "ice"), cleaning=unlabelled)
        return electrified_vehicles(traces, kind=wanted.kind)
    read = import_eved if wanted.dataset == "eved" else import_ved
    return read(raw, powertrain=("ev", "phev-electric"))
