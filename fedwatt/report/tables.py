"""The tables of a report."""

from collections.abc import Callable
from math import isfinite, isnan, nan
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.metrics import EPSILON_Y, METRICS, NEAR_ZERO
from fedwatt.report.baselines import baselines_table, federating, gain_headline
from fedwatt.report.load import RunTables, load_run, load_runs, where
from fedwatt.report.statistics import (
    PARTS,
    PERSONALISED,
    Estimate,
    compare,
    diagnostics,
    diverged,
    estimate,
    final,
    final_error,
    mean_seconds,
    model_errors,
    pooled_rmse,
    stratum_rmse,
    vehicle_model,
)
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell, ReportTable, TableColumn, amount, cell_text, mean_and_spread
from fedwatt.tables import declared
from fedwatt.windows.targets import ENERGY

TERMINAL_COLUMNS = ("Method", "Model", "RMSE", "MAE", "wMAPE", "Seeds")

SEEDS_NOTE = (
    "Mean ± standard deviation over seeds [95 % interval of the mean, from three seeds on that "
    "differ]. Diverged seeds count in no mean."
)


def results_table(run: RunTables) -> ReportTable:
    """Return the error of every method: that of the model which vehicles use."""
    unit = run.unit
    digits = run.target.digits()
    metrics = [name for name, metric in METRICS.items() if metric.in_report and name != "rmse"]
    columns = [
        TableColumn("Method"),
        TableColumn("Model"),
        TableColumn("RMSE", unit, digits),
        *(_metric_column(run, name) for name in metrics),
        TableColumn("RMSE, all windows as one", unit, digits),
    ]
    rows: list[list[Cell]] = []
    for method in run.methods:
        model = vehicle_model(run, method)
        errors = [model_errors(run, method, model, column=name) for name in metrics]
        rows.append(
            [
                name_of(method),
                "personalised" if model == PERSONALISED else "shared",
                final_error(run, method),
                *(estimate(list(by_seed.values())) for by_seed in errors),
                estimate(pooled_rmse(run, method, model).get("all", [])),
            ]
        )
    held_out = [estimate(final(run, method, "held_out_rmse")) for method in run.methods]
    if any(error.seeds for error in held_out):
        columns.append(TableColumn("RMSE, vehicles held out", unit, digits))
        for row, error in zip(rows, held_out, strict=True):
            row.append(error)
    columns.append(TableColumn("Seeds"))
    for row, method in zip(rows, run.methods, strict=True):
        row.append(outcome(run, method))
    return ReportTable(
        "results",
        "Test error of the model that vehicles use",
        tuple(columns),
        tuple(map(tuple, rows)),
        f"Per window, mean over vehicles: every vehicle counts the same. {SEEDS_NOTE} MAPE divides "
        f"by |Y| + {EPSILON_Y * run.target.typical:g} {unit} and depends on windows with |Y| < "
        f"{NEAR_ZERO * run.target.typical:g} {unit}{_near_zero(run)}; wMAPE = Σ|e| / Σ|Y| does "
        "not." + _about_sample(run),
    )


def _metric_column(run: RunTables, metric: str) -> TableColumn:
    """Return the column of a metric, in the target's unit where it is an energy."""
    column = declared("rounds")[f"test_{metric}"]
    if column.unit == ENERGY.unit:
        return TableColumn(column.title, run.unit, run.target.digits(column.digits))
    return TableColumn(column.title, column.unit, column.digits)


def _near_zero(run: RunTables) -> str:
    values = [value for m in run.methods for value in final(run, m, "test_near_zero")]
    return f" ({100 * float(np.mean(values)):.0f} % of them here)" if values else ""


def _about_sample(run: RunTables) -> str:
    """Return a note on the uncertainty of errors of a sample of vehicles, or ""."""
    margins = [m for method in run.methods for m in final(run, method, "test_rmse_margin") if m > 0]
    if not margins:
        return ""
    low, high = (amount(run.target, end) for end in (min(margins), max(margins)))
    return (
        " Errors are those of vehicles drawn at random: the RMSE of the whole fleet is within "
        f"± {high if low == high else f'{low} to {high}'} of these (95 %). The same vehicles "
        "evaluate all methods, so differences between methods are known better than that."
    )


