"""The figures of a report, as figures.toml lists them.

Each is drawn by a function of the run, in a module beside this one, which saves nothing.
"""

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from fedwatt.report.load import RunTables


@dataclass(frozen=True)
class ReportFigure:
    """A figure of the report: its file name, drawing, heading and how to read it."""

    name: str
    draw: Callable[[RunTables], Figure]
    title: str
    caption: str
    needs: str = ""
    """Column of the clients' table without whose values there is nothing to draw."""

    def applies(self, run: RunTables) -> bool:
        """Return whether the run has something to draw."""
        return not self.needs or bool(np.isfinite(run.clients[self.needs].astype(float)).any())


def _listed(name: str, drawn_by: str, **about: str) -> ReportFigure:
    module, _, function = drawn_by.partition(".")
    return ReportFigure(name, getattr(import_module(f"{__name__}.{module}"), function), **about)


_LIST: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("figures.toml").read_text(encoding="utf-8")
)
FIGURES = tuple(_listed(name, **about) for name, about in _LIST.items())
