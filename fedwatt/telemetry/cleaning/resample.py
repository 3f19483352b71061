"""From events to a uniform clock, each channel by its own rule; energy is conserved exactly.

A trip recorded from 0 to D seconds gives R = ceil(D) samples at 1, 2, ... R seconds.
Sample r stands for the interval (r - 1, r]: instantaneous channels are read at its end,
energy (paper `eq:energy_increment_sf`) is integrated over it. The last interval may reach past the
last row; nothing is added there, so the increments sum to the integral over the recorded rows.
"""

import numpy as np

from fedwatt.telemetry.channels import CHANNELS, ENERGY_SOURCES, POSITION
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray, RawTrip

SECONDS_PER_HOUR = 3600.0
# Gradients from matched elevations jump where a road segment begins.
GRADE_SMOOTHING_S = 5
LONGEST_HOLD_S = 5.0


def resample(trip: RawTrip) -> dict[str, FloatArray]:
    """Return the trip's channels with readings and `energy_wh`, float64 [seconds]."""
    # Rounded to a microsecond, so that a row at 13.0 s is not found just after sample 13.
    time_s = np.round(trip.time_s - trip.time_s[0], 6)
    samples = int(np.ceil(time_s[-1]))
    edges_s: FloatArray = np.arange(samples + 1, dtype=np.float64)
    channels: dict[str, FloatArray] = {}
    for name, channel in CHANNELS.items():
        if channel.rule == "none" or not trip.has(name):
            continue
        recorded = np.isfinite(trip.channels[name])
        times = time_s[recorded]
        values = trip.channels[name][recorded]
        rule = channel.rule
        if rule == "held":
            channels[name] = held(times, values, edges_s[1:])
        elif rule == "linear" and name not in POSITION:
            channels[name] = between_updates(times, (values,), edges_s[1:])[0]
        elif rule == "mean":
            channels[name] = interval_mean(times, values, edges_s, time_s[-1])
        elif rule == "any":
            channels[name] = any_set(times, values, edges_s, time_s[-1])
    channels.update(_position(trip, time_s, edges_s))
    if "grade" in channels:
        channels["grade"] = centred_mean(channels["grade"], GRADE_SMOOTHING_S)
    if "soc" in channels:
        channels["soc"] = np.clip(channels["soc"], 0.0, 1.0)
    total_wh = cumulative_energy_wh(trip, time_s)
    if total_wh is not None:
        channels["energy_wh"] = np.diff(np.interp(edges_s, time_s, total_wh))
    return channels


def held(time_s: FloatArray, values: FloatArray, at_s: FloatArray) -> FloatArray:
    """Return the last value at or before each time, or the first if there is none. [samples].

    >>> held(np.array([0.0, 1.5]), np.array([7.0, 9.0]), np.array([1.0, 2.0]))
    array([7., 9.])
    """
    return values[np.maximum(np.searchsorted(time_s, at_s, side="right") - 1, 0)]


def updates(*columns: FloatArray) -> IntArray:
    """Return the rows at which a held column takes a new value, the first included.

    >>> updates(np.array([5.0, 5.0, 6.0, 6.0, 5.0]))
    array([0, 2, 4])
    """
    changed = np.zeros(len(columns[0]), dtype=bool)
    changed[0] = True
    for values in columns:
        changed[1:] |= values[1:] != values[:-1]
    return np.flatnonzero(changed)


def usual_hold_s(time_s: FloatArray, rows: IntArray) -> float:
    """Return the usual time between updates of a value, from the rows of its updates.

    1.5 times the median spacing of updates; at most 5 s, since a value that stands longer is steady
    rather than slow, unless rows themselves are further apart.

    >>> usual_hold_s(np.arange(9.0), np.array([0, 2, 4, 8]))
    3.0
    """
    if len(rows) < 2:
        return 0.0
    longest_s = max(LONGEST_HOLD_S, 1.5 * float(np.median(np.diff(time_s))))
    return min(longest_s, 1.5 * float(np.median(np.diff(time_s[rows]))))


def between_updates(
    time_s: FloatArray,
    columns: tuple[FloatArray, ...],
    at_s: FloatArray,
    hold_s: float | None = None,
) -> tuple[FloatArray, ...]:
    """Interpolate between the real updates of held columns, each [samples].

    A value that stood longer than usual was steady (a car at a red light), so the line to the next
    update begins one usual hold before it rather than at the last change. What is usual is measured
    on the rows given unless `hold_s` says it: a stream has not seen the trip's end.

    >>> time_s, speed = np.array([0.0, 1.0, 2.0, 3.0, 9.0]), np.array([2.0, 1.0, 0.0, 0.0, 3.0])
    >>> between_updates(time_s, (speed,), np.array([0.5, 5.0, 8.25]))
    (array([1.5, 0. , 1.5]),)
    """
    rows = updates(*columns)
    knots_s = time_s[rows]
    hold_s = usual_hold_s(time_s, rows) if hold_s is None else hold_s
    leave_s = np.maximum(knots_s[:-1], knots_s[1:] - hold_s)
    # knot 0, then for every later knot: where its line begins, and the knot itself
    line_s = np.empty(2 * len(rows) - 1)
    line_s[0::2] = knots_s
    line_s[1::2] = leave_s
    # A line begins at the value of the knot before.
    before = np.repeat(rows, 2)[:-1]
    return tuple(np.interp(at_s, line_s, values[before]) for values in columns)


