"""The fleet's route model, and a vehicle's version of it.

How the fleet learns it is in `route_exchange`.

A vehicle's part in learning routes: the passes that it keeps, and the sums that it answers.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import Grid, find
from fedwatt.errors import DataError
from fedwatt.journeys.driving_field import (
    OWN_WEIGHT,
    DrivingField,
    DrivingSums,
    RoadClasses,
    add,
    on_board,
    road_sums,
    trip_sums,
    vehicle_sums,
)
from fedwatt.journeys.in_trip import SHARES, Moments, UnderWay, driven, moments
from fedwatt.journeys.mixed_effects import (
    FleetEffects,
    Observations,
    OwnEffects,
    effect_sums,
    left_out,
    own_effects,
    own_equations,
    solved,
    unit_sums,
)
from fedwatt.journeys.route import Route, outside_c, recorded_route
from fedwatt.journeys.route_intervals import (
    BASE_KM,
    Bars,
    error_counts,
    filled,
    quantiles,
    relative_errors,
    sigma,
    vehicle_quantiles,
    vehicle_sizes,
)
from fedwatt.journeys.route_model import (
    NAMES,
    TARGETS,
    Coefficients,
    RouteModel,
    route_features,
    route_rise_m,
    seconds_along,
)
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip

SHORTEST_M = 500.0
REFERENCE_MASS_KG = 1700.0
USUAL_C = 20.0
"""Outside temperature of a recorded trip that says none: neither cold nor hot to `route_features`,
so nothing is learned about heating from it. A forecast never assumes it."""


@dataclass(frozen=True, eq=False)
class Pass:
    """A recorded trip as a route was driven.

    at_m   metres along the route, [seconds]
    cells  places and headings of the route's steps, [steps]
    sums   what it adds to the driving field
    """

    trip: Trip
    route: Route
    at_m: FloatArray
    cells: IntArray
    sums: DrivingSums

    @cached_property
    def roads(self) -> DrivingSums:
        """Its sums by class of road."""
        return road_sums(self.trip, self.route, self.at_m)

    @property
    def temperature_c(self) -> float:
        """Outside temperature, as a forecast would have it."""
        outside = outside_c(self.trip)
        return USUAL_C if outside is None else outside

    def measured(self, target: str) -> float:
        """Wh, or seconds."""
        if target == "duration":
            return float(self.trip.seconds)
        return float(self.trip.channels["energy_wh"].sum())

    def forecast(self, x: FloatArray, beta: Mapping[str, FloatArray]) -> UnderWay:
        """Return the pass at its start, forecast by features [steps, 17]."""
        energy = x @ beta["energy"]
        seconds = seconds_along(x, beta["duration"])
        return UnderWay(self.route.metres_at, energy, seconds)

    def driven(self, going: UnderWay, share: float) -> UnderWay:
        """Return a forecast of the pass after `share` of its way."""
        spent = np.cumsum(self.trip.channels["energy_wh"])
        return driven(going, self.at_m, spent, self.trip.channels["speed_mps"], share)


def passes(trips: Iterable[Trip], grid: Grid) -> tuple[Pass, ...]:
    """Return the trips whose positions make a route; the others teach nothing about routes."""
    recorded_passes = []
    for trip in trips:
        try:
            route, at_m = recorded_route(trip)
        except DataError:
            continue
        cells = route.cells(grid)
        recorded_passes.append(Pass(trip, route, at_m, cells, trip_sums(trip, route, at_m, cells)))
    return tuple(recorded_passes)


@dataclass(frozen=True, eq=False)
class VehicleRoutes:
    """A vehicle's data for learning routes; only its contributions leave the vehicle."""

    passes: tuple[Pass, ...]
    hills: ElevationMap | None
    mass_kg: float
    grid: Grid

    @cached_property
    def sums(self) -> DrivingSums:
        """All its passes."""
        return vehicle_sums(trip_pass.sums for trip_pass in self.passes)

    @cached_property
    def roads(self) -> DrivingSums:
        """All its passes by class of road."""
        return vehicle_sums(driven.roads for driven in self.passes)

    @cached_property
    def taught(self) -> tuple[Pass, ...]:
        """The passes that are long enough to teach what a route costs."""
        return tuple(trip_pass for trip_pass in self.passes if trip_pass.route.metres >= SHORTEST_M)

    @cached_property
    def rises(self) -> tuple[FloatArray, ...]:
        """Metres that each taught pass gains in each step."""
        return tuple(route_rise_m(trip_pass.route, self.hills)[0] for trip_pass in self.taught)

    def features(
        self, trip_pass: Pass, rise: FloatArray, field: DrivingField, own_weight: float
    ) -> FloatArray:
        """Features of a pass's route, [steps, 17], in a field that has the pass so many times.

        What is read off the field is without the pass.
        """
        rates, _ = field.along(trip_pass.route, trip_pass.sums.times(own_weight))
        return route_features(trip_pass.route, rates, rise, trip_pass.temperature_c)

    def inside(self, field: DrivingField) -> "Learnable":
        """Every pass in a field of `on_board` that has no part of itself, and what was measured."""
        return self._learnable(field, self.rises, OWN_WEIGHT)

    def in_trip(self, field: DrivingField, beta: Mapping[str, FloatArray]) -> Moments:
        """Moments of its passes of 2 km and more, forecast with coefficients by target [17]."""

        def trips() -> Iterator[tuple[UnderWay, float]]:
            for trip_pass, rise in zip(self.taught, self.rises, strict=True):
                if trip_pass.route.metres < BASE_KM * 1000:
                    continue
                x = self.features(trip_pass, rise, field, OWN_WEIGHT)
                for share in SHARES:
                    yield (
                        trip_pass.driven(trip_pass.forecast(x, beta), share),
                        trip_pass.measured("energy"),
                    )

        return moments(trips())

    def lessons(
        self,
        shared: DrivingSums,
        hills: ElevationMap | None,
        least: int,
        roads: RoadClasses | None = None,
    ) -> "Lessons":
        """Return everything that the vehicle's passes teach, once driving field and hills are
        shared.

        `hills` are the published ones that more than k vehicles drive, and `least` is k: where no
        more than k drive, an unseen vehicle in the place of this vehicle would find nothing.
        """
        field = on_board(shared, self.sums, self.grid, contributed=True, roads=roads)
        without_vehicle, usual = (
            DrivingField(self.grid, source, roads)
            for source in (_without(shared, self.sums, least), _nowhere(shared))
        )
        shared_rises, level = (
            [route_rise_m(trip_pass.route, source)[0] for trip_pass in self.taught]
            for source in (hills, None)
        )
        return Lessons(
            self.inside(field),
            self._learnable(without_vehicle, shared_rises, 0.0),
            self._learnable(usual, level, 0.0),
        )

    def _learnable(
        self, field: DrivingField, rises: Iterable[FloatArray], own_weight: float
    ) -> "Learnable":
        """Every pass in a field that has it `own_weight` times."""
        rows = [
            self.features(trip_pass, rise, field, own_weight)[-1]
            for trip_pass, rise in zip(self.taught, rises, strict=True)
        ]
        x = np.array(rows).reshape(len(self.taught), len(NAMES))
        metres = np.array([trip_pass.route.metres for trip_pass in self.taught])
        measured = {
            name: np.array(
                [trip_pass.measured(name) for trip_pass in self.taught], dtype=np.float64
            )
            for name in TARGETS
        }
        return Learnable(x, metres, measured, self.mass_kg)


