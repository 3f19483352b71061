"""Recognition of channels: column, unit and sign, by header and by values."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from fedwatt.telemetry.channels import CHANNELS, DEGREE_MINUTE, MAPPABLE, POSITION
from fedwatt.telemetry.cleaning.glitches import METRES_PER_DEGREE
from fedwatt.telemetry.readers.mapping_reader import converted
from fedwatt.telemetry.recognise.header_words import fit, foreign_unit, stated_unit
from fedwatt.telemetry.recognise.table_sample import TableSample, is_numeric
from fedwatt.telemetry.trip import FloatArray

PLAUSIBLE = 0.5
"""Share of a column's readings that must lie within the channel's limits."""
CLEARLY = 0.9
KILO_BELOW = {"power_w": 1_000.0, "ac_w": 25.0, "heater_w": 25.0}
"""Powers that never exceed this without a stated unit are in kW."""
HOTTEST_C = 50.0
COLDEST_K = 200.0
"""An outside temperature that reaches numbers between these, without a stated unit, is in °F."""
COUNTER_RISE = 2.0
"""A counter rises this many times as much as it falls; energy per row rises and falls alike."""
RESET_RISES = 3.0
"""A fall of this many largest rises is a reset, or another vehicle's counter."""
COUNTER_ROWS = 20
SPEED_UNITS = ("km/h", "m/s", "mph")
SPEED_WITHIN = 0.15
LEAST_METRES = 300.0
SPEEDING_UP = 0.3
MOVING = 1.0
"""m/s a row, and m/s."""
LEAST_ROWS = 20
CLEAR = 0.2
"""Difference between speeding up and slowing down, in standard deviations, that tells."""


@dataclass(frozen=True)
class Guess:
    """The column of a channel, its unit and why that unit."""

    column: str
    unit: str
    why: str
    fit: float = 1.0


def find_channels(sample: TableSample, taken: Sequence[str], time_s: pl.Series) -> dict[str, Guess]:
    """Return the columns of a recording's channels, in the order of `MAPPABLE`."""
    offers = []
    for column in sample.columns:
        for named in MAPPABLE if column not in taken else ():
            channel = _counter_or_step(sample, column, named)
            if guess := _offer(sample, column, channel, fit(column, named)):
                offers.append((channel, guess))
    offers.sort(key=lambda offer: -offer[1].fit)
    guesses: dict[str, Guess] = {}
    used: set[str] = set()
    for channel, guess in offers:
        if channel not in guesses and guess.column not in used:
            guesses[channel] = guess
            used.add(guess.column)
    if "speed_mps" in guesses and guesses["speed_mps"].why.startswith("guessed"):
        guesses["speed_mps"] = speed_by_positions(sample, guesses, time_s)
    return {name: guesses[name] for name in MAPPABLE if name in guesses}


def _offer(sample: TableSample, column: str, channel: str, fits: float) -> Guess | None:
    """Return the column as this channel; None if its name or its readings speak against it."""
    units = CHANNELS[channel].units
    if not fits or foreign_unit(column, units):
        return None
    if not is_numeric(sample.rows[column], sample.numbers(column)):
        if channel in POSITION and is_numeric(
            sample.rows[column], _readings(sample, column, channel, DEGREE_MINUTE)
        ):
            return Guess(column, DEGREE_MINUTE, "text of degrees and minutes", fits)
        return None
    stated = stated_unit(column, units) or stated_unit(f"x [{sample.unit_row(column)}]", units)
    unit, why = _unit(sample, column, channel, stated)
    return Guess(column, unit, why, fits) if unit else None


def misfits(
    sample: TableSample, unused: Sequence[str], channels: Container[str]
) -> tuple[str, ...]:
    """Return a sentence on each unused column that is named like a channel which no column has."""
    lines = []
    for column in unused:
        named = [name for name in MAPPABLE if fit(column, name) >= CLEARLY and name not in channels]
        readings = sample.rows[column].drop_nulls()
        if named and len(readings) and not foreign_unit(column, CHANNELS[named[0]].units):
            units = ", ".join(CHANNELS[named[0]].units)
            lines.append(
                f"Column '{column}' is named like {named[0]}, but its readings, such as "
                f"{readings[len(readings) // 2]}, fit none of its units ({units}) and are not used."
            )
    return tuple(lines)


