"""The figures of a trip: speed, height, power, energy since it began, charge."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from fedwatt.data.features import CLIMB
from fedwatt.edge.calibration import FloatArray
from fedwatt.edge.trips import SECONDS_PER_HOUR, TripPrediction
from fedwatt.journeys.totals import energy_by_second, exact_windows
from fedwatt.report.style import LOOKS, MUTED, WIDTH_IN, styled

PREDICTED = LOOKS["fo-ri-fedavg"]
MEASURED = LOOKS["fedavg"]
HEIGHT_IN = 2.35


@dataclass(frozen=True)
class TripFigure:
    """A figure of a trip and what to say below it."""

    name: str
    title: str
    caption: str
    figure: Figure


def trip_figures(found: TripPrediction, charge: FloatArray | None = None) -> list[TripFigure]:
    """Speed, height where climb is known, power, energy and a `charge` [seconds] (0 to 1)."""
    made = [TripFigure("speed", "Speed", "Speed of the vehicle.", speed_figure(found))]
    if all(name in found.trip.channels for name in CLIMB):
        title = "Height since the trip began"
        caption = "Climb less descent, as the model is told; level where it is not known."
        made.append(TripFigure("height", title, caption, height_figure(found)))
    caption = (
        "Power from the pack, as windows of a minute that tile the trip tell it; below zero the "
        "vehicle charges itself."
    )
    made.append(TripFigure("power", "Power", caption, power_figure(found)))
    title, caption = "Energy since the trip began", _about_band(found)
    made.append(TripFigure("energy", title, caption, energy_figure(found)))
    if charge is not None:
        title = "State of charge"
        made.append(TripFigure("charge", title, "Charge of the pack.", charge_figure(charge)))
    return made


@styled
def speed_figure(found: TripPrediction) -> Figure:
    """Speed over time, km/h."""
    figure, axes = _axes("km/h")
    speed = found.trip.channels["speed_mps"] * 3.6
    axes.fill_between(_minutes(len(speed)), speed, color=MUTED, alpha=0.25, linewidth=0)
    axes.plot(_minutes(len(speed)), speed, color=MUTED, linewidth=1.1)
    axes.set_ylim(bottom=0)
    return figure


@styled
def height_figure(found: TripPrediction) -> Figure:
    """Height above the start, m."""
    figure, axes = _axes("m")
    climb, descent = (found.trip.channels[name] for name in CLIMB)
    height = np.cumsum(climb - descent)
    minutes = _minutes(len(height))
    axes.fill_between(minutes, height, height.min(), color=MUTED, alpha=0.25, linewidth=0)
    axes.plot(minutes, height, color=MUTED, linewidth=1.1)
    return figure


def _about_band(found: TripPrediction) -> str:
    if found.interval_wh is None:
        return "The model carries no error bars: export it with the vehicle's folder."
    if found.hills is not None and 0 < found.hills.mean() < 1:
        return (
            "The band lies between those of the network with hills and of the level model, by the "
            "time that each predicted: a guide, and not a promise."
        )
    return f"The band holds the measured energy in {found.level:.0%} of trips as long as this."


@styled
def power_figure(found: TripPrediction) -> Figure:
    """Predicted power, and the measured one as a perfect model would predict it, kW."""
    figure, axes = _axes("kW")
    lines = {"predicted": (found.predicted_wh, PREDICTED)}
    if found.measured_wh is not None:
        seconds, window = found.trip.seconds, found.trip.seconds - len(found.windows_wh) + 1
        windows_wh = exact_windows(found.measured_wh, window=window)
        smooth = energy_by_second(windows_wh, seconds, window=window)
        lines = {"measured": (smooth, MEASURED)} | lines
    for label, (energy_wh, look) in lines.items():
        power_kw = energy_wh * SECONDS_PER_HOUR / 1000
        axes.plot(_minutes(len(power_kw)), power_kw, color=look.colour, label=label)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    _legend(figure)
    return figure


@styled
def energy_figure(found: TripPrediction) -> Figure:
    """Energy since the trip began with its interval, Wh."""
    figure, axes = _axes("Wh")
    minutes = _minutes(found.trip.seconds)
    if found.measured_wh is not None:
        axes.plot(minutes, np.cumsum(found.measured_wh), color=MEASURED.colour, label="measured")
    axes.plot(minutes, np.cumsum(found.predicted_wh), color=PREDICTED.colour, label="predicted")
    if found.interval_wh is not None:
        band = axes.fill_between(minutes, found.low_wh, found.high_wh, alpha=0.16, linewidth=0)
        band.set(color=PREDICTED.colour, label=f"{found.level:.0%} interval")
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    _legend(figure)
    return figure


@styled
def charge_figure(charge: FloatArray) -> Figure:
    """State of charge, %."""
    figure, axes = _axes("%")
    axes.plot(_minutes(len(charge)), 100 * charge, color=PREDICTED.colour)
    axes.yaxis.set_major_locator(MaxNLocator(6, integer=True))
    return figure


def _axes(unit: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH_IN, HEIGHT_IN))
    axes = figure.add_subplot()
    axes.set_xlabel("minutes")
    axes.set_ylabel(unit)
    axes.margins(x=0)
    axes.xaxis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10], integer=True))
    return figure, axes


def _legend(figure: Figure) -> None:
    figure.legend(loc="outside upper left", ncols=3)


def _minutes(seconds: int) -> FloatArray:
    return np.arange(1, seconds + 1) / 60
