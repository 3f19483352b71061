"""Cost of the mechanisms: time of a round, of its parts, of the probe and of a forward pass.

Seconds are those of this simulator, which trains all participants in one stack: shares and ratios
can be compared with the paper's, seconds cannot. They do not reproduce bit for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from fedwatt.report.style import PARTS as LOOKS
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import TableColumn
from reproduction.cell import METHODS, Cell
from reproduction.figures import bars, sweep
from reproduction.grids import variant
from reproduction.main_results import plain
from reproduction.record import Record
from reproduction.study import Findings, Picture, Setting, Study, View
from reproduction.tables import printed_text, table_block, theirs
from reproduction.timing import CONTENDERS, GATED, PARTS, PERIOD, overhead, part_seconds, turns_cell

SECONDS_NOTE: Final = (
    "Ours is one seed with all participants in one stack, a few rounds, the first left out; only "
    "ratios compare with the paper's seconds."
)
PARTICIPANTS: Final = (10, 25, 50, 75, 100)
SMALL: Final[dict[str, Any]] = {"vehicles": 3, "participation": 1.0}
"""Three vehicles that take part in every round, so that a probe comes every R_probe rounds."""
PAPER_PROBES: Final = (
    (5, 50, 64, 10),
    (5, 100, 128, 10),
    (10, 100, 128, 10),
    (10, 100, 128, 5),
    (10, 200, 128, 5),
    (10, 100, 256, 5),
    (20, 100, 128, 5),
    (10, 100, 128, 1),
)
"""(M, m, B_probe, R) of the paper's table of sensitivity."""


def seconds(record: Record | None, parts: tuple[str, ...] = (*PARTS, "aggregation")) -> float:
    """Return mean seconds of some parts per round and seed, the first round left out, or NaN."""
    if record is None or not record.timing or not len(record.timing["round"]):
        return np.nan
    rounds = record.timing["round"]
    later = rounds > 1 if len(rounds) > 1 else rounds > 0
    count = max(len(record.seeds), 1)
    return sum(float(record.timing[part][later].mean()) for part in parts) / count


def timed(cell: Cell, rounds: int) -> Cell:
    """Return a cell for its time alone: one seed, few rounds, in a stack of its own."""
    return replace(cell, purpose="time", rounds=rounds, seeds=(1,))


def timed_method(setting: Setting, dataset: str, method: str) -> Cell:
    """Return a method at the paper's settings, for its time."""
    return timed(plain(dataset, method), setting.scale.timing_rounds)


def ratio(value: float, base: float) -> Entry:
    """Return value / base, or a dash where one of them has not run."""
    return value / base if np.isfinite(value) and np.isfinite(base) and base > 0 else "–"


def show_round_time(view: View) -> Findings:
    """Return time per round, and over FedAvg's."""
    columns = (
        TableColumn("Method"),
        TableColumn("Ours", "ms", 1),
        TableColumn("Over FedAvg", "", 2),
        TableColumn("Printed", "s"),
        TableColumn("Over FedAvg, printed", "", 2),
    )
    blocks = []
    for place, dataset in view.setting.few_places:
        records = {m: view.get(timed_method(view.setting, dataset, m)) for m in METHODS}
        printed_base = theirs("round-time", "fedavg", place)
        rows: list[tuple[Entry, ...]] = []
        for method, record in records.items():
            entry = theirs("round-time", method, place)
            relative = entry.mean / printed_base.mean if entry and printed_base else np.nan
            over = ratio(seconds(record), seconds(records["fedavg"]))
            ours = 1000 * seconds(record)
            rows.append((name_of(method), ours, over, printed_text(entry), relative))
        name = f"round-time-{dataset}"
        title = f"Time per round on {dataset}"
        blocks.append(table_block(name, title, columns, rows, SECONDS_NOTE, list(records.values())))
    return Findings(tuple(blocks))


