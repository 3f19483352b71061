"""Figures of a reproduction in the paper's form: curves by round, sweeps, clouds of points."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedwatt.report.style import (
    MUTED,
    WIDTH_IN,
    legend,
    looks,
    name_of,
    note,
    series,
    styled,
)
from reproduction.record import Record
from reproduction.study import NOTHING

ROOMY = 70
"""Characters of tick labels that fit beside each other."""


@styled
def curves(records: Mapping[str, Record | None], column: str, title: str) -> Figure:
    """Draw a line for each method: mean over seeds, band from the lowest to the highest."""
    figure = Figure(figsize=(WIDTH_IN, 3.9))
    axes = figure.subplots()
    appearance = looks(list(records))
    high = -np.inf
    low = np.inf
    for method, record in records.items():
        common = _common(record, column)
        if common is None:
            continue
        rounds, values = common
        look = appearance[method]
        mark = series(method)
        mean = values.mean(axis=0)
        axes.plot(
            rounds,
            mean,
            color=look.colour,
            ls=look.dash,
            lw=1.6,
            gid=mark,
            zorder=3,
            label=name_of(method),
        )
        if len(values) > 1:
            axes.fill_between(
                rounds,
                values.min(axis=0),
                values.max(axis=0),
                color=look.colour,
                alpha=0.12,
                lw=0,
                gid=mark,
            )
        # The first rounds fall from far above: they may leave the axes, the rest may not.
        later = mean[len(mean) // 5 :]
        high, low = max(high, float(later.max())), min(low, float(mean.min()))
    if not axes.lines:
        note(axes, NOTHING)
        return figure
    margin = 0.08 * (high - low) or 0.05 * abs(high) or 1.0
    axes.set_ylim(low - margin, high + margin)
    axes.set_title(title)
    axes.set_xlabel("round")
    legend(figure, handletextpad=0.5)
    return figure


@styled
def sweep(
    places: Sequence[str],
    values: Mapping[str, Sequence[Mapping[int, float]]],
    title: str,
    label: str,
) -> Figure:
    """Draw a line for each method over a sweep."""
    figure = Figure(figsize=(WIDTH_IN, 3.7 if len(values) > 1 else 3.2))
    axes = figure.subplots()
    appearance = looks(list(values))
    at = np.arange(len(places))
    for method, by_place in values.items():
        mean = np.array([np.mean(list(v.values())) if v else np.nan for v in by_place])
        spread = np.array(
            [np.std(list(v.values()), ddof=1) if len(v) > 1 else 0.0 for v in by_place]
        )
        if not np.isfinite(mean).any():
            continue
        look = appearance[method]
        mark = series(method)
        line = axes.errorbar(
            at,
            mean,
            yerr=spread,
            color=look.colour,
            ls=look.dash,
            marker=look.marker,
            ms=4.5,
            lw=1.4,
            elinewidth=0.9,
            zorder=3,
            label=name_of(method),
        )
        for part in [line.lines[0], *line.lines[1], *line.lines[2]]:
            part.set_gid(mark)
    if not axes.lines:
        note(axes, NOTHING)
        return figure
    crowded = len(places) > 1 and max(map(len, places)) * len(places) > ROOMY
    axes.set_xticks(at, ["\n".join(p.rsplit(" ", 1)) for p in places] if crowded else places)
    # Places that have not run keep their tick.
    margin = max(0.05 * len(at), 0.25)
    axes.set_xlim(-margin, len(at) - 1 + margin)
    axes.set_title(title)
    axes.set_xlabel(label)
    if len(values) > 1:
        legend(figure, handletextpad=0.5)
    return figure


@styled
def cloud(
    points: Mapping[str, tuple[NDArray[np.float64], NDArray[np.float64]]],
    title: str,
    labels: tuple[str, str],
) -> Figure:
    """Return points of each series with their least-squares line."""
    figure = Figure(figsize=(WIDTH_IN, 3.2))
    axes = figure.subplots()
    drawn = {name: xy for name, xy in points.items() if xy[0].size}
    if not drawn:
        note(axes, NOTHING)
        return figure
    appearance = looks(list(drawn))
    for name, (x, y) in drawn.items():
        look = appearance[name]
        mark = series(name)
        axes.scatter(
            x,
            y,
            s=14,
            marker=look.marker,
            color=look.colour,
            alpha=0.55,
            lw=0,
            gid=mark,
            label=name_of(name),
        )
        if x.size > 2 and np.ptp(x) > 0:
            slope, offset = np.polyfit(x, y, 1)
            ends = np.array([x.min(), x.max()])
            axes.plot(ends, slope * ends + offset, color=look.colour, lw=1.2, gid=mark)
    axes.grid(axis="x")
    axes.set_title(title)
    axes.set_xlabel(labels[0])
    axes.set_ylabel(labels[1])
    legend(figure)
    return figure


@styled
def bars(
    parts: Mapping[str, Mapping[str, float]], colours: Mapping[str, str], title: str
) -> Figure:
    """Return stacked bars: a bar for each key, its parts side by side."""
    figure = Figure(figsize=(WIDTH_IN, 0.9 + 0.42 * max(len(parts), 1)))
    axes = figure.subplots()
    if not any(parts.values()):
        note(axes, NOTHING)
        return figure
    names = list(parts)
    start = np.zeros(len(names))
    for part, colour in colours.items():
        width = np.array([parts[name].get(part, 0.0) for name in names])
        if width.any():
            axes.barh(names, width, left=start, color=colour, label=part, height=0.62)
            start += width
    axes.invert_yaxis()
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    axes.tick_params(axis="y", labelcolor=MUTED)
    axes.set_title(title)
    legend(figure, handletextpad=0.5)
    return figure


def _common(
    record: Record | None, column: str
) -> tuple[NDArray[np.int64], NDArray[np.float64]] | None:
    """Return (rounds [T], values [seeds, T]) of the seeds that stayed finite."""
    if record is None:
        return None
    series_by_seed = [record.curve(column, s) for s in record.seeds if s not in record.diverged]
    series_by_seed = [pair for pair in series_by_seed if pair[0].size]
    if not series_by_seed:
        return None
    rounds = sorted(set.intersection(*(set(r.tolist()) for r, _ in series_by_seed)))
    values = np.array([v[np.isin(r, rounds)] for r, v in series_by_seed])
    return np.array(rounds), values
