"""The tables of a report."""

from collections.abc import Callable
from math import isnan
from pathlib import Path
from statistics import median

import numpy as np

from fedwatt.metrics import EPSILON_Y, METRICS, NEAR_ZERO, rounds_to_threshold
from fedwatt.report.curves import curves, diverged
from fedwatt.report.facts import unequal_rounds
from fedwatt.report.load import Run, load_run
from fedwatt.report.on_board import ON_BOARD_COLUMN, ON_BOARD_NOTE, on_board_rmse
from fedwatt.report.privacy import privacy_table, private_methods, spent
from fedwatt.report.references import federating, gain_headline, references_table
from fedwatt.report.signals import signals_table
from fedwatt.report.statistics import compare, estimate, final, personal_rmse, stratum_rmse
from fedwatt.report.style import name_of
from fedwatt.report.styles import run_styles_table
from fedwatt.report.table import Cell, Column, Table, amount, mean_and_spread
from fedwatt.report.times import PARTS, diagnostics, mean_seconds
from fedwatt.tables import declared
from fedwatt.windows.targets import ENERGY

FURTHER = {ON_BOARD_COLUMN: on_board_rmse, "RMSE, personal": personal_rmse}
"""Errors that not every run has."""

FURTHER_COLUMNS = (
    "test_rmse_macro", "test_rmse_weighted", "best_test_rmse", "kept_test_rmse", "held_out_rmse",
)  # fmt: skip
"""What the table of results has beside the metrics."""

THRESHOLD_ERRORS = ("rmse", "mae", "mape")
"""Errors whose rounds to a target are counted."""
MARGINS = (0.25, 0.10, 0.02)
"""Targets of the table of rounds, as shares above the lowest final error of the run."""


def results_table(run: Run) -> Table:
    """Final errors of every method."""
    target = run.target
    columns = _columns(run, *_metrics(headline=True), *_metrics(headline=False), *FURTHER_COLUMNS)
    found = {
        method: {column: estimate(final(run, method, column)) for column in columns}
        for method in run.methods
    }
    for title, rmse in FURTHER.items():
        if any(rmse(run, method) for method in run.methods):
            columns[title] = Column(title, target.unit, target.digits())
            for method, own in found.items():
                own[title] = estimate(rmse(run, method))
    for column in ("kept_test_rmse", "held_out_rmse"):
        if all(isnan(own[column].mean) for own in found.values()):
            del columns[column]
    rows: list[tuple[Cell, ...]] = [
        (name_of(method), outcome(run, method), *(own[column] for column in columns))
        for method, own in found.items()
    ]
    near_zero = [value for m in run.methods for value in final(run, m, "test_near_zero")]
    share = f" ({100 * float(np.mean(near_zero)):.0f} % of them here)" if near_zero else ""
    *others, last = (metric.title for metric in METRICS.values() if metric.shown)
    pooled = f"{', '.join(others)} and {last}"
    return Table(
        "results",
        "Final test errors, per window",
        (Column("Method"), Column("Seeds"), *columns.values()),
        tuple(rows),
        "Mean ± standard deviation over seeds [95 % interval of the mean, from three seeds on that "
        "differ]. "
        "Diverged seeds count in no mean. Errors are those of the last round's models, unless a "
        "column says best validated or kept: the model that vehicles get, as a rule the mean of "
        f"these two. {pooled} pool the windows of all vehicles; the vehicle mean "
        "counts every vehicle the same, the weighted mean by its training windows. MAPE divides by "
        f"|Y| + {EPSILON_Y * target.typical:g} {target.unit} and is ruled by windows with |Y| < "
        f"{NEAR_ZERO * target.typical:g} {target.unit}{share}; wMAPE = Σ|e| / Σ|Y| is not."
        + (ON_BOARD_NOTE if ON_BOARD_COLUMN in columns else "")
        + _about_sample(run)
        + _about_rounds(run),
    )


