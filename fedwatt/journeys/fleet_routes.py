"""The fleet's route model, and a vehicle's version of it.

How the fleet learns it is in `route_exchange`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.grid import Grid
from fedwatt.journeys.driving_field import DrivingSums, on_board
from fedwatt.journeys.mixed_effects import FleetEffects, OwnEffects, own_effects
from fedwatt.journeys.road_classes import RoadClasses
from fedwatt.journeys.route_board import Learnable, VehicleRoutes, left_out_errors, mass_factor
from fedwatt.journeys.route_intervals import (
    Bars,
    error_counts,
    filled,
    quantiles,
    vehicle_quantiles,
    vehicle_sizes,
)
from fedwatt.journeys.route_model import TARGETS, Coefficients, RouteModel
from fedwatt.telemetry.trip import FloatArray

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
    hills: Field | None = None
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
        own = board.inside(field)
        parts = {target: self._personal(target, own, contributed) for target in TARGETS}
        return RouteModel(
            vehicle=name,
            trips=len(own.metres),
            fleet_vehicles=self.vehicles,
            mass_kg=board.mass_kg,
            capacity_wh=capacity_wh,
            field=field,
            coefficients={target: found for target, (found, _) in parts.items()},
            bars={target: bars for target, (_, bars) in parts.items()},
            correction=self.correction,
            narrower=self.narrower,
            hills=board.hills,
        )

    def _personal(
        self, target: str, own: Learnable, contributed: bool
    ) -> tuple[Coefficients, Bars]:
        fleet = self.effects[target]
        counts = self.counts[target]
        trips = own.of(target)
        mine = own_effects(fleet, trips)
        errors = left_out_errors(fleet, trips)
        divided = error_counts(errors / vehicle_sizes(errors), own.metres / 1000)
        # A fleet of very few trips does not know how far off it is: as far as for unseen vehicles.
        insider = filled(counts["insider"], counts["unseen_vehicle"])
        others = np.maximum(insider - divided, 0.0) if contributed else insider
        bars = Bars(
            vehicle_quantiles(others, counts["unseen_vehicle"], errors, member=contributed),
            quantiles(insider),
            quantiles(counts["unknown"]),
            np.array(fleet.noise),
        )
        return own_coefficients(fleet, mine, target, own.mass_kg), bars


def own_coefficients(
    fleet: FleetEffects, own: OwnEffects, target: str, mass_kg: float
) -> Coefficients:
    """Return the coefficients of a vehicle of this mass: (β₀ + β_v) s_v, [17]."""
    beta = (fleet.mean + own.beta) * own.scale / fleet.unit
    return Coefficients(beta * mass_factor(target, mass_kg), own.scale)
