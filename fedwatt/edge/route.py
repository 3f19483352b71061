"""A planned route, points with planned speeds, as the trip that drives it.

Between two points the vehicle goes straight and changes its speed evenly, so a leg of d metres from
v to w takes 2 d / (v + w) seconds. Climb then comes from the positions, as on a recorded trip.
"""

from collections.abc import Mapping

import numpy as np

from fedwatt.data.channels import CHANNELS, POSITION
from fedwatt.data.trip import FloatArray, Trip
from fedwatt.errors import DataError
from fedwatt.terrain.grid import distance_m

SPEED = "speed_mps"


def route_trip(name: str, points: Mapping[str, FloatArray]) -> Trip:
    """One sample a second along `points` [points]: positions, speeds, other channels held.

    >>> north = {"latitude_deg": [0.0, 0.0009], "longitude_deg": [0.0, 0.0]}
    >>> trip = route_trip("up", {k: np.array(v) for k, v in (north | {SPEED: [0.0, 20.0]}).items()})
    >>> trip.seconds, trip.channels[SPEED].round(2)[:3]  # 100 m in 10 s, two more m/s each
    (11, array([2., 4., 6.]))
    """
    for channel in (*POSITION, SPEED):
        if channel not in points:
            raise DataError(f"Route '{name}' has no {channel}: a route has points and speeds.")
    _refuse_gaps(name, points)
    latitude, longitude = (points[channel] for channel in POSITION)
    metres = distance_m(latitude[:-1], longitude[:-1], latitude[1:], longitude[1:])
    # A point given twice is no leg.
    kept = np.concatenate([[True], metres > 0])
    known = {channel: values[kept] for channel, values in points.items()}
    metres = metres[metres > 0]
    if not len(metres):
        raise DataError(f"Route '{name}' needs at least two different points.")
    speed = known[SPEED]
    mean_mps = (speed[:-1] + speed[1:]) / 2
    if not mean_mps.all():
        first = int(np.flatnonzero(mean_mps == 0)[0])
        where = f"{known[POSITION[0]][first]:g}°, {known[POSITION[1]][first]:g}°"
        raise DataError(f"Route '{name}' stands still from {where} on: give a speed above 0 there.")
    leg_s = metres / mean_mps
    at_s = np.concatenate([[0.0], np.cumsum(leg_s)])
    # The last second may be only partly driven; a millisecond of one is rounding.
    now_s = np.minimum(np.arange(1, np.ceil(at_s[-1] - 1e-3) + 1), at_s[-1])
    leg = np.minimum(np.searchsorted(at_s, now_s) - 1, len(leg_s) - 1)
    since_s = now_s - at_s[leg]
    gain = (np.diff(speed) / leg_s)[leg]
    share = (speed[leg] * since_s + gain * since_s**2 / 2) / metres[leg]
    channels = {channel: values[leg] for channel, values in known.items()}
    channels[SPEED] = speed[leg] + gain * since_s
    for channel in POSITION:
        # The short way round, across the date line, too.
        step = np.mod(np.diff(known[channel]) + 180.0, 360.0) - 180.0
        channels[channel] = known[channel][leg] + share * step[leg]
    return Trip(name, channels)


def _refuse_gaps(name: str, points: Mapping[str, FloatArray]) -> None:
    for channel, values in points.items():
        limits = CHANNELS[channel]
        wrong = ~np.isfinite(values) | (values < limits.low) | (values > limits.high)
        if wrong.any():
            place = int(np.argmax(wrong))
            bounded = np.isfinite(limits.low)
            allowed = f" from {limits.low:g} to {limits.high:g} {limits.unit}" if bounded else ""
            raise DataError(
                f"Route '{name}', point {place + 1}: {channel} is {values[place]:g}, and has to be "
                f"a number{allowed}."
            )
