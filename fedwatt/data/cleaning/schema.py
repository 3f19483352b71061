"""The one schema every reader fills: channels, units, plausible ranges and how each is resampled.

Limits are wide enough for any road vehicle (a city bus pulls 2,000 A, a pass road reaches 40 %) and
narrow enough to catch a broken sensor or a wrong unit. A value outside becomes "no reading".
"""

from dataclasses import dataclass
from typing import Literal

Rule = Literal["held", "linear", "mean", "any", "none"]


@dataclass(frozen=True)
class Channel:
    """Unit, meaning, plausible range and resampling rule of a channel.

    held: the last reading stays until the next. linear: straight line between real updates.
    mean: time-weighted mean of the held signal over the interval. any: 1 if set at any time in the
    interval. none: used while cleaning, not written.
    """

    unit: str
    meaning: str
    low: float
    high: float
    rule: Rule


CHANNELS: dict[str, Channel] = {
    "speed_mps": Channel("m/s", "vehicle speed", 0.0, 70.0, "linear"),
    "ambient_c": Channel("°C", "outside air temperature", -60.0, 60.0, "held"),
    "ac_w": Channel("W", "electric power of the air conditioning", 0.0, 60_000.0, "held"),
    "heater_w": Channel("W", "electric power of the cabin heater", 0.0, 60_000.0, "held"),
    "grade": Channel("1", "rise over run of the road, + uphill", -0.4, 0.4, "linear"),
    "elevation_m": Channel("m", "height above sea level", -500.0, 9_000.0, "linear"),
    "speed_limit_mps": Channel("m/s", "speed limit of the road", 1.0, 45.0, "held"),
    "intersection": Channel("0/1", "at an intersection", 0.0, 1.0, "any"),
    "bus_stop": Channel("0/1", "at a bus stop", 0.0, 1.0, "any"),
    "focus_point": Channel("0/1", "at a signal, crossing, stop sign or the like", 0.0, 1.0, "any"),
    "latitude_deg": Channel("°", "latitude, WGS 84", -90.0, 90.0, "linear"),
    "longitude_deg": Channel("°", "longitude, WGS 84", -180.0, 180.0, "linear"),
    "voltage_v": Channel("V", "pack voltage", 30.0, 1_500.0, "mean"),
    "current_a": Channel("A", "pack current, + discharge", -2_000.0, 2_000.0, "mean"),
    # A reading of 100.00003 % is full, not broken: resampling clips it to 1.
    "soc": Channel("1", "state of charge, 0 to 1", 0.0, 1.001, "held"),
    # Sources of energy_wh other than voltage and current, and the mark of a running engine.
    "power_w": Channel(
        "W", "power leaving the pack, + discharge", -2_000_000.0, 2_000_000.0, "none"
    ),
    "energy_step_wh": Channel(
        "Wh",
        "energy leaving the pack since the row before, + discharge",
        -100_000.0,
        100_000.0,
        "none",
    ),
    "energy_total_wh": Channel(
        "Wh", "counter of energy that has left the pack, + discharge", -1e9, 1e9, "none"
    ),
    "engine_rpm": Channel("1/min", "speed of a hybrid's engine", 0.0, 20_000.0, "none"),
}

POSITION = ("latitude_deg", "longitude_deg")
# In order of trust; the first whose channels a trip has gives its energy.
ENERGY_SOURCES: tuple[tuple[str, ...], ...] = (
    ("voltage_v", "current_a"),
    ("power_w",),
    ("energy_step_wh",),
    ("energy_total_wh",),
)
# Inputs a model always sees, and what stands in when a trip has no reading at all.
FALLBACKS = {"ambient_c": 20.0, "ac_w": 0.0, "heater_w": 0.0}
