"""Add elevation, grade, speed limits and road flags from files to imported vehicles.

All positions are looked up locally, in files that the user brings.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry.maps.elevation import read_terrain_model, with_elevation
from fedwatt.telemetry.maps.osm import Extract
from fedwatt.telemetry.maps.roads import REACH_M, has_positions, region, with_map
from fedwatt.telemetry.trip import Trip, Vehicle

__all__ = ["Extract", "Maps", "read_terrain_model", "with_elevation", "with_map"]

# A vehicle with fewer cannot be split into training, validation and test.
LEAST_TRIPS = 3
FACTS = ("trips_with_elevation", "trips_with_map", "samples_with_map", "limits_assumed")
"""Facts of an enriched vehicle that add up."""


class Maps:
    """Files that know the roads: a terrain model (`dem`) and an OpenStreetMap extract (`osm`).

    Trips without positions, or off the map, stay as they are and are counted. With `only_enriched`
    they are left out, and so is a vehicle that then has fewer than `LEAST_TRIPS`.
    """

    def __init__(
        self, dem: Path | None = None, osm: Path | None = None, *, only_enriched: bool = False
    ) -> None:
        if only_enriched and dem is None and osm is None:
            raise SettingError("--only-enriched needs --dem or --osm, which do the enriching.")
        self.files = [path for path in (dem, osm) if path is not None]
        self._terrain = None if dem is None else read_terrain_model([dem])
        self._extract = None if osm is None else Extract(osm)
        self._only_enriched = only_enriched
        self._counts: Counter[str] = Counter()
        self._left_out: list[str] = []

    def enriched(self, vehicles: Iterable[Vehicle]) -> Iterator[Vehicle]:
        """Yield the vehicles with everything that the files know of their trips."""
        place = None
        for vehicle in vehicles:
            enriched = self._with_maps(vehicle)
            place = place or region(vehicle.trips)
            positioned = sum(has_positions(trip) for trip in vehicle.trips)
            self._counts.update(trips=len(vehicle.trips), positioned=positioned)
            self._counts.update({fact: enriched.facts.get(fact, 0) for fact in FACTS})
            if self._only_enriched:
                covered = tuple(trip for trip in enriched.trips if self._is_covered(trip))
                enriched = replace(enriched, trips=covered)
                if len(covered) < LEAST_TRIPS:
                    self._left_out.append(enriched.name)
                    continue
            yield enriched
        if self.files and self._counts["trips"]:
            self._refuse_if_useless(f"which begin at {place}")

    def sentences(self) -> list[str]:
        """Return sentences on what was added so far."""
        sentences = []
        counts = self._counts
        if self._terrain is not None:
            graded = f"{counts['trips_with_elevation']:,} of {counts['trips']:,}"
            sentences.append(f"Terrain: {graded} trips have a grade.")
        if self._extract is not None:
            share = counts["limits_assumed"] / max(counts["samples_with_map"], 1)
            sentences.append(
                f"Map: {counts['trips_with_map']:,} of {counts['trips']:,} trips lie on known "
                f"roads; where these state no speed limit ({share:.0%} of the time) a usual one "
                "stands in."
            )
        few = f"has under {LEAST_TRIPS} enriched trips."
        return sentences + [f"Left out: {name} {few}" for name in self._left_out]

    def _with_maps(self, vehicle: Vehicle) -> Vehicle:
        if self._terrain is not None:
            vehicle = with_elevation(vehicle, self._terrain)
        if self._extract is not None and (roads := self._extract.around(vehicle)):
            vehicle = with_map(vehicle, roads)
        return vehicle

    def _is_covered(self, trip: Trip) -> bool:
        sources = {"grade": self._terrain, "intersection": self._extract}
        return all(source is None or name in trip.channels for name, source in sources.items())

    def _refuse_if_useless(self, where: str) -> None:
        counts = self._counts
        if not counts["positioned"]:
            raise DataError(
                f"None of the {counts['trips']:,} trips has positions, which a terrain model or a "
                "map needs. Import their latitude and longitude, or import without enrichment."
            )
        trips = f"of the {counts['positioned']:,} trips with positions, {where}"
        if self._terrain is not None and not counts["trips_with_elevation"]:
            raise DataError(f"The terrain model covers none {trips}. Get tiles of that region.")
        if self._extract is not None and not counts["trips_with_map"]:
            raise DataError(
                f"{self._extract.path.name} has roads within {REACH_M:.0f} m of none {trips}. "
                "Get an extract of that region."
            )
