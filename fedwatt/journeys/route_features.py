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
START_S = 300.0
SLOW_START_S = 900.0


def route_rise_m(route: Route, hills: Field | None) -> tuple[FloatArray, FloatArray]:
    """Metres gained in each step and whether that is known, each [steps]; level where it is not."""
    if hills is None:
        return np.zeros(route.steps), np.zeros(route.steps)
    elevation_m, region = hills.read(route.latitude_deg, route.longitude_deg)
    rise = rise_m(elevation_m, region, np.full(len(elevation_m), route.step_m))[1:]
    return np.nan_to_num(rise), np.isfinite(rise).astype(np.float64)


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
