"""Cost of the roughness probe, and its dependence on the settings."""

from dataclasses import replace
from typing import Any

import numpy as np

from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.cell import Cell
from reproduction.grids import variant
from reproduction.main_results import plain
from reproduction.overhead import (
    CLIENT_SIDE,
    contender_name,
    engine_name,
    load_note,
    seconds,
    timed,
    turns_cells,
)
from reproduction.paper import printed
from reproduction.record import Record
from reproduction.study import Block, Findings, Setting, Study, View
from reproduction.tables import facts_line, printed_text
from reproduction.timing import CONTENDERS, PERIOD, overhead, part_seconds, turns_cell

SMALL: dict[str, Any] = {"vehicles": 3, "participation": 1.0}
"""Three vehicles that take part in every round, so that a probe comes every R_probe rounds."""
PAPER_PROBES = (
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


def show_probe_overhead(view: View) -> Findings:
    """Return client-side time relative to FedAvg, with the methods in turns."""
    blocks = []
    for place, dataset in view.setting.places:
        record = view.get(turns_cell(dataset))
        turns = record.facts["turns"] if record is not None else {"engines": {}}
        rows: list[tuple[Entry, ...]] = []
        for engine in turns["engines"]:
            assert record is not None
            for name in CONTENDERS:
                middle, low, high = (100 * x for x in overhead(turns, engine, name))
                parts = part_seconds(turns, engine, name)
                rows.append(
                    (
                        f"{contender_name(name)}; {engine_name(record, engine)}",
                        1000 * sum(parts.values()),
                        f"{middle:.1f} [{low:.1f}, {high:.1f}]" if name != "fedavg" else "–",
                        100 * parts["probe"] / sum(parts.values()),
                        printed_text(printed("probe-overhead").entry(name, f"{place} seconds")),
                        printed_text(printed("probe-overhead").entry(name, f"{place} overhead")),
                    )
                )
        blocks.append(
            Block(
                ReportTable(
                    f"probe-overhead-{dataset}",
                    f"Client-side time and overhead over FedAvg on {dataset}",
                    (
                        TableColumn("Method"),
                        TableColumn("Ours", "ms", 2),
                        TableColumn("Overhead", "%"),
                        TableColumn("of it the probe", "% of all", 1),
                        TableColumn("Printed", "s"),
                        TableColumn("Overhead, printed", "%"),
                    ),
                    tuple(rows),
                    f"Median over periods of {PERIOD} rounds [95 % bootstrap interval over "
                    "periods], methods in turns. Probes in global rounds, as the paper has them, "
                    "unless by age. About q·M(m+1)·B_probe / (3·E·n_k) of the time are forward "
                    "passes of the probe, with q probes per participation: it falls with the "
                    "windows that a vehicle trains on. " + (load_note(record) if record else ""),
                ),
                facts_line([record]),
            )
        )
    return Findings(tuple(blocks))


def sensitivity_cell(setting: Setting, dataset: str, probe: tuple[int, int, int, int]) -> Cell:
    """Return FO-RI-FedAvg with another probe, timed over at least one probing period."""
    directions, points, batch, every = probe
    cell = variant(
        dataset,
        {
            "directions": directions,
            "points": points,
            "probe_batch": batch,
            "probe_every": every,
        },
    )
    return timed(replace(cell, **SMALL), 1 + max(10, setting.scale.timing_rounds))


def client_side(record: Record | None) -> float:
    """Return seconds that a round takes in the vehicles; NaN if it has not run."""
    parts = seconds(record)
    return sum(parts[part] for part in CLIENT_SIDE) if parts else np.nan


def baseline_cell(setting: Setting, dataset: str) -> Cell:
    """Return FedAvg on the same terms."""
    cell = replace(plain(dataset, "fedavg"), **SMALL)
    return timed(cell, 1 + max(10, setting.scale.timing_rounds))


def sensitivity_cells(setting: Setting) -> list[Cell]:
    """Return the eight probes of the paper's table, and FedAvg."""
    made = []
    for _, dataset in setting.few_places:
        made += [baseline_cell(setting, dataset)]
        made += [sensitivity_cell(setting, dataset, probe) for probe in PAPER_PROBES]
    return made


def show_sensitivity(view: View) -> Findings:
    """Return overhead of each probe."""
    blocks = []
    for place, dataset in view.setting.few_places:
        records = [
            view.get(sensitivity_cell(view.setting, dataset, probe)) for probe in PAPER_PROBES
        ]
        reference = view.get(baseline_cell(view.setting, dataset))
        base = client_side(reference)
        rows: list[tuple[Entry, ...]] = []
        for (m_, points, batch, every), record in zip(PAPER_PROBES, records, strict=True):
            key = f"M={m_} m={points} B={batch} R={every}"
            overhead = 100 * (client_side(record) / base - 1)
            theirs = printed("probe-sensitivity").entry(key, f"{place} overhead")
            rows.append((key, float(overhead), printed_text(theirs)))
        blocks.append(
            Block(
                ReportTable(
                    f"probe-sensitivity-{dataset}",
                    f"Sensitivity of the probe's overhead on {dataset}",
                    (
                        TableColumn("Probe"),
                        TableColumn("Overhead", "%", 1),
                        TableColumn("Printed", "%"),
                    ),
                    tuple(rows),
                    "Three vehicles that take part in every round, one seed: here, and only here, "
                    "one participation in R has a probe.",
                ),
                facts_line([reference, *records]),
            )
        )
    return Findings(tuple(blocks))


PROBE_OVERHEAD = Study(
    "probe-overhead",
    "Roughness diagnostic overhead relative to FedAvg",
    turns_cells,
    show_probe_overhead,
    printed=("probe-overhead",),
    claims=("C3",),
)
SENSITIVITY = Study(
    "probe-sensitivity",
    "Sensitivity of the overhead to the probe's settings",
    sensitivity_cells,
    show_sensitivity,
    printed=("probe-sensitivity",),
    claims=("C3",),
)
