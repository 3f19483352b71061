"""Roughness of a vehicle's loss against how far it then moved (`eq:roughness_drift_corr`)."""

from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedwatt.report.load import Run, where
from fedwatt.report.style import WIDTH_IN, looks, name_of, points, styled
from fedwatt.tables import DRIFT, ROUGHNESS

MOST_POINTS = 1200  # more would make a large file and a blot

FLAT = 1e-3
"""Monotone slices have roughness 0 but for the guard ε_A, which leaves values below about this."""


@styled
def roughness_figure(run: Run) -> Figure:
    """One point for each reply of a vehicle, with the mean rank correlation within a round."""
    figure = Figure(figsize=(WIDTH_IN, 3.4))
    axes = figure.subplots()
    clouds = {method: cloud for method in run.methods if (cloud := _cloud(run, method))[0].size}
    appearance = looks(run.methods)
    facts = []
    for method, (roughness, drift) in clouds.items():
        thin = np.linspace(0, roughness.size - 1, min(roughness.size, MOST_POINTS)).astype(int)
        settings: dict[str, Any] = {"area": 11, "alpha": 0.35, "zorder": 1, "label": None}
        points(axes, roughness[thin], drift[thin], method, appearance[method], **settings)
        facts.append((method, _fact(run, method, roughness)))
    axes.grid(axis="x")
    axes.set_xlabel(ROUGHNESS.title)
    axes.set_ylabel(DRIFT.title)
    if all(np.all(roughness < FLAT) for roughness, _ in clouds.values()):
        axes.set_xlim(-0.05, 1)
    lines = [line for method, fact in facts for line in wrap(f"{name_of(method)}: {fact}", 58)]
    axes.set_title("\n".join(lines), fontsize=8.5, fontweight="normal")
    return figure


def _cloud(run: Run, method: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = where(run.clients, method=method, replied=True)
    roughness = rows[ROUGHNESS.name].astype(np.float64)
    drift = rows[DRIFT.name].astype(np.float64)
    known = np.isfinite(roughness) & np.isfinite(drift)
    return roughness[known], drift[known]


def _fact(run: Run, method: str, roughness: NDArray[np.float64]) -> str:
    flat = float(np.mean(roughness < FLAT))
    if flat == 1:
        return f"roughness is 0 everywhere (below {FLAT:g}: every slice monotone)"
    zeros = f"{100 * flat:.0f} % of points at 0 (below {FLAT:g}); " if flat >= 0.005 else ""
    rank = where(run.rounds, method=method)["spearman"].astype(np.float64)
    rank = rank[np.isfinite(rank)]
    if not rank.size:
        return zeros + "correlation undefined in every round (it needs 8 vehicles that differ)"
    rounds = "1 round" if rank.size == 1 else f"{rank.size} rounds"
    found = f"{zeros}mean rank correlation {_signed(float(rank.mean()))} over {rounds}"
    return found + (", mostly of values that are 0 but for ε" if flat > 0.5 else "")


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "−")
