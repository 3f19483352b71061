"""Learn what a fleet knows about routes where only totals over vehicles can be seen.

1. How the fleet drives each place and heading (`driving_exchange`); every vehicle is given that.
2. Coefficients of energy and of duration (`mixed_effects`), together in thirteen exchanges.
3. How far off they were (`route_intervals`), counted once.
4. How a route under way is corrected (`in_trip`), in three exchanges, and how far off it still
   is, counted once.

The steps are the same for a simulation and for a real fleet; what differs is who is asked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError, RunError
from fedwatt.journeys.driving_exchange import learn_driving
from fedwatt.journeys.driving_field import DrivingSums, published
from fedwatt.journeys.fleet_routes import FleetRoutes
from fedwatt.journeys.in_trip import REWEIGHTINGS, USUAL, corrected, narrower_intervals
from fedwatt.journeys.mixed_effects import FleetEffects, fit
from fedwatt.journeys.road_classes import RoadClasses
from fedwatt.journeys.route_board import VehicleRoutes
from fedwatt.journeys.route_features import NAMES
from fedwatt.journeys.route_requests import COLUMNS, Pupil, RouteRequest, SharedDriving
from fedwatt.sums import AddUp, Contribution, Total, in_process, plainly
from fedwatt.telemetry.trip import FloatArray

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
    hills: Field | None,
    roads: RoadClasses | None = None,
) -> FleetRoutes:
    """Return everything that follows once it is known how the `insiders` drive; `hills` are the
    published ones.

    TooFewTeach where fewer than k of them have trips of a length that teaches.
    """
    least = settings.minimum_vehicles
    known = None if hills is None else hills.only(hills.vehicles > least)
    shared = SharedDriving(driving, known, least, roads)
    asking = _Asking(pupils, pupils.share(shared, insiders), fewest_teachers(settings))
    fitted = fit(asking.sums, COLUMNS, SPREADS)
    effects = {target: own.effects for target, own in fitted.items()}
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
        found = question.by_target(self.total(question))
        # Vehicles that drop out later have taught as well.
        taught = round(float(found["energy"]["vehicles"][0]))
        self.teachers = max(self.teachers, taught)
        if taught < self.least:
            raise TooFewTeach(taught, self.least)
        if not effects:
            # Features of energy are in proportion to mass, so this is that of the reference mass.
            energy = found["energy"]
            self.wh_per_km = float(energy["total"][0] / energy["columns"][DISTANCE])
        return found


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
    hills: Field | None = None,
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
