"""Refuse a vehicle whose numbers only make sense in another unit or with another sign.

A wrong unit passes every check on single readings, yet ruins a model without a trace. Three facts
tell: distance by speed must agree with distance by position, nobody spends a twentieth of the
time above 180 km/h, and driving takes energy out of the pack.
"""

from collections.abc import Sequence

import numpy as np

from fedwatt.telemetry.cleaning.glitches import METRES_PER_DEGREE
from fedwatt.telemetry.trip import Trip

# What a wrong unit does to distance by speed; real cars lie within 7 %.
SWAPS = {
    "m/s read as km/h": 1 / 3.6,
    "m/s read as mph": 1 / 2.237,
    "mph read as km/h": 1 / 1.609,
    "km/h read as mph": 1.609,
    "mph read as m/s": 2.237,
    "km/h read as m/s": 3.6,
}
SWAP_WITHIN = 0.15
RATIO_LOW = 0.72
RATIO_HIGH = 1.35
RATIO_LEAST_M = 2_000.0
FAST_MPS = 50.0
FAST_SHARE = 0.05
SIGN_LEAST_M = 5_000.0
SIGN_WH_PER_KM = -20.0


def implausible(trips: Sequence[Trip], *, electric: bool) -> str:
    """Return the reason why these trips cannot be right, or "" when nothing speaks against them.

    `electric` says that nothing but the pack moves the vehicle, so that its net energy has a sign.
    No vehicle's own number is in the text, so that a fleet counts vehicles of one fault together.
    """
    # Positions first: they tell which unit it is, while too fast may be mph as well as km/h.
    ratio = _speed_over_position(trips)
    if ratio is not None and not RATIO_LOW <= ratio <= RATIO_HIGH:
        return _other_unit(ratio)
    speed = np.concatenate([trip.channels["speed_mps"] for trip in trips])
    if (speed > FAST_MPS).mean() > FAST_SHARE:
        return (
            f"over {FAST_SHARE:.0%} of speeds above {FAST_MPS:g} m/s "
            "(is speed in km/h read as m/s?)"
        )
    metres = sum(trip.metres for trip in trips)
    if electric and metres >= SIGN_LEAST_M and all("energy_wh" in t.channels for t in trips):
        wh_per_km = sum(float(t.channels["energy_wh"].sum()) for t in trips) / (metres / 1000)
        if wh_per_km < SIGN_WH_PER_KM:
            return "driving charges the pack (is the sign of current or power the other way round?)"
    return ""


def _other_unit(ratio: float) -> str:
    """Return the mix-up of units that explains `ratio`, distance by speed over distance by
    position.

    >>> _other_unit(0.63)
    'distance by speed about 0.62 times distance by position (is speed in mph read as km/h?)'
    """
    for swap, factor in SWAPS.items():
        if abs(ratio / factor - 1) < SWAP_WITHIN:
            times = f"about {factor:.2f} times"
            return f"distance by speed {times} distance by position (is speed in {swap}?)"
    return "distance by speed far from distance by position (is the unit of speed another?)"


def _speed_over_position(trips: Sequence[Trip]) -> float | None:
    by_speed = 0.0
    by_position = 0.0
    for trip in trips:
        if "latitude_deg" not in trip.channels or trip.seconds < 2:
            continue
        latitude = trip.channels["latitude_deg"]
        longitude = trip.channels["longitude_deg"]
        east = np.diff(longitude) * np.cos(np.radians(latitude[0]))
        metres = np.hypot(np.diff(latitude), east) * METRES_PER_DEGREE
        by_speed += float(trip.channels["speed_mps"][1:].sum()) * trip.interval_s
        by_position += float(metres.sum())
    enough = max(by_speed, by_position) >= RATIO_LEAST_M and by_position > 0
    return by_speed / by_position if enough else None
