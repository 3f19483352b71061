"""Requests to vehicles about routes once they have the fleet's driving, and their contributions.

    units        sizes of the columns of features, and who has trips at all
    effects      sums for the coefficients of energy and of duration (`mixed_effects`)
    errors       how far off these were, counted in bins (`route_intervals`)
    correction   sums for κ, q and c of a route under way (`in_trip`)
    under way    how far off forecasts were at shares of the way, counted in bins

Every answer has one length for all vehicles, so that under masks it says nothing. A simulation and
a real fleet ask and answer the same; on the way, questions are named arrays (`arrays`, `read`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.encoding import array_of, field_from_arrays, field_to_arrays
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError
from fedwatt.journeys.driving_field import SUMS, DrivingSums, on_board
from fedwatt.journeys.fleet_routes import JUDGED, own_coefficients
from fedwatt.journeys.in_trip import CORRECTION_FIELDS, COUNT_FIELDS, Moments
from fedwatt.journeys.mixed_effects import (
    Fitted,
    FleetEffects,
    own_effects,
    sum_fields,
    unit_fields,
)
from fedwatt.journeys.road_classes import RoadClasses
from fedwatt.journeys.route_board import Lessons, VehicleRoutes, evaluated
from fedwatt.journeys.route_features import NAMES
from fedwatt.journeys.route_intervals import BINS, MIDDLES_KM
from fedwatt.journeys.route_model import TARGETS
from fedwatt.sums import Fields
from fedwatt.telemetry.trip import FloatArray

ASKED: Final = {
    "units": "sizes of the features of their routes",
    "effects": "sums for what routes take",
    "errors": "counts of their errors on routes",
    "correction": "sums for the correction of routes under way",
    "under way": "counts of their errors under way",
}
"""Kinds of questions, in the order in which they are asked, and what they ask for, for a log."""
IN_TRIP: Final = {"correction": CORRECTION_FIELDS, "under way": COUNT_FIELDS}
"""What answers hold to those about moments under way."""
COLUMNS: Final = len(NAMES)
MOST_TRIPS: Final = 2.0**24
OF_A_TARGET: Final[dict[str, Fields]] = {
    "units": unit_fields(COLUMNS),
    "effects": sum_fields(COLUMNS),
    "errors": {name: (len(MIDDLES_KM) * BINS, MOST_TRIPS) for name in JUDGED},
}
"""And to the others, of each target."""
HILLS: Final = "hills."
"""Prefix of the arrays of hills in a message with the driving field."""
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class SharedDriving:
    """The fleet's driving that every vehicle receives before it contributes to routes.

    driving  the cells that at least k vehicles drive
    hills    the published hills that more than k vehicles drive; None: there are none
    least    k
    roads    how they drive classes of roads; not in a message, so None in a real fleet
    """

    driving: DrivingSums
    hills: Field | None
    least: int
    roads: RoadClasses | None = None

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of a message with it."""
        own = self.driving
        found = {"keys": own.keys, "sums": own.sums.ravel(), "vehicles": own.vehicles}
        return found if self.hills is None else found | field_to_arrays(self.hills, HILLS)

    @cached_property
    def digest(self) -> str:
        """32 hexadecimal digits that name it."""
        digest = sha256()
        for name, array in sorted(self.arrays.items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    @classmethod
    def read(cls, arrays: Arrays, grid: Grid, least: int) -> "SharedDriving":
        """Return the content of a message; raise DataError if it is no driving of k vehicles."""
        keys, vehicles = (array_of(arrays, name, np.int64) for name in ("keys", "vehicles"))
        sums = array_of(arrays, "sums", np.float64)
        same = len(sums) == len(SUMS) * len(keys) and len(vehicles) == len(keys)
        if not same or not np.isfinite(sums).all() or (np.diff(keys) <= 0).any():
            raise DataError("the question holds no driving field")
        if vehicles.min(initial=least) < least:
            raise DataError(f"the question holds places that fewer than {least} vehicles drive")
        hills = field_from_arrays(arrays, grid, HILLS) if f"{HILLS}keys" in arrays else None
        return cls(DrivingSums(keys, sums.reshape(-1, len(SUMS)), vehicles), hills, least)


@dataclass(eq=False)
class Pupil:
    """A vehicle that has the driving field: what it answers from. Nothing else of it leaves."""

    board: VehicleRoutes
    shared: SharedDriving
    _moments: tuple[bytes, Moments] | None = None
    """Of the effects that were asked about last; three questions in a row are about the same."""

    @cached_property
    def lessons(self) -> Lessons:
        """Return everything that its passes teach."""
        return self.board.lessons(
            self.shared.driving, self.shared.hills, self.shared.least, self.shared.roads
        )

    def moments(self, effects: Mapping[str, FleetEffects]) -> Moments:
        """Moments under way in its trips, forecast with its own coefficients."""
        about = b"".join(_packed(effects[target]).tobytes() for target in TARGETS)
        if self._moments is None or self._moments[0] != about:
            own = self.lessons.inside
            board = self.board
            beta = {
                target: own_coefficients(
                    fleet, own_effects(fleet, own.of(target)), target, board.mass_kg
                ).beta
                for target, fleet in effects.items()
            }
            driven = on_board(
                self.shared.driving,
                board.sums,
                board.grid,
                contributed=True,
                roads=self.shared.roads,
            )
            self._moments = about, board.in_trip(driven, beta)
        return self._moments[1]


@dataclass(frozen=True, eq=False)
class RouteRequest:
    """A request for a sum, one of `ASKED`, given the fleet's effects by target.

    effects     what it knows of the coefficients; nothing for "units"
    equations   those that gave them, for "errors": matrix [17, 17] and right side [17]
    correction  κ, q and c so far, for "correction" and "under way", [3]
    """

    kind: str
    effects: Mapping[str, FleetEffects] = field(default_factory=dict)
    equations: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)
    correction: FloatArray = field(default_factory=lambda: np.zeros(0))

    @classmethod
    def about_errors(cls, fitted: Mapping[str, Fitted]) -> "RouteRequest":
        """Return the request for the errors of fitted coefficients."""
        return cls(
            "errors",
            {target: own.effects for target, own in fitted.items()},
            {target: (own.matrix, own.right) for target, own in fitted.items()},
        )

    @property
    def described(self) -> str:
        """Description of the request, for a log."""
        return ASKED[self.kind]

    @property
    def fields(self) -> Fields:
        """Names and sizes of a contribution; the same for every vehicle."""
        if self.kind in IN_TRIP:
            return IN_TRIP[self.kind]
        each = OF_A_TARGET[self.kind]
        return {f"{target}.{name}": own for target in TARGETS for name, own in each.items()}

    def answer(self, pupil: Pupil) -> dict[str, FloatArray]:
        """Return a vehicle's contribution."""
        if self.kind in IN_TRIP:
            moments = pupil.moments(self.effects)
            noise = self.effects["energy"].noise
            if self.kind == "correction":
                return moments.sums(self.correction)
            return moments.counts(self.correction, noise)
        found: dict[str, FloatArray] = {}
        for target in TARGETS:
            fleet = self.effects.get(target)
            if fleet is not None and self.kind == "errors":
                own = evaluated(pupil.lessons, target, fleet, self.equations[target])
            else:
                own = pupil.lessons.inside.answer(target, fleet)
            found |= {f"{target}.{name}": values for name, values in own.items()}
        return found

    def by_target(self, total: Mapping[str, FloatArray]) -> dict[str, dict[str, FloatArray]]:
        """Return a total of answers, taken apart by target."""
        names = OF_A_TARGET[self.kind]
        return {target: {name: total[f"{target}.{name}"] for name in names} for target in TARGETS}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of a message about it."""
        found: dict[str, NDArray[Any]] = {
            f"{target}.effects": _packed(own) for target, own in self.effects.items()
        }
        for target, (matrix, right) in self.equations.items():
            found |= {f"{target}.matrix": matrix.ravel(), f"{target}.right": right}
        return found | ({"correction": self.correction} if len(self.correction) else {})

    @classmethod
    def read(cls, kind: str, arrays: Arrays) -> "RouteRequest":
        """Return the question that a message holds; DataError if it holds none."""
        if kind not in ASKED:
            raise DataError("the question does not say what of routes it asks for")
        if kind == "units":
            return cls(kind)
        effects = {target: _effects(_numbers(arrays, f"{target}.effects")) for target in TARGETS}
        if kind == "errors":
            equations = {
                target: (
                    _numbers(arrays, f"{target}.matrix", COLUMNS**2).reshape(COLUMNS, COLUMNS),
                    _numbers(arrays, f"{target}.right", COLUMNS),
                )
                for target in TARGETS
            }
            return cls(kind, effects, equations)
        if kind in IN_TRIP:
            return cls(kind, effects, correction=_numbers(arrays, "correction", 3))
        return cls(kind, effects)


def _packed(fleet: FleetEffects) -> FloatArray:
    """Return unit, mean, spread and noise in one row, [3 · 17 + 1]."""
    return np.concatenate([fleet.unit, fleet.mean, fleet.spread, [fleet.noise]])


def _effects(packed: FloatArray) -> FleetEffects:
    """Return the effects that `_packed` stored; raise DataError if no fleet can have them."""
    unit, mean, spread = packed[:-1].reshape(3, COLUMNS)
    if unit.min() <= 0 or spread.min() <= 0 or packed[-1] < 0:
        raise DataError("the question holds coefficients that cannot be")
    return FleetEffects(unit, mean, spread, float(packed[-1]))


def _numbers(arrays: Arrays, name: str, size: int = 3 * COLUMNS + 1) -> FloatArray:
    found: FloatArray = array_of(arrays, name, np.float64)
    if len(found) != size or not np.isfinite(found).all():
        raise DataError(f"the question's '{name}' is not {size} finite numbers")
    return found
