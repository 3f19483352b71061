"""Every channel of telemetry, declared once; a new channel is one more entry of `CHANNELS`.

Limits are wide enough for any road vehicle (a city bus pulls 2,000 A, a pass road reaches 40 %) and
narrow enough to catch a broken sensor or a wrong unit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf, nan, pi
from typing import Literal

Role = Literal["input", "position", "label", "raw"]
Rule = Literal["held", "linear", "mean", "any", "none"]
# Unit that a mapping may name -> (factor, offset); a channel's value is number * factor + offset.
Units = Mapping[str, tuple[float, float]]


@dataclass(frozen=True)
class Channel:
    """Unit and meaning of a channel, who may see it, and how it is read from recordings.

    role         "input": a model may see it. "position": kept on board for what is computed there,
                 never a feature by itself. "label": comes from the pack (paper `eq:pack_power`,
                 `eq:energy_increment_sf`), never a feature. "raw": used while cleaning, not stored.
    low, high    plausible range; a value outside counts as no reading
    rule         how it is resampled. "held": the last reading stays until the next. "linear": a
                 straight line between real updates. "mean": time-weighted mean of the held signal
                 over the interval. "any": 1 if set at any time in the interval. "none": not at all
    required     a trip without it is refused
    fallback     what stands in where a trip has no reading at all; NaN is "unknown", None leaves
                 the channel out
    units        the units that a mapping may name; a channel without any cannot be mapped
    usual_unit   the one to propose for a column that names none; the first of `units` by default
    discharges   its sign tells discharge (+) from charge, and recordings may have it reversed
    """

    unit: str
    meaning: str
    role: Role
    low: float = -inf
    high: float = inf
    rule: Rule = "none"
    required: bool = False
    fallback: float | None = None
    units: Units = field(default_factory=dict)
    usual_unit: str = ""
    discharges: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "usual_unit", self.usual_unit or next(iter(self.units), ""))


_POWER = {"W": (1.0, 0.0), "kW": (1e3, 0.0), "MW": (1e6, 0.0), "hp": (745.699872, 0.0)}
_ENERGY = {
    "Wh": (1.0, 0.0),
    "kWh": (1e3, 0.0),
    "J": (1 / 3600, 0.0),
    "kJ": (1 / 3.6, 0.0),
    "MJ": (1e3 / 3.6, 0.0),
}
_SPEED = {
    "m/s": (1.0, 0.0),
    "km/h": (1 / 3.6, 0.0),
    "mph": (0.44704, 0.0),
    "kn": (1852 / 3600, 0.0),
    "cm/s": (0.01, 0.0),
}
_CELSIUS = (1.0, 0.0)
_FAHRENHEIT = (5 / 9, -160 / 9)
_TEMPERATURE = {
    "°C": _CELSIUS,
    "C": _CELSIUS,
    "K": (1.0, -273.15),
    "°F": _FAHRENHEIT,
    "F": _FAHRENHEIT,
}
_RATIO = {"1": (1.0, 0.0), "%": (0.01, 0.0)}
# A slope in degrees is not a factor away from a ratio: see `mapping_reader.converted`.
_SLOPE = {**_RATIO, "degree": (1.0, 0.0)}
_LENGTH = {"m": (1.0, 0.0), "ft": (0.3048, 0.0), "km": (1e3, 0.0)}
DEGREE_MINUTE = "degree minute"
"""Unit of positions as text, such as "9 56.16600", "N 9° 56.166'" or "84.1 W"."""
_DEGREE = {"degree": (1.0, 0.0), "radian": (180 / pi, 0.0), DEGREE_MINUTE: (1.0, 0.0)}
_VOLTAGE = {"V": (1.0, 0.0), "mV": (1e-3, 0.0), "kV": (1e3, 0.0)}
_CURRENT = {"A": (1.0, 0.0), "mA": (1e-3, 0.0), "kA": (1e3, 0.0)}
_FLAG = {"0/1": (1.0, 0.0)}

CHANNELS: Mapping[str, Channel] = {
    "speed_mps": Channel(
        "m/s",
        "vehicle speed",
        "input",
        0.0,
        70.0,
        "linear",
        required=True,
        units=_SPEED,
        usual_unit="km/h",
    ),
    "ambient_c": Channel(
        "°C",
        "outside air temperature",
        "input",
        -60.0,
        60.0,
        "held",
        fallback=20.0,
        units=_TEMPERATURE,
    ),
    "ac_w": Channel(
        "W",
        "electric power of the air conditioning",
        "input",
        0.0,
        60_000.0,
        "held",
        fallback=nan,
        units=_POWER,
    ),
    "heater_w": Channel(
        "W",
        "electric power of the cabin heater",
        "input",
        0.0,
        60_000.0,
        "held",
        fallback=nan,
        units=_POWER,
    ),
    "grade": Channel(
        "1", "rise over run of the road, + uphill", "input", -0.4, 0.4, "linear", units=_SLOPE
    ),
    "elevation_m": Channel(
        "m", "height above sea level", "input", -500.0, 9_000.0, "linear", units=_LENGTH
    ),
    "speed_limit_mps": Channel(
        "m/s",
        "speed limit of the road",
        "input",
        1.0,
        45.0,
        "held",
        units=_SPEED,
        usual_unit="km/h",
    ),
    "intersection": Channel("0/1", "at an intersection", "input", 0.0, 1.0, "any", units=_FLAG),
    "bus_stop": Channel("0/1", "at a bus stop", "input", 0.0, 1.0, "any", units=_FLAG),
    "focus_point": Channel(
        "0/1", "at a signal, crossing, stop sign or the like", "input", 0.0, 1.0, "any", units=_FLAG
    ),
    "climb_m": Channel("m", "metres up in this second, from an elevation field", "input"),
    "descent_m": Channel("m", "metres down in this second, from an elevation field", "input"),
    "climb_known": Channel("0/1", "climb was read, not taken as level", "input"),
    "latitude_deg": Channel(
        "°", "latitude, WGS 84", "position", -90.0, 90.0, "linear", units=_DEGREE
    ),
    "longitude_deg": Channel(
        "°", "longitude, WGS 84", "position", -180.0, 180.0, "linear", units=_DEGREE
    ),
    "energy_wh": Channel("Wh", "energy leaving the pack, + discharge", "label"),
    "voltage_v": Channel("V", "pack voltage", "label", 30.0, 1_500.0, "mean", units=_VOLTAGE),
    "current_a": Channel(
        "A",
        "pack current, + discharge",
        "label",
        -2_000.0,
        2_000.0,
        "mean",
        units=_CURRENT,
        discharges=True,
    ),
    # A reading of 100.00003 % is full, not broken: resampling clips it to 1.
    "soc": Channel(
        "1", "state of charge, 0 to 1", "label", 0.0, 1.001, "held", units=_RATIO, usual_unit="%"
    ),
    "power_w": Channel(
        "W",
        "power leaving the pack, + discharge",
        "raw",
        -2_000_000.0,
        2_000_000.0,
        units=_POWER,
        discharges=True,
    ),
    "energy_step_wh": Channel(
        "Wh",
        "energy leaving the pack since the row before, + discharge",
        "raw",
        -100_000.0,
        100_000.0,
        units=_ENERGY,
        discharges=True,
    ),
    "energy_total_wh": Channel(
        "Wh",
        "counter of energy that has left the pack, + discharge",
        "raw",
        -1e9,
        1e9,
        units=_ENERGY,
        discharges=True,
    ),
    "engine_rpm": Channel("1/min", "speed of a hybrid's engine", "raw", 0.0, 20_000.0),
}

STORED = tuple(name for name, channel in CHANNELS.items() if channel.role != "raw")
"""Channels that a trip may have."""
MAPPABLE = tuple(name for name, channel in CHANNELS.items() if channel.units)
"""Channels that a mapping may name."""
POSITION = ("latitude_deg", "longitude_deg")
# In order of trust; the first whose channels a trip has gives its energy.
ENERGY_SOURCES: tuple[tuple[str, ...], ...] = (
    ("voltage_v", "current_a"),
    ("power_w",),
    ("energy_step_wh",),
    ("energy_total_wh",),
)
