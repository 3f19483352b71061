"""Curves by round: convergence, thresholds, client drift, and the quantities read from them.

Claim C2 compares how fast and how steadily an error falls, C1 how client drift spreads.
"""

from collections.abc import Callable
from math import inf, isfinite, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.metrics import rounds_to_threshold
from fedwatt.report.statistics import estimate
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn, cell_text
from reproduction.figures import curves
from reproduction.main_results import by_method, plain_cells
from reproduction.paired import Paired, paired
from reproduction.paper import printed
from reproduction.record import REACH, Record
from reproduction.study import Block, Findings, Picture, Study, View
from reproduction.tables import Line, comparison, facts_line, printed_text

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


def show_drift(view: View) -> Findings:
    """Return drift and its dispersion, by round and at t = 200."""
    pictures = []
    blocks = []
    for _, dataset in view.setting.places:
        records = by_method(view, dataset)
        facts = facts_line(list(records.values()))
        for column, title in (
            ("drift_mean", "Mean drift ‖Δ‖₂"),
            ("drift_cv", "Dispersion of drift D_cv"),
        ):
            pictures.append(
                Picture(
                    f"{column.replace('_', '-')}-{dataset}",
                    f"{title}, {dataset}",
                    curves(records, column, f"{title}, {dataset}"),
                    "Mean over seeds, band from the lowest to the highest. Smaller drift alone is "
                    "no merit: a smaller rate does the same.",
                    facts,
                )
            )
        at = view.setting.scale.at(200)
        lines = [Line(name_of(m), m, r) for m, r in records.items()]
        for column, title, digits in (
            ("drift_mean", "D_mean", 3),
            ("drift_cv", "D_cv", 3),
        ):
            values = [r.around(column, at, REACH) if r else {} for r in records.values()]
            blocks.append(
                comparison(
                    f"{column.replace('_', '-')}-{dataset}",
                    f"{title}(200) on {dataset}",
                    lines,
                    column,
                    heading=title,
                    unit="",
                    digits=digits,
                    values=values,
                    note=f"Mean over rounds {at - REACH} to {at + REACH}, because a round has few "
                    "participants. The paper prints no table of these.",
                )
            )
    return Findings(tuple(blocks), tuple(pictures))


DRIFT = Study(
    "drift",
    "Client drift: magnitude and dispersion",
    plain_cells,
    show_drift,
    claims=("C1",),
)


NEAR: Final = 1.10
"""Speed is the rounds to this multiple of the lower one of two final errors."""

STABLE: Final = 0.05
"""Share of the final error within which a curve counts as stable."""


def steadiness(record: Record) -> dict[int, float]:
    """Return how much a seed's test RMSE jitters over the last third of its evaluations, Wh.

    The standard deviation of successive differences over √2: that of noise about a level, and a
    curve that still falls evenly has none.

    >>> jitter(np.array([5.0, 4.0, 3.0, 2.0]))
    0.0
    """
    jitters = {}
    for seed in record.seeds:
        rounds, values = record.curve("test_rmse", seed)
        late = values[rounds > 2 * rounds.max(initial=0) / 3]
        if late.size and seed not in record.diverged:
            jitters[seed] = jitter(late)
    return jitters


def jitter(values: NDArray[np.float64]) -> float:
    """Return the standard deviation of successive differences over √2, or 0 below three values."""
    return float(np.diff(values).std() / sqrt(2)) if values.size > 2 else 0.0


def speed(record: Record, target: float, rounds: int) -> dict[int, float]:
    """Return per seed the rounds to the target; T + 1 where it is never reached."""
    reached = rounds_to(record, target)
    return {
        s: r if isfinite(r) else rounds + 1.0 for s, r in reached.items() if s in finals(record)
    }


def rounds_to_stability(record: Record) -> dict[int, float]:
    """Return per seed the first evaluated round from which the error stays near its final value.

    Near is within `STABLE` of the final test RMSE. The paper names the quantity and defines none.
    """
    rounds = {}
    for seed in finals(record):
        at, errors = record.curve("test_rmse", seed)
        away = np.flatnonzero(np.abs(errors / errors[-1] - 1) > STABLE)
        rounds[seed] = float(at[away[-1] + 1]) if away.size else float(at[0])
    return rounds


def update_variance(record: Record, round: int) -> dict[int, float]:
    """Return per seed the variance of ‖Δ_k‖ over the participants of a round, (D_mean · D_cv)².

    It is the mean over the rounds within `REACH`. The paper names the quantity and defines none.
    """
    variance = {}
    for seed in finals(record):
        rows = record.rounds["seed"] == seed
        rows &= np.abs(record.rounds["round"] - round) <= REACH
        spread = record.rounds["drift_mean"][rows] * record.rounds["drift_cv"][rows]
        variance[seed] = float(np.nanmean(spread.astype(np.float64) ** 2))
    return variance


def convergence(record: Record, other: Record, rounds: int) -> dict[str, Paired]:
    """Return differences of rounds to near the lower error, of unsteadiness and of final error."""
    levels = [np.mean(list(finals(r).values())) for r in (record, other) if finals(r)]
    target = NEAR * float(min(levels)) if levels else 0.0
    lost = (record.diverged, other.diverged)
    return {
        "rounds": paired(speed(record, target, rounds), speed(other, target, rounds), *lost),
        "steadiness": paired(steadiness(record), steadiness(other), *lost),
        "error": against(record, other),
    }


def finals(record: Record) -> dict[int, float]:
    """Return final test RMSE of every seed that stayed finite, Wh."""
    return record.final("test_rmse")


def against(record: Record, other: Record) -> Paired:
    """Return final errors of one training minus another's, seed by seed."""
    return paired(finals(record), finals(other), record.diverged, other.diverged)


def level(record: Record) -> float:
    """Return mean final test RMSE of the seeds that did not diverge, Wh; NaN if all did."""
    return estimate(list(finals(record).values())).mean


def divergence(name: str, record: Record) -> str:
    """Return which seeds diverged, and when."""
    cases = ", ".join(f"seed {seed} by round {at}" for seed, at in record.diverged.items())
    return f"{name} diverged ({cases})"


def level_text(record: Record) -> str:
    """Return the same in words, with a word on seeds that diverged."""
    lost = len(record.diverged)
    left = level(record)
    if not lost:
        return f"{cell_text(left, 2)} Wh"
    if not isfinite(left):
        return "nothing finite"
    return f"{cell_text(left, 2)} Wh in the seeds that did not diverge ({lost} did)"
