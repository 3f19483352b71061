"""Files with other columns than the rest: read along where they have what every trip needs."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedwatt.telemetry.channels import ENERGY_SOURCES
from fedwatt.telemetry.readers.mapping import named_columns
from fedwatt.telemetry.recognise.channel_columns import find_channels
from fedwatt.telemetry.recognise.clock import Clock
from fedwatt.telemetry.recognise.table_sample import TableSample

Tables = dict[str, Any]
PACK = {name for names in ENERGY_SOURCES for name in names}


def used_columns(tables: Tables, channels: Iterable[str]) -> set[str]:
    """Columns that a mapping names for time, vehicles, trips and these channels."""
    named = [tables["time"], tables["vehicle"], tables["trip"]]
    named += [tables["channels"][name] for name in channels]
    return {column for table in named for column in named_columns(table)}


def read_along(
    candidates: Sequence[TableSample],
    first: TableSample,
    clock: Clock,
    tables: Tables,
    reasons: Tables,
) -> tuple[list[TableSample], list[str]]:
    """Return the tables that the mapping of `first` can read, and sentences on all of them.

    Channels that only they have go to the mapping; those that not all have become optional.
    """
    channels = tables["channels"]
    needed = {"speed_mps", *(PACK & set(channels) or {"soc"})} & set(channels)
    columns = sorted(used_columns(tables, needed))
    why_not = {sample: _why_not(sample, first, columns) for sample in candidates}
    joined = [sample for sample, why in why_not.items() if not why]
    for sample in joined:
        taken = [*first.columns, *used_columns(tables, channels)]
        for name, guess in find_channels(sample, taken, clock.seconds(sample)).items():
            if name not in channels and name not in PACK:
                channels[name] = {"column": guess.column, "unit": guess.unit}
                reasons[name] = guess.why
    sparse = []
    for channel in channels.values():
        named = set(named_columns(channel))
        if not all(named.issubset(sample.columns) for sample in (first, *joined)):
            channel["optional"] = True
            sparse += sorted(named)
    sentences = [f"Not all files have the columns {', '.join(sparse)}."] if sparse else []
    advice = "If it is a recording, import it by itself and add it with 'fedwatt data merge'."
    sentences += [
        f"{candidate.path.name} {why}, and is left out. {advice}"
        for candidate, why in why_not.items()
        if why
    ]
    return joined, sentences


def _why_not(sample: TableSample, first: TableSample, columns: Sequence[str]) -> str:
    """Return the reason why a file cannot be read like the first, or ""."""
    missing = [f"'{column}'" for column in columns if column not in sample.columns]
    if missing:
        return f"lacks what {first.path.name} has, {', '.join(missing)}"
    if not sample.rows.height:
        return "has a header and no rows"
    if sample.layout.form != first.layout.form:
        return f"has another separator, decimal sign or place of its header than {first.path.name}"
    return ""
