"""Errors by round, of the main cells: convergence, rounds to threshold, anytime."""

from collections.abc import Callable
from math import inf

import numpy as np

from fedwatt.metrics import rounds_to_threshold
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.draw import curves
from reproduction.main_results import by_method, plain_cells
from reproduction.paper import printed
from reproduction.record import Record
from reproduction.show import facts_line, printed_text
from reproduction.study import Block, Findings, Picture, Study, View

THRESHOLDS = {"VED": ("55", "45"), "eVED": ("45", "38")}


def _curve_study(column: str, title: str, caption: str) -> Callable[[View], Findings]:
    def show(view: View) -> Findings:
        pictures = []
        for _, dataset in view.setting.places:
            records = by_method(view, dataset)
            pictures.append(
                Picture(
                    f"{column.replace('_', '-')}-{dataset}",
                    f"{title}, {dataset}",
                    curves(records, column, f"{title}, {dataset}"),
                    caption,
                    facts_line(list(records.values())),
                )
            )
        return Findings(pictures=tuple(pictures))

    return show


def show_thresholds(view: View) -> Findings:
    """Return first round at or below the paper's thresholds, and below ours."""
    blocks = []
    for place, dataset in view.setting.places:
        records = by_method(view, dataset)
        finals = [
            np.mean(list(r.final("test_rmse").values()))
            for r in records.values()
            if r and not r.diverged
        ]
        finite = [f for f in finals if np.isfinite(f)]
        own_targets = [float(above * min(finite)) for above in (1.10, 1.02)] if finite else []
        targets = [(float(t), f"{place} {t}") for t in THRESHOLDS.get(place, ())]
        columns = [TableColumn("Method")]
        for target, _ in targets:
            columns += [
                TableColumn(f"θ = {target:g}", "rounds", 0),
                TableColumn("printed", "rounds"),
            ]
            columns.append(TableColumn("difference", "rounds", 0))
        columns += [
            TableColumn(f"θ = {t:.1f} ({w})", "rounds", 0)
            for t, w in zip(own_targets, OWN, strict=False)
        ]
        rows: list[tuple[Entry, ...]] = []
        for method, record in records.items():
            row: list[Entry] = [name_of(method)]
            for target, printed_column in targets:
                theirs = printed("thresholds").entry(method, printed_column)
                ours = _reached(record, target)
                comparable = isinstance(ours, float) and theirs is not None and theirs.mean < inf
                row += [ours, printed_text(theirs)]
                row.append(ours - theirs.mean if comparable else "–")  # type: ignore[operator, union-attr]
            row += [_reached(record, target) for target in own_targets]
            rows.append(tuple(row))
        blocks.append(
            Block(
                ReportTable(
                    f"thresholds-{dataset}",
                    f"Rounds to a test RMSE of θ on {dataset}",
                    tuple(columns),
                    tuple(rows),
                    "Median over seeds; NR: not reached by half of them. The paper's thresholds "
                    "are absolute and its labels are not ours: the last columns ask the same of "
                    "targets 10 and 2 % above the lowest final error here of a method without "
                    "diverged seeds.",
                ),
                facts_line(list(records.values())),
            )
        )
    return Findings(tuple(blocks))


OWN = ("best + 10 %", "best + 2 %")


def rounds_to(record: Record, target: float) -> dict[int, float]:
    """Return per seed the first recorded round with a test RMSE of at most `target`, or ∞."""
    rounds_by_seed = {}
    for seed in record.seeds:
        rounds, values = record.curve("test_rmse", seed)
        lost = seed in record.diverged
        reached = rounds_to_threshold(rounds.tolist(), values.tolist(), target)
        rounds_by_seed[seed] = inf if lost else float(reached)
    return rounds_by_seed


def _reached(record: Record | None, target: float) -> Entry:
    if record is None:
        return "not run"
    rounds = list(rounds_to(record, target).values())
    middle = float(np.median(rounds)) if rounds else inf
    return "NR" if not np.isfinite(middle) else float(middle)


CONVERGENCE = "Mean over seeds, band from the lowest to the highest seed. Lower is better."
BY_ROUND = (
    Study(
        "convergence",
        "Convergence: test RMSE by round",
        plain_cells,
        _curve_study("test_rmse", "Test RMSE, Wh per window", CONVERGENCE),
        claims=("C2",),
    ),
    Study(
        "thresholds",
        "Rounds to threshold",
        plain_cells,
        show_thresholds,
        printed=("thresholds",),
        claims=("C2",),
    ),
    Study(
        "best-so-far",
        "Anytime performance: best-so-far RMSE",
        plain_cells,
        _curve_study(
            "best_test_rmse",
            "Best-so-far test RMSE, Wh per window",
            "Test error of the model with the lowest validation error up to each round.",
        ),
        claims=("C2",),
    ),
)
