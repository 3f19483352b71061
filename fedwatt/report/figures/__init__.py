"""The figures of a report. Each is drawn by a function of the run, which saves nothing."""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

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
    draw: Callable[[Run], Figure]
    title: str
    caption: str


DRAWN: dict[str, Callable[[Run], Figure]] = {
    "convergence": convergence_figure,
    "vehicles": vehicles_figure,
    "strata": strata_figure,
    "best-so-far": best_so_far_figure,
    "drift": drift_figure,
    "roughness": roughness_figure,
    "time": time_figure,
}
_WORDS = tomllib.loads(Path(__file__).with_name("captions.toml").read_text(encoding="utf-8"))
FIGURES = tuple(ReportFigure(name, draw, **_WORDS[name]) for name, draw in DRAWN.items())
