"""The fleet's route model, a vehicle's version of it, and the data of a vehicle's contributions.

`route_exchange` has the steps in which a fleet learns the model.
"""

from collections.abc import Iterable, Mapping
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
    road_classes,
    trip_sums,
    vehicle_field,
    vehicle_sums,
)
from fedwatt.journeys.mixed_effects import (
    FleetEffects,
    Observations,
    effect_sums,
    left_out,
    solved,
    unit_sums,
    vehicle_effects,
    vehicle_equations,
)
from fedwatt.journeys.route import Route, outside_c, recorded_route
from fedwatt.journeys.route_intervals import (
    Bars,
    error_counts,
    filled,
    quantiles,
    relative_errors,
    sigma,
    vehicle_size,
    vehicle_sizes,
)
from fedwatt.journeys.route_model import (
    NAMES,
    TARGETS,
    Coefficients,
    RouteModel,
    route_features,
    route_rise_m,
)
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip

SHORTEST_M = 500.0
REFERENCE_MASS_KG = 1700.0
USUAL_C = 20.0
"""Outside temperature of a recorded trip without one. Neither cold nor hot to `route_features`, so
the trip does not change what is learned about heating. A forecast never assumes it."""


@dataclass(frozen=True, eq=False)
class Pass:
    """A recorded trip with its route.

    at_m   metres along the route, [seconds]
    cells  places and headings of the route's steps, [steps]
    sums   the trip's contribution to the driving field
    """

    trip: Trip
    route: Route
    at_m: FloatArray
    cells: IntArray
    sums: DrivingSums

    @cached_property
    def roads(self) -> DrivingSums:
        """The trip's sums by class of road."""
        return trip_sums(self.trip, self.route, self.at_m, road_classes(self.route))

    @property
    def temperature_c(self) -> float:
        """Outside temperature; `USUAL_C` where none was recorded."""
        outside = outside_c(self.trip)
        return USUAL_C if outside is None else outside

    def measured(self, target: str) -> float:
        """Return the measured energy, Wh, or duration, s."""
        if target == "duration":
            return float(self.trip.seconds)
        return float(self.trip.channels["energy_wh"].sum())


def passes(trips: Iterable[Trip], grid: Grid) -> tuple[Pass, ...]:
    """Return the trips whose positions make a route."""
    recorded_passes = []
    for trip in trips:
        try:
            route, at_m = recorded_route(trip)
        except DataError:
            continue
        # Coefficients are learned with the climb of the map, which every vehicle reads.
        route = replace(route, elevation_m=None)
        cells = route.cells(grid)
        recorded_passes.append(Pass(trip, route, at_m, cells, trip_sums(trip, route, at_m, cells)))
    return tuple(recorded_passes)