def _readings(sample: TableSample, column: str, channel: str, unit: str) -> pl.Series:
    """Return a column that is measured in `unit`, in the channel's own unit."""
    raw = sample.rows[column] if unit == DEGREE_MINUTE else sample.numbers(column)
    return raw.to_frame("x").select(converted(pl.col("x"), channel, unit))["x"]


def _unit(sample: TableSample, column: str, channel: str, stated: str) -> tuple[str, str]:
    """Return unit of readings and why; ("", "") if they fit the channel in none."""
    largest = float(sample.numbers(column).abs().quantile(0.99) or 0.0)
    units = [unit for unit in CHANNELS[channel].units if unit != DEGREE_MINUTE]
    shares = {unit: _plausible(_readings(sample, column, channel, unit), channel) for unit in units}
    if channel == "soc":
        return _share_or_percent(sample.numbers(column), shares, stated)
    if stated:
        # Negative speeds are the channel's all the same: cleaning says what is wrong with them.
        believed = shares[stated] >= PLAUSIBLE or channel == "speed_mps"
        return (stated, "by its name") if believed else ("", "")
    if channel in KILO_BELOW and set(sample.numbers(column).drop_nulls().unique()) == {0.0, 1.0}:
        return "", ""  # a switch, on or off
    if channel in KILO_BELOW and largest:
        if largest < KILO_BELOW[channel]:
            return "kW", f"guessed: none is above {largest:.3g}"
        return "W", f"guessed: they reach {largest:.3g}"
    if channel == "ambient_c" and HOTTEST_C < largest < COLDEST_K:
        return "°F", f"guessed: they reach {largest:.3g}"
    usual = CHANNELS[channel].usual_unit
    if shares[usual] >= CLEARLY or channel == "speed_mps":
        fitting = [unit for unit, share in shares.items() if share >= PLAUSIBLE]
        if channel in POSITION and fitting == [usual]:
            return usual, "no other unit fits"
        return usual, f"guessed: one of {', '.join(units)}"
    best = max(shares, key=lambda unit: shares[unit])
    return (best, "guessed: no other unit fits") if shares[best] >= PLAUSIBLE else ("", "")


def _share_or_percent(
    numbers: pl.Series, shares: Mapping[str, float], stated: str
) -> tuple[str, str]:
    """Return the unit of a state of charge, 0 to 1 or 0 to 100, and why: its readings decide."""
    largest = float(np.nanmax(numbers.to_numpy(), initial=0.0))
    unit = "1" if largest <= CHANNELS["soc"].high else "%"
    if shares[unit] < PLAUSIBLE:
        return "", ""
    return unit, "by its name" if unit == stated else f"its readings reach {largest:.3g}"


def _plausible(readings: pl.Series, channel: str) -> float:
    """Return the share of readings within the channel's limits."""
    within = readings.is_between(CHANNELS[channel].low, CHANNELS[channel].high)
    return float(within.sum()) / max(within.count(), 1)


def _counter_or_step(sample: TableSample, column: str, channel: str) -> str:
    """Return the channel, or that of a counter for a column "energy" that mostly grows.

    A counter of the net energy falls while the vehicle brakes, and starts anew after a reset.
    """
    if channel != "energy_step_wh" or not fit(column, channel):
        return channel
    steps = np.diff(sample.numbers(column).drop_nulls().to_numpy())
    if len(steps) <= COUNTER_ROWS:
        return channel
    rise = float(steps[steps > 0].sum())
    fall = -float(steps[(steps < 0) & (steps >= -RESET_RISES * steps.max())].sum())
    return "energy_total_wh" if rise > COUNTER_RISE * fall else channel


