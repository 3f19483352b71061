"""Driving by place and heading: seven sums per cell, which add over vehicles.

A cell is 80 m of ground in one of eight headings. Of all passes of all training trips it holds

    route_m     metres along the route, which the other sums are divided by
    wheel_m     metres of the wheels (a route cuts corners)
    seconds     time
    air         ∫ v³ dt in 1,000 m³/s², the work of the air
    drive       ∫ max(v·a, 0) dt in 10 m²/s², the work of speeding up
    brake       ∫ max(-v·a, 0) dt in 10 m²/s², the work of slowing down
    standing    seconds below 0.5 m/s: stops

and how many vehicles are in it; never a position finer than the cell, an order or a time. Where a
cell has few metres, its values are drawn toward those of its place in any heading, and these toward
the fleet's.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedwatt.elevation.grid import Grid, find
from fedwatt.journeys.route import HEADINGS, Route
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip

SUMS = ("route_m", "wheel_m", "seconds", "air", "drive", "brake", "standing")
STANDING_MPS = 0.5
HEADING_M = 100.0
PLACE_M = 200.0
"""Metres of passes by which a cell's heading, and its place, count half."""
OWN_WEIGHT = 2.0
"""Weight of a vehicle's own passes in the vehicle; drivers are creatures of habit."""
REACH_M = 40.0
"""A turn is measured between the headings so far before and so far behind a step."""
TURN_DEG = 35.0
TURNS_DEG = (60.0, 90.0)
BENDS_DEG = (3.0, 10.0)
DISTANCES_M = (40.0, 80.0, 150.0, 300.0, 600.0)
LENGTHS_M = (200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0)
FIRST_TURN = 1000
"""Classes from here on are turns."""
USUAL_M = 2000.0
"""Metres of passes by which a class counts half; the rest is the fleet's usual driving."""


@dataclass(frozen=True, eq=False)
class DrivingSums:
    """Sums of one trip, one vehicle or a fleet.

    keys      int64 [cells], ascending: 8 · node + heading
    sums      float64 [cells, 7], the columns of `SUMS`
    vehicles  int64 [cells], vehicles that contributed: 1 in a vehicle's own
    """

    keys: IntArray
    sums: FloatArray
    vehicles: IntArray

    def times(self, weight: float) -> "DrivingSums":
        """Return the same passes, counted `weight` times."""
        return DrivingSums(self.keys, weight * self.sums, self.vehicles)

    def only(self, chosen: BoolArray) -> "DrivingSums":
        """Return the cells [cells] that are chosen."""
        return DrivingSums(self.keys[chosen], self.sums[chosen], self.vehicles[chosen])

    def within(self, keys: IntArray) -> "DrivingSums":
        """Return the cells that are among `keys`, ascending."""
        return self.only(find(keys, self.keys)[1])

    def outside(self, keys: IntArray) -> "DrivingSums":
        """Return the cells that are not among `keys`, ascending."""
        return self.only(~find(keys, self.keys)[1])


NO_PASSES = DrivingSums(
    np.zeros(0, dtype=np.int64), np.zeros((0, len(SUMS))), np.zeros(0, dtype=np.int64)
)


def trip_sums(trip: Trip, route: Route, at_m: FloatArray, cells: IntArray) -> DrivingSums:
    """Return the sums of one pass; `at_m` [seconds] is the distance along the route.

    `cells` [steps] are the route's.
    """
    speed = np.nan_to_num(trip.channels["speed_mps"])
    smooth = np.convolve(np.pad(speed, 1, mode="edge"), np.ones(3) / 3, "valid")
    work = smooth * np.diff(smooth, prepend=smooth[0])
    each = np.stack(
        [
            np.diff(at_m, prepend=at_m[0]),
            speed,
            np.ones(len(speed)),
            speed**3 / 1000,
            np.maximum(work, 0) / 10,
            np.maximum(-work, 0) / 10,
            (speed < STANDING_MPS) * 1.0,
        ],
        axis=1,
    )
    step = np.clip(np.ceil(at_m / route.step_m).astype(np.int64) - 1, 0, route.steps - 1)
    return _summed(cells[step], each)


def _summed(keys: IntArray, values: FloatArray) -> DrivingSums:
    cells, at = np.unique(keys, return_inverse=True)
    sums = np.stack([np.bincount(at, column, len(cells)) for column in values.T], axis=1)
    vehicles = np.ones(len(cells), dtype=np.int64)
    return DrivingSums(cells, sums.astype(np.float64), vehicles)


def vehicle_sums(trips: Iterable[DrivingSums]) -> DrivingSums:
    """Return the sum over passes of one vehicle; every cell counts one vehicle."""
    total = add(list(trips))
    return DrivingSums(total.keys, total.sums, np.minimum(total.vehicles, 1))


def add(parts: Sequence[DrivingSums]) -> DrivingSums:
    """Return the sum; vehicles of a cell add up."""
    if not parts:
        return NO_PASSES
    keys = np.unique(np.concatenate([part.keys for part in parts]))
    sums = np.zeros((len(keys), len(SUMS)))
    vehicles = np.zeros(len(keys), dtype=np.int64)
    for part in parts:
        at, _ = find(keys, part.keys)
        sums[at] += part.sums
        vehicles[at] += part.vehicles
    return DrivingSums(keys, sums, vehicles)


def published(vehicles: Sequence[DrivingSums], minimum_vehicles: int) -> DrivingSums:
    """Return the cells of a fleet that at least k vehicles drive."""
    total = add(vehicles)
    return total.only(total.vehicles >= minimum_vehicles)