def turns_cells(setting: Setting) -> list[Cell]:
    """Return the cells in which methods are timed in turns, one for each place."""
    return [turns_cell(dataset) for _, dataset in setting.places]


def engine_name(record: Record, engine: str) -> str:
    """Return an engine of `reproduction.timing` in words."""
    made = record.made_with
    if engine == "cuda":
        return f"this simulator, {record.facts['turns']['gpu']}"
    processor = made["processor"]
    if engine == "plain":
        return f"plain loop, one core of {processor}"
    threads = made["threads"]
    return f"this simulator, {threads} {'thread' if threads == 1 else 'threads'} of {processor}"


def load_note(record: Record) -> str:
    """Return how busy the machine was."""
    turns = record.facts["turns"]
    before, after = (turns["load"][when][0] for when in ("before", "after"))
    text = (
        f"{turns['rounds']} rounds in turns on {turns['cores']} cores; load average {before:.1f} "
        f"before and {after:.1f} after."
    )
    excess = max(before, after) - record.made_with["threads"]
    if excess > turns["cores"] / 2:
        text += " Other work shared the machine, which widens the intervals."
    return text


def show_components(view: View) -> Findings:
    """Return FO-RI-FedAvg's time by component."""
    columns = (
        TableColumn("Component"),
        TableColumn("Ours", "ms", 2),
        TableColumn("Share", "%", 1),
        TableColumn("Printed", "s"),
        TableColumn("Share, printed", "%", 1),
    )
    blocks = []
    pictures = []
    for place, dataset in view.setting.places:
        record = view.get(turns_cell(dataset))
        if record is None:
            continue
        turns = record.facts["turns"]
        total = theirs("components", "total", place)
        for engine in turns["engines"]:
            parts = part_seconds(turns, engine, GATED)
            rows: list[tuple[Entry, ...]] = []
            for part, part_time in parts.items():
                entry = theirs("components", part, place)
                share = 100 * entry.mean / total.mean if entry and total else np.nan
                ours = 100 * part_time / sum(parts.values())
                rows.append((part, 1000 * part_time, ours, printed_text(entry), share))
            name = f"components-{dataset}-{engine}"
            where = f"{dataset}: {engine_name(record, engine)}"
            block = table_block(
                name,
                f"Client-side time of FO-RI-FedAvg by component on {where}",
                columns,
                rows,
                "Means over rounds, with global probe rounds and the gate on (β_κ = 0.5). "
                "A plain loop's preconditioner is part of its steps. " + load_note(record),
                [record],
            )
            blocks.append(block)
            milliseconds = {
                contender_name(contender): {
                    part: 1000 * time
                    for part, time in part_seconds(turns, engine, contender).items()
                }
                for contender in CONTENDERS
            }
            colours = {part: LOOKS[part].colour for part in PARTS}
            pictures.append(
                Picture(
                    name,
                    f"Time of a round by component, {where}",
                    bars(milliseconds, colours, "Milliseconds per round"),
                    "Probe and spectral ratio are diagnostics.",
                    block.facts,
                )
            )
    return Findings(tuple(blocks), tuple(pictures))


def contender_name(name: str) -> str:
    """Return a contender of `reproduction.timing` in words.

    >>> contender_name("fo-ri-fedavg, gated")
    'FO-RI-FedAvg, gated'
    """
    method, comma, how = name.partition(",")
    return name_of(method) + comma + how


def scalability_cells(setting: Setting) -> dict[str, list[Cell]]:
    """Return method → cells: a hundred vehicles, of which ever more train in a round."""
    rounds = setting.scale.timing_rounds
    fleet = Cell(dataset=setting.fleet, method="fedavg", vehicles=100)
    return {
        method: [
            timed(replace(fleet, method=method, participation=count / 100), rounds)
            for count in PARTICIPANTS
        ]
        for method in ("fedavg", "fo-ri-fedavg")
    }


