"""Planned routes as one self-contained page: the answer, a map, profiles and numbers."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from fedwatt.edge.route_forecast import PlannedRoute, RoutePlan, spread_text
from fedwatt.edge.trip_page import (
    Drawn,
    MapLine,
    drive_figure,
    drive_page,
    keep_units,
    map_drawn,
    score,
)
from fedwatt.journeys.route_intervals import interval
from fedwatt.report.style import LOOKS, Look
from fedwatt.telemetry.trip import FloatArray

MOST_POINTS = 800
"""Of a drawn line; more would be finer than a screen."""
Lines = Callable[[PlannedRoute], FloatArray]


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
        scores=route_scores(plan.routes),
        trip=f"Route {plan.routes[0].name}" if len(plan.routes) == 1 else "Routes",
        vehicle=plan.model.vehicle or "an unseen vehicle",
        table=table,
        remarks=plan.remarks(),
        facts=_facts(plan),
    )


def _looks(routes: Sequence[PlannedRoute]) -> list[Look]:
    order = ["fo-ri-fedavg", *(name for name in LOOKS if name != "fo-ri-fedavg")]
    return [look for look, _ in zip(cycle(LOOKS[name] for name in order), routes, strict=False)]


def headline(plan: RoutePlan) -> str:
    """Return the answer; of several routes, that of the one that takes the least energy."""
    best = min(plan.routes, key=lambda planned: planned.forecast.total_wh)
    sentence = best.answer()
    if len(plan.routes) > 1:
        sentence = f"{best.name} takes the least energy. {sentence}"
    return keep_units(sentence)


def route_scores(routes: Sequence[PlannedRoute]) -> list[dict[str, str]]:
    """Return numbers in large type: of each route its first one, of a single route all."""
    if len(routes) > 1:
        return [
            next(_scores(planned, f"--route-{number}", (planned.name,)))
            for number, planned in enumerate(routes)
        ]
    names = (
        ("Energy", "Duration")
        if routes[0].arrival is None
        else ("SoC on arrival", "Energy", "Duration")
    )
    return [*_scores(routes[0], "--route-0", names)]


def _scores(planned: PlannedRoute, colour: str, names: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the state of charge on arrival where it is known, energy and duration, by `names`."""
    forecast = planned.forecast
    arrival = planned.arrival
    values = [
        (forecast.total_wh / 1000, forecast.energy_levels_wh[-1] / 1000, "kWh", 2),
        (forecast.seconds[-1] / 60, forecast.duration_levels_s / 60, "min", 0),
    ]
    if arrival is not None:
        values.insert(0, (100 * max(arrival.left, 0), 100 * np.maximum(arrival.levels, 0), "%", 0))
    for name, (value, levels, unit, digits) in zip(names, values, strict=False):
        ends = spread_text(*interval(levels, 0.9), unit, digits)
        yield score(name, f"{value:.{digits}f}", unit, f"{ends} in 90 % of cases", colour)


def map_line(planned: PlannedRoute) -> MapLine:
    """Return the route with its energy, for the map."""
    forecast = planned.forecast
    return MapLine(
        planned.name,
        forecast.route.latitude_deg,
        forecast.route.longitude_deg,
        np.concatenate([[0.0], forecast.energy_wh]),
        np.concatenate([[0.0], forecast.metres]),
    )


def route_figures(routes: Sequence[PlannedRoute], looks: Sequence[Look]) -> list[Drawn]:
    """Return the map, then height, speed, energy and charge along the route."""
    drawn = [
        ("speed", "Expected speed", "Mean over 400 m, stops included.", "km/h", _speed),
        ("energy", "Energy since the start", "The band holds 90 % of cases.", "kWh", _energy),
    ]
    if any(planned.forecast.hilly for planned in routes):
        caption = "Level where no climb is known."
        drawn.insert(0, ("height", "Elevation above the start", caption, "m", _height))
    if all(planned.arrival is not None for planned in routes):
        caption = "The band holds 90 % of cases; below zero the battery is empty."
        drawn.append(("charge", "State of charge", caption, "%", _charge))
    profiles = [
        (name, title, caption, _figure(routes, looks, unit, draw))
        for name, title, caption, unit, draw in drawn
    ]
    return [*map_drawn(map(map_line, routes)), *profiles]


def _figure(
    routes: Sequence[PlannedRoute], looks: Sequence[Look], unit: str, lines: Lines
) -> Figure:
    def draw(axes: Axes) -> None:
        for planned, look in zip(routes, looks, strict=True):
            _along(axes, planned, look, lines(planned))

    return drive_figure(
        "km", unit, MaxNLocator(8, steps=[1, 2, 5, 10]), draw, legend=len(routes) > 1
    )


def _along(axes: Axes, planned: PlannedRoute, look: Look, lines: FloatArray) -> None:
    """Draw a line [points, 1], or one with its band [points, 3], as fine as a screen shows."""
    steps = len(lines)
    at = np.unique(np.linspace(0, steps - 1, min(steps, MOST_POINTS)).astype(np.int64))
    kilometres = planned.forecast.metres[at] / 1000
    middle, *band = lines[at].T
    if band:
        axes.fill_between(kilometres, *band, color=look.colour, alpha=0.16, linewidth=0)
    axes.plot(kilometres, middle, color=look.colour, label=planned.name)


def _height(planned: PlannedRoute) -> FloatArray:
    return planned.forecast.height_m[:, None]


def _speed(planned: PlannedRoute) -> FloatArray:
    forecast = planned.forecast
    # Over 400 m: of a single step the mean speed is mostly whether somebody stopped there.
    steps = min(max(round(400 / forecast.route.step_m), 1), len(forecast.seconds))
    seconds = np.concatenate([np.zeros(steps), forecast.seconds])
    metres = np.concatenate([np.zeros(steps), forecast.metres])
    mean = (metres[steps:] - metres[:-steps]) / np.maximum(seconds[steps:] - seconds[:-steps], 1e-9)
    return np.asarray(np.minimum(3.6 * mean, 200.0)[:, None])


def _energy(planned: PlannedRoute) -> FloatArray:
    forecast = planned.forecast
    ends = interval(forecast.energy_levels_wh, 0.9)
    return np.column_stack([forecast.energy_wh, *ends]) / 1000


def _charge(planned: PlannedRoute) -> FloatArray:
    arrival = planned.arrival
    assert arrival is not None
    return 100 * np.column_stack([arrival.along, *interval(arrival.levels_along, 0.9)])


def _facts(plan: RoutePlan) -> dict[str, str]:
    model = plan.model
    trips = f"{model.trips:,} trips of this vehicle" if model.trips else "no trips of this vehicle"
    return {
        "Learned from": f"{model.fleet_vehicles:,} vehicles and {trips}",
        "Mass": f"{model.mass_kg:,.0f} kg",
        "Outside temperature": ", ".join(
            sorted({f"{planned.temperature_c:g} °C".replace("-", "−") for planned in plan.routes})
        ),
        "Driven by the fleet": _shares(planned.forecast.known for planned in plan.routes),
        "Climb known": _shares(planned.forecast.hilly for planned in plan.routes),
    }


def _shares(values: Iterable[float]) -> str:
    return ", ".join(f"{100 * value:.0f} %" for value in values)
