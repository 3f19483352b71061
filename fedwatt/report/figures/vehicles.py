"""Final error of every vehicle."""

import re

import numpy as np
from matplotlib.figure import Figure

from fedwatt.report import style
from fedwatt.report.load import Run
from fedwatt.report.statistics import vehicle_model, vehicle_rmse

MOST_NAMES = 40  # above this, vehicles have a rank instead of a name


@style.styled
def vehicles_figure(run: Run) -> Figure:
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
