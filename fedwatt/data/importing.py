"""From recordings to a stored fleet: read, clean, enrich from maps, write."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedwatt.data import readers
from fedwatt.data.imported import imported_vehicles
from fedwatt.data.readers.stream import Progress, silent
from fedwatt.data.store import write_fleet
from fedwatt.errors import SettingError


@dataclass(frozen=True, kw_only=True)
class Recordings:
    """Files of telemetry, and what to take from them.

    kind           "ved", "eved", "csv" or "sumo"
    paths          files or folders; for sumo the FCD and the battery output
    powertrain     VED and eVED: which vehicles (`readers.POWERTRAINS`)
    mapping        csv: a TOML file or the name of a shipped mapping
    geo            sumo: positions are longitudes and latitudes
    minimum_trips  usable trips that a vehicle must have; None: the usual number of its kind
    """

    kind: str
    paths: tuple[Path, ...]
    powertrain: tuple[str, ...] = ("ev",)
    mapping: str | None = None
    geo: bool = False
    minimum_trips: int | None = None
    minimum_seconds: float = 120.0
    minimum_metres: float = 500.0
    maximum_gap_s: float = 10.0

    def vehicles(self, progress: Progress = silent) -> Iterator[readers.CleanVehicle]:
        """The cleaned vehicles, one at a time."""
        limits: dict[str, Any] = {
            "minimum_seconds": self.minimum_seconds,
            "minimum_metres": self.minimum_metres,
        }
        if self.minimum_trips is not None:
            limits["minimum_trips"] = self.minimum_trips
        if self.kind == "sumo":
            from fedwatt.data.readers.sumo import geographic, import_sumo

            if len(self.paths) != 2:
                raise SettingError("sumo needs two files: the FCD output and the battery output.")
            position = geographic if self.geo else None
            return import_sumo(*self.paths, position=position, **limits)
        limits |= {"maximum_gap_s": self.maximum_gap_s, "progress": progress}
        if self.kind != "csv":
            reader = readers.import_ved if self.kind == "ved" else readers.import_eved
            return reader(self.paths, powertrain=self.powertrain, **limits)
        if self.mapping is None:
            raise SettingError(
                "Plain files need --map, which says what their columns are. "
                f"'fedwatt data map {self.paths[0]}' proposes one."
            )
        return readers.import_csv(self.paths, self.mapping, **limits)


@dataclass(frozen=True, kw_only=True)
class Maps:
    """Files that know the roads: a terrain model (`dem`) and an OpenStreetMap extract (`osm`).

    With `only_enriched`, trips that they do not cover are left out.
    """

    dem: Path | None = None
    osm: Path | None = None
    only_enriched: bool = False

    def __post_init__(self) -> None:
        if self.only_enriched and not self.files:
            raise SettingError("--only-enriched needs --dem or --osm, which do the enriching.")

    @property
    def files(self) -> list[Path]:
        """Those that were given."""
        return [path for path in (self.dem, self.osm) if path is not None]

    def enriched(self, vehicles: Iterator[readers.CleanVehicle]) -> readers.EnrichedVehicles | None:
        """The vehicles with what the files know; None without files. The files are read here."""
        if not self.files:
            return None
        return readers.EnrichedVehicles(
            vehicles,
            terrain=None if self.dem is None else readers.read_terrain([self.dem]),
            extract=None if self.osm is None else readers.Extract(self.osm),
            only_enriched=self.only_enriched,
        )


def import_fleet(
    out: Path, recordings: Recordings, maps: Maps, progress: Progress = silent
) -> list[str]:
    """Write the fleet of `recordings` to `out`; what was kept, dropped and added, in sentences."""
    vehicles = recordings.vehicles(progress)
    enriched = maps.enriched(vehicles)
    named = ", ".join(path.name for path in (*recordings.paths, *maps.files))
    clean = vehicles if enriched is None else enriched
    write_fleet(out, imported_vehicles(clean), source=f"{recordings.kind}: {named}")
    sentences = []
    if isinstance(vehicles, readers.CleanVehicles):
        units = ("vehicles", "trips", "rows")
        sentences += [f"Cleaning: {vehicles.account.sentence(unit)}" for unit in units]
        sentences += [f"Passed over: {name}" for name in vehicles.passed_over]
    return sentences + ([] if enriched is None else enriched.sentences())