@dataclass(frozen=True, eq=False)
class VehicleRoutes:
    """A vehicle's data for learning routes; only its contributions leave the vehicle."""

    passes: tuple[Pass, ...]
    elevations: ElevationMap | None
    mass_kg: float
    grid: Grid

    @cached_property
    def sums(self) -> DrivingSums:
        """Sums of all passes by cell."""
        return vehicle_sums(trip_pass.sums for trip_pass in self.passes)

    @cached_property
    def roads(self) -> DrivingSums:
        """Sums of all passes by class of road."""
        return vehicle_sums(trip_pass.roads for trip_pass in self.passes)

    @cached_property
    def long_passes(self) -> tuple[Pass, ...]:
        """The passes of at least `SHORTEST_M`, from which coefficients are learned."""
        return tuple(trip_pass for trip_pass in self.passes if trip_pass.route.metres >= SHORTEST_M)

    @cached_property
    def rises(self) -> tuple[FloatArray, ...]:
        """Metres gained in each step of each long pass."""
        return tuple(
            route_rise_m(trip_pass.route, self.elevations)[0] for trip_pass in self.long_passes
        )

    def features(
        self, trip_pass: Pass, rise: FloatArray, field: DrivingField, own_weight: float
    ) -> FloatArray:
        """Return the features of a pass's route, [steps, 17].

        The field contains the pass `own_weight` times; it is subtracted before the field is read.
        """
        rates, _ = field.along(trip_pass.route, trip_pass.sums.times(own_weight))
        return route_features(trip_pass.route, rates, rise, trip_pass.temperature_c)

    def inside(self, field: DrivingField) -> "RouteSamples":
        """Return all long passes, each in the field of `vehicle_field` without the pass itself."""
        return self._samples(field, self.rises, OWN_WEIGHT)

    def sample_sets(
        self,
        shared: DrivingSums,
        elevations: ElevationMap | None,
        least: int,
        roads: RoadClasses | None = None,
    ) -> "SampleSets":
        """Return the vehicle's passes in three circumstances, given shared driving and elevation.

        `elevations` are the published ones that more than k vehicles drive, `least` is k: where
        only k drive, nothing would be published without this vehicle.
        """
        field = vehicle_field(shared, self.sums, self.grid, contributed=True, roads=roads)
        without_vehicle, usual = (
            DrivingField(self.grid, source, roads)
            for source in (_without(shared, self.sums, least), _nowhere(shared))
        )
        shared_rises, level = (
            [route_rise_m(trip_pass.route, source)[0] for trip_pass in self.long_passes]
            for source in (elevations, None)
        )
        return SampleSets(
            self.inside(field),
            self._samples(without_vehicle, shared_rises, 0.0),
            self._samples(usual, level, 0.0),
        )

    def _samples(
        self, field: DrivingField, rises: Iterable[FloatArray], own_weight: float
    ) -> "RouteSamples":
        """Return all long passes in a field that contains each of them `own_weight` times."""
        rows = [
            self.features(trip_pass, rise, field, own_weight)[-1]
            for trip_pass, rise in zip(self.long_passes, rises, strict=True)
        ]
        x = np.array(rows).reshape(len(self.long_passes), len(NAMES))
        metres = np.array([trip_pass.route.metres for trip_pass in self.long_passes])
        measured = {
            name: np.array(
                [trip_pass.measured(name) for trip_pass in self.long_passes], dtype=np.float64
            )
            for name in TARGETS
        }
        return RouteSamples(x, metres, measured, self.mass_kg)