def show_scalability(view: View) -> Findings:
    """Return time per round by the number of participants."""
    cells = scalability_cells(view.setting)
    records = {method: [view.get(cell) for cell in row] for method, row in cells.items()}
    columns = [TableColumn("|S_t|")]
    rows: list[list[Entry]] = [[str(count)] for count in PARTICIPANTS]
    values = {}
    for method, per_size in records.items():
        columns += [TableColumn(name_of(method), "ms", 1), TableColumn("printed", "s")]
        milliseconds = [1000 * seconds(record) for record in per_size]
        values[method] = [{1: time} if np.isfinite(time) else {} for time in milliseconds]
        for row, time in zip(rows, milliseconds, strict=True):
            row += [time, printed_text(theirs("scalability", str(row[0]), method))]
    block = table_block(
        "scalability",
        "Time per round by participants",
        columns,
        [tuple(row) for row in rows],
        SECONDS_NOTE,
        [record for per_size in records.values() for record in per_size],
    )
    ticks = [str(count) for count in PARTICIPANTS]
    figure = sweep(ticks, values, "Milliseconds per round", "|S_t|")
    caption = "A hundred vehicles, one seed."
    picture = Picture("scalability", block.table.title, figure, caption, block.facts)
    return Findings((block,), (picture,))


def show_probe_overhead(view: View) -> Findings:
    """Return client-side time relative to FedAvg, with the methods in turns."""
    columns = (
        TableColumn("Method"),
        TableColumn("Ours", "ms", 2),
        TableColumn("Overhead", "%"),
        TableColumn("of it the probe", "% of all", 1),
        TableColumn("Printed", "s"),
        TableColumn("Overhead, printed", "%"),
    )
    note = (
        f"Median over periods of {PERIOD} rounds [95 % bootstrap interval over periods], methods "
        "in turns. Probes in global rounds, as the paper has them. About "
        "q·M(m+1)·B_probe / (3·E·n_k) of the time are forward passes of the probe, with q probes "
        "per participation: it falls with the windows that a vehicle trains on. "
    )
    blocks = []
    for place, dataset in view.setting.places:
        record = view.get(turns_cell(dataset))
        rows: list[tuple[Entry, ...]] = []
        for engine in record.facts["turns"]["engines"] if record else ():
            assert record is not None
            turns = record.facts["turns"]
            for name in CONTENDERS:
                middle, low, high = (100 * share for share in overhead(turns, engine, name))
                parts = part_seconds(turns, engine, name)
                total = sum(parts.values())
                row: list[Entry] = [
                    f"{contender_name(name)}; {engine_name(record, engine)}",
                    1000 * total,
                    f"{middle:.1f} [{low:.1f}, {high:.1f}]" if name != "fedavg" else "–",
                    100 * parts["probe"] / total,
                ]
                for column in ("seconds", "overhead"):
                    entry = theirs("probe-overhead", name, f"{place} {column}")
                    row.append(printed_text(entry))
                rows.append(tuple(row))
        blocks.append(
            table_block(
                f"probe-overhead-{dataset}",
                f"Client-side time and overhead over FedAvg on {dataset}",
                columns,
                rows,
                note + (load_note(record) if record else ""),
                [record],
            )
        )
    return Findings(tuple(blocks))


def sensitivity_cells(setting: Setting, dataset: str) -> list[Cell]:
    """Return FedAvg, and the eight probes of the paper's table."""
    rounds = 1 + max(10, setting.scale.timing_rounds)
    probed = [
        variant(
            dataset,
            {"directions": m_, "points": points, "probe_batch": batch, "probe_every": every},
        )
        for m_, points, batch, every in PAPER_PROBES
    ]
    return [timed(replace(cell, **SMALL), rounds) for cell in (plain(dataset, "fedavg"), *probed)]


