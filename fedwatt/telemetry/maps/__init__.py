"""Add what a terrain model and a map know to vehicles as they are imported, one at a time.

Everything is looked up on the vehicle, in files the user brings: no position leaves it.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace

from fedwatt.errors import DataError
from fedwatt.telemetry.maps.elevation import Terrain, read_terrain_model, with_elevation
from fedwatt.telemetry.maps.osm import Extract
from fedwatt.telemetry.maps.roads import REACH_M, Box, has_positions, region, with_map
from fedwatt.telemetry.trip import Trip, Vehicle

__all__ = ["EnrichedVehicles", "Extract", "read_terrain_model", "with_elevation", "with_map"]

# A vehicle with fewer cannot be split into training, validation and test.
LEAST_TRIPS = 3


FACTS = ("trips_with_elevation", "trips_with_map", "samples_with_map", "limits_assumed")
"""Facts of an enriched vehicle that add up."""


class EnrichedVehicles(Iterator[Vehicle]):
    """Vehicles with elevation and grade (`terrain`) and map attributes (`extract`).

    Trips without positions, or off the map, stay as they are and are counted. With `only_enriched`
    they are left out, and so is a vehicle that then has fewer than `LEAST_TRIPS`.
    """

    def __init__(
        self,
        vehicles: Iterable[Vehicle],
        *,
        terrain: Terrain | None = None,
        extract: Extract | None = None,
        only_enriched: bool = False,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self.left_out: list[str] = []
        self._region: Box | None = None
        self._elevation = terrain
        self._extract = extract
        self._only_enriched = only_enriched
        self._enriched = self._all(vehicles)

    def sentences(self) -> list[str]:
        """Return sentences on what was added so far."""
        sentences = []
        counts = self.counts
        if self._elevation is not None:
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
        return sentences + [f"Left out: {name} {few}" for name in self.left_out]

    def __next__(self) -> Vehicle:
        return next(self._enriched)

    def _all(self, vehicles: Iterable[Vehicle]) -> Iterator[Vehicle]:
        for vehicle in vehicles:
            enriched = self._with_maps(vehicle)
            self._count(enriched)
            if self._only_enriched:
                covered = tuple(trip for trip in enriched.trips if self._is_covered(trip))
                enriched = replace(enriched, trips=covered)
                if len(covered) < LEAST_TRIPS:
                    self.left_out.append(enriched.name)
                    continue
            yield enriched
        if self.counts["trips"]:
            self._refuse_if_useless()

    def _with_maps(self, vehicle: Vehicle) -> Vehicle:
        if self._elevation is not None:
            vehicle = with_elevation(vehicle, self._elevation)
        if self._extract is not None:
            roads = self._extract.around(vehicle)
            if roads is not None:
                vehicle = with_map(vehicle, roads)
        return vehicle

    def _is_covered(self, trip: Trip) -> bool:
        sources = {"grade": self._elevation, "intersection": self._extract}
        return all(source is None or name in trip.channels for name, source in sources.items())

    def _count(self, vehicle: Vehicle) -> None:
        positioned = sum(has_positions(trip) for trip in vehicle.trips)
        self.counts.update(trips=len(vehicle.trips), positioned=positioned)
        self.counts.update({fact: vehicle.facts.get(fact, 0) for fact in FACTS})
        here = region(vehicle.trips)
        if here is not None:
            self._region = here if self._region is None else here.joined(self._region)

    def _refuse_if_useless(self) -> None:
        counts = self.counts
        if not counts["positioned"]:
            raise DataError(
                f"None of the {counts['trips']:,} trips has positions, which a terrain model or a "
                "map needs. Import their latitude and longitude, or import without enrichment."
            )
        where = f"of the {counts['positioned']:,} trips with positions, which lie at {self._region}"
        if self._elevation is not None and not counts["trips_with_elevation"]:
            raise DataError(f"The terrain model covers none {where}. Get tiles of that region.")
        if self._extract is not None and not counts["trips_with_map"]:
            raise DataError(
                f"{self._extract.path.name} has roads within {REACH_M:.0f} m of none {where}. "
                "Get an extract of that region."
            )
