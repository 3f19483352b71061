"""Learn what a fleet knows about routes where only totals over vehicles can be seen.

1. How the fleet drives each place and heading (`driving_exchange`); every vehicle is given that.
2. Coefficients of energy and of duration (`mixed_effects`), together in thirteen exchanges.
3. How far off they were (`route_intervals`), counted once.
4. How a route under way is corrected (`in_trip`), in three exchanges, and how far off it still
   is, counted once.

The steps are the same for a simulation and for a real fleet; what differs is who is asked.

Requests to vehicles about routes once they have the fleet's driving, and their contributions.

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
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from fedwatt.elevation.elevation_map import ElevationMap, array_of, map_from_arrays, map_to_arrays
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError, RunError
from fedwatt.journeys.driving_exchange import learn_driving
from fedwatt.journeys.driving_field import SUMS, DrivingSums, RoadClasses, on_board, published
from fedwatt.journeys.fleet_routes import (
    JUDGED,
    FleetRoutes,
    Lessons,
    VehicleRoutes,
    evaluated,
    own_coefficients,
)
from fedwatt.journeys.in_trip import (
    CORRECTION_FIELDS,
    COUNT_FIELDS,
    REWEIGHTINGS,
    USUAL,
    Moments,
    corrected,
    narrower_intervals,
)
from fedwatt.journeys.mixed_effects import (
    Fitted,
    FleetEffects,
    fit,
    own_effects,
    sum_fields,
    unit_fields,
)
from fedwatt.journeys.route_intervals import BINS, MIDDLES_KM
from fedwatt.journeys.route_model import NAMES, TARGETS
from fedwatt.metrics.sums import AddUp, Contribution, Fields, Total, in_process, plainly
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
    hills: ElevationMap | None
    least: int
    roads: RoadClasses | None = None

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of a message with it."""
        driving = self.driving
        cells = {"keys": driving.keys, "sums": driving.sums.ravel(), "vehicles": driving.vehicles}
        return cells if self.hills is None else cells | map_to_arrays(self.hills, HILLS)

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
        hills = map_from_arrays(arrays, grid, HILLS) if f"{HILLS}keys" in arrays else None
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
        effects_bytes = b"".join(_packed(effects[target]).tobytes() for target in TARGETS)
        if self._moments is None or self._moments[0] != effects_bytes:
            learnable = self.lessons.inside
            board = self.board
            beta = {
                target: own_coefficients(
                    fleet, own_effects(fleet, learnable.of(target)), target, board.mass_kg
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
            self._moments = effects_bytes, board.in_trip(driven, beta)
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
            {target: target_fit.effects for target, target_fit in fitted.items()},
            {
                target: (target_fit.matrix, target_fit.right)
                for target, target_fit in fitted.items()
            },
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
        return {f"{target}.{name}": size for target in TARGETS for name, size in each.items()}

    def answer(self, pupil: Pupil) -> dict[str, FloatArray]:
        """Return a vehicle's contribution."""
        if self.kind in IN_TRIP:
            moments = pupil.moments(self.effects)
            noise = self.effects["energy"].noise
            if self.kind == "correction":
                return moments.sums(self.correction)
            return moments.counts(self.correction, noise)
        contribution: dict[str, FloatArray] = {}
        for target in TARGETS:
            fleet = self.effects.get(target)
            if fleet is not None and self.kind == "errors":
                target_sums = evaluated(pupil.lessons, target, fleet, self.equations[target])
            else:
                target_sums = pupil.lessons.inside.answer(target, fleet)
            contribution |= {f"{target}.{name}": values for name, values in target_sums.items()}
        return contribution

    def by_target(self, total: Mapping[str, FloatArray]) -> dict[str, dict[str, FloatArray]]:
        """Return a total of answers, taken apart by target."""
        names = OF_A_TARGET[self.kind]
        return {target: {name: total[f"{target}.{name}"] for name in names} for target in TARGETS}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """Arrays of a message about it."""
        message: dict[str, NDArray[Any]] = {
            f"{target}.effects": _packed(effects) for target, effects in self.effects.items()
        }
        for target, (matrix, right) in self.equations.items():
            message |= {f"{target}.matrix": matrix.ravel(), f"{target}.right": right}
        return message | ({"correction": self.correction} if len(self.correction) else {})

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
    numbers: FloatArray = array_of(arrays, name, np.float64)
    if len(numbers) != size or not np.isfinite(numbers).all():
        raise DataError(f"the question's '{name}' is not {size} finite numbers")
    return numbers


SPREADS = {"energy": 5.0, "duration": 2.0}
"""τ to begin with, in Wh or seconds a km of σ, for columns of size 1."""

DISTANCE = NAMES.index("distance")


class TooFewTeach(DataError):
    """Fewer vehicles have trips with positions than must share a place."""

    def __init__(self, vehicles: int, least: int) -> None:
        super().__init__(
            f"{vehicles} vehicles have trips with positions to learn from, and at least {least} "
            "are needed to share how a fleet drives. Held-out vehicles do not train."
        )


class Pupils(Protocol):
    """Vehicles that teach a fleet its routes."""

    def share(self, shared: SharedDriving, present: frozenset[str]) -> frozenset[str]:
        """Give the driving field to the vehicles named; those that have it."""

    def total(self, question: RouteRequest, present: frozenset[str]) -> Total:
        """Return the totals of a question over the vehicles named, and whose answers are in
        them.
        """


def fewest_teachers(settings: ElevationSettings) -> int:
    """Vehicles without which nothing is shared."""
    return max(2, settings.minimum_vehicles)


def learn_from_pupils(
    pupils: Pupils,
    driving: DrivingSums,
    insiders: frozenset[str],
    settings: ElevationSettings,
    hills: ElevationMap | None,
    roads: RoadClasses | None = None,
) -> FleetRoutes:
    """Return everything that follows once it is known how the `insiders` drive; `hills` are the
    published ones.

    TooFewTeach where fewer than k of them have trips of a length that teaches.
    """
    least = settings.minimum_vehicles
    elevation = None if hills is None else hills.only(hills.vehicles > least)
    shared = SharedDriving(driving, elevation, least, roads)
    asking = _Asking(pupils, pupils.share(shared, insiders), fewest_teachers(settings))
    fitted = fit(asking.sums, COLUMNS, SPREADS)
    effects = {target: target_fit.effects for target, target_fit in fitted.items()}
    errors = RouteRequest.about_errors(fitted)
    counts = errors.by_target(asking.total(errors))
    correction = np.array(USUAL)
    for _ in range(REWEIGHTINGS):
        question = RouteRequest("correction", effects, correction=correction)
        correction = corrected(asking.total(question))
    last = RouteRequest("under way", effects, correction=correction)
    return FleetRoutes(
        Grid(cell_m=settings.cell_m),
        driving,
        effects,
        counts,
        correction,
        narrower_intervals(asking.total(last)),
        asking.teachers,
        insiders,
        asking.wh_per_km,
        hills,
        roads,
    )


@dataclass
class _Asking:
    """State of an exchange: present vehicles, teaching vehicles, and their trips' totals."""

    pupils: Pupils
    present: frozenset[str]
    least: int
    teachers: int = 0
    wh_per_km: float = 0.0

    def total(self, question: RouteRequest) -> Contribution:
        """Over those that are there; from now on only those in it are."""
        total, self.present = self.pupils.total(question, self.present)
        if len(self.present) < self.least:
            raise RunError(
                f"{len(self.present)} vehicles are in a sum for routes, and {self.least} are "
                "needed."
            )
        return total

    def sums(self, effects: Mapping[str, FleetEffects]) -> dict[str, dict[str, FloatArray]]:
        """Return sums for coefficients by target, given what is known of them; at first sizes."""
        question = RouteRequest("effects" if effects else "units", effects)
        sums_by_target = question.by_target(self.total(question))
        # Vehicles that drop out later have taught as well.
        taught = round(float(sums_by_target["energy"]["vehicles"][0]))
        self.teachers = max(self.teachers, taught)
        if taught < self.least:
            raise TooFewTeach(taught, self.least)
        if not effects:
            # Features of energy are in proportion to mass, so this is that of the reference mass.
            energy = sums_by_target["energy"]
            self.wh_per_km = float(energy["total"][0] / energy["columns"][DISTANCE])
        return sums_by_target


@dataclass
class SimulatedPupils:
    """Vehicles of a simulation, whose answers `add` adds up."""

    boards: Mapping[str, VehicleRoutes]
    add: AddUp
    pupils: dict[str, Pupil] = field(default_factory=dict)

    def share(self, shared: SharedDriving, present: frozenset[str]) -> frozenset[str]:
        """All of them have the driving field."""
        self.pupils = {name: Pupil(self.boards[name], shared) for name in present}
        return present

    def total(self, question: RouteRequest, present: frozenset[str]) -> Total:
        """Return the total over all of them."""
        return in_process(self.add, self.pupils)(question, present)


def learn_routes(
    boards: Mapping[str, VehicleRoutes],
    settings: ElevationSettings,
    *,
    add_up: AddUp | None = None,
    hills: ElevationMap | None = None,
    roads: RoadClasses | None = None,
) -> FleetRoutes:
    """Return the routes that a simulated fleet learns; `hills` are those that it publishes.

    With `roads` it also knows ground that it has not driven, by the shape of the road.

    `add_up` adds answers as a secure sum does, over `settings.area`; without it cells are added as
    they are.
    """
    teachers = sum(bool(board.taught) for board in boards.values())
    if teachers < fewest_teachers(settings):
        raise TooFewTeach(teachers, fewest_teachers(settings))
    sums = {name: board.sums for name, board in boards.items()}
    everyone = frozenset(boards)
    if add_up is None and not settings.noise_multiplier:
        driving = published(list(sums.values()), settings.minimum_vehicles)
    else:
        driving, _ = learn_driving(in_process(add_up or plainly, sums), everyone, settings)
    pupils = SimulatedPupils(boards, add_up or plainly)
    return learn_from_pupils(pupils, driving, everyone, settings, hills, roads)