def _about_sample(run: Run) -> str:
    """How far the errors of a sample of vehicles may be from those of all, or nothing."""
    margins = [m for method in run.methods for m in final(run, method, "test_rmse_margin") if m > 0]
    if not margins:
        return ""
    low, high = (amount(run.target, end) for end in (min(margins), max(margins)))
    return (
        " Errors are those of vehicles drawn at random: the RMSE of the whole fleet is within "
        f"± {high if low == high else f'{low} to {high}'} of these (95 %). The same vehicles judge "
        "all methods, so differences between methods are known better than that."
    )


def final_results(folder: Path) -> tuple[list[str], list[list[str]]]:
    """Heading and rows of the few figures that a terminal has room for."""
    run = load_run(folder)
    found = {"Method": [name_of(method) for method in run.methods]}
    kept = "kept_test_rmse"
    if not any(final(run, method, kept) for method in run.methods):
        kept = "best_test_rmse"
    for name, column in _columns(run, *_metrics(headline=True), kept).items():
        errors = [estimate(final(run, method, name)) for method in run.methods]
        found[column.heading] = [mean_and_spread(own, column.digits) for own in errors]
    found["Seeds"] = [outcome(run, method) for method in run.methods]
    for title, rmse in FURTHER.items():
        further = [rmse(run, method) for method in run.methods]
        if any(further):
            digits = run.target.digits()
            spreads = [mean_and_spread(estimate(own), digits) for own in further]
            found[f"{title} ({run.unit})"] = spreads
    if private_methods(run):
        found["ε"] = [spent(run, method) for method in run.methods]
    return list(found), [list(row) for row in zip(*found.values(), strict=True)]


def reference_results(folder: Path) -> tuple[str, list[str], list[list[str]]]:
    """Title, heading and rows of what federating gains over each vehicle alone."""
    run = load_run(folder)
    table, found = references_table(run), federating(run)
    title = table.title if found is None else gain_headline(found)
    return title, [column.heading for column in table.columns], table.text_rows()


def _metrics(*, headline: bool) -> list[str]:
    """Columns of the metrics that are shown, either those of the headline or the others."""
    shown = {name: metric for name, metric in METRICS.items() if metric.shown}
    return [f"test_{name}" for name, metric in shown.items() if metric.headline == headline]


def _columns(run: Run, *names: str) -> dict[str, Column]:
    """Columns of the table of rounds by name, as a report heads them; Wh is the target's unit."""
    found = {}
    for name in names:
        one = declared("rounds")[name]
        energy = one.unit == ENERGY.unit
        digits = run.target.digits(one.digits) if energy else one.digits
        found[name] = Column(one.title, run.unit if energy else one.unit, digits)
    return found


def outcome(run: Run, method: str) -> str:
    """How many seeds finished, and which diverged when: "2; seed 3 diverged at round 17"."""
    finished = len(final(run, method, "test_rmse"))
    lost: dict[int, list[str]] = {}
    for seed, at in sorted(diverged(run, method).items()):
        lost.setdefault(at, []).append(str(seed))
    cases = [
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)} diverged at round {at}"
        for at, seeds in sorted(lost.items())
    ]
    return "; ".join([str(finished), *cases])


def differences_table(run: Run) -> Table:
    """Every method against the reference, seed by seed."""
    found = compare(run)
    level = "95 % interval" + (f", held by all {len(found)} at once" if len(found) > 1 else "")
    plain = ("More than noise?", "Vehicles with lower error", "Paired seeds")
    difference = Column("Difference", run.unit, run.target.digits(2))
    columns = (Column("Method"), difference, Column("Relative", "%"))
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        change, better = one.difference, f"{one.better} of {one.vehicles}"
        noise = "yes" if change.above_noise else "no"
        if change.seeds < 2:
            noise = "one seed cannot tell"
        if change.copies:
            noise = "the seeds gave the same training"
        rows.append((name_of(one.method), change, one.percent, noise, better, change.seeds))
    return Table(
        "differences",
        f"Difference from {name_of(run.reference)} in final test RMSE",
        (*columns, *map(Column, plain)),
        tuple(rows),
        f"Below zero: better than {name_of(run.reference)}. Mean ± standard deviation of the "
        f"differences at equal seeds [{level}]. A difference counts as more than noise when the "
        "interval leaves zero out; it covers the randomness of training, not the choice of fleet."
        + _about_rounds(run),
    )