def show_sensitivity(view: View) -> Findings:
    """Return the overhead of each probe."""
    columns = (TableColumn("Probe"), TableColumn("Overhead", "%", 1), TableColumn("Printed", "%"))
    note = (
        "Three vehicles that take part in every round, one seed: here, and only here, one "
        "participation in R has a probe."
    )
    blocks = []
    for place, dataset in view.setting.few_places:
        records = [view.get(cell) for cell in sensitivity_cells(view.setting, dataset)]
        base = seconds(records[0], PARTS)
        rows: list[tuple[Entry, ...]] = []
        for (m_, points, batch, every), record in zip(PAPER_PROBES, records[1:], strict=True):
            key = f"M={m_} m={points} B={batch} R={every}"
            share = 100 * (seconds(record, PARTS) / base - 1)
            entry = theirs("probe-sensitivity", key, f"{place} overhead")
            rows.append((key, share, printed_text(entry)))
        title = f"Sensitivity of the probe's overhead on {dataset}"
        name = f"probe-sensitivity-{dataset}"
        blocks.append(table_block(name, title, columns, rows, note, records))
    return Findings(tuple(blocks))


def latency_cell(dataset: str) -> Cell:
    """Return the network of a dataset's features, timed."""
    return Cell(dataset=dataset, method="fedavg", work="latency")


def show_latency(view: View) -> Findings:
    """Return latency and throughput of a forward pass."""
    columns = [
        TableColumn("Method"),
        TableColumn("Median", "ms/window", 4),
        TableColumn("p95", "ms/window", 4),
        TableColumn("Throughput", "windows/s", 0),
    ]
    printed_columns = [
        TableColumn("Median, printed", "ms"),
        TableColumn("Throughput, printed", "1/s"),
    ]
    note = (
        "One CPU thread, no gradients, warm-up discarded. Every method deploys the same network, "
        "so differences are noise."
    )
    blocks = []
    for place, dataset in view.setting.places:
        record = view.get(latency_cell(dataset))
        for batch in (1, 32):
            rows: list[tuple[Entry, ...]] = []
            for latency in record.facts["latency"] if record else ():
                method = latency["method"]
                if latency["batch"] != batch:
                    continue
                row: list[Entry] = [name_of(method), latency["median_ms"], latency["p95_ms"]]
                row.append(round(latency["throughput"]))
                if batch == 32:
                    for column in ("median", "throughput"):
                        entry = theirs("latency", method, f"{place} {column}")
                        row.append(printed_text(entry))
                rows.append(tuple(row))
            blocks.append(
                table_block(
                    f"latency-{batch}-{dataset}",
                    f"Inference latency at batch size {batch}, {dataset}",
                    columns + printed_columns * (batch == 32),
                    rows,
                    note,
                    [record],
                )
            )
    return Findings(tuple(blocks))


def _study(
    name: str,
    title: str,
    cells: Callable[[Setting], Sequence[Cell]],
    show: Callable[[View], Findings],
) -> Study:
    return Study(name, title, cells, show, printed=(name,), claims=("C3",))


ROUND_TIME = _study(
    "round-time",
    "Time per round",
    lambda setting: [timed_method(setting, d, m) for _, d in setting.few_places for m in METHODS],
    show_round_time,
)
COMPONENTS = _study(
    "components",
    "Component-wise breakdown of client-side time",
    turns_cells,
    show_components,
)
SCALABILITY = _study(
    "scalability",
    "Scalability with the number of participants",
    lambda setting: [cell for row in scalability_cells(setting).values() for cell in row],
    show_scalability,
)
PROBE_OVERHEAD = _study(
    "probe-overhead",
    "Roughness diagnostic overhead relative to FedAvg",
    turns_cells,
    show_probe_overhead,
)
SENSITIVITY = _study(
    "probe-sensitivity",
    "Sensitivity of the overhead to the probe's settings",
    lambda setting: [c for _, d in setting.few_places for c in sensitivity_cells(setting, d)],
    show_sensitivity,
)
LATENCY = _study(
    "latency",
    "Inference latency at batch sizes 1 and 32",
    lambda setting: [latency_cell(dataset) for _, dataset in setting.places],
    show_latency,
)
