"""Look at a file's headers and first rows and propose a mapping, as TOML with comments to check."""

import json
import re
from collections.abc import Container
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import polars as pl

from fedwatt.data.channels import CHANNELS, MAPPABLE
from fedwatt.data.readers.mapping import TIME
from fedwatt.errors import DataError

SEPARATORS = (",", ";", "\t", "|")
SAMPLE_ROWS = 2_000
SAMPLE_BYTES = 1 << 20

NOT_THE_VEHICLE = re.compile(r"wind|engine|motor|fan|wheel|cell|\brpm\b|\b12 ?v\b|aux")
TIME_PATTERN = re.compile(r"\b(time|timestamp|date|datetime|t|seconds)\b|timestamp|time s$")
VEHICLE_PATTERN = re.compile(
    r"\b(veh ?id|vehicle id|vehicle|car|vin|device|actor id|bus id|truck id)\b"
)
TRIP_PATTERN = re.compile(r"\b(trip|trip id|journey|ride|drive|session)\b")
UNIT_WORDS = {
    "kmh": "km/h", "kph": "km/h", "km h": "km/h", "mps": "m/s", "m s": "m/s", "mph": "mph",
    "kw": "kW", "w": "W", "watts": "W", "watt": "W", "v": "V", "mv": "mV", "a": "A", "ma": "mA",
    "wh": "Wh", "kwh": "kWh", "j": "J", "kj": "kJ", "percent": "%", "pct": "%", "degc": "°C",
    "c": "°C", "celsius": "°C", "degf": "°F", "f": "°F", "fahrenheit": "°F", "k": "K",
    "m": "m", "ft": "ft", "deg": "degree", "ms": "ms", "s": "s", "us": "us", "sec": "s",
    "min": "min",
}  # fmt: skip

_quoted = partial(json.dumps, ensure_ascii=False)  # TOML's strings are JSON's


@dataclass(frozen=True)
class _Guess:
    column: str
    unit: str
    stated: bool


def propose_mapping(path: str | Path) -> str:
    """TOML text of a mapping for this CSV or Parquet file; what is guessed says so."""
    path = Path(path)
    sample, separator = _sample(path)
    plain = {name: _plain(name) for name in sample.columns}
    time = next((c for c, text in plain.items() if TIME_PATTERN.search(text)), None)
    vehicle = next((c for c, t in plain.items() if c != time and VEHICLE_PATTERN.search(t)), None)
    trip = next((c for c, t in plain.items() if c != time and TRIP_PATTERN.search(t)), None)
    taken = {time, trip} | ({vehicle} if vehicle and not _channel_of(plain[vehicle]) else set())
    vehicle = vehicle if vehicle in taken else None
    channels: dict[str, _Guess] = {}
    for column, text in plain.items():
        channel = _channel_of(text, column) if column not in taken else ""
        if channel and channel not in channels:
            unit = _unit(column, text, CHANNELS[channel].units)
            usual = CHANNELS[channel].usual_unit
            channels[channel] = _Guess(column, unit or usual, stated=bool(unit))
            taken.add(column)
    seen = "headers and first rows" if sample.height else "headers alone: it has no rows"
    lines = [f"# Proposed for {path.name} from its {seen}. Check every line.", ""]
    lines += ['kind = "passenger"       # passenger, truck or bus']
    lines += ['labels = "measured"      # measured or simulated', ""]
    if separator != ",":
        lines += ["[file]", f"separator = {_quoted(separator)}", ""]
    lines += _time_lines(sample, time)
    lines += _origin_lines("vehicle", vehicle, "one file a vehicle; or column = ..., name = ...")
    lines += _origin_lines("trip", trip, "one file a trip; or column = ...")
    for channel in MAPPABLE:
        if channel in channels:
            lines += _channel_lines(channel, channels[channel], sample)
    if "speed_mps" not in channels:
        lines += ["# No column looks like speed. Every trip needs it:", "# [channels.speed_mps]"]
        lines += ['# column = "..."', '# unit = "km/h"', ""]
    unused = [name for name in sample.columns if name not in taken]
    if unused:
        lines += ["# Not used: " + ", ".join(unused), ""]
    lines += _free_lines(channels)
    return "\n".join(lines).rstrip() + "\n"


def _sample(path: Path) -> tuple[pl.DataFrame, str]:
    if not path.is_file():
        raise DataError(f"{path} is not a file. Name one CSV or Parquet file to look at.")
    if not path.stat().st_size:
        raise DataError(f"{path.name} is empty (0 bytes). Name a file with rows.")
    if path.suffix.lower() == ".parquet":
        try:
            return pl.scan_parquet(path).head(SAMPLE_ROWS).collect(), ","
        except pl.exceptions.PolarsError as error:
            raise DataError(f"{path.name} is not a readable Parquet file.") from error
    with path.open("rb") as file:
        text = file.read(SAMPLE_BYTES).decode("utf-8-sig", errors="replace")
    separator = max(SEPARATORS, key=text.partition("\n")[0].count)
    whole_lines = text[: text.rfind("\n") + 1] or text
    sample = pl.read_csv(
        whole_lines.encode(),
        separator=separator,
        n_rows=SAMPLE_ROWS,
        infer_schema_length=SAMPLE_ROWS,
        ignore_errors=True,
        truncate_ragged_lines=True,
    )
    return sample, separator


