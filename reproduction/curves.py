"""Curves by round: convergence, thresholds, client drift, and the quantities read from them.

Claim C2 compares how fast and how steadily an error falls, C1 how client drift spreads.
"""

from dataclasses import replace
from functools import partial
from math import inf, isfinite, nan, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.metrics import rounds_to_threshold
from fedwatt.report.statistics import estimate
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import TableColumn, cell_text
from reproduction.figures import curves
from reproduction.main_results import by_method, plain_cells
from reproduction.paired import Paired, paired
from reproduction.record import REACH, Record
from reproduction.study import Findings, Picture, Study, View
from reproduction.tables import (
    beside_columns,
    comparison,
    facts_line,
    line,
    printed_text,
    table_block,
    theirs,
)

THRESHOLDS: Final = {"VED": ("55", "45"), "eVED": ("45", "38")}
NEAR_BEST: Final = (1.10, 1.02)


BAND: Final = "Mean over seeds, band from the lowest to the highest seed. "


def curve_picture(view: View, dataset: str, column: str, title: str, caption: str) -> Picture:
    """Return the figure of a column by round, a curve per method at the paper's settings."""
    records = by_method(view, dataset)
    name = f"{column.replace('_', '-')}-{dataset}"
    facts = facts_line(list(records.values()))
    figure = curves(records, column, title)
    return Picture(name, f"{title}, {dataset}", figure, BAND + caption, facts)


def show_curves(column: str, title: str, caption: str, view: View) -> Findings:
    """Show a column by round on every dataset."""
    datasets = [dataset for _, dataset in view.setting.places]
    pictures = (curve_picture(view, dataset, column, title, caption) for dataset in datasets)
    return Findings(pictures=tuple(pictures))


def show_thresholds(view: View) -> Findings:
    """Return first round at or below the paper's thresholds, and below ours."""
    blocks = []
    for place, dataset in view.setting.places:
        records = by_method(view, dataset)
        lowest = min(
            (level(r) for r in records.values() if r is not None and not r.diverged), default=nan
        )
        columns = [TableColumn("Method")]
        for printed_target in THRESHOLDS.get(place, ()):
            columns += beside_columns(f"θ = {printed_target}", "rounds", 0)
        columns += [
            TableColumn(f"θ = {above * lowest:.1f} (best + {above - 1:.0%})", "rounds", 0)
            for above in NEAR_BEST
        ]
        rows: list[tuple[Entry, ...]] = []
        for method, record in records.items():
            row: list[Entry] = [name_of(method)]
            for printed_target in THRESHOLDS.get(place, ()):
                entry = theirs("thresholds", method, f"{place} {printed_target}")
                ours = _reached(record, float(printed_target))
                both = isinstance(ours, float) and entry is not None and entry.mean < inf
                row += [ours, printed_text(entry)]
                row.append(ours - entry.mean if both else "–")  # type: ignore[operator, union-attr]
            rows.append((*row, *(_reached(record, above * lowest) for above in NEAR_BEST)))
        blocks.append(
            table_block(
                f"thresholds-{dataset}",
                f"Rounds to a test RMSE of θ on {dataset}",
                columns,
                rows,
                "Median over seeds; NR: not reached by half of them. The paper's thresholds are "
                "absolute and its labels are not ours: the last columns ask the same of targets "
                "10 and 2 % above the lowest final error here of a method without diverged seeds.",
                list(records.values()),
            )
        )
    return Findings(tuple(blocks))


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


BY_ROUND = (
    Study(
        "convergence",
        "Convergence: test RMSE by round",
        plain_cells,
        partial(show_curves, "test_rmse", "Test RMSE, Wh per window", "Lower is better."),
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
        partial(
            show_curves,
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
    at = view.setting.scale.at(200)
    caption = (
        f"Rounds {at - REACH} to {at + REACH} are all drawn. Smaller drift alone is no merit: a "
        "smaller learning rate does the same."
    )
    for _, dataset in view.setting.places:
        records = by_method(view, dataset)
        for column, symbol, title in (
            ("drift_mean", "D_mean", "Mean drift ‖Δ‖₂"),
            ("drift_cv", "D_cv", "Dispersion of drift D_cv"),
        ):
            lines = [line(name_of(m), r) for m, r in records.items()]
            values = [r.around(column, at, REACH) if r else {} for r in records.values()]
            block = comparison(
                f"{column.replace('_', '-')}-{dataset}",
                f"{symbol}(200) on {dataset}",
                [replace(x, values=v) for x, v in zip(lines, values, strict=True)],
                heading=symbol,
                unit="",
                digits=3,
                note=f"Mean over rounds {at - REACH} to {at + REACH}, because a round has few "
                "participants. The paper prints no table of these.",
            )
            blocks.append(block)
            pictures.append(curve_picture(view, dataset, column, title, caption))
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
