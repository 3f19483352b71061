"""The figures of a report. Each is drawn by a function of the run, which saves nothing."""

from collections.abc import Callable
from dataclasses import dataclass

from matplotlib.figure import Figure

from fedwatt.report.figures.by_round import best_so_far_figure, convergence_figure, drift_figure
from fedwatt.report.figures.roughness import roughness_figure
from fedwatt.report.figures.strata import strata_figure
from fedwatt.report.figures.time import time_figure
from fedwatt.report.figures.vehicles import vehicles_figure
from fedwatt.report.load import Run


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report: its file name, heading, drawing and how to read it."""

    name: str
    title: str
    draw: Callable[[Run], Figure]
    caption: str


FIGURES = (
    ReportFigure(
        "convergence",
        "Error by round",
        convergence_figure,
        "Lower is better. Lines are means over seeds, bands reach from the lowest to the highest "
        "seed. Where there is a lower panel, it shows the difference from the reference at the "
        "same seed and round: below zero is better, and a band that crosses zero means that the "
        "seeds disagree. A thin line that ends in a cross is a seed that diverged. The error "
        "before training may lie above the axes.",
    ),
    ReportFigure(
        "vehicles",
        "Error of each vehicle",
        vehicles_figure,
        "Final test error of every vehicle that trains, mean over seeds, sorted by that of the "
        "reference. On the same data, marks of one vehicle close together mean that the choice of "
        "method matters less to it than who drives it, and where.",
    ),
    ReportFigure(
        "strata",
        "Error by driving regime",
        strata_figure,
        "Final test error of the windows of all vehicles in each class of mean speed and outside "
        "temperature. Marks are means over seeds, lines their range.",
    ),
    ReportFigure(
        "best-so-far",
        "Best model so far",
        best_so_far_figure,
        "Test error of the model with the lowest validation error up to each round: what early "
        "stopping would have delivered. A step up is possible, because validation chooses and "
        "test reports.",
    ),
    ReportFigure(
        "drift",
        "Drift and its dispersion",
        drift_figure,
        "How far a vehicle's model moves from the broadcast one in a round, and how unequal the "
        "vehicles are. Smaller drift alone is no merit: a smaller step does the same.",
    ),
    ReportFigure(
        "roughness",
        "Roughness against drift",
        roughness_figure,
        "Each point is one vehicle in one round. If roughness foretold drift, points would rise "
        "to the right; correlations are taken within a round, over at least 8 vehicles.",
    ),
    ReportFigure(
        "time",
        "Where the time goes",
        time_figure,
        "Mean wall-clock time of a round, divided by the seeds that were trained together. Probe "
        "and spectral ratio are diagnostics; evaluation serves this report only.",
    ),
)
