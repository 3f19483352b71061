"""Recognise when rows were recorded, and of which vehicle and trip: columns, files and pauses."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from math import ceil, isnan
from pathlib import Path

import numpy as np
import polars as pl

from fedwatt.errors import DataError, SettingError, unknown
from fedwatt.telemetry.cleaning.clean import ROWS_BRIDGED
from fedwatt.telemetry.cleaning.segments import DATED_S
from fedwatt.telemetry.readers.mapping import TIME
from fedwatt.telemetry.readers.mapping_reader import joined, numbered, parsed, seconds, without_zone
from fedwatt.telemetry.recognise.header_words import fit, names_id, shipped, stated_unit
from fedwatt.telemetry.recognise.table_sample import TableSample, is_numeric
from fedwatt.telemetry.trip import FloatArray

USUAL_GAP_S = 10.0
EVENT_SHARE = 0.95
"""Loggers driven by change write at any interval: nearly all of these count as recorded."""
LONGEST_EVENT_S = 120.0
PAUSE_S = 300.0
PAUSES_GAPS = 5.0


@dataclass(frozen=True)
class Spacing:
    """Usual interval between rows, longest gap to bridge, pause that ends a trip; all in s."""

    interval_s: float
    maximum_gap_s: float
    pause_s: float

    def sentence(self) -> str:
        """Return the interval in words."""
        if isnan(self.interval_s):
            return "no two rows to measure it on"
        return f"rows are usually {self.interval_s:.3g} s apart"


def spacing(steps_s: FloatArray) -> Spacing:
    """Return the spacing of rows that follow each other by `steps_s` within a vehicle, [rows].

    >>> spacing(np.full(39, 15.0))
    Spacing(interval_s=15.0, maximum_gap_s=38.0, pause_s=300.0)
    >>> spacing(np.full(599, 1.0)).maximum_gap_s
    10.0
    """
    apart = steps_s[steps_s < PAUSE_S]
    if not len(apart):
        return Spacing(float("nan"), USUAL_GAP_S, PAUSE_S)
    interval = float(np.median(apart))
    events = min(float(np.quantile(apart, EVENT_SHARE)), LONGEST_EVENT_S)
    gap = max(USUAL_GAP_S, ceil(ROWS_BRIDGED * interval), ceil(events))
    return Spacing(interval, float(gap), max(PAUSE_S, PAUSES_GAPS * gap))


def row_steps(
    samples: Sequence[TableSample], times: Sequence[pl.Series], vehicle: str
) -> FloatArray:
    """Return the seconds between rows of a vehicle in a piece of a file, whatever their order."""
    keys = ["#", vehicle] if vehicle else ["#"]
    steps = [np.empty(0)]
    for sample, time in zip(samples, times, strict=True):
        at = pl.col("row's time").drop_nulls().unique().sort()
        rows = sample.rows.select(*keys, time.alias("row's time"))
        parts = rows.group_by(keys).agg(at.diff().drop_nulls())
        steps.append(parts["row's time"].explode().drop_nulls().to_numpy())
    return np.concatenate(steps)


LOOKED_AT = 400
"""Different texts of a column that show how it is written."""
MOSTLY = 0.95
EPOCH_S = (5e8, 4e9)
"""1985 to 2096 in seconds since 1970."""
EXCEL_DAYS = (20_000.0, 80_000.0)
FAST_STEP = 50.0
DAY_S = 86_400.0
CLUES: tuple[tuple[Callable[[FloatArray], float], float, str], ...] = (
    (lambda times: float((np.diff(times) < 0).sum()), 1e9, "time runs forward"),
    (lambda times: float(np.ptp(times)), 4.0, "the dates lie close together"),
)
"""What is smaller in the right order of day and month, how many times, and what that says."""


PAIR_FIT = 1.5
"""Fit of a date and a time of day in two columns: together they say more than either does."""


@dataclass(frozen=True)
class Clock:
    """Columns of time, their unit as in a mapping, the format of text, and why."""

    columns: tuple[str, ...]
    unit: str
    why: str
    form: str = ""
    absolute: bool = False

    def seconds(self, sample: TableSample) -> pl.Series:
        """Return the time of each row in seconds."""
        if self.unit != "iso":
            return numbered(sample.numbers(self.columns[0]), self.unit)
        text = sample.rows.select(joined(self.columns).alias("t"))
        return text.select(seconds(pl.col("t"), self.form))["t"]

    def score(self, sample: TableSample) -> float:
        """Return a score of the clock: dates beat numbers, and numbers beat times of day.

        Below 1 is the share of distinct times: it is low for a date alone, or for whole minutes.
        """
        times = self.seconds(sample).drop_nulls()
        distinct = times.n_unique() / max(len(times), 1)
        return distinct + (2.0 if self.absolute else float(self.unit != "iso"))


def find_clock(samples: Sequence[TableSample], order: str = "") -> Clock:
    """Return the time of the recordings; `order` is "day first", "month first" or "" to find
    out.
    """
    first = samples[0]
    fits = {name: fit(name, "time") for name in first.columns}
    filled = [name for name in first.columns if first.filled[name]]
    named = [name for name in filled if fits[name]]
    candidates: dict[tuple[str, ...], float] = {(name,): fits[name] for name in named}
    dates = [name for name in named if _forms(_texts(samples, (name,)), dates_only=True)]
    candidates |= {pair: PAIR_FIT for pair in product(dates, named) if pair[0] != pair[1]}
    clocks = []
    for columns, how_well in candidates.items():
        clock = _text_clock(samples, columns, order) or _number_clock(first, columns)
        if clock:
            clocks.append((how_well + clock.score(first), clock))
    if clocks:
        return max(clocks, key=lambda scored: scored[0])[1]
    for name in filled:
        if not fits[name] and (clock := _text_clock(samples, (name,), order)):
            return clock
    raise DataError(_no_time(first, named))


def _no_time(sample: TableSample, named: Sequence[str]) -> str:
    """Return the reason why no column is the time: none is named so, or its texts cannot be
    read.
    """
    if named:
        text = sample.rows[named[0]].drop_nulls()[0]
        return (
            f"{sample.path.name}, column '{named[0]}': {text!r} is not a time in any format that "
            "is known. Set column, unit and format in [time] of a mapping."
        )
    return (
        f"{sample.path.name}: no column looks like a time. Its columns are "
        f"{', '.join(sample.columns[:12])}. Call the right one 'time', or set column and unit in "
        "[time] of a mapping."
    )


def _texts(samples: Sequence[TableSample], columns: tuple[str, ...]) -> pl.Series:
    """Return texts of the columns in the order of the rows, a few from each file."""
    texts_found = []
    for sample in samples:
        if all(column in sample.columns for column in columns):
            text = sample.rows.select(joined(columns).alias("t"))["t"].drop_nulls()
            texts_found.append(text.gather_every(max(1, len(text) * len(samples) // LOOKED_AT)))
    return pl.concat(texts_found) if texts_found else pl.Series([], dtype=pl.String)


def _that_read(texts: pl.Series, forms: Sequence[str]) -> list[str]:
    """Return the formats that read (nearly) all of these texts."""
    local = pl.DataFrame({"t": texts}).select(without_zone(pl.col("t"))[0].alias("t"))
    # The year 24 is no year of a recording: %Y reads 24 as well as 2024.
    read = local.select((parsed(pl.col("t"), form) >= 0).sum().alias(form) for form in forms)
    return [form for form in forms if read[form].item() >= MOSTLY * len(texts)]


def _forms(texts: pl.Series, *, dates_only: bool = False) -> list[str]:
    """Return formats that read these texts."""
    if not len(texts):
        return []
    dates, times = (shipped("date_formats")[key] for key in ("dates", "times"))
    possible = list(dates)
    if not dates_only:
        possible = [f"{date} {time}" for date, time in product(dates, times)]
        possible += ["%Y%m%d%H%M%S", times[0]]
    return _that_read(texts, _that_read(texts[:3], possible))


def _text_clock(
    samples: Sequence[TableSample], columns: tuple[str, ...], order: str
) -> Clock | None:
    texts = _texts(samples, columns)
    forms = _forms(texts)
    if not forms:
        return None
    form, why = choose_order(texts, forms, order, samples[0].path.name)
    absolute = "%d" in form
    format_text = "" if form.startswith("%Y-%m-%d %H:%M") else form
    what = "dates and times as text" if absolute else "times of day, without a date"
    if len(columns) > 1:
        what = "date and time of day in two columns"
    return Clock(columns, "iso", f"{what}{why}", format_text, absolute)


def order_of(form: str) -> str:
    """Return which of two readings a format is: day first, month first, or "" for the only one.

    >>> order_of("%d/%m/%Y %H:%M:%S%.f"), order_of("%d.%m.%Y %H:%M")
    ('day first', '')
    """
    return str(shipped("date_formats")["dates"].get(form.partition(" ")[0], ""))


def choose_order(texts: pl.Series, forms: Sequence[str], order: str, where: str) -> tuple[str, str]:
    """Return the format of `forms` to read these texts by, and why, to be put behind a comma.

    03/04/2024 is 3 April or 4 March, and the data tell. In order: a number above 12 tells; dates of
    one day do not need to tell, since only differences of time matter; the reading in which time
    runs forward, and the one whose dates lie closer together, is the right one. Otherwise the
    question is put to the user.
    """
    matching = [form for form in forms if order and order_of(form) == order]
    if matching:
        return matching[0], f", {order} as you say"
    first = forms[0]
    rivals = [form for form in forms if order_of(form) not in ("", order_of(first))]
    if not order_of(first):
        return first, ""
    if not rivals:
        return first, f", {order_of(first)}: some number is above 12"
    both = first, rivals[0]
    read = pl.DataFrame({"t": texts}).select(seconds(pl.col("t"), f).alias(f) for f in both)
    readings = {form: read[form].drop_nulls().to_numpy() for form in both}
    if all(len(np.unique(days // DAY_S)) == 1 for days in readings.values()):
        return rivals[0], ", all of one day, so that the order of day and month does not matter"
    for amount, times, why in CLUES:
        (least, best), (most, _) = sorted((amount(at), form) for form, at in readings.items())
        if least * times < most:
            return best, f", {order_of(best)}: so read, {why}"
    raise DataError(
        f"{where}: {texts[0]!r} may be day first or month first, and its dates do not tell which. "
        "Say it with --dates 'day first' or --dates 'month first'."
    )


def _number_clock(sample: TableSample, columns: tuple[str, ...]) -> Clock | None:
    """Return the clock of a column of numbers; None of texts, or of two columns."""
    name = columns[0]
    numbers = sample.numbers(name)
    if len(columns) > 1 or not is_numeric(sample.rows[name], numbers):
        return None
    values = numbers.drop_nulls().to_numpy()
    middle = float(np.median(np.abs(values)))
    step = float(np.median(np.abs(np.diff(values)))) if len(values) > 1 else 0.0
    for unit in ("s", "ms", "us", "ns"):
        if EPOCH_S[0] < middle * TIME[unit] < EPOCH_S[1]:
            return Clock(columns, unit, f"{unit} since 1970, by their size", absolute=True)
    if EXCEL_DAYS[0] < middle < EXCEL_DAYS[1] and 0 < step < 0.5:
        return Clock(columns, "d", "days of a spreadsheet, by their size", absolute=True)
    unit = stated_unit(name, TIME) or stated_unit(f"x [{sample.unit_row(name)}]", TIME)
    if unit:
        return Clock(columns, unit, "by its name")
    if step >= FAST_STEP:
        return Clock(columns, "ms", "guessed: steps of 50 and more")
    return Clock(columns, "s", "guessed")


Origin = dict[str, str]
"""The table [vehicle] or [trip] of a mapping."""
FEW_VALUES = 200
FEW_SHARE = 0.05
MOST_ASKED = 50
SHOWN = 4
CALLED_TRIP = re.compile(
    r"trip|drive|journey|ride|fahrt|trajet|viaje|route|track|行程", re.IGNORECASE
)
CALLED_VEHICLE = re.compile(
    r"veh|car|van|truck|bus\b|vin|fahrzeug|fzg|auto|wagen|vehicul|coche|车", re.IGNORECASE
)
DATE = re.compile(r"(?:19|20)\d\d[-_.]?\d\d[-_.]?\d\d|\d\d[-_.]\d\d[-_.](?:19|20)?\d\d")
NUMBERED = re.compile(r"[-_ ]+(?:(?i:trip|drive|journey|ride|fahrt|trajet|viaje|行程)[-_ ]*)?\d+$")
LONG_S = 12 * 3600.0
MANY_REPEATED = 0.2
FEW_REPEATED = 0.02
MOSTLY_PAUSED = 0.5


def find_vehicle_column(
    sample: TableSample, free: Sequence[str], times: pl.Series
) -> tuple[str, str]:
    """Return the column of vehicles' names among those that are `free`, and why; ("", "") for none.

    Either by its name, or because its few values tell vehicles apart by `times`.
    """
    distinct = {name: sample.rows[name].n_unique() for name in free}
    named = [name for name in free if names_id(name, "vehicle")]
    # A fleet may be large, but its vehicles have more rows than one.
    named = [name for name in named if 2 * distinct[name] <= sample.filled[name]]
    if named:
        return max(named, key=lambda name: distinct[name]), "by its name"
    for name in free:
        column = sample.rows[name]
        if distinct[name] < 2 or not _is_few(column) or names_id(name, "trip"):
            continue
        if why := _tells_apart(times, column):
            return name, why
    return "", ""


def _tells_apart(times: pl.Series, column: pl.Series) -> str:
    """Return the reason why rows of different values are of different vehicles, or "".

    A clock that starts anew with each trip says nothing: the values may be its trips.
    """
    rows = pl.DataFrame({"time": times, "value": column}).drop_nulls()
    if not rows.height or rows["time"][0] < DATED_S:
        return ""
    time = pl.col("time")
    clues = {"repeated": 1 - time.n_unique() / pl.len(), "backward": (time.diff() < 0).sum()}
    everywhere = rows.select(**clues)
    within = rows.group_by("value").agg(**clues)
    most = within.max()
    if everywhere["repeated"][0] > MANY_REPEATED and most["repeated"][0] < FEW_REPEATED:
        return "it tells rows of the same instant apart"
    if everywhere["backward"][0] >= within.height - 1 and not most["backward"][0]:
        return "time runs forward within each of its values only"
    return ""


def find_trip_column(sample: TableSample, free: Sequence[str]) -> tuple[str, str]:
    """Return the column of trips' names and why; ("", "") if there is none."""
    named = [name for name in free if names_id(name, "trip") and sample.filled[name]]
    return (named[0], "by its name") if named else ("", "")


