"""Units a mapping may name, and the arithmetic that leads to the schema's."""

import polars as pl

from fedwatt.errors import unknown

# schema value = number * factor + offset
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
_RATIO = {"1": (1.0, 0.0), "%": (0.01, 0.0)}
_FLAG = {"0/1": (1.0, 0.0)}
_DEGREE = {"degree": (1.0, 0.0), "radian": (57.29577951308232, 0.0)}

TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "min": 60.0, "h": 3600.0}
UNITS: dict[str, dict[str, tuple[float, float]]] = {
    "speed_mps": _SPEED,
    "ambient_c": {
        "°C": (1.0, 0.0),
        "C": (1.0, 0.0),
        "K": (1.0, -273.15),
        "°F": (5 / 9, -160 / 9),
        "F": (5 / 9, -160 / 9),
    },
    "ac_w": _POWER,
    "heater_w": _POWER,
    # A slope in degrees is not a factor away from a ratio: see `converted`.
    "grade": {**_RATIO, "degree": (1.0, 0.0)},
    "elevation_m": {"m": (1.0, 0.0), "ft": (0.3048, 0.0), "km": (1e3, 0.0)},
    "speed_limit_mps": _SPEED,
    "intersection": _FLAG,
    "bus_stop": _FLAG,
    "focus_point": _FLAG,
    "latitude_deg": _DEGREE,
    "longitude_deg": _DEGREE,
    "voltage_v": {"V": (1.0, 0.0), "mV": (1e-3, 0.0), "kV": (1e3, 0.0)},
    "current_a": {"A": (1.0, 0.0), "mA": (1e-3, 0.0), "kA": (1e3, 0.0)},
    "soc": _RATIO,
    "power_w": _POWER,
    "energy_step_wh": _ENERGY,
    "energy_total_wh": _ENERGY,
}


def converted(value: pl.Expr, channel: str, unit: str) -> pl.Expr:
    """The column in the schema's unit.

    >>> pl.DataFrame({"v": [36.0]}).select(converted(pl.col("v"), "speed_mps", "km/h")).item()
    10.0
    """
    if channel == "grade" and unit == "degree":
        return value.radians().tan()
    factor, offset = UNITS[channel][unit]
    return value * factor + offset


def unknown_unit(channel: str, unit: str) -> str:
    """Sentence for a unit the channel cannot have."""
    return unknown("unit", unit, UNITS[channel])
