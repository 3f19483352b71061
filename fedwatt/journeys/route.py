"""A route: the way that a vehicle is to take, as points one step apart, without any times.

Points nearer than 15 m to the last one kept are left out, so that the wandering fix of a parked
vehicle adds no metres; what is left is cut into steps of about 20 m. How densely points were given,
which in a recording tells how fast the vehicle was, is lost on the way: equal steps remain.

What cannot be a route is refused in one sentence: fewer than two places, coordinates out of range,
neighbouring points so far apart that a straight line is no road.
"""

from dataclasses import dataclass
from functools import cached_property
from math import cos, radians

import numpy as np

from fedwatt.elevation.grid import EARTH_RADIUS_M, Grid, distance_m
from fedwatt.errors import DataError
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, Trip

STEP_M = 20.0
APART_M = 15.0
LONGEST_LEG_M = 2000.0
LONGEST_ROUTE_M = 3_000_000.0
FASTEST_FIX_MPS = 70.0
"""A recorded position that moves faster is a receiver's fault (252 km/h)."""
SHORTEST_PIECE_S = 10
"""Between two such leaps, fewer seconds than this are part of the fault."""
HEADINGS = 8


@dataclass(frozen=True, eq=False)
class Route:
    """Points [steps + 1], evenly spaced by `step_m` metres."""

    name: str
    latitude_deg: FloatArray
    longitude_deg: FloatArray
    step_m: float
    elevation_m: FloatArray | None = None
    """Of the points, NaN where not known; None: nobody gave any."""

    @property
    def steps(self) -> int:
        """Number of steps, at least one."""
        return len(self.latitude_deg) - 1

    @property
    def metres(self) -> float:
        """Length of the route."""
        return self.steps * self.step_m

    @cached_property
    def metres_at(self) -> FloatArray:
        """Metres from the start to the end of each step, [steps]."""
        return np.arange(1.0, self.steps + 1.0) * self.step_m

    def cells(self, grid: Grid) -> IntArray:
        """Return the cell and heading of each step as one key, 8 · node + heading, [steps]."""
        lat = self.latitude_deg
        lon = self.longitude_deg
        east = np.mod(np.diff(lon) + 180.0, 360.0) - 180.0
        middle_lat = (lat[1:] + lat[:-1]) / 2
        middle_lon = lon[:-1] + east / 2
        turn = np.arctan2(east * np.cos(np.radians(middle_lat)), np.diff(lat)) / (2 * np.pi)
        heading = np.floor(turn * HEADINGS + 0.5).astype(np.int64) % HEADINGS
        nodes, weights = grid.corners(middle_lat, middle_lon)
        nearest = np.take_along_axis(nodes, weights.argmax(axis=1)[:, None], axis=1)[:, 0]
        return nearest * HEADINGS + heading


def route_of(
    name: str,
    latitude_deg: FloatArray,
    longitude_deg: FloatArray,
    elevation_m: FloatArray | None = None,
) -> Route:
    """Return the route through points [points]; those without a position are left out.

    >>> route_of("up", np.array([0.0, 0.009]), np.array([10.0, 10.0])).steps  # 1 km
    50
    """
    placed = _checked(name, latitude_deg, longitude_deg)
    lat = latitude_deg[placed]
    lon = longitude_deg[placed]
    chosen = apart(lat, lon)
    lat, lon = lat[chosen], lon[chosen]
    if len(lat) < 2:
        raise DataError(f"Route '{name}' has only one place: give points along the way.")
    legs = distance_m(lat[:-1], lon[:-1], lat[1:], lon[1:])
    if legs.max() > LONGEST_LEG_M:
        at = int(legs.argmax())
        raise DataError(
            f"Route '{name}' has a gap of {legs[at] / 1000:,.1f} km from {lat[at]:.4f}°, "
            f"{lon[at]:.4f}° to {lat[at + 1]:.4f}°, {lon[at + 1]:.4f}°, and nobody can know the "
            f"road in between. Give points at most {LONGEST_LEG_M / 1000:g} km apart."
        )
    if legs.sum() > LONGEST_ROUTE_M:
        raise DataError(f"Route '{name}' is {legs.sum() / 1000:,.0f} km long: cut it into days.")
    # Longitudes go on beyond 180°, so that a step across the date line is a short one.
    lon = lon[0] + np.concatenate([[0.0], np.cumsum(np.mod(np.diff(lon) + 180, 360) - 180)])
    at_m = np.concatenate([[0.0], np.cumsum(legs)])
    steps = max(round(at_m[-1] / STEP_M), 1)
    even = np.linspace(0.0, at_m[-1], steps + 1)
    height = None if elevation_m is None else np.interp(even, at_m, elevation_m[placed][chosen])
    position = np.interp(even, at_m, lat), np.interp(even, at_m, lon)
    return Route(name, *position, at_m[-1] / steps, height)


