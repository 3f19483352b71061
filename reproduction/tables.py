"""Tables of a reproduction: ours, printed, the difference, the spread, and the provenance."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Final

from fedwatt.engine.version import GPU_VERSION, VERSION
from fedwatt.report.load import labels
from fedwatt.report.statistics import Estimate, estimate
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn, cell_text
from reproduction.cell import Cell
from reproduction.data import PURE_EVS, RECORDED
from reproduction.paired import Paired, detectable, holm, paired
from reproduction.paper import Entry as PrintedEntry
from reproduction.paper import names, printed
from reproduction.record import Record
from reproduction.study import NOTHING, Block, View
from reproduction.tuning import reduced_to

MISSING = "not run"
SAME = "the same training"
"""In the place of a difference from a reference that tuning led to as well."""
DETECTABLE = (
    "Detectable: the smallest difference that the paired test would have found in four of five "
    "repetitions, at 5 % over the number of comparisons."
)


@dataclass(frozen=True)
class Line:
    """A row: its name, the printed row it stands beside, and its record."""

    name: str
    printed_row: str
    record: Record | None


def facts_line(records: Sequence[Record | None]) -> str:
    """Return datasets, vehicles, windows, seeds and labels behind a table or figure."""
    devices_of: dict[str, list[str]] = {}
    for record in records:
        if record is None:
            continue
        fleet = record.facts["fleet"]
        windows = record.facts["fleet"]["windows"]
        seeds = ", ".join(map(str, record.seeds)) or "none"
        line = (
            f"{record.cell.dataset} ({fleet['source']}): K = {fleet['vehicles']}, "
            f"{windows['train']:,} training and {windows['test']:,} test windows, energy "
            f"{labels(fleet['labels'])}; seeds {seeds}"
        )
        devices = devices_of.setdefault(line, [])
        device = device_and_engine(record)
        if device not in devices:
            devices.append(device)
    lines = [f"{line}; {' and '.join(devices)}" for line, devices in devices_of.items()]
    if any(record is not None and record.cell.dataset in RECORDED for record in records):
        lines[-1] += f". {PURE_EVS}"
    return " | ".join(lines) or NOTHING


def value(record: Record | None, values: Mapping[int, float]) -> Entry:
    """Return mean over seeds, with a word on seeds that diverged."""
    if record is None:
        return MISSING
    lost = record.diverged
    if not values:
        return f"diverged (all {len(lost)} seeds)" if lost else "–"
    mean = estimate(list(values.values()))
    if not lost:
        return mean
    cases = ", ".join(f"seed {seed} diverged by round {at}" for seed, at in lost.items())
    return f"{cell_text(mean)}; {cases}"


def left_of(record: Record) -> str:
    """Return what tuning left of a record's method; empty if all of it."""
    left = reduced_to(record.cell)
    return "" if left == record.cell.method else f"tuned, it is {name_of(left)}"


def gap(ours: Entry, entry: PrintedEntry | None) -> Entry:
    """Return ours minus printed."""
    if not isinstance(ours, Estimate) or entry is None or not isfinite(entry.mean):
        return "–"
    return ours.mean - entry.mean


def printed_text(entry: PrintedEntry | None) -> str:
    """Return the printed entry, or a dash."""
    return "–" if entry is None else str(entry)


def theirs(table: str, row: str, column: str) -> PrintedEntry | None:
    """Return what the paper prints; None where it has no such table, row or column."""
    return printed(table).entry(row, column) if table in names() else None


