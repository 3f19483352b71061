"""From recordings to a stored fleet: read, clean, enrich from maps, write."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from inspect import isfunction
from pathlib import Path
from typing import Any

from fedwatt import plugins
from fedwatt.errors import SettingError, unknown
from fedwatt.telemetry import readers
from fedwatt.telemetry.cleaning.cleaning import PLAIN_CLEANING, VED_CLEANING, Cleaning
from fedwatt.telemetry.maps import EnrichedVehicles, Extract, read_terrain_model
from fedwatt.telemetry.readers.mapping import load_mapping
from fedwatt.telemetry.readers.stream import Progress, silent
from fedwatt.telemetry.readers.sumo_output import geographic
from fedwatt.telemetry.store import write_fleet
from fedwatt.telemetry.trip import Vehicle

USUAL_CLEANING = {
    "ved": VED_CLEANING,
    "eved": VED_CLEANING,
    "csv": PLAIN_CLEANING,
    "sumo": PLAIN_CLEANING,
}
"""How each kind of recording is cleaned unless something else is asked for."""
ONE_VEHICLE = (
    "Warning: the fleet has one vehicle, so there is nothing to federate yet. If the recording "
    "holds several, import it with the column that names them ('auto' with --vehicle COLUMN, or "
    "[vehicle] in the mapping); 'fedwatt data merge' adds other fleets."
)


def own_reader(kind: str) -> Callable[..., Iterable[Vehicle]]:
    """Return a reader that somebody else has written, by a reference or the name of an entry point.

    It is called as reader(paths, cleaning=Cleaning, progress=Progress) and gives vehicles;
    `frames.vehicles_from_frame` makes them of a DataFrame, cleaned and accounted for.
    """
    if not plugins.refers(kind, "reader"):
        choices = [*USUAL_CLEANING, *plugins.entry_points("reader")]
        raise SettingError(unknown("kind of recordings", kind, choices))
    expected = "a function of paths, cleaning and progress"
    reader: Callable[..., Iterable[Vehicle]] = plugins.resolve(
        kind, "reader", expected, isfunction
    ).value
    return reader


@dataclass(frozen=True, kw_only=True)
class Recordings:
    """Files of telemetry, and what to take from them.

    kind           one of `USUAL_CLEANING`, or a reference to a reader of one's own
    paths          files or folders; for sumo the FCD and the battery output
    cleaning       which trips are usable
    powertrain     VED and eVED: which vehicles (`readers.POWERTRAINS`)
    mapping        csv: a TOML file or the name of a shipped mapping
    geo            sumo: positions are longitudes and latitudes
    own_gap        csv: the cleaning's longest gap counts, whatever the mapping has
    """

    kind: str
    paths: tuple[Path, ...]
    cleaning: Cleaning
    powertrain: tuple[str, ...] = ("ev",)
    mapping: str | None = None
    geo: bool = False
    own_gap: bool = False

    def vehicles(self, progress: Progress = silent) -> Iterator[Vehicle]:
        """Yield the cleaned vehicles, one at a time."""
        how: dict[str, Any] = {"cleaning": self.cleaning, "progress": progress}
        if self.kind not in USUAL_CLEANING:
            return iter(own_reader(self.kind)(self.paths, **how))
        if self.kind == "sumo":
            if len(self.paths) != 2:
                raise SettingError("sumo needs two files: the FCD output and the battery output.")
            position = geographic if self.geo else None
            return readers.import_sumo(*self.paths, position=position, cleaning=self.cleaning)
        if self.kind == "csv":
            if self.mapping is None:
                raise SettingError(
                    "Plain files need --map, which says what their columns are. "
                    f"'fedwatt data map {self.paths[0]}' proposes one, and 'fedwatt data import "
                    "auto' does without."
                )
            mapping = load_mapping(self.mapping)
            if self.own_gap:
                mapping = replace(mapping, maximum_gap_s=None)
            return readers.import_csv(self.paths, mapping, **how)
        read = readers.import_ved if self.kind == "ved" else readers.import_eved
        return read(self.paths, powertrain=self.powertrain, **how)


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
        """The files that were given."""
        return [path for path in (self.dem, self.osm) if path is not None]

    def enriched(self, vehicles: Iterator[Vehicle]) -> EnrichedVehicles | None:
        """Return the vehicles with what the files know; None without files. The files are read
        here.
        """
        if not self.files:
            return None
        return EnrichedVehicles(
            vehicles,
            terrain=None if self.dem is None else read_terrain_model([self.dem]),
            extract=None if self.osm is None else Extract(self.osm),
            only_enriched=self.only_enriched,
        )


def import_fleet(
    out: Path, recordings: Recordings, maps: Maps, progress: Progress = silent
) -> list[str]:
    """Write the fleet of `recordings` to `out`; what was kept, dropped and added, in sentences."""
    vehicles = recordings.vehicles(progress)
    enriched = maps.enriched(vehicles)
    named = ", ".join(path.name for path in (*recordings.paths, *maps.files))
    stream = vehicles if enriched is None else enriched
    write_fleet(out, stream, source=f"{plugins.short(recordings.kind)}: {named}")
    sentences = []
    if isinstance(vehicles, readers.VehicleStream):
        sentences += vehicles.account.sentences()
        sentences += [f"Passed over: {name}" for name in vehicles.passed_over]
        sentences += [ONE_VEHICLE] * (vehicles.account.count("kept", "vehicles") == 1)
    return sentences + ([] if enriched is None else enriched.sentences())
