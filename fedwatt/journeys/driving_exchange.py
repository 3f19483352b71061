"""Learn the shared driving field where only totals over vehicles can be seen.

1. Vehicles say which places of the service area they drive; places of fewer than k vehicles are
   left out.
2. They say in which of the eight headings they drive each place that is left.
3. They upload the seven sums of each place and heading that at least k of them drive.

Every message has a length that follows from the area and from totals, never from one vehicle, so
that under masks (`fedwatt.privacy`) it says nothing. Whoever drops out is asked no more, and if a
cell then has fewer than k vehicles the total is not used: counting goes on.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.elevation_map import array_of
from fedwatt.elevation.exchange import refuse_impossible_counts
from fedwatt.elevation.grid import find, marked
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError, RunError
from fedwatt.journeys.driving_field import NO_PASSES, SUMS, DrivingSums
from fedwatt.journeys.route import HEADINGS
from fedwatt.metrics.sums import LARGEST, Fields, Total, refuse_long
from fedwatt.telemetry.trip import FloatArray, IntArray

DRIVING = ("places", "headings", "sums")
"""Kinds of requests, in the order in which they are sent."""


@dataclass(frozen=True, eq=False)
class DrivingRequest:
    """A request for a sum over `keys`, one of `DRIVING`.

    These are nodes for "places", and 8 · node + heading for the others.
    """

    kind: str
    keys: IntArray
    settings: ElevationSettings

    @classmethod
    def read(
        cls, kind: str, arrays: Mapping[str, NDArray[Any]], settings: ElevationSettings
    ) -> "DrivingRequest":
        """Return the request that a message holds; DataError unless it is about the service
        area.
        """
        keys: IntArray = array_of(arrays, "keys", np.int64)
        area = settings.service_area.nodes(settings.grid)
        places = keys if kind == "places" else keys // HEADINGS
        if not len(keys) or not find(area, places)[1].all() or (np.diff(keys) <= 0).any():
            raise DataError("the request is about other places than those of the service area")
        return cls(kind, keys, settings)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The values by name, as a message holds them."""
        return {"keys": self.keys}

    @property
    def fields(self) -> Fields:
        """Names and sizes of a contribution; the same for every vehicle."""
        counts = {"vehicles": (len(self.keys), 1.0)}
        if self.kind != "sums":
            return counts
        return counts | {name: (len(self.keys), LARGEST) for name in SUMS}

    def answer(self, sums_of_vehicle: DrivingSums) -> dict[str, FloatArray]:
        """Return a vehicle's contribution."""
        if self.kind == "places":
            return {"vehicles": marked(np.unique(sums_of_vehicle.keys // HEADINGS), self.keys)}
        if self.kind == "headings":
            return {"vehicles": marked(sums_of_vehicle.keys, self.keys)}
        inside = sums_of_vehicle.within(self.keys)
        at, _ = find(self.keys, inside.keys)
        sums = np.zeros((len(self.keys), len(SUMS)))
        sums[at] = inside.sums
        named_sums = dict(zip(SUMS, sums.T, strict=True))
        return {"vehicles": marked(inside.keys, self.keys), **named_sums}


DrivingTotals = Callable[[DrivingRequest, frozenset[str]], Total]
"""The totals of a request over the vehicles named, and whose answers are in them."""


def learn_driving(
    totals: DrivingTotals,
    vehicles: frozenset[str],
    settings: ElevationSettings,
) -> tuple[DrivingSums, frozenset[str]]:
    """Return the sums of cells that at least k of the vehicles drive, and whose passes are in them.

    No cells where k vehicles never share a place. Too few answers are a RunError.
    """
    least = settings.minimum_vehicles
    present = vehicles
    while len(present) >= max(2, least):
        keys = settings.service_area.nodes(settings.grid)
        for kind in ("places", "headings"):
            total, present = totals(DrivingRequest(kind, keys, settings), present)
            refuse_impossible_counts(total["vehicles"], len(present))
            keys = keys[total["vehicles"] > least - 0.5]
            if kind == "places":
                keys = (keys[:, None] * HEADINGS + np.arange(HEADINGS)).ravel()
        if not len(keys):
            return NO_PASSES, present
        before = present
        request = DrivingRequest("sums", keys, settings)
        refuse_long(request.fields, f"{len(keys):,} places and headings")
        total, present = totals(request, present)
        sums = np.stack([total[name] for name in SUMS], axis=1)
        if total["vehicles"].min() > least - 0.5:
            _refuse_impossible(sums, len(present))
            return DrivingSums(keys, sums, np.round(total["vehicles"]).astype(np.int64)), present
        if present == before:
            raise RunError("The vehicles' counts and sums do not agree: one is at fault.")
    raise RunError(f"{len(present)} vehicles are left, and {max(2, least)} must drive a place.")


def _refuse_impossible(sums: FloatArray, vehicles: int) -> None:
    """Raise unless all sums are at least 0, but for roundings."""
    if sums.min() < -1e-6 * vehicles:
        raise RunError(
            f"A sum of how the fleet drives a cell is {sums.min():g}, which cannot be. One of the "
            "vehicles is at fault, and masks hide which."
        )
