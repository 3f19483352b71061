"""Cost of the mechanisms: time of a round, of its parts and of the probe.

Seconds are those of this simulator, which trains all participants in one stack: shares and ratios
can be set beside the paper's, seconds cannot. They do not reproduce bit for bit.
"""

from dataclasses import replace

import numpy as np

from fedwatt.report.style import PARTS as LOOKS
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.cell import METHODS, Cell
from reproduction.figures import bars, sweep
from reproduction.main_results import plain
from reproduction.paper import printed
from reproduction.record import Record
from reproduction.study import Block, Findings, Picture, Setting, Study, View
from reproduction.tables import facts_line, printed_text
from reproduction.timing import GATED, part_seconds, turns_cell

CLIENT_SIDE = ("training", "preconditioner", "probe", "spectral")
SECONDS_NOTE = (
    "Ours is one seed with all participants in one stack, a few rounds, the first left out; only "
    "ratios compare with the paper's seconds."
)
PARTICIPANTS = (10, 25, 50, 75, 100)


def seconds(record: Record | None) -> dict[str, float]:
    """Return mean seconds a round and seed, by part; the first round, which warms up, left out."""
    if record is None or not record.timing or not len(record.timing["round"]):
        return {}
    rounds = record.timing["round"]
    later = rounds > 1 if len(rounds) > 1 else rounds > 0
    count = max(len(record.seeds), 1)
    return {
        part: float(record.timing[part][later].mean()) / count
        for part in (*CLIENT_SIDE, "aggregation")
    }


def round_seconds(record: Record | None) -> float:
    """Return seconds of a whole round without its evaluation; NaN if it has not run."""
    parts = seconds(record)
    return sum(parts.values()) if parts else np.nan


def timed(cell: Cell, rounds: int) -> Cell:
    """Return a cell for its time alone: one seed, few rounds, in a stack of its own."""
    return replace(cell, purpose="time", rounds=rounds, seeds=(1,))


def timed_method(setting: Setting, dataset: str, method: str) -> Cell:
    """Return a method at the paper's settings, for its time."""
    return timed(plain(dataset, method), setting.scale.timing_rounds)


def _ratio(value: float, base: float) -> Entry:
    return value / base if np.isfinite(value) and np.isfinite(base) and base > 0 else "–"


def show_round_time(view: View) -> Findings:
    """Time per round, and over FedAvg's."""
    blocks = []
    for place, dataset in view.setting.places:
        records = {m: view.get(timed_method(view.setting, dataset, m)) for m in METHODS}
        base = round_seconds(records.get("fedavg"))
        printed_base = printed("round-time").entry("fedavg", place)
        rows: list[tuple[Entry, ...]] = []
        for method, record in records.items():
            theirs = printed("round-time").entry(method, place)
            ours = round_seconds(record)
            relative = theirs.mean / printed_base.mean if theirs and printed_base else np.nan
            row: list[Entry] = [name_of(method), 1000 * ours, _ratio(ours, base)]
            rows.append((*row, printed_text(theirs), float(relative)))
        blocks.append(
            Block(
                ReportTable(
                    f"round-time-{dataset}",
                    f"Time per round on {dataset}",
                    (
                        TableColumn("Method"),
                        TableColumn("Ours", "ms", 1),
                        TableColumn("Over FedAvg", "", 2),
                        TableColumn("Printed", "s"),
                        TableColumn("Over FedAvg, printed", "", 2),
                    ),
                    tuple(rows),
                    SECONDS_NOTE,
                ),
                facts_line(list(records.values())),
            )
        )
    return Findings(tuple(blocks))


def turns_cells(setting: Setting) -> list[Cell]:
    """Return one for each place."""
    return [turns_cell(dataset) for _, dataset in setting.places]


def engine_name(record: Record, engine: str) -> str:
    """Return an engine of `reproduction.timing` in words."""
    made = record.made_with
    if engine == "cuda":
        return f"this simulator, {record.facts['turns']['gpu']}"
    processor = f"{made.get('processor', 'a processor')}"
    if engine == "plain":
        return f"plain loop, one core of {processor}"
    threads = made.get("threads", "?")
    return f"this simulator, {threads} {'thread' if threads == 1 else 'threads'} of {processor}"