def are_drives(sample: TableSample, times: pl.Series, vehicle: str, trip: str) -> bool:
    """Return whether the values of a column are single drives: few of them go on after a long
    pause.

    A flag such as "drive" = 1 is true in many drives, and a distance has a value for each row.
    """
    keys = ["#", trip, *([vehicle] if vehicle else [])]
    rows = sample.rows.select(keys).with_columns(times.alias("seconds of time")).drop_nulls()
    drives = rows.group_by(keys).agg(
        longest=pl.col("seconds of time").sort().diff().max(), rows=pl.len()
    )
    if not drives.height:
        return True
    paused = (drives["longest"].fill_null(0.0) > PAUSE_S).to_numpy().mean()
    single = drives.height > 1 and float(np.median(drives["rows"].to_numpy())) < 2
    return bool(paused <= MOSTLY_PAUSED and not single)


def asked_for(samples: Sequence[TableSample], column: str) -> tuple[str, str] | None:
    """Return the column that the user named, if any; refuse one that the files do not have."""
    for sample in samples if column else ():
        if column not in sample.columns:
            raise SettingError(f"{sample.path.name}: {unknown('column', column, sample.columns)}")
    return (column, "as you say") if column else None


def _is_few(column: pl.Series) -> bool:
    values = column.drop_nulls()
    distinct = values.n_unique()
    return 0 < distinct <= min(FEW_VALUES, max(2.0, FEW_SHARE * len(values)))


