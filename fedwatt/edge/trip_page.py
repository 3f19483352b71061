"""Common parts of the trip and route pages: a map, figures along the route, and the page."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import Locator, MaxNLocator, StrMethodFormatter

from fedwatt.edge.card import sections
from fedwatt.edge.route_forecast import spread_text
from fedwatt.edge.trips import SECONDS_PER_HOUR, Forecast, RangeEstimate, TripPrediction
from fedwatt.journeys.totals import energy_by_second, exact_windows
from fedwatt.report.page import fill, inline, saved
from fedwatt.report.style import GRID, INK, LOOKS, MUTED, PAPER, WIDTH_IN, Look, styled
from fedwatt.telemetry.channels import POSITION
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.features import CLIMB

HEIGHT_IN = 2.35
COLOURS = {INK: "--ink", MUTED: "--muted", GRID: "--grid", PAPER: "--paper"}
Drawn = tuple[str, str, str, Figure]
"""Name, title, caption and figure."""


@styled
def drive_figure(
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


@dataclass(frozen=True, eq=False)
class MapLine:
    """The positions of a route, [points], with energy and distance since the start at each."""

    name: str
    latitude_deg: FloatArray
    longitude_deg: FloatArray
    energy_wh: FloatArray
    metres: FloatArray


KM_PER_DEGREE = 111.2
PIECES = 250
SHORTEST_PIECE_M = 150.0
"""Length below which energy per kilometre is mostly that of one stop or one start."""
MAP_HEIGHTS_IN = (1.5, 3.6)
LOW_TO_HIGH = LinearSegmentedColormap.from_list("use", ("#3a86c8", "#2fae7c", "#d9a21b", "#d6492f"))
"""Colours that stand out from a light and from a dark page."""


@styled
def route_map(moved: Sequence[MapLine]) -> Figure:
    """Draw routes north up, coloured by energy per kilometre.

    It is made of the positions alone: street tiles would tell a map server where somebody drives.
    """
    origin = (moved[0].latitude_deg[0], moved[0].longitude_deg[0])
    points = [_kilometres(line, *origin) for line in moved]
    corners = np.concatenate(points)
    span = np.maximum(np.ptp(corners, axis=0), 0.1)
    height = float(np.clip(WIDTH_IN * span[1] / span[0], *MAP_HEIGHTS_IN))
    figure = Figure(figsize=(WIDTH_IN, height + 0.75))
    axes = figure.add_subplot()
    axes.set(aspect="equal", adjustable="datalim")
    axes.set_axis_off()
    pieces = [_pieces(line) for line in moved]
    use = np.concatenate([per_km for _, per_km in pieces])
    scale = Normalize(*np.quantile(use, [0.05, 0.95]))
    for line, positions, (cuts, per_km) in zip(moved, points, pieces, strict=True):
        strokes = [positions[a : b + 1] for a, b in pairwise(cuts)]
        drawn = LineCollection(strokes, cmap=LOW_TO_HIGH, norm=scale, linewidths=3.2)
        drawn.set_array(per_km)
        drawn.set_capstyle("round")
        axes.add_collection(drawn)
        _mark(axes, positions[0], positions[cuts[1]], "start")
        arrival = line.name if len(moved) > 1 else "arrival"
        _mark(axes, positions[-1], positions[cuts[-2]], arrival)
    axes.margins(0.12)
    axes.autoscale_view()
    bar = figure.colorbar(
        ScalarMappable(scale, LOW_TO_HIGH),
        ax=axes,
        location="bottom",
        shrink=0.7,
        aspect=40,
        pad=0.03,
        label="Wh/km",
    )
    bar.outline.set_visible(False)
    return figure


def _kilometres(line: MapLine, latitude_deg: float, longitude_deg: float) -> FloatArray:
    """Return kilometres east and north of a place, [points, 2]."""
    east = (line.longitude_deg - longitude_deg) * np.cos(np.radians(latitude_deg))
    return KM_PER_DEGREE * np.stack([east, line.latitude_deg - latitude_deg], axis=1)


def _pieces(line: MapLine) -> tuple[np.ndarray, FloatArray]:
    """Return the points at which a route is cut, and the Wh/km of each piece."""
    length = line.metres[-1] - line.metres[0]
    count = int(np.clip(length / SHORTEST_PIECE_M, 1, PIECES))
    ends = line.metres[0] + np.linspace(0, length, count + 1)
    cuts = np.unique(np.searchsorted(line.metres, ends).clip(0, len(line.metres) - 1))
    energy = np.diff(line.energy_wh[cuts])
    return cuts, 1000 * energy / np.maximum(np.diff(line.metres[cuts]), 1.0)


def _mark(axes: Axes, place: FloatArray, beside: FloatArray, name: str) -> None:
    """Mark an end of a route, with its name away from `beside`, the next point."""
    axes.plot(*place, "o", color=INK, markersize=5, zorder=4)
    left = beside[0] > place[0]
    offset = (-6 if left else 6, -11 if beside[1] > place[1] else 5)
    text = axes.annotate(name, tuple(place), xytext=offset, textcoords="offset points")
    text.set(color=INK, ha="right" if left else "left")


def map_drawn(lines: Iterable[MapLine]) -> list[Drawn]:
    """Return the map as the first figure of a page; empty without positions that move."""
    moved = [line for line in lines if line.metres[-1] - line.metres[0] >= 2 * SHORTEST_PIECE_M]
    if not moved:
        return []
    figure = route_map(moved)
    caption = "Drawn north up from the positions alone; nothing is loaded from a map server."
    return [("map", "Energy along the route", caption, figure)]


def score(name: str, value: str, unit: str, remark: str, colour: str) -> dict[str, str]:
    """Return a number in large type: what it is, the CSS variable of its colour, and a remark."""
    return {"name": name, "value": value, "unit": unit, "remark": remark, "colour": colour}


def drive_page(figures: Iterable[Drawn], looks: Mapping[str, Look], **values: Any) -> str:
    """Return the page of a trip as HTML; `looks` maps CSS variables to light and dark colours."""
    colours = COLOURS | {look.colour: variable for variable, look in looks.items()}
    return fill(
        "fedwatt.edge",
        "trip.html.jinja",
        figures=[
            {
                "name": name,
                "title": title,
                "caption": caption,
                "svg": inline(saved(figure), name, title, colours),
                "tall": figure.get_figheight() > HEIGHT_IN + 1,
            }
            for name, title, caption, figure in figures
        ],
        light={variable: look.colour for variable, look in looks.items()},
        dark={variable: look.dark for variable, look in looks.items()},
        **values,
    )


PREDICTED = LOOKS["fo-ri-fedavg"]
MEASURED = LOOKS["fedavg"]
Draw = Callable[[TripPrediction, Axes], None]


def trip_figures(prediction: TripPrediction, charge: FloatArray | None = None) -> list[Drawn]:
    """Return figures of speed, elevation where known, power, energy and state of charge."""
    window = prediction.trip.seconds - len(prediction.windows_wh) + 1
    about_power = f"Mean power over {window} s; below zero the battery is charged."
    drawn: list[tuple[str, str, str, str, Draw]] = [
        ("speed", "Speed", "Speed of the vehicle.", "km/h", _speed),
        ("power", "Power", about_power, "kW", _power),
        ("energy", "Energy since the trip began", _about_band(prediction), "Wh", _energy),
    ]
    if all(name in prediction.trip.channels for name in CLIMB):
        caption = "Level where no climb is known."
        drawn.insert(1, ("height", "Elevation above the start", caption, "m", _height))
    if charge is not None:
        draw = partial(_charge, charge)
        drawn.append(("charge", "State of charge", "Charge of the pack.", "%", draw))
    return [
        (name, title, caption, _figure(prediction, unit, draw))
        for name, title, caption, unit, draw in drawn
    ]


def _figure(prediction: TripPrediction, unit: str, draw: Draw) -> Figure:
    ticks = MaxNLocator(8, steps=[1, 2, 5, 10], integer=True)
    return drive_figure("minutes", unit, ticks, partial(draw, prediction))


def _speed(prediction: TripPrediction, axes: Axes) -> None:
    speed = prediction.trip.channels["speed_mps"] * 3.6
    _area(axes, speed, 0)
    axes.set_ylim(bottom=0)


def _height(prediction: TripPrediction, axes: Axes) -> None:
    climb, descent = (prediction.trip.channels[name] for name in CLIMB)
    height = np.cumsum(climb - descent)
    _area(axes, height, height.min())


def _area(axes: Axes, values: FloatArray, bottom: float) -> None:
    minutes = _minutes(len(values))
    axes.fill_between(minutes, values, bottom, color=MUTED, alpha=0.25, linewidth=0)
    axes.plot(minutes, values, color=MUTED, linewidth=1.1)


def _about_band(prediction: TripPrediction) -> str:
    if prediction.interval_wh is None:
        return "Predicted without an interval."
    if prediction.climb_known is not None and 0 < prediction.climb_known.mean() < 1:
        return (
            "Climb is known in part of the trip, so the band is interpolated between the intervals "
            "with and without climb and is only a guide."
        )
    return f"The band holds the energy of {100 * prediction.level:.0f} % of trips this long."


def _power(prediction: TripPrediction, axes: Axes) -> None:
    """Draw predicted power, and measured power averaged over windows, kW."""
    lines = {"predicted": (prediction.predicted_wh, PREDICTED)}
    if prediction.measured_wh is not None:
        seconds = prediction.trip.seconds
        window = prediction.trip.seconds - len(prediction.windows_wh) + 1
        windows_wh = exact_windows(prediction.measured_wh, window=window)
        smooth = energy_by_second(windows_wh, seconds, window=window)
        lines = {"measured": (smooth, MEASURED)} | lines
    for label, (energy_wh, look) in lines.items():
        power_kw = energy_wh * SECONDS_PER_HOUR / 1000
        axes.plot(_minutes(len(power_kw)), power_kw, color=look.colour, label=label)
    axes.axhline(0, color=MUTED, linewidth=0.8)


def _energy(prediction: TripPrediction, axes: Axes) -> None:
    minutes = _minutes(prediction.trip.seconds)
    if prediction.measured_wh is not None:
        axes.plot(
            minutes, np.cumsum(prediction.measured_wh), color=MEASURED.colour, label="measured"
        )
    axes.plot(
        minutes, np.cumsum(prediction.predicted_wh), color=PREDICTED.colour, label="predicted"
    )
    if prediction.interval_wh is not None:
        band = axes.fill_between(
            minutes, prediction.low_wh, prediction.high_wh, alpha=0.16, linewidth=0
        )
        band.set(color=PREDICTED.colour, label=f"{100 * prediction.level:.0f} % interval")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _charge(charge: FloatArray, prediction: TripPrediction, axes: Axes) -> None:
    axes.plot(_minutes(len(charge)), 100 * charge, color=PREDICTED.colour)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))


def _minutes(seconds: int) -> FloatArray:
    return np.arange(1, seconds + 1) / 60


def render(forecast: Forecast) -> str:
    """Return the page as text."""
    prediction = forecast.prediction
    card = forecast.card
    reach = forecast.reach
    return drive_page(
        [*map_drawn(_map_line(forecast)), *trip_figures(prediction, forecast.soc)],
        {"--predicted": PREDICTED, "--measured": MEASURED},
        headline=headline(forecast),
        scores=scores(prediction, reach, card.role_of(prediction.trip.name, forecast.vehicle)),
        trip=f"Trip {prediction.trip.name}",
        vehicle=forecast.vehicle or card.vehicle,
        table=None,
        remarks=forecast.remarks(),
        facts=dict(sections(card)[0][1]),
    )


def _map_line(forecast: Forecast) -> list[MapLine]:
    """Return the trip with its energy, for the map; empty without positions."""
    channels = forecast.trip.channels
    if any(name not in channels for name in POSITION):
        return []
    latitude_deg, longitude_deg = (channels[name] for name in POSITION)
    placed = np.isfinite(latitude_deg) & np.isfinite(longitude_deg)
    if not placed.any():
        return []
    energy_wh = np.cumsum(forecast.prediction.predicted_wh)
    metres = np.cumsum(channels["speed_mps"])
    columns = (latitude_deg, longitude_deg, energy_wh, metres)
    return [MapLine(forecast.trip.name, *(column[placed] for column in columns))]


def headline(forecast: Forecast) -> str:
    """Return the answer, and on a recorded trip how far off it was."""
    sentence = forecast.answer()
    error = forecast.prediction.relative_error
    if error is not None and forecast.reach is None:
        sign = "more" if error > 0 else "less"
        off = f"{abs(error):.0%} {sign} than measured"
        sentence += ", as measured" if abs(error) < 0.005 else f", {off}"
    return keep_units(sentence)


def keep_units(sentence: str) -> str:
    """Return the sentence with non-breaking spaces between numbers and their units."""
    return re.sub(r"(?<=\d) (?=(?:Wh|km|kWh|%)\b|%)", "\u00a0", sentence)


def scores(
    prediction: TripPrediction, reach: RangeEstimate | None, role: str = ""
) -> list[dict[str, str]]:
    """Return the headline numbers of a trip page, each with title, value, unit, remark and colour.

    `role` is the trip's split (`ModelCard.role_of`).
    """
    interval = prediction.interval_wh
    measured = prediction.measured_total_wh
    remark = "no prediction interval"
    if interval is not None:
        remark = f"{spread_text(*interval, 'Wh')} in {100 * prediction.level:.0f} % of trips"
    made = [score("Predicted", f"{prediction.total_wh:,.0f}", "Wh", remark, "--predicted")]
    if measured is not None:
        remark = "at the pack"
        if interval is not None:
            inside = interval[0] <= measured <= interval[1]
            remark = f"{'inside' if inside else 'outside'} the interval"
        if role:
            remark += f"; a {role} trip, so no test"
        made.append(score("Measured", f"{measured:,.0f}", "Wh", remark, "--measured"))
    per_km = (
        f"{prediction.total_wh / prediction.kilometres:,.0f}" if prediction.kilometres > 0 else "–"
    )
    minutes = prediction.trip.seconds / 60
    made.append(score("Consumption", per_km, "Wh/km", f"{minutes:.0f} minutes", "--muted"))
    climb_known = prediction.climb_known
    if climb_known is not None and not climb_known.all():
        unknown = len(climb_known) - int(climb_known.sum())
        remark = f"unknown in {unknown:,} of {len(climb_known):,} windows"
        made.append(score("Climb known", f"{100 * climb_known.mean():.0f}", "%", remark, "--muted"))
    return made if reach is None else [_soc_score(prediction, reach), *made]


def _soc_score(prediction: TripPrediction, reach: RangeEstimate) -> dict[str, str]:
    remark = f"{reach.remaining_km:,.0f} km left after it"
    if not reach.reaches:
        remark = f"the battery is empty after {reach.range_km:,.1f} km"
    if prediction.interval_wh is not None:
        low = 100 * max(reach.arrival_low, 0)
        high = 100 * max(reach.arrival_high, 0)
        remark = (
            f"{spread_text(low, high, '%')} in {100 * prediction.level:.0f} % of trips; {remark}"
        )
    arrival = f"{100 * max(reach.arrival, 0):.0f}"
    return score("SoC on arrival", arrival, "%", remark, "--accent")