def _about_rounds(run: Run) -> str:
    """The end of a note: final is not after equally many rounds."""
    unequal = unequal_rounds(run)
    return f" Final is after a method's own last round. {unequal}" if unequal else ""


def thresholds_table(run: Run) -> Table:
    """Rounds until the test error first reaches a target (`eq:rounds_to_threshold`).

    Without rows for runs on different data, whose lowest error is no target for all.
    """
    methods = run.methods if run.same_data else ()
    rows: list[tuple[Cell, ...]] = []
    for error in THRESHOLD_ERRORS:
        finals = [final(run, method, f"test_{error}") for method in run.methods]
        lowest = min((float(np.mean(own)) for own in finals if own), default=float("nan"))
        if not np.isfinite(lowest):
            continue
        shown = f"{lowest:.1f} %" if error == "mape" else amount(run.target, lowest)
        for method in methods:
            reached = [
                _rounds_to(run, method, f"test_{error}", lowest * (1 + margin))
                for margin in MARGINS
            ]
            rows.append((name_of(method), METRICS[error].title, shown, *reached))
    return Table(
        "rounds-to-threshold",
        "Rounds until a test error first reaches a target",
        (
            *map(Column, ("Method", "Error", "Lowest final mean")),
            *(Column(f"≤ {100 * margin:g} % above it") for margin in MARGINS),
        ),
        tuple(rows),
        "Median over seeds, and how many of them got there. The targets are above the lowest final "
        "mean of this run: they compare methods within it only. Rounds without an evaluation "
        "cannot count." + _about_rounds(run),
    )


def _rounds_to(run: Run, method: str, column: str, target: float) -> str:
    found = curves(run, method, column)
    every = [*((found.rounds, own) for own in found.values), *found.lost.values()]
    when = [rounds_to_threshold(at.astype(int).tolist(), v.tolist(), target) for at, v in every]
    reached = [at for at in when if at != float("inf")]
    if not when:
        return "–"
    return f"{median(reached):g} ({len(reached)} of {len(when)})" if reached else "never"


def strata_table(run: Run) -> Table:
    """Final error by driving regime."""
    found = {method: stratum_rmse(run, method) for method in run.methods}
    strata = list(dict.fromkeys(name for own in found.values() for name in own))
    return Table(
        "strata",
        f"Final test RMSE by driving regime, {run.unit} per window",
        (
            Column("Windows"),
            *(Column(name_of(method), digits=run.target.digits()) for method in run.methods),
        ),
        tuple((name, *(estimate(own.get(name, [])) for own in found.values())) for name in strata),
        "Mean ± standard deviation over seeds [95 % interval of the mean], windows of all vehicles "
        "that train pooled.",
    )


def time_table(run: Run) -> Table:
    """Seconds of a round, and the share of diagnostics (`eq:diag_fraction`)."""
    rows: list[tuple[Cell, ...]] = []
    for method in run.methods:
        own = mean_seconds(run, method)
        if own:
            now, amortised = diagnostics(run, method)
            parts = [own[part] * 1e3 for part in PARTS]
            rows.append((name_of(method), sum(parts), *parts, 100 * now, 100 * amortised))
    times = [Column(name.capitalize(), "ms") for name in ("round", *PARTS)]
    shares = [Column(f"Diagnostics, {when}", "%") for when in ("when done", "amortised")]
    return Table(
        "time",
        "Mean time of a round and seed",
        (Column("Method"), *times, *shares),
        tuple(rows),
        "Wall-clock time of the stack divided by the seeds in it. Diagnostics are probe and "
        "spectral ratio as a share of a round without evaluation: in rounds that have them, and "
        "over all rounds.",
    )


TABLES: tuple[Callable[[Run], Table], ...] = (
    references_table,
    results_table,
    differences_table,
    privacy_table,
    run_styles_table,
    thresholds_table,
    strata_table,
    signals_table,
    time_table,
)


def tables(run: Run) -> list[Table]:
    """All tables that have rows."""
    return [table for make in TABLES if (table := make(run)).rows]