def load_note(record: Record) -> str:
    """Return how busy the machine was."""
    turns = record.facts["turns"]
    before, after = (turns["load"][when][0] for when in ("before", "after"))
    text = (
        f"{turns['rounds']} rounds in turns on {turns['cores']} cores; load average {before:.1f} "
        f"before and {after:.1f} after."
    )
    excess = max(before, after) - record.made_with.get("threads", 1)
    if excess > turns["cores"] / 2:
        text += " Other work shared the machine, which widens the intervals."
    return text


def show_components(view: View) -> Findings:
    """Return where FO-RI-FedAvg's time goes."""
    blocks = []
    pictures = []
    for place, dataset in view.setting.places:
        record = view.get(turns_cell(dataset))
        facts = facts_line([record])
        engines = record.facts["turns"]["engines"] if record is not None else {}
        printed_total = printed("components").entry("total", place)
        for engine in engines:
            assert record is not None
            parts = part_seconds(record.facts["turns"], engine, GATED)
            rows: list[tuple[Entry, ...]] = []
            for part in CLIENT_SIDE:
                theirs = printed("components").entry(part, place)
                share = (
                    100 * theirs.mean / printed_total.mean if theirs and printed_total else np.nan
                )
                time = 1000 * parts[part]
                ours = 100 * parts[part] / sum(parts.values())
                rows.append((part, time, ours, printed_text(theirs), float(share)))
            blocks.append(
                Block(
                    ReportTable(
                        f"components-{dataset}-{engine}",
                        f"Client-side time of FO-RI-FedAvg by component on {dataset}: "
                        f"{engine_name(record, engine)}",
                        (
                            TableColumn("Component"),
                            TableColumn("Ours", "ms", 2),
                            TableColumn("Share", "%", 1),
                            TableColumn("Printed", "s"),
                            TableColumn("Share, printed", "%", 1),
                        ),
                        tuple(rows),
                        "Means over rounds, with global probe rounds and the gate on (β_κ = 0.5). "
                        "A plain loop's preconditioner is part of its steps. " + load_note(record),
                    ),
                    facts,
                )
            )
            milliseconds = {
                contender_name(name): {
                    part: 1000 * time
                    for part, time in part_seconds(record.facts["turns"], engine, name).items()
                }
                for name in record.facts["turns"]["engines"][engine]
            }
            pictures.append(
                Picture(
                    f"components-{dataset}-{engine}",
                    f"Where the time of a round goes, {dataset}: {engine_name(record, engine)}",
                    bars(
                        milliseconds,
                        {part: LOOKS[part].colour for part in CLIENT_SIDE},
                        "Milliseconds per round",
                    ),
                    "Probe and spectral ratio are diagnostics.",
                    facts,
                )
            )
    return Findings(tuple(blocks), tuple(pictures))


def contender_name(name: str) -> str:
    """Return a contender of `reproduction.timing` in words.

    >>> contender_name("ri-fedavg, by age")
    'RI-FedAvg, by age'
    """
    method, comma, how = name.partition(",")
    return name_of(method) + comma + how


def scalability_cell(setting: Setting, method: str, participants: int) -> Cell:
    """Return a hundred vehicles, of which `participants` train in a round."""
    cell = Cell(
        dataset=setting.fleet, method=method, vehicles=100, participation=participants / 100
    )
    return timed(cell, setting.scale.timing_rounds)


def scalability_cells(setting: Setting) -> list[Cell]:
    """Return FedAvg and FO-RI-FedAvg at every number of participants."""
    return [
        scalability_cell(setting, method, participants)
        for participants in PARTICIPANTS
        for method in ("fedavg", "fo-ri-fedavg")
    ]


