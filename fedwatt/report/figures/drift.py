"""How far vehicles move in a round, and how unequally (`eq:mean_drift`, `eq:drift_cv`)."""

from functools import partial

from matplotlib.figure import Figure

from fedwatt.report.curves import curves
from fedwatt.report.figures.draw_curves import draw_curves
from fedwatt.report.load import Run
from fedwatt.report.style import WIDTH_IN, styled
from fedwatt.tables import rounds


@styled
def drift_figure(run: Run) -> Figure:
    """Mean drift and its dispersion by round."""
    figure = Figure(figsize=(WIDTH_IN, 4.2))
    above, below = figure.subplots(2, 1, sharex=True)
    draw_curves(above, run, partial(curves, run, column="drift_mean"), floor=0.0)
    above.set_title(rounds()["drift_mean"].title)
    above.set_xlabel("")
    draw_curves(below, run, partial(curves, run, column="drift_cv"), labels=False, floor=0.0)
    below.set_title(rounds()["drift_cv"].title)
    return figure