def comparison(
    name: str,
    title: str,
    lines: Sequence[Line],
    column: str,
    *,
    heading: str = "RMSE",
    unit: str = "Wh",
    digits: int = 2,
    beside: tuple[str, str] | None = None,
    reference: int = 0,
    first: str = "Method",
    note: str = "",
    values: Sequence[Mapping[int, float]] | None = None,
) -> Block:
    """Return a table with ours, printed, difference, and the difference from a reference row.

    `beside` names a printed table and its column; `values` replaces final values of `column`.
    """
    finals = values or [line.record.final(column) if line.record else {} for line in lines]
    if beside is not None and not any(theirs(beside[0], x.printed_row, beside[1]) for x in lines):
        beside = None
    lost = [line.record.diverged if line.record else {} for line in lines]
    against = [
        paired(by_seed, finals[reference], lost[i], lost[reference]) if i != reference else None
        for i, by_seed in enumerate(finals)
    ]
    place_of = first_places([line.record for line in lines])
    ps = {
        i: test.p
        for i, test in enumerate(against)
        if test is not None and test.ran and place_of[i] == i != place_of[reference]
    }
    corrected = dict(zip(ps, holm(list(ps.values())), strict=True))
    rows: list[tuple[Entry, ...]] = []
    for i, (line, by_seed, test) in enumerate(zip(lines, finals, against, strict=True)):
        ours = value(line.record, by_seed)
        row: list[Entry] = [line.name, ours]
        if beside is not None:
            entry = theirs(beside[0], line.printed_row, beside[1])
            row += [printed_text(entry), gap(ours, entry)]
        if test is None:
            row += ["reference", "–", "–"]
        elif place_of[i] == place_of[reference]:
            row += [SAME, "–", "–"]
        else:
            p = corrected.get(place_of[i], nan)
            row += _tested(test, p, line, lines[reference].name, len(ps))
        rows.append(tuple(row))
    base = lines[reference].name
    columns = [TableColumn(first), TableColumn(heading, unit, digits)]
    if beside is not None:
        columns += [
            TableColumn("Printed", unit, digits),
            TableColumn("Ours − printed", unit, digits),
        ]
    columns += [
        TableColumn(f"Against {base}, same seeds", unit, digits),
        TableColumn("p, Holm"),
        TableColumn("Detectable", unit, digits),
    ]
    caption = f"Mean ± standard deviation over seeds [95 % interval]. {DETECTABLE} {note}"
    return Block(
        ReportTable(name, title, tuple(columns), tuple(rows), caption.strip()),
        facts_line([line.record for line in lines]),
    )


def trainings(
    view: View, name: str, title: str, cells: Mapping[str, Cell], note: str = ""
) -> Block:
    """Return the final error of named cells, each against the first."""
    lines = [Line(label, "", view.get(cell)) for label, cell in cells.items()]
    return comparison(name, title, lines, "test_rmse", first="Training", note=note)


def first_places(trainings: Sequence[object]) -> list[int]:
    """Return for each training the place of the first that is the same one, or its own.

    Tuning may lead to settings that stand in another row already: that is no further comparison.

    >>> one, other = object(), object()
    >>> first_places([one, other, one, None, None])
    [0, 1, 0, 3, 4]
    """
    places: dict[int, int] = {}
    return [
        i if training is None else places.setdefault(id(training), i)
        for i, training in enumerate(trainings)
    ]


def matrix(
    name: str,
    title: str,
    regimes: Sequence[str],
    lines: Mapping[str, Sequence[Record | None]],
    values: Mapping[str, Sequence[Mapping[int, float]]],
    *,
    unit: str,
    digits: int = 2,
    beside: Sequence[tuple[str, str] | None] | None = None,
    note: str = "",
) -> Block:
    """Return a row a method, and for each regime ours, printed and the difference."""
    beside = [
        printed_column
        if printed_column
        and any(theirs(printed_column[0], method, printed_column[1]) for method in lines)
        else None
        for printed_column in beside or [None] * len(regimes)
    ]
    columns = [TableColumn("Method")]
    for regime, place in zip(regimes, beside, strict=True):
        columns.append(TableColumn(regime, unit, digits))
        if place is not None:
            columns += [
                TableColumn("printed", unit, digits),
                TableColumn("difference", unit, digits),
            ]
    rows: list[tuple[Entry, ...]] = []
    for method, records in lines.items():
        row: list[Entry] = [name_of(method)]
        for record, by_seed, place in zip(records, values[method], beside, strict=True):
            ours = value(record, by_seed)
            row.append(ours)
            if place is not None:
                entry = theirs(place[0], method, place[1])
                row += [printed_text(entry), gap(ours, entry)]
        rows.append(tuple(row))
    several = any(
        len(printed_column) > 1 for by_seed in values.values() for printed_column in by_seed
    )
    caption = ("Mean ± standard deviation over seeds [95 % interval]. " if several else "") + note
    return Block(
        ReportTable(name, title, tuple(columns), tuple(rows), caption.strip()),
        facts_line([record for records in lines.values() for record in records]),
    )


