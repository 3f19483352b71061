"""Figures of a run: final errors by stage, regime and vehicle; errors and drift by round."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedwatt.report.baselines import Stage, baseline_stages, federated_stages
from fedwatt.report.load import RunTables
from fedwatt.report.statistics import (
    Curves,
    curves,
    difference,
    vehicle_model,
    vehicle_rmse,
)
from fedwatt.report.style import (
    GRID,
    INK,
    MUTED,
    WIDTH_IN,
    horizontal,
    legend,
    looks,
    name_of,
    note,
    points,
    series,
    styled,
)
from fedwatt.report.table import cell_text
from fedwatt.tables import declared


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report: its file name, drawing, heading and how to read it."""

    name: str
    draw: Callable[[RunTables], Figure]
    title: str
    caption: str


MOST_METHODS = 4
"""With more methods, only the reference and the method with the lowest error are drawn."""
BAR_IN = 0.22
GAP_IN = 0.16


@styled
def stages_figure(run: RunTables) -> Figure:
    """Draw one bar for each stage and method, with its error at the end."""
    federated = federated_stages(run)
    methods = _drawn_methods(run, federated)
    stages = [*baseline_stages(run), *federated] if run.same_data else federated
    bars = [(stage, [m for m in stage.errors if m == "" or m in methods]) for stage in stages]
    count = sum(len(drawn) for _, drawn in bars)
    figure = Figure(figsize=(WIDTH_IN, 0.75 + BAR_IN * count + GAP_IN * len(bars)))
    axes = figure.subplots()
    if not count:
        note(axes, "No method has a finite error.")
        return figure
    appearance = looks(run.methods)
    depth = 0.0
    ticks = []
    named: set[str] = set()
    for stage, drawn in bars:
        ticks.append(depth + BAR_IN * len(drawn) / 2)
        for method in drawn:
            colour = appearance[method].colour if method else MUTED
            bar = axes.barh(
                depth + BAR_IN / 2, stage.errors[method], height=BAR_IN * 0.86, color=colour
            )[0]
            text = axes.annotate(
                cell_text(stage.errors[method], run.target.digits()),
                (stage.errors[method], depth + BAR_IN / 2),
                xytext=(4, 0),
                va="center",
            )
            text.set(anncoords="offset points", color=INK)
            if method:
                bar.set_gid(series(method))
                text.set_gid(series(method))
                if method not in named:
                    bar.set_label(name_of(method))
                    named.add(method)
            depth += BAR_IN
        depth += GAP_IN
    axes.set_yticks(ticks, [stage.name for stage, _ in bars])
    axes.set_ylim(depth - GAP_IN / 2, -GAP_IN / 2)
    axes.margins(x=0.12)
    axes.set_xlabel(f"test RMSE, {run.unit} per window")
    horizontal(axes)
    legend(figure, handlelength=0.9, handletextpad=0.4)
    return figure


def _drawn_methods(run: RunTables, stages: list[Stage]) -> list[str]:
    if len(run.methods) <= MOST_METHODS or not stages:
        return list(run.methods)
    last = stages[-1].errors
    return [run.reference, min(last, key=last.__getitem__)]


MOST_NAMES = 40  # above this, vehicles have a rank instead of a name


@styled
def vehicles_figure(run: RunTables) -> Figure:
    """Test RMSE of each vehicle, sorted by that of the reference; one mark for each method."""
    by_method = {
        method: vehicle_rmse(run, method, model=vehicle_model(run, method))
        for method in run.methods
    }
    errors = {method: by_vehicle for method, by_vehicle in by_method.items() if by_vehicle}
    base = errors.get(run.reference) or next(iter(errors.values()), {})
    # In runs of different fleets others have vehicles that the reference does not have.
    every = {name: e for rmse in errors.values() for name, e in rmse.items()} | base
    names = sorted(every, key=lambda name: (name not in base, every[name], name))
    few = len(names) <= MOST_NAMES
    figure = Figure(figsize=(WIDTH_IN, 1.1 + 0.19 * len(names) if few else 3.4))
    axes = figure.subplots()
    if not names:
        note(axes, "No vehicle has a finite error.")
        return figure
    appearance = looks(run.methods)
    places = np.arange(len(names))
    table = np.array([[rmse.get(name, np.nan) for name in names] for rmse in errors.values()])
    if few and len(errors) > 1 and run.same_data:
        axes.hlines(places, np.nanmin(table, 0), np.nanmax(table, 0), color=GRID, lw=4, zorder=1)
    for method, values in zip(errors, table, strict=True):
        x, y = (values, places) if few else (places + 1, values)
        points(axes, x, y, method, appearance[method], area=26 if few else 10)
    legend(figure)
    if few:
        axes.set_yticks(places, [_short(name) for name in names])
        horizontal(axes)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.set_xlabel(f"test RMSE, {run.unit} per window")
    else:
        axes.set_xlabel(f"vehicle, sorted by the error of {name_of(run.reference)}")
        axes.set_ylabel(f"test RMSE, {run.unit} per window")
    return figure


def _short(name: str) -> str:
    """Shorten a name to its last 18 characters: names differ at the end.

    >>> _short("a-very-long-fleet-name-0017")
    '…ng-fleet-name-0017'
    """
    name = re.sub(r"\s+", " ", name)
    return name if len(name) <= 18 else "…" + name[-18:]


