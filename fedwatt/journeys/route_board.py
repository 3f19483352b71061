"""A vehicle's part in learning routes: the passes that it keeps, and the sums that it answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedwatt.data.trip import FloatArray, Trip
from fedwatt.errors import DataError
from fedwatt.journeys.driving_field import (
    NO_PASSES,
    OWN_WEIGHT,
    DrivingField,
    DrivingSums,
    on_board,
    recorded_sums,
    vehicle_sums,
)
from fedwatt.journeys.mixed_effects import (
    FleetEffects,
    Observations,
    effect_sums,
    left_out,
    own_effects,
    own_equations,
    predict,
    solved,
    unit_sums,
)
from fedwatt.journeys.route import Route
from fedwatt.journeys.route_bars import error_counts, sigma
from fedwatt.journeys.route_features import NAMES, route_features, route_rise_m
from fedwatt.terrain.field import Field
from fedwatt.terrain.grid import Grid

TARGETS = ("energy", "duration")
SHORTEST_M = 500.0
USUAL_C = 20.0


@dataclass(frozen=True, eq=False)
class Pass:
    """A recorded trip as a route was driven.

    at_m  metres along the route, [seconds]
    sums  what it adds to the driving field
    """

    trip: Trip
    route: Route
    at_m: FloatArray
    sums: DrivingSums

    @property
    def temperature_c(self) -> float:
        """Outside temperature, as a forecast would have it."""
        ambient = self.trip.channels.get("ambient_c", np.array([USUAL_C]))
        known = ambient[np.isfinite(ambient)]
        return float(np.median(known)) if len(known) else USUAL_C

    def measured(self, target: str) -> float:
        """Wh, or seconds."""
        if target == "duration":
            return self.trip.seconds * self.trip.interval_s
        return float(self.trip.channels["energy_wh"].sum())


def passes(trips: Iterable[Trip], grid: Grid) -> tuple[Pass, ...]:
    """The trips whose positions make a route; the others teach nothing about routes."""
    found = []
    for trip in trips:
        try:
            found.append(Pass(trip, *recorded_sums(trip, grid)))
        except DataError:
            continue
    return tuple(found)


@dataclass(frozen=True, eq=False)
class RouteBoard:
    """What one vehicle learns routes from; nothing of it leaves but answers."""

    passes: tuple[Pass, ...]
    hills: Field | None
    mass_kg: float
    grid: Grid

    @cached_property
    def sums(self) -> DrivingSums:
        """All its passes."""
        return vehicle_sums(one.sums for one in self.passes)

    def features(
        self,
        one: Pass,
        field: DrivingField,
        without: DrivingSums = NO_PASSES,
        *,
        level: bool = False,
    ) -> FloatArray:
        """Features of a pass's route, [steps, 17]; `level` takes the hills away."""
        rates, _ = field.read(one.route, without)
        rise, _ = route_rise_m(one.route, None if level else self.hills)
        return route_features(one.route, rates, rise, one.temperature_c, self.mass_kg)

    @cached_property
    def taught(self) -> tuple[Pass, ...]:
        """The passes that are long enough to teach what a route costs."""
        return tuple(one for one in self.passes if one.route.metres >= SHORTEST_M)

    def observations(self, shared: DrivingSums, *, contributed: bool = True) -> "Learnable":
        """Features of every pass in a field that has no part of itself, and what was measured."""
        field = on_board(shared, self.sums, self.grid, contributed=contributed)
        rows = [self.features(one, field, one.sums.times(OWN_WEIGHT))[-1] for one in self.taught]
        return self._learnable(rows)

    def as_newcomer(self, shared: DrivingSums) -> "Learnable":
        """The same in the field of the others, without any pass of this vehicle."""
        field = DrivingField(self.grid, shared)
        return self._learnable([self.features(one, field, self.sums)[-1] for one in self.taught])

    def on_unknown_ground(self, shared: DrivingSums) -> "Learnable":
        """The same with no field but the fleet's usual driving, and no hills."""
        usual = DrivingField(self.grid, _nowhere(shared))
        return self._learnable([self.features(one, usual, level=True)[-1] for one in self.taught])

    def _learnable(self, rows: list[FloatArray]) -> "Learnable":
        x = np.array(rows).reshape(len(rows), len(NAMES))
        metres = np.array([one.route.metres for one in self.taught])
        measured = {
            name: np.array([one.measured(name) for one in self.taught], dtype=np.float64)
            for name in TARGETS
        }
        return Learnable(x, metres, measured)


def _nowhere(shared: DrivingSums) -> DrivingSums:
    """The shared sums in one cell that no route passes."""
    total = shared.sums.sum(axis=0, keepdims=True)
    return DrivingSums(np.array([-8], dtype=np.int64), total, np.ones(1, dtype=np.int64))


@dataclass(frozen=True, eq=False)
class Learnable:
    """Features [trips, 17], lengths [trips] and measurements by target [trips] of a vehicle."""

    x: FloatArray
    metres: FloatArray
    measured: Mapping[str, FloatArray]

    def of(self, target: str) -> Observations:
        """What the mixed effects of a target learn from."""
        return Observations(self.x, self.measured[target], sigma(self.metres))

    def answer(self, target: str, fleet: FleetEffects | None) -> dict[str, FloatArray]:
        """The vehicle's sums for a fit; None asks for the sizes of columns."""
        trips = self.of(target)
        return unit_sums(trips) if fleet is None else effect_sums(fleet, trips)


def judged(
    board: RouteBoard,
    shared: DrivingSums,
    target: str,
    fleet: FleetEffects,
    equations: tuple[FloatArray, FloatArray],
) -> dict[str, FloatArray]:
    """Counts of a vehicle's errors: as an insider, as a newcomer, and on unknown ground.

    `equations` are the fleet's for β₀; without the vehicle's own part they give the β₀ that it
    would meet as a newcomer.
    """
    inside = board.observations(shared)
    trips, kilometres = inside.of(target), inside.metres / 1000
    own = own_effects(fleet, trips)
    a, right = own_equations(fleet, own, trips)
    others = solved(equations[0] - a, equations[1] - right)
    new = board.as_newcomer(shared).of(target)
    as_new = (new.y - new.x / fleet.unit @ others) / new.sigma
    lost = board.on_unknown_ground(shared).of(target)
    on_unknown = (lost.y - predict(fleet, own, lost.x)) / lost.sigma
    errors = {"insider": left_out(fleet, own, trips), "newcomer": as_new, "unknown": on_unknown}
    return {name: error_counts(found, kilometres, fleet.noise) for name, found in errors.items()}
