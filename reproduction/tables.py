"""Tables of a reproduction: ours, printed, the difference, the spread, and the provenance."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
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
from reproduction.study import NOTHING, Block, Findings, Setting, Study, View
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
    """A row: its name, the printed row it stands beside, its record and what is compared."""

    name: str
    printed_row: str
    record: Record | None
    values: Mapping[int, float]
    """Seed (or split of the trips) → measured number."""
    diverged: Collection[int]


def line(
    name: str, record: Record | None, column: str = "test_rmse", printed_row: str = ""
) -> Line:
    """Return the row of a record with the final value of a column for every seed."""
    if record is None:
        return Line(name, printed_row, None, {}, ())
    return Line(name, printed_row, record, record.final(column), record.diverged)


def difference(first: Line, second: Line) -> Paired:
    """Return one row minus another, seed by seed."""
    return paired(first.values, second.values, first.diverged, second.diverged)


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
    *,
    heading: str = "RMSE",
    unit: str = "Wh",
    digits: int = 2,
    printed_column: tuple[str, str] | None = None,
    reference: int = 0,
    first: str = "Method",
    note: str = "",
    over: str = "seeds",
) -> Block:
    """Return a table with ours, printed, difference, and the difference from a reference row.

    `printed_column` names a printed table and its column; `over` what values are paired by.
    """
    entries: list[PrintedEntry | None] = [None] * len(lines)
    if printed_column is not None:
        table, column = printed_column
        entries = [theirs(table, line.printed_row, column) for line in lines]
    base = lines[reference]
    tests = [difference(line, base) for line in lines]
    place_of = first_places([line.record for line in lines])
    ps = {
        i: test.p
        for i, test in enumerate(tests)
        if test.ran and place_of[i] == i != place_of[reference]
    }
    corrected = dict(zip(ps, holm(list(ps.values())), strict=True))
    rows: list[tuple[Entry, ...]] = []
    for i, (line, test, entry) in enumerate(zip(lines, tests, entries, strict=True)):
        ours = value(line.record, line.values)
        row: list[Entry] = [line.name, *beside(ours, entry)] if any(entries) else [line.name, ours]
        if i == reference:
            row += ["reference", "–", "–"]
        elif place_of[i] == place_of[reference]:
            row += [SAME, "–", "–"]
        elif line.record is None:
            row += ["–", "–", "–"]
        else:
            row += outcome(test, corrected.get(place_of[i], nan), line.name, base.name)
            row.append(detectable(test.difference, len(ps)))
        rows.append(tuple(row))
    ours_columns = [TableColumn(heading, unit, digits)]
    columns = [
        TableColumn(first),
        *(beside_columns(heading, unit, digits) if any(entries) else ours_columns),
        TableColumn(f"Against {base.name}, same {over}", unit, digits),
        TableColumn("p, Holm"),
        TableColumn("Detectable", unit, digits),
    ]
    caption = f"Mean ± standard deviation over {over} [95 % interval]. {DETECTABLE} {note}"
    return table_block(name, title, columns, rows, caption, [line.record for line in lines])


@dataclass(frozen=True)
class Trainings:
    """Named cells, the first of which the others are compared with."""

    name: str
    title: str
    cells: Mapping[str, Cell]
    note: str = ""


def trainings(view: View, table: Trainings) -> Block:
    """Return the final error of named cells, each against the first."""
    lines = [line(label, view.get(cell)) for label, cell in table.cells.items()]
    return comparison(table.name, table.title, lines, first="Training", note=table.note)


def trainings_study(
    name: str,
    title: str,
    tables: Callable[[Setting], Sequence[Trainings]],
    claims: Sequence[str],
    remarks: Callable[[View], Iterable[str]] = lambda view: (),
) -> Study:
    """Return a study that shows tables of named cells."""

    def cells(setting: Setting) -> list[Cell]:
        return [cell for table in tables(setting) for cell in table.cells.values()]

    def show(view: View) -> Findings:
        blocks = (trainings(view, table) for table in tables(view.setting))
        return Findings(tuple(blocks), remarks=tuple(remarks(view)))

    return Study(name, title, cells, show, claims=tuple(claims))


def table_block(
    name: str,
    title: str,
    columns: Sequence[TableColumn],
    rows: Iterable[tuple[Entry, ...]],
    note: str,
    records: Sequence[Record | None],
) -> Block:
    """Return a table, and what its numbers were measured on."""
    table = ReportTable(name, title, tuple(columns), tuple(rows), note.strip())
    return Block(table, facts_line(records))


def beside_columns(name: str, unit: str = "", digits: int = 2) -> list[TableColumn]:
    """Return the columns of a measured number, the printed one and their difference."""
    return [
        TableColumn(name, unit, digits),
        TableColumn("printed", unit),
        TableColumn("difference", unit, digits),
    ]


def beside(ours: Entry, entry: PrintedEntry | None) -> list[Entry]:
    """Return the entries of those columns."""
    return [ours, printed_text(entry), gap(ours, entry)]


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


Lines = Mapping[str, Sequence[Line]]
"""Method → its row under each condition."""


def matrix(
    name: str,
    title: str,
    conditions: Sequence[str],
    lines: Lines,
    *,
    unit: str,
    digits: int = 2,
    printed_columns: Sequence[tuple[str, str] | None] = (),
    note: str = "",
) -> Block:
    """Return a row per method, and for each condition ours, printed and the difference."""
    columns = [TableColumn("Method")]
    rows: list[list[Entry]] = [[name_of(method)] for method in lines]
    for place, condition in enumerate(conditions):
        table, column = (printed_columns[place] if printed_columns else None) or ("", "")
        entries = [theirs(table, method, column) for method in lines]
        columns += beside_columns(condition, unit, digits)[: 3 if any(entries) else 1]
        for row, entry, by_condition in zip(rows, entries, lines.values(), strict=True):
            ours = value(by_condition[place].record, by_condition[place].values)
            row += beside(ours, entry)[: 3 if any(entries) else 1]
    several = any(len(x.values) > 1 for by_condition in lines.values() for x in by_condition)
    caption = ("Mean ± standard deviation over seeds [95 % interval]. " if several else "") + note
    return table_block(name, title, columns, [tuple(row) for row in rows], caption, _records(lines))


def against(name: str, title: str, conditions: Sequence[str], lines: Lines) -> Block:
    """Return FO-RI-FedAvg against every other method under each condition, at equal seeds."""
    ours = lines["fo-ri-fedavg"]
    rivals = {method: row for method, row in lines.items() if row is not ours}
    tests = {
        (place, method): paired(
            mine.values, other[place].values, mine.diverged, other[place].diverged
        )
        for place, mine in enumerate(ours)
        for method, other in rivals.items()
    }
    ran = {pair: test.p for pair, test in tests.items() if test.ran}
    corrected = dict(zip(ran, holm(list(ran.values())), strict=True))
    columns = [TableColumn("Against")]
    for condition in conditions:
        columns += [TableColumn(condition, "Wh", 2), TableColumn("p, Holm")]
    rows = []
    for method, other in rivals.items():
        row: list[Entry] = [name_of(method)]
        for place in range(len(conditions)):
            if ours[place].record is None or other[place].record is None:
                row += [MISSING, "–"]
            else:
                p = corrected.get((place, method), nan)
                row += outcome(tests[place, method], p, "FO-RI-FedAvg", name_of(method))
        rows.append(tuple(row))
    note = (
        "FO-RI-FedAvg minus the other, seed by seed [95 % interval]: below zero is better. "
        "p of the paired t-test, Holm-corrected over all comparisons that ran."
    )
    return table_block(name, title, columns, rows, note, _records(lines))


def _records(lines: Lines) -> list[Record | None]:
    return [line.record for by_condition in lines.values() for line in by_condition]


def outcome(test: Paired, p: float, first: str, second: str) -> list[Entry]:
    """Return difference and p; or the side that diverged."""
    return [test.losses(first, second), "–"] if test.decided else [test.difference, p_text(p)]


def p_text(p: float) -> str:
    """Return a p-value as tables have it."""
    if p != p:
        return "–"
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


MADE_WITH_COLUMNS: Final = (
    *("Cells", "Device", "Engine", "fedwatt", "Commit", "torch", "Driver", "Processor", "Threads"),
    "Deterministic",
)


def device_and_engine(record: Record) -> str:
    """Return the device of a record, and its engine where that is not the present one.

    An engine of another version can give other numbers for the same cell.
    """
    device = str(record.facts["device"])
    engine = record.made_with["engine"]
    return device if engine == _present(record) else f"{device} (engine {engine}, not the present)"


def made_with_table(records: Iterable[Record]) -> ReportTable:
    """Return how many cells were made with what, most of them first."""
    counted = Counter(_row(record) for record in records).most_common()
    return ReportTable(
        "made-with",
        "What the records were made with",
        tuple(map(TableColumn, MADE_WITH_COLUMNS)),
        tuple((f"{count:,}", *row) for row, count in counted),
        f"The present engine's version is {VERSION} on a processor and {GPU_VERSION} on a GPU; it "
        "goes up when the same cell would give other numbers, if only in their last digits.",
    )


def _row(record: Record) -> tuple[str, ...]:
    made = record.made_with
    commit = str(made["commit"])
    return (
        str(record.facts["device"]),
        str(made["engine"]),
        made["versions"]["fedwatt"],
        commit[:10] + ("+changes" if commit.endswith("+changes") else ""),
        made["versions"]["torch"],
        made["driver"],
        made["processor"],
        str(made["threads"]),
        "yes" if made["deterministic"] else "no",
    )


def _present(record: Record) -> int:
    """Return the version that the record's device has now."""
    return VERSION if record.facts["device"] == "cpu" else GPU_VERSION