def _checked(name: str, lat: FloatArray, lon: FloatArray) -> BoolArray:
    """Return which points have a position; refuse one that cannot be."""
    placed = np.isfinite(lat) & np.isfinite(lon) & ~((lat == 0) & (lon == 0))
    lat, lon = lat[placed], lon[placed]
    if not len(lat):
        raise DataError(f"Route '{name}' has no point with a position.")
    wrong = (np.abs(lat) > 90) | (np.abs(lon) > 360)
    if wrong.any():
        at = int(wrong.argmax())
        swapped = " Latitude and longitude seem to be exchanged." if abs(lon[at]) <= 90 else ""
        raise DataError(
            f"Route '{name}' has a point at latitude {lat[at]:g}°, longitude {lon[at]:g}°, which "
            f"is nowhere.{swapped}"
        )
    return np.asarray(placed)


def apart(latitude_deg: FloatArray, longitude_deg: FloatArray) -> IntArray:
    """Return the places of points at least 15 m from the previous such point, and of the last."""
    metres = radians(1.0) * EARTH_RADIUS_M
    north = (latitude_deg * metres).tolist()
    turns = np.unwrap(longitude_deg, period=360.0) * metres
    east = (turns * cos(radians(float(latitude_deg[0])))).tolist()
    chosen = [0]
    y = north[0]
    x = east[0]
    enough = APART_M**2
    for place in range(1, len(north)):
        if (north[place] - y) ** 2 + (east[place] - x) ** 2 >= enough:
            chosen.append(place)
            y = north[place]
            x = east[place]
    if len(chosen) > 1 and chosen[-1] != len(north) - 1:
        chosen[-1] = len(north) - 1
    return np.array(chosen)


def fixes(trip: Trip) -> IntArray:
    """Return the seconds of a recorded trip whose positions can be on its route.

    A leap faster than any car is a fault, and so are few seconds between two leaps. Speed is not
    used, because a route without recorded speed must be treated alike.
    """
    if any(channel not in trip.channels for channel in POSITION):
        return np.zeros(0, dtype=np.int64)
    lat, lon = (trip.channels[channel] for channel in POSITION)
    placed = np.isfinite(lat) & np.isfinite(lon) & (np.abs(lat) <= 90) & (np.abs(lon) <= 360)
    seconds = np.flatnonzero(placed & ~((lat == 0) & (lon == 0)))
    if len(seconds) < 2:
        return seconds
    moved = distance_m(lat[seconds[:-1]], lon[seconds[:-1]], lat[seconds[1:]], lon[seconds[1:]])
    leaps = moved > FASTEST_FIX_MPS * np.diff(seconds)
    piece = np.concatenate([[0], np.cumsum(leaps)])
    long_pieces: IntArray = seconds[np.bincount(piece)[piece] >= SHORTEST_PIECE_S]
    return long_pieces


def outside_c(trip: Trip) -> float | None:
    """Return the outside temperature of a recorded trip, as a forecast would have it; None: not
    known.
    """
    ambient = trip.channels.get("ambient_c", np.zeros(0))
    readings = ambient[np.isfinite(ambient)]
    return float(np.median(readings)) if len(readings) else None


def recorded_route(trip: Trip) -> tuple[Route, FloatArray]:
    """Return the route of a recorded trip, with elevations where they were measured, and how far
    along it the vehicle was in each second, metres.
    """
    seconds = fixes(trip)
    if not len(seconds):
        raise DataError(f"Trip '{trip.name}' has no positions, so its route is not known.")
    lat, lon = (trip.channels[channel][seconds] for channel in POSITION)
    elevation_m = trip.channels.get("elevation_m")
    route = route_of(trip.name, lat, lon, None if elevation_m is None else elevation_m[seconds])
    chosen = apart(lat, lon)
    legs = distance_m(lat[chosen[:-1]], lon[chosen[:-1]], lat[chosen[1:]], lon[chosen[1:]])
    at_m = np.concatenate([[0.0], np.cumsum(legs)])
    return route, np.interp(np.arange(trip.seconds), seconds[chosen], at_m)
