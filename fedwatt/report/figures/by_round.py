"""By round: test error, that of the best model so far, drift of the vehicles and its dispersion."""

from functools import partial

from matplotlib.figure import Figure

from fedwatt.report.curves import curves, difference
from fedwatt.report.figures.draw_curves import draw_curves
from fedwatt.report.load import Run
from fedwatt.report.style import MUTED, WIDTH_IN, name_of, styled
from fedwatt.tables import declared


@styled
def convergence_figure(run: Run) -> Figure:
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
def best_so_far_figure(run: Run) -> Figure:
    """Test RMSE of the model that validation would have chosen up to each round."""
    figure = Figure(figsize=(WIDTH_IN, 2.8))
    axes = figure.subplots()
    draw_curves(axes, run, partial(curves, run, column="best_test_rmse"))
    axes.set_title(f"Test RMSE of the best model so far, {run.unit} per window")
    return figure


@styled
def drift_figure(run: Run) -> Figure:
    """Mean drift and its dispersion by round (`eq:mean_drift`, `eq:drift_cv`)."""
    figure = Figure(figsize=(WIDTH_IN, 4.2))
    above, below = figure.subplots(2, 1, sharex=True)
    draw_curves(above, run, partial(curves, run, column="drift_mean"), floor=0.0)
    above.set_title(declared("rounds")["drift_mean"].title)
    above.set_xlabel("")
    draw_curves(below, run, partial(curves, run, column="drift_cv"), labels=False, floor=0.0)
    below.set_title(declared("rounds")["drift_cv"].title)
    return figure