def speed_by_positions(
    sample: TableSample, guesses: Mapping[str, Guess], time_s: pl.Series
) -> Guess:
    """Return the speed in the unit in which its distance agrees with that by position."""
    guess = guesses["speed_mps"]
    if not all(name in guesses for name in POSITION):
        return guess
    speed = sample.numbers(guess.column).to_numpy()
    latitude, longitude = (
        _readings(sample, guesses[name].column, name, guesses[name].unit).to_numpy()
        for name in POSITION
    )
    ratio = _metres_ratio(time_s.to_numpy(), speed, latitude, longitude)
    for unit in SPEED_UNITS:
        factor = CHANNELS["speed_mps"].units[unit][0]
        if ratio and abs(ratio * factor - 1) < SPEED_WITHIN:
            return Guess(guess.column, unit, "so the distance fits the positions", guess.fit)
    return guess


def _metres_ratio(
    time_s: FloatArray, speed: FloatArray, latitude: FloatArray, longitude: FloatArray
) -> float:
    """Return distance by speed, in its unit, over distance by position; 0 if too short."""
    step = np.diff(time_s)
    north = np.diff(latitude)
    east = np.diff(longitude) * np.cos(np.radians(latitude[:-1]))
    metres = np.hypot(north, east) * METRES_PER_DEGREE
    # Neighbouring rows only: between vehicles and trips positions jump.
    near = (step > 0) & (step < 60) & (metres < 70 * np.maximum(step, 1.0))
    near &= np.isfinite(speed[:-1]) & np.isfinite(metres)
    by_position = float(metres[near].sum())
    if by_position < LEAST_METRES:
        return 0.0
    return float((speed[:-1][near] * step[near]).sum()) / by_position


def discharge_sign(
    sample: TableSample, name: str, channels: Mapping[str, Guess], order: pl.Series
) -> tuple[str, str]:
    """Return "positive" or "negative", the sign while the pack discharges, and the reason.

    `order` sorts the rows by vehicle, trip and time.
    """
    if name == "energy_total_wh":
        return "positive", "a counter of what was used"
    # Loggers of events write a row for each signal: the others hold.
    values = sample.numbers(channels[name].column).gather(order).forward_fill().to_numpy()
    speed = np.zeros(len(values))
    if moved := channels.get("speed_mps"):
        readings = _readings(sample, moved.column, "speed_mps", moved.unit)
        speed = readings.gather(order).forward_fill().to_numpy()
    return _sign_by_motion(values, speed)


def _sign_by_motion(values: FloatArray, speed_mps: FloatArray) -> tuple[str, str]:
    """Return "positive" or "negative", the sign of readings while the pack discharges, and why.

    Both arrays are [rows]. Speeding up takes energy and slowing down gives some back: if the
    numbers are larger while the vehicle speeds up, discharge is positive. If they hardly differ,
    the sign of their mean while the vehicle moves counts, since a pack gives more than it takes.
    """
    finite = np.isfinite(values) & np.isfinite(speed_mps)
    value = values[finite]
    speed = speed_mps[finite]
    if not len(value):
        return "positive", "not known: no readings to guess from"
    change = np.diff(speed, append=speed[-1:])
    up = value[change > SPEEDING_UP]
    down = value[change < -SPEEDING_UP]
    spread = float(value.std())
    if min(len(up), len(down)) >= LEAST_ROWS and spread > 0:
        difference = float(up.mean() - down.mean())
        if abs(difference) > CLEAR * spread:
            sign = "positive" if difference > 0 else "negative"
            return sign, f"{'larger' if difference > 0 else 'smaller'} while speed rises"
    moving = value[speed > MOVING]
    mean = float((moving if len(moving) else value).mean())
    if mean == 0:
        return "positive", "not known: its mean in the first rows is 0"
    sign = "negative" if mean < 0 else "positive"
    return sign, f"guessed: its mean in the first rows is {sign}"
