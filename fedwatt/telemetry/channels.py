"""Channels of telemetry: meaning, units, plausible range and use, as `channels.toml` has them."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import resources
from math import inf
from typing import Literal

Role = Literal["input", "position", "label", "raw"]
Rule = Literal["held", "linear", "mean", "any", "none"]


@dataclass(frozen=True)
class Channel:
    """Unit and meaning of a channel, who may see it, and how it is read from recordings.

    role         "input": a model may see it. "position": stays in the vehicle for its own use,
                 never a feature by itself. "label": comes from the pack (paper `eq:pack_power`,
                 `eq:energy_increment_sf`), never a feature. "raw": used while cleaning, not stored.
    low, high    plausible range; a value outside counts as no reading
    rule         how it is resampled. "held": the last reading stays until the next. "linear": a
                 straight line between real updates. "mean": time-weighted mean of the held signal
                 over the interval. "any": 1 if set at any time in the interval. "none": not at all
    required     a trip without it is refused
    fallback     what stands in where a trip has no reading at all; NaN is "unknown", None leaves
                 the channel out
    units        the units that a mapping may name, each with factor and offset: the channel's value
                 is number * factor + offset; a channel without any cannot be mapped
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
    units: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    usual_unit: str = ""
    discharges: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "usual_unit", self.usual_unit or next(iter(self.units), ""))


_DECLARED = tomllib.loads(
    (resources.files("fedwatt.telemetry") / "channels.toml").read_text(encoding="utf-8")
)
_UNITS = _DECLARED["units"] | {"": {}}
CHANNELS: Mapping[str, Channel] = {
    name: Channel(**declared | {"units": _UNITS[declared.get("units", "")]})
    for name, declared in _DECLARED["channels"].items()
}
DEGREE_MINUTE = "degree minute"
"""Unit of positions as text, such as "9 56.16600", "N 9° 56.166'" or "84.1 W"."""
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