def _without(shared: DrivingSums, driving: DrivingSums, least: int) -> DrivingSums:
    """Return the shared sums as they would be if a vehicle had not contributed its own.

    Cells that fewer than k others drive are not published then. They count no more than as the
    fleet's usual driving, which is what is known where no cell is.
    """
    driving = driving.within(shared.keys)
    at, _ = find(shared.keys, driving.keys)
    sums = shared.sums.copy()
    vehicles = shared.vehicles.copy()
    sums[at] = np.maximum(sums[at] - driving.sums, 0.0)
    vehicles[at] -= 1
    left = DrivingSums(shared.keys, sums, vehicles)
    return add([_nowhere(left.only(vehicles < least)), left.only(vehicles >= least)])


def _nowhere(shared: DrivingSums) -> DrivingSums:
    """Return the shared sums in one cell that no route passes."""
    total = shared.sums.sum(axis=0, keepdims=True)
    return DrivingSums(np.array([-8], dtype=np.int64), total, np.ones(1, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Learnable:
    """Features [trips, 17], lengths [trips] and measurements by target [trips] of a vehicle."""

    x: FloatArray
    metres: FloatArray
    measured: Mapping[str, FloatArray]
    mass_kg: float

    def of(self, target: str) -> Observations:
        """Return the observations from which the mixed effects of a target are learned."""
        x = self.x * mass_factor(target, self.mass_kg)
        return Observations(x, self.measured[target], sigma(self.metres))

    def answer(self, target: str, fleet: FleetEffects | None) -> dict[str, FloatArray]:
        """Return the vehicle's sums for a fit; None asks for the sizes of columns."""
        trips = self.of(target)
        return unit_sums(trips) if fleet is None else effect_sums(fleet, trips)


def mass_factor(target: str, mass_kg: float) -> float:
    """Return the factor of the features: energy grows about in proportion to mass.

    It does from small cars to buses, and is the best guess for a vehicle that has driven nothing
    yet; a vehicle's own part makes up for what is not so. Time does not depend on mass.
    """
    return mass_kg / REFERENCE_MASS_KG if target == "energy" else 1.0


@dataclass(frozen=True, eq=False)
class Lessons:
    """A vehicle's passes in three circumstances.

    inside  in the fleet's field and its own, without the pass itself
    new     in the field of the others, which has no pass of the vehicle, and in published hills
            where at least k others drive; there its own energy is one share in k + 1 or fewer
    lost    with no field but the classes of roads, or the fleet's usual driving, and no hills
    """

    inside: Learnable
    new: Learnable
    lost: Learnable


def evaluated(
    lessons: Lessons, target: str, fleet: FleetEffects, equations: tuple[FloatArray, FloatArray]
) -> dict[str, FloatArray]:
    """Return counts of a vehicle's errors: as an insider, as an unseen vehicle, and on unknown
    ground.

    `equations` are the fleet's for β₀; without the vehicle's own part they give the β₀ that it
    would meet as an unseen vehicle. An insider's trip is evaluated by that β₀, too, and by what
    the vehicle's other trips teach: in a small fleet, β₀ that has seen a trip knows it by heart.
    (b, τ and hills have seen it all the same.)
    """
    trips, new, lost = (
        learnable.of(target) for learnable in (lessons.inside, lessons.new, lessons.lost)
    )
    a, right = own_equations(fleet, own_effects(fleet, trips), trips)
    other_vehicles = replace(fleet, mean=solved(equations[0] - a, equations[1] - right))
    without = left_out(other_vehicles, trips)
    predicted = {
        "insider": (trips, without),
        "unseen_vehicle": (new, other_vehicles.mean),
        "unknown": (lost, without),
    }
    kilometres = lessons.inside.metres / 1000
    errors = {name: _errors(fleet, *target_values) for name, target_values in predicted.items()}
    errors["insider"] = errors["insider"] / vehicle_sizes(errors["insider"])
    return {name: error_counts(target_values, kilometres) for name, target_values in errors.items()}


def left_out_errors(fleet: FleetEffects, trips: Observations) -> FloatArray:
    """Relative errors [trips] of a vehicle's own trips as if each had not taught its part."""
    return _errors(fleet, trips, left_out(fleet, trips))


def _errors(fleet: FleetEffects, trips: Observations, beta: FloatArray) -> FloatArray:
    """Relative errors [trips] of coefficients for columns x / unit, [p] or [trips, p]."""
    return relative_errors(trips.y, (trips.x / fleet.unit * beta).sum(axis=1), fleet.noise)


JUDGED = ("insider", "unseen_vehicle", "unknown")


@dataclass(frozen=True, eq=False)
class FleetRoutes:
    """The server's result, which every vehicle receives.

    driving     the cells that at least k vehicles drive
    effects     coefficients by target
    counts      errors by target and circumstance (`JUDGED`), counted in bins
    correction  κ, q and c of `in_trip`
    narrower    what is left of the width of error bars at shares of the way (`in_trip`), [4]
    vehicles    how many taught the coefficients
    insiders    names of those whose passes are in `driving`
    wh_per_km   what their trips took in the mean, per km and in proportion to the reference mass
    hills       the elevations that the fleet publishes, for unseen vehicles; None: it has none
    roads       how the fleet drives classes of roads, for ground that it has not driven
    """

    grid: Grid
    driving: DrivingSums
    effects: Mapping[str, FleetEffects]
    counts: Mapping[str, Mapping[str, FloatArray]]
    correction: FloatArray
    narrower: FloatArray
    vehicles: int
    insiders: frozenset[str]
    wh_per_km: float
    hills: ElevationMap | None = None
    roads: RoadClasses | None = None

    def unseen_vehicle(self, mass_kg: float, consumption: float | None = None) -> RouteModel:
        """Return the model of a vehicle with no trips of its own: the fleet's coefficients, its
        mass.

        `consumption` is what it is known to take in the mean, Wh/km, as its display shows it: its
        coefficients of energy are then the fleet's times consumption / (the fleet's at its mass).
        """
        nothing = VehicleRoutes((), self.hills, mass_kg, self.grid)
        model = self.personalised(nothing, "", contributed=False)
        if consumption is None:
            return model
        usual = self.wh_per_km * mass_factor("energy", mass_kg)
        energy = model.coefficients["energy"].times(consumption / usual)
        return replace(model, coefficients={**model.coefficients, "energy": energy})

    def personalised(
        self,
        board: VehicleRoutes,
        name: str,
        *,
        contributed: bool = True,
        capacity_wh: float = 0.0,
    ) -> RouteModel:
        """Return a vehicle's own model; `contributed` says whether its passes are in the
        fleet's.
        """
        field = on_board(
            self.driving, board.sums, board.grid, contributed=contributed, roads=self.roads
        )
        learnable = board.inside(field)
        parts = {target: self._personal(target, learnable, contributed) for target in TARGETS}
        return RouteModel(
            vehicle=name,
            trips=len(learnable.metres),
            fleet_vehicles=self.vehicles,
            mass_kg=board.mass_kg,
            capacity_wh=capacity_wh,
            field=field,
            coefficients={target: coefficients for target, (coefficients, _) in parts.items()},
            bars={target: bars for target, (_, bars) in parts.items()},
            correction=self.correction,
            narrower=self.narrower,
            hills=board.hills,
        )

    def _personal(
        self, target: str, learnable: Learnable, contributed: bool
    ) -> tuple[Coefficients, Bars]:
        fleet = self.effects[target]
        counts = self.counts[target]
        trips = learnable.of(target)
        mine = own_effects(fleet, trips)
        errors = left_out_errors(fleet, trips)
        divided = error_counts(errors / vehicle_sizes(errors), learnable.metres / 1000)
        # A fleet of very few trips does not know how far off it is: as far as for unseen vehicles.
        insider = filled(counts["insider"], counts["unseen_vehicle"])
        other_vehicles = np.maximum(insider - divided, 0.0) if contributed else insider
        bars = Bars(
            vehicle_quantiles(other_vehicles, counts["unseen_vehicle"], errors, member=contributed),
            quantiles(insider),
            quantiles(counts["unknown"]),
            np.array(fleet.noise),
        )
        return own_coefficients(fleet, mine, target, learnable.mass_kg), bars


def own_coefficients(
    fleet: FleetEffects, effects: OwnEffects, target: str, mass_kg: float
) -> Coefficients:
    """Return the coefficients of a vehicle of this mass: (β₀ + β_v) s_v, [17]."""
    beta = (fleet.mean + effects.beta) * effects.scale / fleet.unit
    return Coefficients(beta * mass_factor(target, mass_kg), effects.scale)
