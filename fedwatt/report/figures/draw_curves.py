"""Curves by round: a line for the mean over seeds, a band from the lowest to the highest seed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from fedwatt.report.curves import Curves
from fedwatt.report.load import Run
from fedwatt.report.style import MUTED, label_lines, looks, note, series

SQUEEZED = 0.4
"""The first value is left out if the others then need less than this share of the range."""


def draw_curves(
    axes: Axes,
    run: Run,
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