def road_classes(route: Route) -> IntArray:
    """Return the class of each step, [steps].

    >>> east = Route("east", np.zeros(51), np.linspace(0.0, 0.009, 51), 20.0)
    >>> road_classes(east)[[0, 10, 25]]  # a straight kilometre
    array([ 30, 330, 430])
    """
    steps = route.steps
    turn = _turns(route)
    is_turn = turn > TURN_DEG
    place = np.arange(steps)
    turns = np.concatenate([[-1], np.flatnonzero(is_turn), [steps]])
    following = np.searchsorted(turns, place, side="right")
    before_m = (place - turns[following - 1]) * route.step_m
    after_m = (turns[np.minimum(following, len(turns) - 1)] - place) * route.step_m
    near = np.digitize(np.minimum(before_m, after_m), DISTANCES_M)
    length = np.digitize(before_m + after_m, LENGTHS_M)
    straight = 100 * near + 10 * length + np.digitize(turn, BENDS_DEG)
    return np.where(is_turn, FIRST_TURN + np.digitize(turn, TURNS_DEG), straight)


def _turns(route: Route) -> FloatArray:
    """Return by how many degrees the road turns around each step, [steps]."""
    latitude = np.radians(route.latitude_deg)
    east = np.diff(np.radians(route.longitude_deg)) * np.cos((latitude[1:] + latitude[:-1]) / 2)
    heading = np.degrees(np.unwrap(np.arctan2(east, np.diff(latitude))))
    reach = max(round(REACH_M / route.step_m), 1)
    padded = np.pad(heading, reach, mode="edge")
    return np.asarray(np.abs(padded[2 * reach :] - padded[: -2 * reach]))


@dataclass(frozen=True, eq=False)
class RoadClasses:
    """The fleet's sums by class of road, from which any route can be read."""

    sums: DrivingSums

    @cached_property
    def usual(self) -> FloatArray:
        """Sums per metre over all classes, [7]."""
        total = self.sums.sums.sum(axis=0)
        return np.asarray(total / max(total[0], 1.0))

    def read(self, route: Route) -> FloatArray:
        """Return expected sums per metre of each step, [steps, 7]; route_m is 1."""
        by_step = look_up(self.sums, road_classes(route))
        return (by_step + USUAL_M * self.usual) / (by_step[:, :1] + USUAL_M)


@dataclass(frozen=True, eq=False)
class DrivingField:
    """Sums by cell, from which the expected driving on a route is read."""

    grid: Grid
    cells: DrivingSums
    roads: RoadClasses | None = None
    """What is expected where nobody has driven; None: the mean of all cells."""

    @cached_property
    def places(self) -> DrivingSums:
        """The sums by place alone, all headings together."""
        return _summed(self.cells.keys // HEADINGS, self.cells.sums)

    @cached_property
    def everywhere(self) -> FloatArray:
        """The sums over all cells, [7]."""
        total: FloatArray = self.cells.sums.sum(axis=0)
        return total

    def along(
        self, route: Route, without: DrivingSums = NO_PASSES
    ) -> tuple[FloatArray, FloatArray]:
        """Return `read` for a route, whose shape counts where nobody has driven."""
        expected = None if self.roads is None else self.roads.read(route)
        return self.read(route.cells(self.grid), without, expected)

    def read(
        self,
        keys: IntArray,
        without: DrivingSums = NO_PASSES,
        expected: FloatArray | None = None,
    ) -> tuple[FloatArray, FloatArray]:
        """Return sums per metre of route, [steps, 6] without route_m, and whether each step is
        known.

        `keys` are a route's (`Route.cells`); `without` are passes that the reader must not see:
        those of the very trip that is predicted. `expected` [steps, 7] are sums per metre where
        nobody has driven, by default the mean of all cells.
        """
        # A trip can only take out what was put in: cells that the field has.
        without = without.within(self.cells.keys)
        cell = look_up(self.cells, keys) - look_up(without, keys)
        by_place = _summed(without.keys // HEADINGS, without.sums)
        place = look_up(self.places, keys // HEADINGS) - look_up(by_place, keys // HEADINGS)
        everywhere = self.everywhere - without.sums.sum(axis=0)
        cell, place = np.maximum(cell, 0.0), np.maximum(place, 0.0)
        usual = everywhere / max(everywhere[0], 1.0) if expected is None else expected
        around = (place + PLACE_M * usual) / (place[:, :1] + PLACE_M)
        here = (cell + HEADING_M * around) / (cell[:, :1] + HEADING_M)
        return here[:, 1:], (place[:, 0] > 1.0).astype(np.float64)


def look_up(sums: DrivingSums, keys: IntArray) -> FloatArray:
    """Return the sums of `keys` [n, 7]; 0 where there are none."""
    if not len(sums.keys):
        return np.zeros((len(keys), len(SUMS)))
    at, present = find(sums.keys, keys)
    return np.where(present[:, None], sums.sums[at], 0.0)


def vehicle_field(
    shared: DrivingSums,
    driving: DrivingSums,
    grid: Grid,
    *,
    contributed: bool,
    roads: RoadClasses | None = None,
) -> DrivingField:
    """Return the field that a vehicle reads: what is shared and, counted twice, its own passes.

    `contributed` says whether its passes are in the shared sums once already.
    """
    again = driving.times(OWN_WEIGHT - 1) if contributed else driving.times(OWN_WEIGHT)
    alone = driving.outside(shared.keys).times(OWN_WEIGHT)
    merged = add([shared, again.within(shared.keys), alone])
    return DrivingField(grid, merged, roads)
