"""Final error by driving regime."""

import numpy as np
from matplotlib.figure import Figure

from fedwatt.report import style
from fedwatt.report.load import Run
from fedwatt.report.statistics import stratum_rmse

HEAD_IN = 0.27
LANE_IN = 0.125


@style.styled
def strata_figure(run: Run) -> Figure:
    """Pooled test RMSE of each stratum; a mark for the mean over seeds, a line for their range."""
    errors = {method: own for method in run.methods if (own := stratum_rmse(run, method))}
    strata = list(dict.fromkeys(name for own in errors.values() for name in own))
    row_in = 0.14 + LANE_IN * len(errors)
    heads, rows, height_in = _layout(strata, row_in)
    figure = Figure(figsize=(style.WIDTH_IN, 1.0 + height_in))
    axes = figure.subplots()
    if not strata:
        style.note(axes, "No stratum has test windows.")
        return figure
    appearance = style.looks(run.methods)
    for lane, (method, own) in enumerate(errors.items()):
        shift = (lane - (len(errors) - 1) / 2) * LANE_IN
        at = [rows[name] + shift for name in own]
        look = appearance[method]
        low, high = ([extreme(values) for values in own.values()] for extreme in (min, max))
        axes.hlines(at, low, high, color=look.colour, lw=1.6, alpha=0.5, gid=style.series(method))
        style.points(axes, [np.mean(values) for values in own.values()], at, method, look, area=24)
    names = [name.partition(": ")[2] or name for name in rows]
    axes.set_yticks([*heads.values(), *rows.values()], [*heads, *names])
    for label in axes.get_yticklabels()[: len(heads)]:
        label.set(weight="bold", color=style.INK)
    axes.set_ylim(height_in, 0)
    axes.set_xlabel(f"test RMSE, {run.unit} per window")
    style.horizontal(axes)
    style.legend(figure)
    return figure


def _layout(strata: list[str], row_in: float) -> tuple[dict[str, float], dict[str, float], float]:
    """Depth in inches of each kind's heading, of each stratum, and of them all.

    >>> _layout(["speed: low", "speed: high"], row_in=0.5)
    ({'speed': 0.135}, {'speed: low': 0.52, 'speed: high': 1.02}, 1.27)
    """
    heads: dict[str, float] = {}
    rows: dict[str, float] = {}
    depth = 0.0
    for name in strata:
        kind = name.partition(": ")[0]
        if kind not in heads:
            heads[kind] = depth + HEAD_IN / 2
            depth += HEAD_IN
        rows[name] = depth + row_in / 2
        depth += row_in
    return heads, rows, depth