def unused_ids(sample: TableSample, free: Sequence[str]) -> tuple[str, ...]:
    """Return the question whether a column that nothing uses names vehicles: few values, no
    fractions.
    """
    possible = []
    for name in free:
        values = sample.rows[name].drop_nulls().unique(maintain_order=True)
        numbers = sample.numbers(name).drop_nulls()
        are_integers = not len(numbers) or bool((numbers == numbers.round()).all())
        if 2 <= len(values) <= MOST_ASKED and are_integers and _is_few(sample.rows[name]):
            listed = ", ".join(values[:SHOWN].to_list()) + (", ..." if len(values) > SHOWN else "")
            possible.append(f"'{name}' ({len(values)} values: {listed})")
    if not possible:
        return ()
    return (
        f"Nothing uses {', '.join(possible)}. If one of these columns names vehicles, add "
        "--vehicle-column NAME.",
    )


def trips_of_files(
    files: Sequence[Path], vehicle: Origin, one_each: Sequence[bool], pause_s: float, unnamed: str
) -> tuple[Origin, str]:
    """Return the origin of trips and the reason; `unnamed` says why no column names them."""
    several_a_vehicle = len(files) > 1 and (vehicle.get("from") != "file" or "pattern" in vehicle)
    if several_a_vehicle and "column" not in vehicle and all(one_each):
        return {"from": "file"}, "each file is one drive"
    return {"from": "gaps"}, f"{unnamed}: {pause_s / 60:.0f} min without driving end one"


