"""Routes before they are driven as one self-contained page: numbers side by side, and profiles."""

from collections.abc import Callable, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedwatt.edge.route_forecast import PlannedRoute, RoutePlan
from fedwatt.edge.trip_page import Drawn, drive_figure, drive_page, score
from fedwatt.journeys.route_intervals import interval
from fedwatt.report.style import LOOKS, MUTED, Look
from fedwatt.telemetry.trip import FloatArray

MOST_POINTS = 800
"""Of a drawn line; more would be finer than a screen."""
Draw = Callable[[Axes, PlannedRoute, Look], None]


def render_routes(plan: RoutePlan) -> str:
    """Return the page as text."""
    looks = _looks(plan.routes)
    table = {
        "names": [planned.name for planned in plan.routes],
        "rows": [
            {"name": cells[0][0], "values": [value for _, value in cells]}
            for cells in zip(*(planned.rows() for planned in plan.routes), strict=True)
        ],
    }
    return drive_page(
        route_figures(plan.routes, looks),
        {f"--route-{number}": look for number, look in enumerate(looks)},
        headline=headline(plan),
        scores=[route_score(planned, f"--route-{n}") for n, planned in enumerate(plan.routes)],
        trip="Routes",
        vehicle=plan.model.vehicle or "an unseen vehicle",
        table=table,
        remarks=plan.remarks(),
        facts=_facts(plan),
    )


def _looks(routes: Sequence[PlannedRoute]) -> list[Look]:
    order = ["fo-ri-fedavg", *(name for name in LOOKS if name != "fo-ri-fedavg")]
    return [look for look, _ in zip(cycle(LOOKS[name] for name in order), routes, strict=False)]


def headline(plan: RoutePlan) -> str:
    """Return the routes in one sentence: the one that takes the least."""
    best = min(plan.routes, key=lambda planned: planned.forecast.total_wh)
    low, high = interval(best.forecast.energy_levels_wh[-1] / 1000, 0.9)
    sentence = f"{best.name} takes {best.forecast.total_wh / 1000:.2f}\u00a0kWh"
    sentence += f" ({low:.2f} to {high:.2f}) for {best.forecast.metres[-1] / 1000:.1f}\u00a0km"
    arrival = best.arrival
    if arrival is None:
        return sentence
    if arrival.left < 0:
        return f"{sentence}, but the charge would end after {arrival.reach_m / 1000:.1f}\u00a0km"
    return f"{sentence} and leaves {100 * arrival.left:.0f}\u00a0% of charge"


def route_score(planned: PlannedRoute, colour: str) -> dict[str, str]:
    """Return a route's number in large type: its charge on arrival, or else its energy."""
    arrival = planned.arrival
    forecast = planned.forecast
    if arrival is None:
        value = f"{forecast.total_wh / 1000:.2f}"
        unit = "kWh"
        levels = forecast.energy_levels_wh[-1] / 1000
        form = "{:.2f} to {:.2f} kWh"
    else:
        value = f"{100 * max(arrival.left, 0):.0f}"
        unit = "% on arrival"
        levels = 100 * np.maximum(arrival.levels, 0)
        form = "{:.0f} to {:.0f} %"
    remark = form.format(*interval(levels, 0.9)) + " in 90 % of cases"
    return score(planned.name, value, unit, remark, colour)


def route_figures(routes: Sequence[PlannedRoute], looks: Sequence[Look]) -> list[Drawn]:
    """Height, speed, energy and charge along the way."""
    drawn = [
        ("speed", "Expected speed", "As the fleet drives there, stops included.", "km/h", _speed),
        ("energy", "Energy since the start", "The band holds 90 % of cases.", "kWh", _energy),
    ]
    if any(planned.forecast.hilly for planned in routes):
        caption = "Level where no climb is known."
        drawn.insert(0, ("height", "Height above the start", caption, "m", _height))
    if all(planned.arrival is not None for planned in routes):
        caption = "The band holds 90 % of cases; below zero the charge does not suffice."
        drawn.append(("charge", "State of charge", caption, "%", _charge))
    return [
        (name, title, caption, _figure(routes, looks, unit, draw))
        for name, title, caption, unit, draw in drawn
    ]


def _figure(routes: Sequence[PlannedRoute], looks: Sequence[Look], unit: str, draw: Draw) -> Figure:
    def draw_all(axes: Axes) -> None:
        for planned, look in zip(routes, looks, strict=True):
            draw(axes, planned, look)

    return drive_figure("km", unit, MaxNLocator(8), draw_all, legend=len(routes) > 1)


def _points(planned: PlannedRoute, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Kilometres and values [points, ...] of a line, thinned to what a screen shows."""
    steps = len(values)
    at = np.unique(np.linspace(0, steps - 1, min(steps, MOST_POINTS)).astype(np.int64))
    return planned.forecast.metres[at] / 1000, values[at]


def _height(axes: Axes, planned: PlannedRoute, look: Look) -> None:
    axes.plot(*_points(planned, planned.forecast.height_m), color=look.colour, label=planned.name)


def _speed(axes: Axes, planned: PlannedRoute, look: Look) -> None:
    forecast = planned.forecast
    # Over 400 m: of a single step the mean speed is mostly whether somebody stopped there.
    steps = min(max(round(400 / forecast.route.step_m), 1), len(forecast.seconds))
    seconds = np.concatenate([np.zeros(steps), forecast.seconds])
    metres = np.concatenate([np.zeros(steps), forecast.metres])
    mean = (metres[steps:] - metres[:-steps]) / np.maximum(seconds[steps:] - seconds[:-steps], 1e-9)
    axes.plot(
        *_points(planned, np.minimum(3.6 * mean, 200.0)), color=look.colour, label=planned.name
    )
    axes.set_ylim(bottom=0)


def _energy(axes: Axes, planned: PlannedRoute, look: Look) -> None:
    forecast = planned.forecast
    low, high = interval(forecast.energy_levels_wh / 1000, 0.9)
    _band(axes, planned, look, forecast.energy_wh / 1000, low, high)


def _charge(axes: Axes, planned: PlannedRoute, look: Look) -> None:
    arrival = planned.arrival
    if arrival is None:
        return
    _band(axes, planned, look, 100 * arrival.along, *interval(100 * arrival.levels_along, 0.9))
    axes.axhline(0, color=MUTED, linewidth=0.8)


def _band(
    axes: Axes,
    planned: PlannedRoute,
    look: Look,
    middle: FloatArray,
    low: FloatArray,
    high: FloatArray,
) -> None:
    kilometres, ends = _points(planned, np.stack([low, high], axis=1))
    axes.fill_between(kilometres, *ends.T, color=look.colour, alpha=0.16, linewidth=0)
    axes.plot(*_points(planned, middle), color=look.colour, label=planned.name)


def _facts(plan: RoutePlan) -> dict[str, str]:
    model = plan.model
    trips = f"{model.trips:,} trips of its own" if model.trips else "no trips of its own"
    return {
        "Learned from": f"{model.fleet_vehicles:,} vehicles and {trips}",
        "Mass": f"{model.mass_kg:,.0f} kg",
        "Outside": ", ".join(sorted({f"{planned.temperature_c:g} °C" for planned in plan.routes})),
        "Known way": ", ".join(f"{planned.forecast.known:.0%}" for planned in plan.routes),
        "Known climb": ", ".join(f"{planned.forecast.hilly:.0%}" for planned in plan.routes),
    }