def centred_mean(values: FloatArray, width: int) -> FloatArray:
    """Return the centred moving mean [samples] over `width` samples, over fewer at the ends.

    >>> centred_mean(np.array([0.0, 3.0, 0.0, 0.0]), 3)
    array([0., 1., 1., 0.])
    """
    total = np.concatenate(([0.0], np.cumsum(values)))
    at = np.arange(len(values))
    half = np.minimum(width // 2, np.minimum(at, at[::-1]))
    return np.asarray((total[at + half + 1] - total[at - half]) / (2 * half + 1))


def interval_mean(
    time_s: FloatArray, values: FloatArray, edges_s: FloatArray, end_s: float
) -> FloatArray:
    """Return the time-weighted mean of a held signal over each interval. [samples].

    >>> interval_mean(np.array([0.0, 0.25]), np.array([4.0, 8.0]), np.array([0.0, 1.0, 2.0]), 1.5)
    array([7., 8.])
    """
    observed_s = np.diff(np.minimum(edges_s, end_s))
    return np.diff(np.interp(edges_s, *_integral(time_s, values, end_s))) / observed_s


def any_set(
    time_s: FloatArray, values: FloatArray, edges_s: FloatArray, end_s: float
) -> FloatArray:
    """Return 1 where a held flag was set at any time in the interval, else 0. [samples].

    >>> any_set(np.array([0.0, 1.2, 1.4]), np.array([0.0, 1.0, 0.0]), np.arange(4.0), 3.0)
    array([0., 1., 0.])
    """
    set_s = np.diff(np.interp(edges_s, *_integral(time_s, values, end_s)))
    return (set_s > 0).astype(float)


def _integral(
    time_s: FloatArray, values: FloatArray, end_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return times and running integral of the held signal from 0 to `end_s`, [rows + 1] each.

    The first value reaches back to 0.
    """
    borders_s = np.concatenate(([0.0], time_s[1:], [end_s]))
    return borders_s, np.concatenate(([0.0], np.cumsum(values * np.diff(borders_s))))


def _position(trip: RawTrip, time_s: FloatArray, edges_s: FloatArray) -> dict[str, FloatArray]:
    if not all(trip.has(name) for name in POSITION):
        return {}
    located = np.isfinite([trip.channels[name] for name in POSITION]).all(axis=0)
    if not located.any():
        return {}
    readings = tuple(trip.channels[name][located] for name in POSITION)
    lines = between_updates(time_s[located], readings, edges_s[1:])
    return dict(zip(POSITION, lines, strict=True))


def energy_source(trip: RawTrip) -> tuple[str, ...]:
    """Return the channels that the trip's energy comes from; () without pack signals."""
    return next((names for names in ENERGY_SOURCES if all(map(trip.has, names))), ())


def cumulative_energy_wh(trip: RawTrip, time_s: FloatArray) -> FloatArray | None:
    """Return the energy that left the pack since the first row, [rows]; None without pack signals.

    Power P = V I (current + = discharge, paper `eq:pack_power`) is held from row to row, so the
    integral is exact: no row spacing is lost and none is counted twice.
    """
    names = energy_source(trip)
    if not names:
        return None
    first = forward_filled(trip.channels[names[0]])
    if names == ("energy_total_wh",):
        return np.asarray(first - first[0])
    if names == ("energy_step_wh",):
        # A step is the energy since the row before: the first has no interval in this trip, and a
        # missing one is lost, not repeated.
        steps = np.nan_to_num(trip.channels[names[0]], nan=0.0)
        return np.asarray(np.cumsum(steps) - steps[0])
    power_w = first
    if names == ("voltage_v", "current_a"):
        power_w = first * forward_filled(trip.channels["current_a"])
    joules = np.cumsum(power_w[:-1] * np.diff(time_s))
    return np.concatenate(([0.0], joules / SECONDS_PER_HOUR))


def forward_filled(values: FloatArray) -> FloatArray:
    """Replace each NaN by the reading before it, at the start by the first reading.

    >>> forward_filled(np.array([np.nan, 1.0, np.nan, 3.0]))
    array([1., 1., 1., 3.])
    """
    finite = np.isfinite(values)
    return values if finite.all() or not finite.any() else values[last_known(finite)]


def last_known(finite: BoolArray) -> IntArray:
    """Return the index of the last finite entry at or before each, or of the first. [entries].

    >>> last_known(np.array([False, True, False, True])).tolist()
    [1, 1, 1, 3]
    """
    last = np.maximum.accumulate(np.where(finite, np.arange(len(finite)), -1))
    return np.where(last < 0, np.argmax(finite), last)
