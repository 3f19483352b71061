"""Trips and routes as self-contained pages: the answer, the numbers, figures and the model.

Figures of a trip are over minutes and those of routes over kilometres; alternatives stand side by
side.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, MaxNLocator, StrMethodFormatter

from fedwatt.edge.card import sections
from fedwatt.edge.route_forecast import PlannedRoute, RoutePlan
from fedwatt.edge.trips import SECONDS_PER_HOUR, Forecast, TripPrediction
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.totals import energy_by_second, exact_windows
from fedwatt.report.page import fill, inline, saved
from fedwatt.report.style import GRID, INK, LOOKS, MUTED, PAPER, WIDTH_IN, Look, styled
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.features import CLIMB

HEIGHT_IN = 2.35
COLOURS = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
PREDICTED = LOOKS["fo-ri-fedavg"]
MEASURED = LOOKS["fedavg"]
MOST_POINTS = 800
"""Of a drawn line; more would be finer than a screen."""
Drawn = tuple[str, str, str, Figure]
"""Name, title, caption and figure."""
Rows = Sequence[tuple[str, str]]


def render(forecast: Forecast) -> str:
    """Return the page of a trip as text."""
    return _page(
        _trip_figures(forecast.prediction, forecast.soc),
        {"--predicted": PREDICTED, "--measured": MEASURED},
        headline=headline(forecast),
        trip=f"Trip {forecast.trip.name}",
        vehicle=forecast.vehicle or forecast.card.vehicle,
        columns={"": forecast.rows()},
        remarks=forecast.remarks(),
        facts=dict(sections(forecast.card)[0][1]),
    )


def render_routes(plan: RoutePlan) -> str:
    """Return the page of routes as text."""
    order = [PREDICTED, *(look for look in LOOKS.values() if look is not PREDICTED)]
    looks = [look for look, _ in zip(cycle(order), plan.routes, strict=False)]
    best = min(plan.routes, key=lambda planned: planned.forecast.total_wh)
    return _page(
        _route_figures(plan.routes, looks),
        {f"--route-{number}": look for number, look in enumerate(looks)},
        headline=_unbroken(f"{best.name}: {best.answer()}"),
        trip="Routes",
        vehicle=plan.model.vehicle or "an unseen vehicle",
        columns={planned.name: planned.rows() for planned in plan.routes},
        remarks=plan.remarks(),
        facts=_route_facts(plan),
    )


def headline(forecast: Forecast) -> str:
    """Return the answer, and on a recorded trip how far off it was."""
    sentence = forecast.answer()
    error = forecast.prediction.relative_error
    if error is not None and forecast.reach is None:
        sign = "more" if error > 0 else "less"
        off = f"{abs(error):.0%} {sign} than measured"
        sentence += ", as measured" if abs(error) < 0.005 else f", {off}"
    return _unbroken(sentence)


def _unbroken(sentence: str) -> str:
    """Return a sentence in which a number stays with its unit."""
    return re.sub(r"(?<=\d) (?=(?:Wh|km|kWh|%)\b|%)", "\u00a0", sentence)


def _route_facts(plan: RoutePlan) -> dict[str, str]:
    model = plan.model
    trips = f"{model.trips:,} trips of its own" if model.trips else "no trips of its own"
    return {
        "Learned from": f"{model.fleet_vehicles:,} vehicles and {trips}",
        "Mass": f"{model.mass_kg:,.0f} kg",
        "Outside": ", ".join(sorted({f"{planned.temperature_c:g} °C" for planned in plan.routes})),
        "Known way": ", ".join(f"{planned.forecast.known:.0%}" for planned in plan.routes),
        "Known climb": ", ".join(f"{planned.forecast.hilly:.0%}" for planned in plan.routes),
    }


def _page(
    figures: Iterable[Drawn],
    looks: Mapping[str, Look],
    *,
    columns: Mapping[str, Rows],
    **values: Any,
) -> str:
    """Return a page with a column of numbers per alternative, `looks` by their CSS variable."""
    colours = COLOURS | {look.colour: variable for variable, look in looks.items()}
    rows = [
        {"name": cells[0][0], "values": [value for _, value in cells]}
        for cells in zip(*columns.values(), strict=True)
    ]
    return fill(
        "fedwatt.edge",
        "trip.html.jinja",
        figures=[
            {"title": title, "caption": caption, "svg": inline(saved(figure), name, title, colours)}
            for name, title, caption, figure in figures
        ],
        light={variable: look.colour for variable, look in looks.items()},
        dark={variable: look.dark for variable, look in looks.items()},
        table={"names": list(columns), "rows": rows},
        **values,
    )


@styled
def _figure(
    along: str, unit: str, ticks: Locator, draw: Callable[[Axes], None], *, legend: bool = True
) -> Figure:
    """Return a figure over minutes or kilometres; its legend names what has a label."""
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN))
    axes = figure.add_subplot()
    axes.set_xlabel(along)
    axes.set_ylabel(unit)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(ticks)
    draw(axes)
    if legend and axes.get_legend_handles_labels()[0]:
        figure.legend(loc="outside upper left", ncols=3)
    return figure


def _trip_figures(prediction: TripPrediction, charge: FloatArray | None) -> list[Drawn]:
    """Speed, height where climb is known, power, energy and a `charge` [seconds] (0 to 1)."""
    power = "Power from the pack, from windows of a minute; below zero the vehicle charges itself."
    drawn = [
        ("speed", "Speed", "Speed of the vehicle.", "km/h", _speed),
        ("power", "Power", power, "kW", _power),
        ("energy", "Energy since the trip began", _band_caption(prediction), "Wh", _energy),
    ]
    if all(name in prediction.trip.channels for name in CLIMB):
        caption = "Climb less descent, as the model reads it; level where it is not known."
        drawn.insert(1, ("height", "Height since the trip began", caption, "m", _height))
    if charge is not None:
        draw = partial(_charge, charge)
        drawn.append(("charge", "State of charge", "Charge of the pack.", "%", draw))
    return [
        (name, title, caption, _trip_figure(prediction, unit, draw))
        for name, title, caption, unit, draw in drawn
    ]


def energy_figure(prediction: TripPrediction) -> Figure:
    """Return energy since the trip began with its interval, Wh."""
    return _trip_figure(prediction, "Wh", _energy)


def _trip_figure(
    prediction: TripPrediction, unit: str, draw: Callable[[TripPrediction, Axes], None]
) -> Figure:
    ticks = MaxNLocator(8, steps=[1, 2, 5, 10], integer=True)
    return _figure("minutes", unit, ticks, partial(draw, prediction))


def _speed(prediction: TripPrediction, axes: Axes) -> None:
    _area(axes, prediction.trip.channels["speed_mps"] * 3.6, 0)
    axes.set_ylim(bottom=0)


def _height(prediction: TripPrediction, axes: Axes) -> None:
    climb, descent = (prediction.trip.channels[name] for name in CLIMB)
    height = np.cumsum(climb - descent)
    _area(axes, height, height.min())


def _area(axes: Axes, values: FloatArray, bottom: float) -> None:
    minutes = _minutes(len(values))
    axes.fill_between(minutes, values, bottom, color=MUTED, alpha=0.25, linewidth=0)
    axes.plot(minutes, values, color=MUTED, linewidth=1.1)


def _band_caption(prediction: TripPrediction) -> str:
    if prediction.interval_wh is None:
        return "The model has no prediction intervals: export it with the vehicle's folder."
    if prediction.climb_known is not None and 0 < prediction.climb_known.mean() < 1:
        return (
            "The band lies between those with and without known climb, by the time that climb was "
            "known: a guide, and not a promise."
        )
    return f"The band holds the measured energy in {prediction.level:.0%} of trips as long as this."


def _power(prediction: TripPrediction, axes: Axes) -> None:
    """Draw predicted power, and the measured one as a perfect model would predict it, kW."""
    lines = {"predicted": (prediction.predicted_wh, PREDICTED)}
    if prediction.measured_wh is not None:
        seconds = prediction.trip.seconds
        window = seconds - len(prediction.windows_wh) + 1
        windows_wh = exact_windows(prediction.measured_wh, window=window)
        smooth = energy_by_second(windows_wh, seconds, window=window)
        lines = {"measured": (smooth, MEASURED)} | lines
    for label, (energy_wh, look) in lines.items():
        power_kw = energy_wh * SECONDS_PER_HOUR / 1000
        axes.plot(_minutes(len(power_kw)), power_kw, color=look.colour, label=label)
    axes.axhline(0, color=MUTED, linewidth=0.8)


def _energy(prediction: TripPrediction, axes: Axes) -> None:
    minutes = _minutes(prediction.trip.seconds)
    lines = {"predicted": (prediction.predicted_wh, PREDICTED)}
    if prediction.measured_wh is not None:
        lines = {"measured": (prediction.measured_wh, MEASURED)} | lines
    for label, (energy_wh, look) in lines.items():
        axes.plot(minutes, np.cumsum(energy_wh), color=look.colour, label=label)
    if prediction.interval_wh is not None:
        band = axes.fill_between(
            minutes, prediction.low_wh, prediction.high_wh, alpha=0.16, linewidth=0
        )
        band.set(color=PREDICTED.colour, label=f"{prediction.level:.0%} interval")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _charge(charge: FloatArray, prediction: TripPrediction, axes: Axes) -> None:
    axes.plot(_minutes(len(charge)), 100 * charge, color=PREDICTED.colour)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _minutes(seconds: int) -> FloatArray:
    return np.arange(1, seconds + 1) / 60


def _route_figures(routes: Sequence[PlannedRoute], looks: Sequence[Look]) -> list[Drawn]:
    """Height, speed, energy and charge along the way."""
    drawn = [
        (
            "speed",
            "Expected speed",
            "As the fleet drives there, stops included.",
            "km/h",
            _mean_kmh,
        ),
        ("energy", "Energy since the start", "The band holds 90 % of cases.", "kWh", _energy_band),
    ]
    if any(planned.forecast.hilly for planned in routes):
        caption = "Level where no climb is known."
        drawn.insert(0, ("height", "Height above the start", caption, "m", _height_m))
    if all(planned.arrival is not None for planned in routes):
        caption = "The band holds 90 % of cases; below zero the charge does not suffice."
        drawn.append(("charge", "State of charge", caption, "%", _charge_band))
    figures = []
    for name, title, caption, unit, lines in drawn:

        def draw(axes: Axes, lines: Callable[[PlannedRoute], FloatArray] = lines) -> None:
            for planned, look in zip(routes, looks, strict=True):
                _along(axes, planned, look, lines(planned))

        figure = _figure("km", unit, MaxNLocator(8), draw, legend=len(routes) > 1)
        figures.append((name, title, caption, figure))
    return figures


def _along(axes: Axes, planned: PlannedRoute, look: Look, lines: FloatArray) -> None:
    """Draw a line [points, 1], or one with its band [points, 3], as fine as a screen shows."""
    steps = len(lines)
    at = np.unique(np.linspace(0, steps - 1, min(steps, MOST_POINTS)).astype(np.int64))
    kilometres = planned.forecast.metres[at] / 1000
    middle, *band = lines[at].T
    if band:
        axes.fill_between(kilometres, *band, color=look.colour, alpha=0.16, linewidth=0)
    axes.plot(kilometres, middle, color=look.colour, label=planned.name)


def _height_m(planned: PlannedRoute) -> FloatArray:
    return planned.forecast.height_m[:, None]


def _mean_kmh(planned: PlannedRoute) -> FloatArray:
    forecast = planned.forecast
    # Over 400 m: of a single step the mean speed is mostly whether somebody stopped there.
    steps = min(max(round(400 / forecast.route.step_m), 1), len(forecast.seconds))
    seconds = np.concatenate([np.zeros(steps), forecast.seconds])
    metres = np.concatenate([np.zeros(steps), forecast.metres])
    mean = (metres[steps:] - metres[:-steps]) / np.maximum(seconds[steps:] - seconds[:-steps], 1e-9)
    return np.asarray(np.minimum(3.6 * mean, 200.0)[:, None])


def _energy_band(planned: PlannedRoute) -> FloatArray:
    forecast = planned.forecast
    return np.column_stack(
        [forecast.energy_wh / 1000, *interval(forecast.energy_levels_wh / 1000, 0.9)]
    )


def _charge_band(planned: PlannedRoute) -> FloatArray:
    arrival = planned.arrival
    assert arrival is not None
    return 100 * np.column_stack([arrival.along, *interval(arrival.levels_along, 0.9)])