def _plain(name: str) -> str:
    """Name as patterns see it.

    >>> _plain("HV Battery Voltage[V]"), _plain("batteryCurrent_A")
    ('hv battery voltage v', 'battery current a')
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)
    return " ".join(re.sub(r"[^a-z0-9%°]+", " ", spaced.casefold()).split())


def _channel_of(text: str, column: str = "") -> str:
    """The first channel that a column of this name may hold, or ""; the wind's speed is none.

    A unit in brackets that the channel cannot have speaks against it.

    >>> _channel_of("vehicle speed km h"), _channel_of("wind speed km h")
    ('speed_mps', '')
    >>> _channel_of("outside air"), _channel_of("outside air %", "Outside Air [%]")
    ('ambient_c', '')
    """
    foreign = NOT_THE_VEHICLE.search(text)
    known = {unit for channel in CHANNELS.values() for unit in channel.units}
    unit = _unit(column, text, known) if re.search(r"[\[(]", column) else ""
    for name, channel in CHANNELS.items():
        about_it = not foreign or foreign[0] in channel.header
        if unit and unit not in channel.units:
            continue
        if channel.header and about_it and re.search(channel.header, text):
            return name
    return ""


def _unit(column: str, text: str, allowed: Container[str]) -> str:
    """Unit written in brackets or at the end of the name, if the channel can have it."""
    bracket = re.search(r"[\[(]\s*([^\])]+?)\s*[\])]", column)
    words = text.split()
    tail = re.split(r"[^A-Za-z0-9%°]+", column.strip("])"))[-1]
    for candidate in (bracket[1] if bracket else "", tail, " ".join(words[-2:]), words[-1]):
        unit = candidate if candidate in allowed else UNIT_WORDS.get(candidate.casefold(), "")
        if unit in allowed:
            return unit
    return ""


def _time_lines(sample: pl.DataFrame, column: str | None) -> list[str]:
    if column is None:
        return ["# No column looks like time:", "[time]", 'column = "..."', 'unit = "s"', ""]
    unit, why = _unit(column, _plain(column), TIME), "as its name says"
    if not sample.height:
        unit, why = unit or "s", why if unit else "not known: no rows to guess from"
    elif not sample[column].dtype.is_numeric():
        unit, why = "iso", "dates and times as text"
    elif not unit:
        step = sample[column].cast(pl.Float64).diff().abs().median()
        fast = isinstance(step, float) and step >= 50
        unit, why = ("ms", "guessed: steps of 50 and more") if fast else ("s", "guessed")
    return ["[time]", f"column = {_quoted(column)}", f'unit = "{unit}"    # {why}', ""]


def _origin_lines(key: str, column: str | None, otherwise: str) -> list[str]:
    if column is None:
        return [f"[{key}]", f'from = "file"    # {otherwise}', ""]
    return [f"[{key}]", f"column = {_quoted(column)}", ""]


def _channel_lines(channel: str, guess: _Guess, sample: pl.DataFrame) -> list[str]:
    guessed = "guessed: one of " + ", ".join(CHANNELS[channel].units)
    why = "as its name says" if guess.stated else guessed
    lines = [f"[channels.{channel}]", f"column = {_quoted(guess.column)}"]
    lines += [f'unit = "{guess.unit}"    # {why}']
    # The mean of a counter tells nothing about its sign.
    if CHANNELS[channel].discharges and channel != "energy_total_wh":
        lines += [_sign_line(sample[guess.column].cast(pl.Float64, strict=False))]
    return [*lines, ""]


def _sign_line(values: pl.Series) -> str:
    """The sign of discharge: a pack gives more than it takes, so that of the mean."""
    mean = values.fill_nan(None).mean()
    if not isinstance(mean, float):
        return 'discharge = "positive"    # not known: no readings to guess from'
    if mean == 0:
        return 'discharge = "positive"    # not known: its mean in the first rows is 0'
    sign = "negative" if mean < 0 else "positive"
    return f'discharge = "{sign}"    # guessed: its mean in the first rows is {sign}'


def _free_lines(taken: Container[str]) -> list[str]:
    """The channels that no column was given to, as comments: name, meaning, units."""
    free = [name for name in MAPPABLE if name not in taken]
    if not free:
        return []
    lines = ["# Channels still free, each with the units it may have:"]
    for name, channel in ((name, CHANNELS[name]) for name in free):
        lines.append(f"# [channels.{name}]    {channel.meaning}; {', '.join(channel.units)}")
    return lines