def against(
    name: str,
    title: str,
    regimes: Sequence[str],
    values: Mapping[str, Sequence[Mapping[int, float]]],
    records: Mapping[str, Sequence[Record | None]],
    *,
    unit: str = "Wh",
    ours: str = "fo-ri-fedavg",
) -> Block:
    """Return the paper's method against every other one in each regime, at equal seeds."""
    rivals = [method for method in values if method != ours]
    if ours not in values:
        return Block(
            ReportTable(name, title, (TableColumn("Method"),), (), f"{name_of(ours)} {MISSING}."),
            "",
        )
    lost = {
        m: [r.diverged if r else {} for r in method_records]
        for m, method_records in records.items()
    }
    tests = [
        [paired(values[ours][i], values[m][i], lost[ours][i], lost[m][i]) for m in rivals]
        for i in range(len(regimes))
    ]
    corrected = iter(holm([test.p for row in tests for test in row if test.ran]))
    ps = [[next(corrected) if test.ran else nan for test in row] for row in tests]
    columns = [TableColumn("Against")]
    for regime in regimes:
        columns += [TableColumn(regime, unit, 2), TableColumn("p, Holm")]
    rows = []
    for place, method in enumerate(rivals):
        row: list[Entry] = [name_of(method)]
        for i in range(len(regimes)):
            if records[ours][i] is None or records[method][i] is None:
                row += [MISSING, "–"]
            else:
                row += _outcome(tests[i][place], ps[i][place], name_of(ours), name_of(method))
        rows.append(tuple(row))
    note = (
        f"{name_of(ours)} minus the other, seed by seed [95 % interval]: below zero is better. "
        "p of the paired t-test, Holm-corrected over all comparisons that ran."
    )
    facts = facts_line([record for method_records in records.values() for record in method_records])
    return Block(ReportTable(name, title, tuple(columns), tuple(rows), note), facts)


def _tested(test: Paired, p: float, line: Line, base: str, count: int) -> list[Entry]:
    if line.record is None:
        return ["–", "–", "–"]
    return [*_outcome(test, p, line.name, base), detectable(test.difference, count)]


def _outcome(test: Paired, p: float, first: str, second: str) -> list[Entry]:
    """Return difference and p; or who lost by diverging."""
    return [test.losses(first, second), "–"] if test.decided else [test.difference, p_text(p)]


def p_text(p: float) -> str:
    """Return a p-value as tables have it."""
    if p != p:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


NOT_RECORDED: Final = "not recorded"
COLUMNS: Final = ("Cells", "Device", "Engine", "fedwatt", "Commit", "torch", "Driver", "Processor")


def device_and_engine(record: Record) -> str:
    """Return the device of a record, and its engine where that is not the present one.

    An engine of another version can give other numbers for the same cell.
    """
    device = str(record.facts.get("device", "cpu"))
    engine = record.made_with.get("engine", NOT_RECORDED)
    return device if engine == _present(record) else f"{device} (engine {_engine(record)})"


def made_with_table(records: Iterable[Record]) -> ReportTable:
    """Return how many cells were made with what, most of them first."""
    counted = Counter(_row(record) for record in records).most_common()
    return ReportTable(
        "made-with",
        "What the records were made with",
        tuple(TableColumn(name) for name in (*COLUMNS, "Threads", "Deterministic")),
        tuple((f"{count:,}", *row) for row, count in counted),
        f"The present engine's version is {VERSION} on a processor and {GPU_VERSION} on a GPU; it "
        "goes up when the same cell would give other numbers, if only in their last digits. Of "
        "older records the versions were not recorded.",
    )


def _row(record: Record) -> tuple[str, ...]:
    made = record.made_with
    versions = made.get("versions", {})
    commit = str(made.get("commit", NOT_RECORDED))
    changes = "+changes" if commit.endswith("+changes") else ""
    return (
        str(record.facts.get("device", "cpu")),
        _engine(record),
        str(versions.get("fedwatt", NOT_RECORDED)),
        commit[:10] + changes if made else commit,
        str(versions.get("torch", NOT_RECORDED)),
        str(made.get("driver", NOT_RECORDED)),
        str(made.get("processor", NOT_RECORDED)),
        str(made.get("threads", NOT_RECORDED)),
        ("yes" if made["deterministic"] else "no") if made else NOT_RECORDED,
    )


def _engine(record: Record) -> str:
    engine = record.made_with.get("engine", NOT_RECORDED)
    text = (_present(record), NOT_RECORDED)
    return str(engine) if engine in text else f"{engine}, not the present one"


def _present(record: Record) -> int:
    """Return the version that the record's device has now."""
    return VERSION if str(record.facts.get("device", "cpu")) == "cpu" else GPU_VERSION