def final_results(*folders: Path) -> tuple[list[str], list[list[str]]]:
    """Return heading and rows of the few figures of runs that a terminal has room for."""
    run = load_run(folders[0]) if len(folders) == 1 else load_runs(folders)
    table = results_table(run)
    columns = {}
    for place, column in enumerate(table.columns):
        if column.title in TERMINAL_COLUMNS:
            cells = [row[place] for row in table.rows]
            columns[column.heading] = [_terminal_text(cell, column.digits) for cell in cells]
    if private_methods(run):
        columns["ε"] = [spent(run, method) for method in run.methods]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def baseline_results(folder: Path) -> tuple[str, list[str], list[list[str]]]:
    """Return title, heading and rows of what federating gains over local-only models."""
    run = load_run(folder)
    table = baselines_table(run)
    gain = federating(run)
    title = table.title if gain is None else gain_headline(gain)
    *headings, better = [column.heading for column in table.columns]
    headings[2] = f"Saved ({run.unit}) [95 %]"
    rows = []
    for name, rmse, saved, vehicles in table.rows:
        plain = str(name).partition(" (")[0]
        digits = [column.digits for column in table.columns]
        rows.append(
            [plain, cell_text(rmse, digits[1]), _gain_text(saved, digits[2]), str(vehicles)]
        )
    return title, [*headings, better], rows


def _terminal_text(cell: Cell, digits: int) -> str:
    return mean_and_spread(cell, digits) if isinstance(cell, Estimate) else str(cell)


def _gain_text(cell: Cell, digits: int) -> str:
    """Return a gain with its interval, or without where there is none."""
    if not isinstance(cell, Estimate):
        return cell_text(cell, digits)
    interval = f" [{cell_text(cell.low, digits)}, {cell_text(cell.high, digits)}]"
    return cell_text(cell.mean, digits) + (interval if cell.seeds > 2 and not cell.copies else "")


def outcome(run: RunTables, method: str) -> str:
    """Return the finished and diverged seeds: "2; seed 3 diverged at round 17"."""
    finished = len(final(run, method, "test_rmse"))
    lost: dict[int, list[str]] = {}
    for seed, at in sorted(diverged(run, method).items()):
        lost.setdefault(at, []).append(str(seed))
    cases = [
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(seeds)} diverged at round {at}"
        for at, seeds in sorted(lost.items())
    ]
    return "; ".join([str(finished), *cases])


def differences_table(run: RunTables) -> ReportTable:
    """Return the table of every method's difference from the reference, seed by seed."""
    comparisons = compare(run)
    count = len(comparisons)
    level = "95 % interval" + (f", held by all {count} at once" if count > 1 else "")
    plain = ("More than noise?", "Vehicles with lower error", "Paired seeds")
    difference = TableColumn("Difference", run.unit, run.target.digits(2))
    columns = (TableColumn("Method"), difference, TableColumn("Relative", "%"))
    rows: list[tuple[Cell, ...]] = []
    for comparison in comparisons:
        change = comparison.difference
        better = f"{comparison.better} of {comparison.vehicles}"
        noise = "yes" if change.above_noise else "no"
        if change.seeds < 2:
            noise = "one seed cannot tell"
        if change.copies:
            noise = "the seeds gave the same training"
        name = name_of(comparison.method)
        rows.append((name, change, comparison.percent, noise, better, change.seeds))
    return ReportTable(
        "differences",
        f"Difference from {name_of(run.reference)} in RMSE of the model that vehicles use",
        (*columns, *map(TableColumn, plain)),
        tuple(rows),
        f"Below zero: better than {name_of(run.reference)}. Mean ± standard deviation of the "
        f"differences at equal seeds [{level}]. A difference counts as more than noise when the "
        "interval leaves zero out; it covers the randomness of training, not the choice of fleet.",
    )


