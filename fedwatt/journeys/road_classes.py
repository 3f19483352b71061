"""Driving by the shape of the road, for ground that no vehicle of the fleet has driven.

Each step of a route has a class that follows from its geometry alone: a turn by its angle, and
otherwise how far the nearest turn is, how long the road goes on without one, and how much it bends.
Cars drive slowly near a turn and fast on a long straight road. Vehicles add the same seven sums by
class as by cell (`driving_field`), and a class that fewer than k vehicles drive is not published.
The first and the last step of a route count as turns: there the vehicle stands.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fedwatt.journeys.driving_field import DrivingSums, look_up, trip_sums
from fedwatt.journeys.route import Route
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip

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


def road_sums(trip: Trip, route: Route, at_m: FloatArray) -> DrivingSums:
    """Return the sums of one pass by class of road; `at_m` [seconds] is as in `trip_sums`."""
    return trip_sums(trip, route, at_m, road_classes(route))


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
