"""Figures by round: test error, drift of the vehicles, and time by part."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedwatt.report import style
from fedwatt.report.load import RunTables
from fedwatt.report.statistics import Curves, curves, difference, mean_seconds
from fedwatt.report.style import MUTED, WIDTH_IN, label_lines, looks, name_of, note, series, styled
from fedwatt.tables import declared

SQUEEZED = 0.4
"""The first value is left out if the others then need less than this share of the range."""


def draw_curves(
    axes: Axes,
    run: RunTables,
    curves_of: Callable[[str], Curves],
    *,
    labels: bool = True,
    floor: float | None = None,
) -> None:
    """Every method's curves into `axes`; a diverged seed is a faint line that ends in a cross.

    The vertical range is that of the methods that stayed finite, so that one that diverges does not
    flatten the others. `floor` is a value that the range must include.
    """
    appearance = looks(run.methods)
    every = {method: curves_of(method) for method in run.methods}
    shown = {method: found for method, found in every.items() if found.values.size}
    for method, found in shown.items():
        look = appearance[method]
        mark = series(method)
        axes.plot(found.rounds, found.mean, color=look.colour, ls=look.dash, gid=mark, zorder=3)
        low = found.values.min(axis=0)
        high = found.values.max(axis=0)
        axes.fill_between(found.rounds, low, high, color=look.colour, alpha=0.16, lw=0, gid=mark)
    if shown:
        _fit(axes, shown, floor)
    for method, found in every.items():
        for rounds, values in found.lost.values():
            _draw_lost(axes, rounds, values, appearance[method].colour, series(method))
    if not shown and not any(found.lost for found in every.values()):
        note(axes, "Nothing was recorded.")
        return
    axes.set_xlabel("round")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.margins(x=0.01)
    if labels:
        label_lines(axes, {m: float(c.mean[-1]) for m, c in shown.items()}, appearance)


def _fit(axes: Axes, shown: dict[str, Curves], floor: float | None) -> None:
    """Set the vertical range; a first value that would squeeze all others is left above it."""
    low, high = _extent(list(shown.values()))
    later = [replace(c, values=c.values[:, 1:]) for c in shown.values() if c.rounds.size > 1]
    if later:
        low_later, high_later = _extent(later)
        if high > high_later and high_later - low_later < SQUEEZED * (high - low):
            start = max(float(found.mean[0]) for found in shown.values())
            text = axes.annotate(
                f"↑ starts at {start:.3g}", (1, 1), (-2, -2), "axes fraction", "offset points"
            )
            text.set(ha="right", va="top", color=MUTED, fontsize=8.5)
            low = low_later
            high = high_later
    if floor is not None:
        low, high = min(low, floor), max(high, floor)
    margin = 0.05 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - margin, high + margin)


def _extent(curves: Sequence[Curves]) -> tuple[float, float]:
    low = min(float(found.values.min()) for found in curves)
    return low, max(float(found.values.max()) for found in curves)


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
    others = [method for method in run.methods if method != run.reference]
    compared = run.same_data and any(difference(run, method).values.size for method in others)
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
        draw_curves(below, run, partial(difference, run), labels=False, floor=0.0)
        below.set_title(f"Difference from {name_of(run.reference)}, same seed, {run.unit}")
        above.set_xlabel("")
    return figure


@styled
def best_so_far_figure(run: RunTables) -> Figure:
    """Test RMSE of the model that validation would have chosen up to each round."""
    figure = Figure(figsize=(WIDTH_IN, 2.8))
    axes = figure.subplots()
    draw_curves(axes, run, partial(curves, run, column="best_test_rmse"))
    axes.set_title(f"Test RMSE of the best model so far, {run.unit} per window")
    return figure


@styled
def drift_figure(run: RunTables) -> Figure:
    """Mean drift and its dispersion by round (`eq:mean_drift`, `eq:drift_cv`)."""
    figure = Figure(figsize=(WIDTH_IN, 4.2))
    above, below = figure.subplots(2, 1, sharex=True)
    draw_curves(above, run, partial(curves, run, column="drift_mean"), floor=0.0)
    above.set_title(declared("rounds")["drift_mean"].title)
    above.set_xlabel("")
    draw_curves(below, run, partial(curves, run, column="drift_cv"), labels=False, floor=0.0)
    below.set_title(declared("rounds")["drift_cv"].title)
    return figure


@style.styled
def time_figure(run: RunTables) -> Figure:
    """Mean time of a round by what it was spent on, for one seed; a bar for each method."""
    times = {method: own for method in run.methods if (own := mean_seconds(run, method))}
    figure = Figure(figsize=(style.WIDTH_IN, 1.35 + 0.42 * len(times)))
    axes = figure.subplots()
    if not times:
        style.note(axes, "No round was timed.")
        return figure
    longest = max(sum(own.values()) for own in times.values())
    unit, factor = ("ms", 1e3) if longest < 1 else ("s", 1.0)
    used = [part for part in style.PARTS if any(own[part] > 0 for own in times.values())]
    for row, (method, own) in enumerate(times.items()):
        left = 0.0
        for part in used:
            width = own[part] * factor
            bars = axes.barh(row, width, left=left, height=0.62, color=style.PARTS[part].colour)
            bars[0].set_gid(style.series(method))
            if row == 0:
                bars[0].set_label(part)
            left += width
        text = axes.annotate(f"{left:.3g} {unit}", (left, row), xytext=(4, 0), va="center")
        text.set(anncoords="offset points", color=style.INK, gid=style.series(method))
    axes.set_yticks(range(len(times)), [style.name_of(method) for method in times])
    axes.set_ylim(len(times) - 0.5, -0.5)
    axes.margins(x=0.14)
    axes.set_xlabel(f"mean time of a round and seed, {unit}")
    style.horizontal(axes)
    style.legend(figure, handlelength=0.9, handletextpad=0.4)
    return figure
