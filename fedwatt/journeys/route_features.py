"""Features of a route, from the fleet's driving there, its elevation and the weather.

Every feature grows along the way, so a row for each step gives the energy up to there:

    distance, climb, descent
    time, air, drive, brake, standing   what the driving field expects
    cold · time, hot · time, frost · time, cold · distance
    start-up 1 - e^(-t/τ) for τ of 5 and 15 minutes, alone and times cold or hot

with cold = max(18 °C - T, 0), frost = max(5 °C - T, 0), hot = max(T - 22 °C, 0). Nothing is known
of how this trip will really be driven.
"""

import numpy as np

from fedwatt.elevation.climb import rise_m
from fedwatt.elevation.elevation_map import Field
from fedwatt.journeys.route import Route
from fedwatt.telemetry.trip import FloatArray

NAMES = (
    "distance", "climb", "descent", "time", "air", "drive", "brake", "standing",
    "cold time", "hot time", "frost time", "cold distance",
    "start", "slow start", "cold start", "cold slow start", "hot start",
)  # fmt: skip
COLD_C = 18.0
FROST_C = 5.0
HOT_C = 22.0
SMOOTH_M = 200.0
START_S = 300.0
SLOW_START_S = 900.0


def route_rise_m(route: Route, hills: Field | None) -> tuple[FloatArray, FloatArray]:
    """Return metres gained in each step and whether that is known, each [steps]; level elsewhere.

    Elevations that came with the route count before those of the map `hills`.
    """
    rise = np.full(route.steps, np.nan)
    metres = np.full(route.steps + 1, route.step_m)
    if hills is not None:
        rise = rise_m(*hills.read(route.latitude_deg, route.longitude_deg), metres)[1:]
    if route.elevation_m is not None:
        region = np.zeros(route.steps + 1, dtype=np.int64)
        from_route = rise_m(_smoothed(route.elevation_m, route.step_m), region, metres)[1:]
        rise = np.where(np.isfinite(from_route), from_route, rise)
    return np.nan_to_num(rise), np.isfinite(rise).astype(np.float64)


def _smoothed(elevation_m: FloatArray, step_m: float) -> FloatArray:
    """Return elevations averaged over `SMOOTH_M`, so that their noise is not climb and descent."""
    reach = round(SMOOTH_M / step_m / 2)
    kernel = np.ones(2 * reach + 1)
    finite = np.isfinite(elevation_m)
    total = np.convolve(np.pad(np.where(finite, elevation_m, 0.0), reach), kernel, "valid")
    count = np.convolve(np.pad(finite.astype(np.float64), reach), kernel, "valid")
    return np.where(finite, total / np.maximum(count, 1.0), np.nan)


def route_features(
    route: Route, rates: FloatArray, rise: FloatArray, temperature_c: float
) -> FloatArray:
    """Features from the start to the end of each step, [steps, 17].

    `rates` [steps, 6] are the driving field's, per metre of route.
    """
    driven = np.cumsum(rates * route.step_m, axis=0)
    wheel_m, seconds, air, drive, brake, standing = driven.T
    cold = max(COLD_C - temperature_c, 0.0)
    frost = max(FROST_C - temperature_c, 0.0)
    hot = max(temperature_c - HOT_C, 0.0)
    start = 1 - np.exp(-seconds / START_S)
    slow = 1 - np.exp(-seconds / SLOW_START_S)
    kilometres = wheel_m / 1000
    minutes = seconds / 60
    columns = [
        kilometres, np.cumsum(np.maximum(rise, 0)), np.cumsum(np.maximum(-rise, 0)),
        minutes, air, drive, brake, standing / 60,
        cold * minutes, hot * minutes, frost * minutes, cold * kilometres,
        start, slow, cold * start, cold * slow, hot * start,
    ]  # fmt: skip
    return np.stack(columns, axis=1)