def one_stretch(times: pl.Series, pause_s: float) -> bool:
    """Return whether a file holds one drive: no long pause inside, and not longer than a day's
    work.
    """
    recorded = np.unique(times.drop_nulls().to_numpy())
    if not len(recorded):
        return True
    # Times of day go round: a drive over midnight has its pause in the middle.
    day_s = DAY_S if recorded[-1] < DAY_S else np.inf
    steps = np.diff(recorded, append=recorded[0] + day_s)
    driven = steps[steps < pause_s]
    return bool(len(driven) >= len(steps) - 1 and driven.sum() < LONG_S)


def vehicles_of_files(
    paths: Sequence[Path], times: Sequence[pl.Series], one_each: Sequence[bool]
) -> tuple[Origin, str]:
    """Return the origin of vehicles that no column names: file names, folders or contents.

    `paths` are all files: their names are evaluated together, whichever were looked into. `times`
    and `one_each`, whether a file holds one drive, are those of the files that were.
    """
    if len(paths) == 1:
        return {"from": "file"}, "one file, and no column names vehicles"
    # As the reader names them: by the last folder, or by the file without its ending.
    folders = {path.parent.name for path in paths}
    stems = [path.stem for path in paths]
    if len(folders) > 1 and (len(folders) < len(paths) or len(set(stems)) < len(stems)):
        return {"from": "folder"}, f"the files lie in {len(folders)} folders"
    dated = all(DATE.search(stem) for stem in stems)
    # Each file one drive: what stands before its number names the vehicle.
    numbered = all(one_each) and all(NUMBERED.search(stem) for stem in stems)
    dated_first = (
        rf"(?:{DATE.pattern})(?:[-_.T ]*\d{{4,6}})?[-_. ]+(?=\D*(?:{CALLED_VEHICLE.pattern}))(.+)"
    )
    for pattern, are_so, place in (
        (rf"^(.*?)[-_. ]*(?:{DATE.pattern})", dated, "before the files' dates"),
        (rf"^(.*?)[-_. ]*(?:{NUMBERED.pattern})", numbered, "before the files' numbers"),
        (f"(?i){dated_first}", dated, "behind the files' dates"),
    ):
        names = [match[1] for stem in stems if (match := re.search(pattern, stem))]
        if are_so and 1 < len(set(names)) < len(names) == len(stems) and all(names):
            return {"from": "file", "pattern": pattern}, f"{len(set(names))} names {place}"
    if _overlap(times):
        return {"from": "file"}, "files overlap in time, so that each is another vehicle's"
    single = {"from": "folder"}
    if dated or all(CALLED_TRIP.search(stem) for stem in stems):
        return single, f"the files are named by {'dates' if dated else 'trips'}, as of one vehicle"
    if all(CALLED_VEHICLE.search(stem) for stem in stems):
        return {"from": "file"}, "the files are named like vehicles"
    if not all(one_each):
        return {"from": "file"}, "files hold several drives each, so that each is a vehicle"
    return single, "each file is one drive, and no name tells vehicles apart"


def _overlap(times: Sequence[pl.Series]) -> bool:
    """Return whether two files cover the same time, by clocks that have a date."""
    spans = sorted(
        (float(recorded[0]), float(recorded[-1]))
        for time in times
        if len(recorded := time.drop_nulls().sort()) and float(recorded[0]) > DATED_S
    )
    return any(later[0] < earlier[1] for earlier, later in pairwise(spans))
