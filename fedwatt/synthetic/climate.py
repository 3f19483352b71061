"""Weather of the town: temperate with cold winters, and on a given day the same for everybody."""

import numpy as np

from fedwatt.randomness import generator
from fedwatt.synthetic.arrays import FloatArray, IntArray

DAYS = 365
MEAN_C = 10.0
SEASON_C = 12.5
WARMEST_DAY = 203
DAY_TO_DAY_C = 3.5
DAY_MEMORY = 0.75
NIGHT_TO_DAY_C = 4.0
WARMEST_HOUR = 15.0
SHORTEST_PERIOD_DAYS = 90


def daily_mean_c(seed: int) -> FloatArray:
    """Mean temperature of every day of a year, [days]: season plus weather that lingers."""
    shocks = generator(seed, "weather").normal(size=DAYS)
    weather = np.zeros(DAYS)
    for day in range(1, DAYS):
        weather[day] = DAY_MEMORY * weather[day - 1] + np.sqrt(1 - DAY_MEMORY**2) * shocks[day]
    season = np.cos(2 * np.pi * (np.arange(DAYS) - WARMEST_DAY) / DAYS)
    return MEAN_C + SEASON_C * season + DAY_TO_DAY_C * weather


def trip_days(vehicle: str, seed: int, trips: int) -> tuple[IntArray, FloatArray]:
    """Day of the year and hour of the day of each trip, in the order driven; each [trips].

    A vehicle is observed for a part of the year of its own, from a season to the whole of it.
    """
    rng = generator(seed, "calendar", vehicle)
    period = int(rng.integers(SHORTEST_PERIOD_DAYS, DAYS + 1))
    first = int(rng.integers(DAYS))
    day = np.sort(rng.integers(period, size=trips))
    return (first + day) % DAYS, rng.uniform(6.5, 21.5, trips)


def trip_temperature_c(daily_c: FloatArray, day: IntArray, hour: FloatArray) -> FloatArray:
    """Outside temperature when each trip begins, [trips]."""
    clock = np.cos(2 * np.pi * (hour - WARMEST_HOUR) / 24)
    return daily_c[day] + NIGHT_TO_DAY_C * clock
