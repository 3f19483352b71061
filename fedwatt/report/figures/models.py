"""Figures of final errors: by stage, driving regime and vehicle; roughness against drift."""

import re
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedwatt.report import style
from fedwatt.report.baselines import Stage, baseline_stages, federated_stages
from fedwatt.report.load import RunTables, where
from fedwatt.report.statistics import stratum_rmse, vehicle_model, vehicle_rmse
from fedwatt.report.style import WIDTH_IN, looks, name_of, points, styled
from fedwatt.report.table import shown
from fedwatt.tables import DRIFT, ROUGHNESS

MOST_METHODS = 4
"""With more methods, only the reference and the method with the lowest error are drawn."""
BAR_IN = 0.22
GAP_IN = 0.16


@style.styled
def stages_figure(run: RunTables) -> Figure:
    """Draw one bar for each stage and method, with its error at the end."""
    federated = federated_stages(run)
    methods = _drawn_methods(run, federated)
    stages = [*baseline_stages(run), *federated] if run.same_data else federated
    bars = [(stage, [m for m in stage.errors if m == "" or m in methods]) for stage in stages]
    count = sum(len(own) for _, own in bars)
    figure = Figure(figsize=(style.WIDTH_IN, 0.75 + BAR_IN * count + GAP_IN * len(bars)))
    axes = figure.subplots()
    if not count:
        style.note(axes, "No method has a finite error.")
        return figure
    appearance = style.looks(run.methods)
    depth = 0.0
    ticks = []
    named: set[str] = set()
    for stage, own in bars:
        ticks.append(depth + BAR_IN * len(own) / 2)
        for method in own:
            colour = appearance[method].colour if method else style.MUTED
            bar = axes.barh(
                depth + BAR_IN / 2, stage.errors[method], height=BAR_IN * 0.86, color=colour
            )[0]
            text = axes.annotate(
                shown(stage.errors[method], run.target.digits()),
                (stage.errors[method], depth + BAR_IN / 2),
                xytext=(4, 0),
                va="center",
            )
            text.set(anncoords="offset points", color=style.INK)
            if method:
                bar.set_gid(style.series(method))
                text.set_gid(style.series(method))
                if method not in named:
                    bar.set_label(style.name_of(method))
                    named.add(method)
            depth += BAR_IN
        depth += GAP_IN
    axes.set_yticks(ticks, [stage.name for stage, _ in bars])
    axes.set_ylim(depth - GAP_IN / 2, -GAP_IN / 2)
    axes.margins(x=0.12)
    axes.set_xlabel(f"test RMSE, {run.unit} per window")
    style.horizontal(axes)
    style.legend(figure, handlelength=0.9, handletextpad=0.4)
    return figure


def _drawn_methods(run: RunTables, stages: list[Stage]) -> list[str]:
    if len(run.methods) <= MOST_METHODS or not stages:
        return list(run.methods)
    last = stages[-1].errors
    return [run.reference, min(last, key=last.__getitem__)]


HEAD_IN = 0.27
LANE_IN = 0.125


@style.styled
def strata_figure(run: RunTables) -> Figure:
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


MOST_NAMES = 40  # above this, vehicles have a rank instead of a name


@style.styled
def vehicles_figure(run: RunTables) -> Figure:
    """Test RMSE of each vehicle, sorted by that of the reference; one mark for each method."""
    by_method = {
        method: vehicle_rmse(run, method, model=vehicle_model(run, method))
        for method in run.methods
    }
    errors = {method: by_vehicle for method, by_vehicle in by_method.items() if by_vehicle}
    base = errors.get(run.reference) or next(iter(errors.values()), {})
    # In runs of different fleets others have vehicles that the reference does not have.
    every = {name: rmse for own in errors.values() for name, rmse in own.items()} | base
    names = sorted(every, key=lambda name: (name not in base, every[name], name))
    few = len(names) <= MOST_NAMES
    figure = Figure(figsize=(style.WIDTH_IN, 1.1 + 0.19 * len(names) if few else 3.4))
    axes = figure.subplots()
    if not names:
        style.note(axes, "No vehicle has a finite error.")
        return figure
    appearance = style.looks(run.methods)
    places = np.arange(len(names))
    table = np.array([[own.get(name, np.nan) for name in names] for own in errors.values()])
    if few and len(errors) > 1 and run.same_data:
        axes.hlines(
            places, np.nanmin(table, 0), np.nanmax(table, 0), color=style.GRID, lw=4, zorder=1
        )
    for method, values in zip(errors, table, strict=True):
        x, y = (values, places) if few else (places + 1, values)
        style.points(axes, x, y, method, appearance[method], area=26 if few else 10)
    style.legend(figure)
    if few:
        axes.set_yticks(places, [_short(name) for name in names])
        style.horizontal(axes)
        axes.set_ylim(-0.7, len(names) - 0.3)
        axes.set_xlabel(f"test RMSE, {run.unit} per window")
    else:
        axes.set_xlabel(f"vehicle, sorted by the error of {style.name_of(run.reference)}")
        axes.set_ylabel(f"test RMSE, {run.unit} per window")
    return figure


def _short(name: str) -> str:
    """At most 18 characters of a name, its end kept: that is where names differ.

    >>> _short("a-very-long-fleet-name-0017")
    '…ng-fleet-name-0017'
    """
    name = re.sub(r"\s+", " ", name)
    return name if len(name) <= 18 else "…" + name[-18:]


MOST_POINTS = 1200  # more would make a large file and a blot

FLAT = 1e-3
"""Monotone slices have roughness 0 but for the guard ε_A, which leaves values below about this."""


@styled
def roughness_figure(run: RunTables) -> Figure:
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


def _cloud(run: RunTables, method: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = where(run.clients, method=method, replied=True)
    roughness = rows[ROUGHNESS.name].astype(np.float64)
    drift = rows[DRIFT.name].astype(np.float64)
    known = np.isfinite(roughness) & np.isfinite(drift)
    return roughness[known], drift[known]


def _fact(run: RunTables, method: str, roughness: NDArray[np.float64]) -> str:
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
