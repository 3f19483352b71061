"""Recognition of vehicles and trips: the origin of their names."""

import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from fedwatt.errors import SettingError, unknown
from fedwatt.telemetry.cleaning.segments import DATED_S
from fedwatt.telemetry.recognise.clock import PAUSE_S
from fedwatt.telemetry.recognise.header_words import names_id
from fedwatt.telemetry.recognise.table_sample import TableSample

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
SMOOTHER = 5.0
"""How many times less a track must change within the values of a column that names vehicles."""


def find_vehicle_column(
    sample: TableSample, free: Sequence[str], times: pl.Series, tracks: Sequence[str]
) -> tuple[str, str]:
    """Return the column of vehicles' names among those that are `free`, and why; ("", "") for none.

    Either its name says so, or its few values tell vehicles apart: by `times`, or because what
    changes steadily in a vehicle (`tracks`: columns of position, charge, distance) jumps otherwise.
    """
    named = [name for name in free if names_id(name, "vehicle") and sample.filled[name]]
    for name in sorted(
        named, key=lambda candidate: sample.rows[candidate].n_unique(), reverse=True
    ):
        if 2 * sample.rows[name].n_unique() <= sample.filled[name]:  # a fleet may be large
            return name, "its name says so"
    for name in free:
        column = sample.rows[name]
        if _is_few(column) and column.n_unique() > 1 and not names_id(name, "trip"):
            if why := _tells_apart(times, column):
                return name, why
            if any(_smooths(times, column, sample.numbers(track)) for track in tracks):
                return name, "within each of its values the vehicle moves steadily"
    return "", ""


def _tells_apart(times: pl.Series, column: pl.Series) -> str:
    """Return the reason why rows of different values are of different vehicles, or "".

    A clock that starts anew with each trip says nothing: the values may be its trips.
    """
    first = times.drop_nulls().head(1)
    if not len(first) or float(first[0]) < DATED_S:
        return ""
    groups = [times.filter(column == value) for value in column.unique().drop_nulls()]
    if _repeats(times) > MANY_REPEATED and max(map(_repeats, groups)) < FEW_REPEATED:
        return "it tells rows of the same instant apart"
    if _backward(times) >= len(groups) - 1 and not any(map(_backward, groups)):
        return "time runs forward within each of its values only"
    return ""


def _smooths(times: pl.Series, column: pl.Series, track: pl.Series) -> bool:
    """Return whether a track changes far less from row to row within each value of the column."""
    rows = pl.DataFrame({"time": times, "value": column, "track": track}).drop_nulls().sort("time")
    steps = pl.col("track").diff().abs()
    everywhere = rows.select(steps.sum()).item() or 0.0
    within = rows.select(steps.over("value").sum()).item() or 0.0
    return bool(everywhere > SMOOTHER * within)


def find_trip_column(sample: TableSample, free: Sequence[str]) -> tuple[str, str]:
    """Return the column of trips' names and why; ("", "") if there is none."""
    named = [name for name in free if names_id(name, "trip") and sample.filled[name]]
    return (named[0], "its name says so") if named else ("", "")


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


def asked_for(samples: Sequence[TableSample], column: str) -> tuple[str, str]:
    """Return a column that the user named, if the files have it."""
    for sample in samples:
        if column not in sample.columns:
            raise SettingError(f"{sample.path.name}: {unknown('column', column, sample.columns)}")
    return column, "as you say"


def _backward(times: pl.Series) -> int:
    """Return the number of rows at which time goes back."""
    return int((times.drop_nulls().diff() < 0).sum())


def _repeats(times: pl.Series) -> float:
    """Return the share of rows whose time occurs more than once."""
    recorded = times.drop_nulls()
    return 1.0 - recorded.n_unique() / len(recorded) if len(recorded) else 0.0


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
    return bool(np.ptp(recorded) < LONG_S and (np.diff(recorded) < pause_s).all())


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
    for ending, are_so in ((DATE, dated), (NUMBERED, numbered)):
        prefixes = {ending.split(stem, maxsplit=1)[0].strip("-_. ") for stem in stems}
        if are_so and 1 < len(prefixes) < len(stems) and all(prefixes):
            pattern = {"from": "file", "pattern": rf"^(.*?)[-_. ]*(?:{ending.pattern})"}
            what = "dates" if ending is DATE else "numbers"
            return pattern, f"{len(prefixes)} names before the files' {what}"
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