def _without(shared: DrivingSums, driving: DrivingSums, least: int) -> DrivingSums:
    """Return the shared sums as they would be if a vehicle had not contributed its own.

    Cells that fewer than k other vehicles drive would not be published. They count only in the
    fleet's average driving, which is used where no cell is published.
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
class RouteSamples:
    """A vehicle's features [trips, 17], lengths [trips] and measurements by target [trips]."""

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

    This holds from small cars to buses and is the best guess for a vehicle without trips; the
    vehicle's own part corrects the rest. Time does not depend on mass.
    """
    return mass_kg / REFERENCE_MASS_KG if target == "energy" else 1.0


@dataclass(frozen=True, eq=False)
class SampleSets:
    """A vehicle's passes in three circumstances.

    inside   in the field that a member reads, without the pass itself
    new      in the field and elevations that an unseen vehicle would read in this vehicle's place:
             those of the other vehicles, where at least k of them drive
    off_map  with no field but the classes of roads, or the fleet's average driving, on level roads
    """

    inside: RouteSamples
    new: RouteSamples
    off_map: RouteSamples


def evaluated(
    sample_sets: SampleSets,
    target: str,
    fleet: FleetEffects,
    equations: tuple[FloatArray, FloatArray],
) -> dict[str, FloatArray]:
    """Return counts of a vehicle's errors by circumstance: insider, unseen vehicle, unknown ground.

    `equations` are the fleet's for β₀; minus the vehicle's part they give the β₀ that it would get
    as an unseen vehicle. An insider's trip is evaluated with that β₀ as well, and with a fit to the
    vehicle's other trips: in a small fleet, a β₀ fitted to a trip reproduces it. (b, τ and
    elevations were fitted to the trip all the same.)
    """
    trips, new, off_map = (
        samples.of(target) for samples in (sample_sets.inside, sample_sets.new, sample_sets.off_map)
    )
    a, right = vehicle_equations(fleet, vehicle_effects(fleet, trips), trips)
    other_vehicles = replace(fleet, mean=solved(equations[0] - a, equations[1] - right))
    without = left_out(other_vehicles, trips)
    predicted = {
        "insider": (trips, without),
        "unseen_vehicle": (new, other_vehicles.mean),
        "unknown": (off_map, without),
    }
    kilometres = sample_sets.inside.metres / 1000
    errors = {name: _errors(fleet, *target_values) for name, target_values in predicted.items()}
    errors["insider"] = errors["insider"] / vehicle_sizes(errors["insider"])
    return {name: error_counts(target_values, kilometres) for name, target_values in errors.items()}


def _errors(fleet: FleetEffects, trips: Observations, beta: FloatArray) -> FloatArray:
    """Return relative errors [trips] of coefficients for columns x / unit, [p] or [trips, p]."""
    return relative_errors(trips.y, (trips.x / fleet.unit * beta).sum(axis=1), fleet.noise)


CIRCUMSTANCES = ("insider", "unseen_vehicle", "unknown")


@dataclass(frozen=True, eq=False)
class FleetRoutes:
    """The server's result, which every vehicle receives.

    driving     the cells that at least k vehicles drive
    effects     coefficients by target
    counts      errors by target and circumstance (`CIRCUMSTANCES`), counted in bins
    vehicles    number of vehicles in the coefficients
    insiders    names of the vehicles whose passes are in `driving`
    wh_per_km   mean consumption of their trips, for a vehicle of the reference mass
    elevations  those that the fleet publishes, for unseen vehicles; None: it has none
    roads       the fleet's driving by class of road, for roads where it has not driven
    """

    grid: Grid
    driving: DrivingSums
    effects: Mapping[str, FleetEffects]
    counts: Mapping[str, Mapping[str, FloatArray]]
    vehicles: int
    insiders: frozenset[str]
    wh_per_km: float
    elevations: ElevationMap | None = None
    roads: RoadClasses | None = None

    def unseen_vehicle(self, mass_kg: float, consumption: float | None = None) -> RouteModel:
        """Return the model of a vehicle without trips: the fleet's coefficients at its mass.

        `consumption` is the mean of recent trips in Wh/km, as a vehicle's display shows it.
        """
        nothing = VehicleRoutes((), self.elevations, mass_kg, self.grid)
        model = self.personalised(nothing, "", contributed=False)
        if consumption is None:
            return model
        usual = self.wh_per_km * mass_factor("energy", mass_kg)
        return replace(model, display=consumption / usual)

    def personalised(
        self,
        vehicle_routes: VehicleRoutes,
        name: str,
        *,
        contributed: bool = True,
        capacity_wh: float = 0.0,
    ) -> RouteModel:
        """Return a vehicle's own model; `contributed`: its passes are among the fleet's."""
        field = vehicle_field(
            self.driving,
            vehicle_routes.sums,
            vehicle_routes.grid,
            contributed=contributed,
            roads=self.roads,
        )
        samples = vehicle_routes.inside(field)
        parts = {target: self._personal(target, samples, contributed) for target in TARGETS}
        return RouteModel(
            vehicle=name,
            trips=len(samples.metres),
            fleet_vehicles=self.vehicles,
            mass_kg=vehicle_routes.mass_kg,
            capacity_wh=capacity_wh,
            field=field,
            coefficients={target: coefficients for target, (coefficients, _) in parts.items()},
            bars={target: bars for target, (_, bars) in parts.items()},
            elevations=vehicle_routes.elevations,
        )

    def _personal(
        self, target: str, samples: RouteSamples, contributed: bool
    ) -> tuple[Coefficients, Bars]:
        """Return a vehicle's coefficients, (β₀ + β_v) s_v times its mass factor, and error bars."""
        fleet = self.effects[target]
        counts = self.counts[target]
        trips = samples.of(target)
        # Each trip's error is that of a fit to the vehicle's other trips.
        errors = _errors(fleet, trips, left_out(fleet, trips))
        divided = error_counts(errors / vehicle_sizes(errors), samples.metres / 1000)
        # A fleet of very few trips does not know how far off it is: as far as for unseen vehicles.
        insider = filled(counts["insider"], counts["unseen_vehicle"])
        other_vehicles = np.maximum(insider - divided, 0.0) if contributed else insider
        effects = vehicle_effects(fleet, trips)
        bars = Bars(
            vehicle_size(errors) * quantiles(other_vehicles),
            quantiles(counts["unseen_vehicle"]),
            quantiles(counts["unknown"]),
            np.array(fleet.noise),
            effects.covariance / np.outer(fleet.unit, fleet.unit),
            (fleet.spread / fleet.unit) ** 2,
        )
        beta = (fleet.mean + effects.beta) * effects.scale / fleet.unit
        beta = beta * mass_factor(target, samples.mass_kg)
        return Coefficients(beta, effects.scale), bars