def show_scalability(view: View) -> Findings:
    """Time per round by the number of participants."""
    setting = view.setting
    methods = ("fedavg", "fo-ri-fedavg")
    records = {
        m: [view.get(scalability_cell(setting, m, p)) for p in PARTICIPANTS] for m in methods
    }
    columns = [TableColumn("|S_t|")]
    for method in methods:
        columns += [TableColumn(name_of(method), "ms", 1), TableColumn("printed", "s")]
    rows: list[tuple[Entry, ...]] = []
    for place, participants in enumerate(PARTICIPANTS):
        row: list[Entry] = [str(participants)]
        for method in methods:
            theirs = printed("scalability").entry(str(participants), method)
            row += [1000 * round_seconds(records[method][place]), printed_text(theirs)]
        rows.append(tuple(row))
    facts = facts_line([record for per_size in records.values() for record in per_size])
    values = {
        m: [{1: 1000 * t} if np.isfinite(t := round_seconds(r)) else {} for r in per_size]
        for m, per_size in records.items()
    }
    return Findings(
        (
            Block(
                ReportTable(
                    "scalability",
                    "Time per round by participants",
                    tuple(columns),
                    tuple(rows),
                    SECONDS_NOTE,
                ),
                facts,
            ),
        ),
        (
            Picture(
                "scalability",
                "Time per round by participants",
                sweep([str(p) for p in PARTICIPANTS], values, "Milliseconds per round", "|S_t|"),
                "A hundred vehicles, one seed.",
                facts,
            ),
        ),
    )


def round_time_cells(setting: Setting) -> list[Cell]:
    """Return all methods, a few rounds each."""
    return [timed_method(setting, d, m) for _, d in setting.places for m in METHODS]


ROUND_TIME = Study(
    "round-time",
    "Time per round",
    round_time_cells,
    show_round_time,
    printed=("round-time",),
    claims=("C3",),
)
COMPONENTS = Study(
    "components",
    "Component-wise breakdown of client-side time",
    turns_cells,
    show_components,
    printed=("components",),
    claims=("C3",),
)
SCALABILITY = Study(
    "scalability",
    "Scalability with the number of participants",
    scalability_cells,
    show_scalability,
    printed=("scalability",),
    claims=("C3",),
)


def latency_cells(setting: Setting) -> list[Cell]:
    """Return the network of each dataset's features."""
    return [Cell(dataset=d, method="fedavg", work="latency") for _, d in setting.places]


def show_latency(view: View) -> Findings:
    """Return latency and throughput of a forward pass."""
    blocks = []
    for place, dataset in view.setting.places:
        record = view.get(Cell(dataset=dataset, method="fedavg", work="latency"))
        latencies = record.facts["latency"] if record else []
        for batch in (1, 32):
            rows: list[tuple[Entry, ...]] = []
            for latency in latencies:
                if latency["batch"] == batch and latency["method"] in METHODS:
                    theirs = printed("latency").entry(latency["method"], f"{place} median")
                    speed = printed("latency").entry(latency["method"], f"{place} throughput")
                    row: list[Entry] = [
                        name_of(latency["method"]),
                        latency["median_ms"],
                        latency["p95_ms"],
                        round(latency["throughput"]),
                    ]
                    if batch == 32:
                        row += [printed_text(theirs), printed_text(speed)]
                    rows.append(tuple(row))
            columns = [
                TableColumn("Method"),
                TableColumn("Median", "ms/window", 4),
                TableColumn("p95", "ms/window", 4),
                TableColumn("Throughput", "windows/s", 0),
            ]
            if batch == 32:
                columns += [
                    TableColumn("Median, printed", "ms"),
                    TableColumn("Throughput, printed", "1/s"),
                ]
            blocks.append(
                Block(
                    ReportTable(
                        f"latency-{batch}-{dataset}",
                        f"Inference latency at batch size {batch}, {dataset}",
                        tuple(columns),
                        tuple(rows),
                        "One CPU thread, no gradients, warm-up discarded. Every method deploys the "
                        "same network, so differences are noise.",
                    ),
                    facts_line([record]),
                )
            )
    return Findings(tuple(blocks))


LATENCY = Study(
    "latency",
    "Inference latency at batch sizes 1 and 32",
    latency_cells,
    show_latency,
    printed=("latency",),
    claims=("C3",),
)
