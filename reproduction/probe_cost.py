"""What the roughness probe costs, and how that depends on its settings."""

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.probe import PAPER_PROBES
from fedwatt.methods import RoughnessProximal
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import Column, Table
from reproduction.ablations import variant
from reproduction.cell import Cell
from reproduction.main_results import plain
from reproduction.overhead import (
    GATED,
    SECONDS_NOTE,
    client_side,
    component_cells,
    timed,
    timed_method,
)
from reproduction.paper import printed
from reproduction.record import Record
from reproduction.show import MISSING, facts_line, printed_text
from reproduction.study import Block, Findings, Setting, Study, View

SMALL: dict[str, Any] = {"vehicles": 3, "participation": 1.0}
"""Three vehicles that take part in every round, so that a probe comes every R_probe rounds."""


def show_probe_overhead(view: View) -> Findings:
    """Client-side time relative to FedAvg."""
    blocks = []
    for place, dataset in view.setting.places:
        records = {
            name: view.get(timed_method(view.setting, dataset, name))
            for name in ("fedavg", "ri-fedavg", "fo-ri-fedavg", GATED)
        }
        base = client_side(records["fedavg"])
        rows: list[tuple[Entry, ...]] = []
        for name, record in records.items():
            time = client_side(record)
            rows.append(
                (
                    name_of(name),
                    1000 * time,
                    100 * (time / base - 1) if np.isfinite(time) else MISSING,
                    printed_text(printed("probe-overhead").entry(name, f"{place} seconds")),
                    printed_text(printed("probe-overhead").entry(name, f"{place} overhead")),
                )
            )
        blocks.append(
            Block(
                Table(
                    f"probe-overhead-{dataset}",
                    f"Client-side time and overhead over FedAvg on {dataset}",
                    (
                        Column("Method"),
                        Column("Ours", "ms", 2),
                        Column("Overhead", "%", 1),
                        Column("Printed", "s"),
                        Column("Overhead, printed", "%"),
                    ),
                    tuple(rows),
                    "Means over all rounds, so the probe is amortised. "
                    + _often(records["fo-ri-fedavg"])
                    + " Overhead is about q·M(m+1)·B_probe / (3·E·n_k) forward passes with q "
                    "probes per participation: it falls with the windows that a vehicle trains on. "
                    + SECONDS_NOTE,
                ),
                facts_line(list(records.values())),
            )
        )
    return Findings(tuple(blocks))


def probes_per_participation(record: Record, every: int) -> float:
    """Share of replies with a probe, from the rounds in which each vehicle replied.

    A vehicle probes when it takes part and its index is missing or at least `every` rounds old; one
    that is rarely asked probes nearly each time.
    """
    own, probes = record.vehicles, 0
    last: dict[tuple[int, str], int] = {}
    order = np.lexsort((own["round"], own["seed"]))
    for row in order.tolist():
        who, at = (int(own["seed"][row]), str(own["vehicle"][row])), int(own["round"][row])
        if who not in last or at - last[who] >= every:
            last[who] = at
            probes += 1
    return probes / len(order) if len(order) else np.nan


def _often(record: Record | None) -> str:
    """How often vehicles probed, in a sentence."""
    if record is None:
        return "How often vehicles probe is not known before it has run."
    every = int(dict(record.cell.settings).get("probe_every", RoughnessProximal().probe_every))
    often = probes_per_participation(record, every)
    return (
        f"A vehicle probes when its index is {every} rounds old or more, and it is not asked in "
        f"each round: q = {often:.2f} of participations had a probe, not 1/{every}."
    )


def sensitivity_cell(setting: Setting, dataset: str, probe: tuple[int, int, int, int]) -> Cell:
    """FO-RI-FedAvg with another probe, timed over at least one probing period."""
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


def reference_cell(setting: Setting, dataset: str) -> Cell:
    """FedAvg on the same terms."""
    cell = replace(plain(dataset, "fedavg"), **SMALL)
    return timed(cell, 1 + max(10, setting.scale.timing_rounds))


def sensitivity_cells(setting: Setting) -> list[Cell]:
    """The eight probes of the paper's table, and FedAvg."""
    made = []
    for _, dataset in setting.few_places:
        made += [reference_cell(setting, dataset)]
        made += [sensitivity_cell(setting, dataset, probe) for probe in PAPER_PROBES]
    return made


def show_sensitivity(view: View) -> Findings:
    """Overhead of each probe."""
    blocks = []
    for place, dataset in view.setting.few_places:
        records = [
            view.get(sensitivity_cell(view.setting, dataset, probe)) for probe in PAPER_PROBES
        ]
        reference = view.get(reference_cell(view.setting, dataset))
        base = client_side(reference)
        rows: list[tuple[Entry, ...]] = []
        for (m_, points, batch, every), record in zip(PAPER_PROBES, records, strict=True):
            key = f"M={m_} m={points} B={batch} R={every}"
            overhead = 100 * (client_side(record) / base - 1)
            theirs = printed("probe-sensitivity").entry(key, f"{place} overhead")
            rows.append((key, float(overhead), printed_text(theirs)))
        blocks.append(
            Block(
                Table(
                    f"probe-sensitivity-{dataset}",
                    f"Sensitivity of the probe's overhead on {dataset}",
                    (Column("Probe"), Column("Overhead", "%", 1), Column("Printed", "%")),
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
    component_cells,
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