def draw_curves(
    axes: Axes,
    run: RunTables,
    curves_of: Callable[[str], Curves],
    *,
    floor: float | None = None,
) -> None:
    """Draw every method's curves into `axes`; a diverged seed is a faint line that ends in a cross.

    The vertical range is that of the methods that stayed finite, so that one that diverges does not
    flatten the others. `floor` is a value that the range must include.
    """
    appearance = looks(run.methods)
    every = {method: curves_of(method) for method in run.methods}
    finite = {method: curve for method, curve in every.items() if curve.values.size}
    for method, curve in finite.items():
        look = appearance[method]
        mark = series(method)
        line: dict[str, Any] = {"color": look.colour, "ls": look.dash, "label": name_of(method)}
        axes.plot(curve.rounds, curve.mean, gid=mark, zorder=3, **line)
        low = curve.values.min(axis=0)
        high = curve.values.max(axis=0)
        axes.fill_between(curve.rounds, low, high, color=look.colour, alpha=0.16, lw=0, gid=mark)
    if finite:
        _fit(axes, list(finite.values()), floor)
    for method, curve in every.items():
        for rounds, values in curve.lost.values():
            _draw_lost(axes, rounds, values, appearance[method].colour, series(method))
    if not finite and not any(curve.lost for curve in every.values()):
        note(axes, "Nothing was recorded.")
        return
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.01)


def _fit(axes: Axes, finite: Sequence[Curves], floor: float | None) -> None:
    """Set the vertical range; what lies above it before training is written beside it."""
    trained = [c.values[:, 1:] if c.rounds.size > 1 else c.values for c in finite]
    low = min(float(values.min()) for values in trained)
    high = max(float(values.max()) for values in trained)
    start = max(float(curve.mean[0]) for curve in finite)
    if start > high:
        text = axes.annotate(
            f"↑ starts at {start:.3g}", (1, 1), (-2, -2), "axes fraction", "offset points"
        )
        text.set(ha="right", va="top", color=MUTED, fontsize=8.5)
    if floor is not None:
        low, high = min(low, floor), max(high, floor)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - margin, high + margin)


def _draw_lost(axes: Axes, rounds: np.ndarray, values: np.ndarray, colour: str, mark: str) -> None:
    if not rounds.size:
        return
    axes.plot(rounds, values, color=colour, lw=0.9, alpha=0.6, gid=mark)
    # The last value is often far above the axes: the cross then sits on their upper edge.
    low, high = axes.get_ylim()
    cross: dict[str, Any] = {"marker": "x", "ms": 6, "mew": 1.6, "clip_on": False, "zorder": 4}
    axes.plot(rounds[-1:], np.clip(values[-1:], low, high), color=colour, gid=mark, **cross)


@styled
def convergence_figure(run: RunTables) -> Figure:
    """Test RMSE by round and, below it, what each method gains on the reference."""
    compared = run.same_data and any(
        difference(run, method).values.size for method in run.methods if method != run.reference
    )
    figure = Figure(figsize=(WIDTH_IN, 4.4 if compared else 2.8))
    heights = [1.7, 1] if compared else [1]
    panels = figure.subplots(len(heights), squeeze=False, sharex=True, height_ratios=heights)
    above = panels[0, 0]
    error = declared("rounds")["test_rmse"]
    draw_curves(above, run, partial(curves, run, column=error.name))
    above.set_title(f"Test {error.title}, {run.unit} per window")
    if compared:
        below = panels[1, 0]
        below.axhline(0, color=MUTED, lw=0.8)
        draw_curves(below, run, partial(difference, run), floor=0.0)
        below.set_title(f"Difference from {name_of(run.reference)}, same seed, {run.unit}")
        above.set_xlabel("")
    legend(figure, handletextpad=0.5)
    return figure


@styled
def drift_figure(run: RunTables) -> Figure:
    """Draw mean drift and its dispersion by round (`eq:mean_drift`, `eq:drift_cv`)."""
    figure = Figure(figsize=(WIDTH_IN, 4.2))
    above, below = figure.subplots(2, 1, sharex=True)
    draw_curves(above, run, partial(curves, run, column="drift_mean"), floor=0.0)
    above.set_title(declared("rounds")["drift_mean"].title)
    above.set_xlabel("")
    draw_curves(below, run, partial(curves, run, column="drift_cv"), floor=0.0)
    below.set_title(declared("rounds")["drift_cv"].title)
    legend(figure, handletextpad=0.5)
    return figure


FIGURES = (
    ReportFigure(
        "stages",
        stages_figure,
        "What each part gains",
        "RMSE per window, mean over vehicles and seeds; lower is better. Grey: models without "
        "federation; the local-only model has the elevation that each vehicle learns alone. The "
        "last bars are the models that vehicles use after this run.",
    ),
    ReportFigure(
        "vehicles",
        vehicles_figure,
        "Error of each vehicle",
        "Test error of every vehicle that trains, with the model that it uses after the run; "
        "mean over seeds, sorted by that of the reference method. Where the marks of one "
        "vehicle are close together, the choice of method matters less than the vehicle, its "
        "driver and its roads.",
    ),
    ReportFigure(
        "convergence",
        convergence_figure,
        "Shared model by round",
        "Test error of the shared model, before personalisation, on the windows of all "
        "vehicles as one; lower is better. Lines are means over seeds, bands reach from the "
        "lowest to the highest seed. The lower panel, where there is one, shows the "
        "difference from the reference method at the same seed and round: below zero is "
        "better, and a band that crosses zero means that the seeds disagree. A thin line that "
        "ends in a cross is a seed that diverged. The error before training may lie above the "
        "axes.",
    ),
    ReportFigure(
        "drift",
        drift_figure,
        "Drift and its dispersion",
        "How far a vehicle's model moves from the broadcast one in a round, and how unequal "
        "the vehicles are. Smaller drift alone is no merit: a smaller step does the same.",
    ),
)
"""In the order of the page."""
