"""A forecast: the energy of the minute after a window, in place of that of the window itself.

fedwatt run --set data.target=./examples/next_minute.py:next_minute
"""

from collections.abc import Mapping

from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows.splits import window_sums
from fedwatt.windows.targets import Target


def energy(values: Mapping[str, FloatArray], ends: IntArray, seconds: int) -> FloatArray:
    """Energy [W] of the spans of `seconds` that end at `ends` [W]."""
    return window_sums(values["energy_wh"], ends, length=seconds)


next_minute = Target(
    name="next_minute",
    unit="Wh",
    meaning="energy that leaves the pack",
    made_of=("energy_wh",),  # no feature may see it
    label=energy,
    horizon=60,
)
