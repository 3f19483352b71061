"""Learn what a fleet knows about routes where only totals over vehicles can be seen.

1. How the fleet drives each place and heading (`driving_exchange`); every vehicle is given that.
2. Coefficients of energy and of duration (`mixed_effects`), together in thirteen exchanges.
3. How far off they were (`route_intervals`), counted once.

The steps are the same for a simulation and for a deployed fleet, which differ in the object that
adds contributions (`RouteContributors`). Requests to vehicles that have the fleet's driving:

    units     sizes of the columns of features, and the number of vehicles with trips
    effects   sums for the coefficients of energy and of duration (`mixed_effects`)
    errors    errors of these coefficients, counted in bins (`route_intervals`)

A contribution has the same length for all vehicles, so that its length reveals nothing under secure
aggregation. In a message, a request is a set of named arrays (`arrays`, `read`).
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
from fedwatt.journeys.driving_field import SUMS, DrivingSums, RoadClasses, published
from fedwatt.journeys.fleet_routes import (
    CIRCUMSTANCES,
    FleetRoutes,
    SampleSets,
    VehicleRoutes,
    evaluated,
)
from fedwatt.journeys.mixed_effects import (
    Fitted,
    FleetEffects,
    fit,
    sum_fields,
    unit_fields,
)
from fedwatt.journeys.route_intervals import BINS, MIDDLES_KM
from fedwatt.journeys.route_model import NAMES, TARGETS
from fedwatt.metrics.sums import AddUp, Contribution, Fields, Total, floating_total, in_process
from fedwatt.telemetry.trip import FloatArray

ROUTE_SUMS = ("units", "effects", "errors")
"""Kinds of requests, in the order in which they are sent."""
COLUMNS = len(NAMES)
MOST_TRIPS = 2.0**24
OF_A_TARGET: Final[dict[str, Fields]] = {
    "units": unit_fields(COLUMNS),
    "effects": sum_fields(COLUMNS),
    "errors": {name: (len(MIDDLES_KM) * BINS, MOST_TRIPS) for name in CIRCUMSTANCES},
}
"""What an answer holds of each target."""
MAP_PREFIX = "elevation."
"""Prefix of the arrays of elevations in a message with the driving field."""
Arrays = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class SharedDriving:
    """The fleet's driving that every vehicle receives before it contributes to routes.

    driving     the cells that at least k vehicles drive
    elevations  those published that more than k vehicles drive; None: there are none
    least       k
    roads       sums by class of road; in simulations only, because messages leave them out
    """

    driving: DrivingSums
    elevations: ElevationMap | None
    least: int
    roads: RoadClasses | None = None

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The values by name, as a message holds them."""
        driving = self.driving
        cells = {"keys": driving.keys, "sums": driving.sums.ravel(), "vehicles": driving.vehicles}
        return (
            cells if self.elevations is None else cells | map_to_arrays(self.elevations, MAP_PREFIX)
        )

    @cached_property
    def digest(self) -> str:
        """Digest of the arrays, 32 hexadecimal digits."""
        digest = sha256()
        for name, array in sorted(self.arrays.items()):
            digest.update(name.encode() + np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()[:32]

    @classmethod
    def read(cls, arrays: Arrays, grid: Grid, least: int) -> "SharedDriving":
        """Return the driving field in a message; refuse places of fewer than `least` vehicles."""
        keys, vehicles = (array_of(arrays, name, np.int64) for name in ("keys", "vehicles"))
        sums = array_of(arrays, "sums", np.float64)
        same = len(sums) == len(SUMS) * len(keys) and len(vehicles) == len(keys)
        if not same or not np.isfinite(sums).all() or (np.diff(keys) <= 0).any():
            raise DataError("the request holds no driving field")
        if vehicles.min(initial=least) < least:
            raise DataError(f"the request holds places that fewer than {least} vehicles drive")
        elevations = (
            map_from_arrays(arrays, grid, MAP_PREFIX) if f"{MAP_PREFIX}keys" in arrays else None
        )
        return cls(DrivingSums(keys, sums.reshape(-1, len(SUMS)), vehicles), elevations, least)


@dataclass(eq=False)
class RouteContributor:
    """A vehicle with the fleet's driving field; it uploads only its contributions."""

    vehicle_routes: VehicleRoutes
    shared: SharedDriving

    @cached_property
    def sample_sets(self) -> SampleSets:
        """Return the sums of all passes of the vehicle, from which routes are learned."""
        return self.vehicle_routes.sample_sets(
            self.shared.driving, self.shared.elevations, self.shared.least, self.shared.roads
        )


@dataclass(frozen=True, eq=False)
class RouteRequest:
    """A request for a sum, one of `ROUTE_SUMS`, given the fleet's effects by target.

    effects     the coefficients so far; empty for "units"
    equations   the equations of the coefficients, for "errors": matrix [17, 17], right side [17]
    """

    kind: str
    effects: Mapping[str, FleetEffects] = field(default_factory=dict)
    equations: Mapping[str, tuple[FloatArray, FloatArray]] = field(default_factory=dict)

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
    def fields(self) -> Fields:
        """Names and sizes of a contribution; the same for every vehicle."""
        each = OF_A_TARGET[self.kind]
        return {f"{target}.{name}": size for target in TARGETS for name, size in each.items()}

    def answer(self, contributor: RouteContributor) -> dict[str, FloatArray]:
        """Return a vehicle's contribution."""
        contribution: dict[str, FloatArray] = {}
        for target in TARGETS:
            fleet = self.effects.get(target)
            if fleet is not None and self.kind == "errors":
                target_sums = evaluated(
                    contributor.sample_sets, target, fleet, self.equations[target]
                )
            else:
                target_sums = contributor.sample_sets.inside.answer(target, fleet)
            contribution |= {f"{target}.{name}": values for name, values in target_sums.items()}
        return contribution

    def by_target(self, total: Mapping[str, FloatArray]) -> dict[str, dict[str, FloatArray]]:
        """Return totals by target."""
        names = OF_A_TARGET[self.kind]
        return {target: {name: total[f"{target}.{name}"] for name in names} for target in TARGETS}

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The values by name, as a message holds them."""
        message: dict[str, NDArray[Any]] = {
            f"{target}.effects": _packed(effects) for target, effects in self.effects.items()
        }
        for target, (matrix, right) in self.equations.items():
            message |= {f"{target}.matrix": matrix.ravel(), f"{target}.right": right}
        return message

    @classmethod
    def read(cls, kind: str, arrays: Arrays) -> "RouteRequest":
        """Return the request that a message holds; DataError if it holds none."""
        if kind not in ROUTE_SUMS:
            raise DataError("the request does not say what of routes it asks for")
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
        return cls(kind, effects)


def _packed(fleet: FleetEffects) -> FloatArray:
    """Return unit, mean, spread and noise in one row, [3 · 17 + 1]."""
    return np.concatenate([fleet.unit, fleet.mean, fleet.spread, [fleet.noise]])


def _effects(packed: FloatArray) -> FleetEffects:
    """Return the effects that `_packed` stored; raise DataError if no fleet can have them."""
    unit, mean, spread = packed[:-1].reshape(3, COLUMNS)
    if unit.min() <= 0 or spread.min() <= 0 or packed[-1] < 0:
        raise DataError("the request holds coefficients that cannot be")
    return FleetEffects(unit, mean, spread, float(packed[-1]))


def _numbers(arrays: Arrays, name: str, size: int = 3 * COLUMNS + 1) -> FloatArray:
    numbers: FloatArray = array_of(arrays, name, np.float64)
    if len(numbers) != size or not np.isfinite(numbers).all():
        raise DataError(f"the request's '{name}' is not {size} finite numbers")
    return numbers


SPREADS = {"energy": 5.0, "duration": 2.0}
"""τ to begin with, in Wh or seconds a km of σ, for columns of size 1."""

DISTANCE = NAMES.index("distance")


class TooFewContributors(DataError):
    """Fewer vehicles have trips with positions than must share a place."""

    def __init__(self, vehicles: int, least: int) -> None:
        super().__init__(
            f"{vehicles} vehicles have trips with positions to learn from, and at least {least} "
            "are needed to share how a fleet drives. Held-out vehicles do not train."
        )


class RouteContributors(Protocol):
    """Vehicles from whose passes a fleet learns routes."""

    def share(self, shared: SharedDriving, present: frozenset[str]) -> frozenset[str]:
        """Send the driving field to the vehicles of `present`; return those that received it."""

    def total(self, request: RouteRequest, present: frozenset[str]) -> Total:
        """Return the sums of a request over the vehicles `present`, and who contributed."""


def fewest_contributors(settings: ElevationSettings) -> int:
    """Return the number of vehicles below which nothing is shared."""
    return max(2, settings.minimum_vehicles)


def learn_from_contributors(
    contributors: RouteContributors,
    driving: DrivingSums,
    insiders: frozenset[str],
    settings: ElevationSettings,
    elevations: ElevationMap | None,
    roads: RoadClasses | None = None,
) -> FleetRoutes:
    """Learn coefficients and their errors from the `insiders` of the driving field.

    `elevations` are the published ones. Raise TooFewContributors if fewer than k vehicles
    have trips of at least `SHORTEST_M`.
    """
    least = settings.minimum_vehicles
    elevation = None if elevations is None else elevations.only(elevations.vehicles > least)
    shared = SharedDriving(driving, elevation, least, roads)
    exchange = _RouteExchange(
        contributors, contributors.share(shared, insiders), fewest_contributors(settings)
    )
    fitted = fit(exchange.sums, COLUMNS, SPREADS)
    effects = {target: target_fit.effects for target, target_fit in fitted.items()}
    errors = RouteRequest.about_errors(fitted)
    counts = errors.by_target(exchange.total(errors))
    return FleetRoutes(
        settings.grid,
        driving,
        effects,
        counts,
        exchange.teaching,
        insiders,
        exchange.wh_per_km,
        elevations,
        roads,
    )


@dataclass
class _RouteExchange:
    """State of an exchange: vehicles present, number with trips, and their mean consumption."""

    contributors: RouteContributors
    present: frozenset[str]
    least: int
    teaching: int = 0
    wh_per_km: float = 0.0

    def total(self, request: RouteRequest) -> Contribution:
        """Return the totals over the vehicles present; the others are not asked again."""
        total, self.present = self.contributors.total(request, self.present)
        if len(self.present) < self.least:
            raise RunError(
                f"{len(self.present)} vehicles are in a sum for routes, and {self.least} are "
                "needed."
            )
        return total

    def sums(self, effects: Mapping[str, FleetEffects]) -> dict[str, dict[str, FloatArray]]:
        """Return the sums of "effects" by target; without effects so far, those of "units"."""
        request = RouteRequest("effects" if effects else "units", effects)
        sums_by_target = request.by_target(self.total(request))
        # Vehicles that drop out later count as well.
        teaching = round(float(sums_by_target["energy"]["vehicles"][0]))
        self.teaching = max(self.teaching, teaching)
        if teaching < self.least:
            raise TooFewContributors(teaching, self.least)
        if not effects:
            # Features of energy are in proportion to mass: this is at the reference mass.
            energy = sums_by_target["energy"]
            self.wh_per_km = float(energy["total"][0] / energy["columns"][DISTANCE])
        return sums_by_target


@dataclass
class SimulatedContributors:
    """The contributors of a simulation; `add` adds up what they contribute."""

    routes_by_vehicle: Mapping[str, VehicleRoutes]
    add: AddUp
    contributors: dict[str, RouteContributor] = field(default_factory=dict)

    def share(self, shared: SharedDriving, present: frozenset[str]) -> frozenset[str]:
        """Give the driving field to all vehicles."""
        self.contributors = {
            name: RouteContributor(self.routes_by_vehicle[name], shared) for name in present
        }
        return present

    def total(self, request: RouteRequest, present: frozenset[str]) -> Total:
        """Return the sums of a request over the vehicles `present`, and who contributed."""
        return in_process(self.add, self.contributors)(request, present)


def learn_routes(
    routes_by_vehicle: Mapping[str, VehicleRoutes],
    settings: ElevationSettings,
    *,
    add_up: AddUp | None = None,
    elevations: ElevationMap | None = None,
    roads: RoadClasses | None = None,
) -> FleetRoutes:
    """Return the routes that a simulated fleet learns; `elevations` are its published elevations.

    With `roads`, roads where the fleet has not driven are read by their shape. `add_up` adds
    contributions like secure aggregation, over `settings.area`; None adds cells directly.
    """
    teaching = sum(
        bool(vehicle_routes.long_passes) for vehicle_routes in routes_by_vehicle.values()
    )
    if teaching < fewest_contributors(settings):
        raise TooFewContributors(teaching, fewest_contributors(settings))
    sums = {name: vehicle_routes.sums for name, vehicle_routes in routes_by_vehicle.items()}
    everyone = frozenset(routes_by_vehicle)
    if add_up is None:
        driving = published(list(sums.values()), settings.minimum_vehicles)
    else:
        driving, _ = learn_driving(in_process(add_up, sums), everyone, settings)
    contributors = SimulatedContributors(routes_by_vehicle, add_up or floating_total)
    return learn_from_contributors(contributors, driving, everyone, settings, elevations, roads)