def strata_table(run: RunTables) -> ReportTable:
    """Return the table of final errors by driving regime."""
    errors = [stratum_rmse(run, method) for method in run.methods]
    strata = list(dict.fromkeys(name for by_stratum in errors for name in by_stratum))
    return ReportTable(
        "strata",
        f"Test RMSE by driving regime, {run.unit} per window",
        (
            TableColumn("Windows"),
            *(TableColumn(name_of(method), digits=run.target.digits()) for method in run.methods),
        ),
        tuple((name, *(estimate(by.get(name, [])) for by in errors)) for name in strata),
        "Of the model that vehicles use, the windows of all vehicles that train as one. "
        + SEEDS_NOTE,
    )


def time_table(run: RunTables) -> ReportTable:
    """Return the table of seconds per round and the share of diagnostics (`eq:diag_fraction`)."""
    rows: list[tuple[Cell, ...]] = []
    for method in run.methods:
        seconds = mean_seconds(run, method)
        if seconds:
            now, amortised = diagnostics(run, method)
            parts = [seconds[part] * 1e3 for part in PARTS]
            rows.append((name_of(method), sum(parts), *parts, 100 * now, 100 * amortised))
    times = [TableColumn(name.capitalize(), "ms") for name in ("round", *PARTS)]
    shares = [TableColumn(f"Diagnostics, {when}", "%") for when in ("when done", "amortised")]
    return ReportTable(
        "time",
        "Mean time of a round and seed",
        (TableColumn("Method"), *times, *shares),
        tuple(rows),
        "Wall-clock time of the stack divided by the seeds in it. Diagnostics are probe and "
        "spectral ratio as a share of a round without evaluation: in rounds that have them, and "
        "over all rounds.",
    )


HEADER = ("Method", "ε", "ε against the server", "δ", "Noise, z", "Sampling, q", "Repeated rounds")


def private_methods(run: RunTables) -> list[str]:
    """Return the methods that have an ε."""
    return [method for method in run.methods if not isnan(_epsilon(run, method))]


def _epsilon(run: RunTables, method: str) -> float:
    """Return ε after a method's last round; NaN if it is not private."""
    values = where(run.rounds, method=method)["epsilon"]
    return float(values.max()) if values.size and not np.isnan(values).all() else nan


def spent(run: RunTables, method: str) -> str:
    """Return ε after a method's last round as text."""
    value = _epsilon(run, method)
    if isnan(value):
        return "–"
    return f"{value:.3g}" if isfinite(value) else "∞"


def privacy_table(run: RunTables) -> ReportTable:
    """Return the table of ε of every private method and its assumptions."""
    rows = []
    for method in private_methods(run):
        terms = _terms(run, method)
        values = [terms.get(name) for name in ("delta", "noise_multiplier", "probability")]
        texts = ["–" if value is None else f"{value:.3g}" for value in values]
        server = terms.get("epsilon_server")
        repeated = str(terms.get("repeated", 0))
        seen = "∞" if server is None else f"{server:.3g}"
        rows.append((name_of(method), spent(run, method), seen, *texts, repeated))
    return ReportTable(
        "privacy",
        "Privacy spent on each vehicle by the whole training",
        tuple(map(TableColumn, HEADER)),
        tuple(rows),
        "(ε, δ) differential privacy for a vehicle with all its trips, from the Rényi accountant. "
        "It covers the models that leave the server; against the server itself it holds only with "
        "noise under secure aggregation. Rounds that a killed server repeated are counted. A "
        "simulation draws its noise from its seed: its ε is that of a deployed fleet. Errors, "
        "drift and roughness in this report come from a simulation and are not covered.",
    )


def _terms(run: RunTables, method: str) -> dict[str, Any]:
    """Return the method's entry in environment.json, by its label or with its run's name."""
    for origin in run.origins:
        by_label: dict[str, dict[str, Any]] = origin.environment.get("privacy", {})
        for label, terms in by_label.items():
            if method in (label, f"{label} ({origin.name})"):
                return terms
    return {}


TABLES: tuple[Callable[[RunTables], ReportTable], ...] = (
    results_table,
    baselines_table,
    differences_table,
    privacy_table,
    strata_table,
    time_table,
)


def tables(run: RunTables) -> list[ReportTable]:
    """Return all tables that have rows."""
    return [table for make in TABLES if (table := make(run)).rows]
