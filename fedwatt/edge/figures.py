"""The figures of a trip: speed, height, power, energy since it began, charge."""

from collections.abc import Callable
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, StrMethodFormatter

from fedwatt.edge.drive_page import Drawn, drive_figure
from fedwatt.edge.trips import SECONDS_PER_HOUR, TripPrediction
from fedwatt.journeys.totals import energy_by_second, exact_windows
from fedwatt.report.style import LOOKS, MUTED
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.features import CLIMB

PREDICTED = LOOKS["fo-ri-fedavg"]
MEASURED = LOOKS["fedavg"]
Draw = Callable[[TripPrediction, Axes], None]


def trip_figures(prediction: TripPrediction, charge: FloatArray | None = None) -> list[Drawn]:
    """Speed, height where climb is known, power, energy and a `charge` [seconds] (0 to 1)."""
    about_power = "Mean power over one minute; below zero the battery is charged."
    drawn: list[tuple[str, str, str, str, Draw]] = [
        ("speed", "Speed", "Speed of the vehicle.", "km/h", _speed),
        ("power", "Power", about_power, "kW", _power),
        ("energy", "Energy since the trip began", _about_band(prediction), "Wh", _energy),
    ]
    if all(name in prediction.trip.channels for name in CLIMB):
        caption = "Climb less descent, level where climb is unknown."
        drawn.insert(1, ("height", "Height since the trip began", caption, "m", _height))
    if charge is not None:
        draw = partial(_charge, charge)
        drawn.append(("charge", "State of charge", "Charge of the pack.", "%", draw))
    return [
        (name, title, caption, _figure(prediction, unit, draw))
        for name, title, caption, unit, draw in drawn
    ]


def energy_figure(prediction: TripPrediction) -> Figure:
    """Energy since the trip began with its interval, Wh."""
    return _figure(prediction, "Wh", _energy)


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
        return "The model has no prediction intervals: export it with the vehicle's folder."
    if prediction.climb_known is not None and 0 < prediction.climb_known.mean() < 1:
        return (
            "Climb is known in part of the trip, so the band is interpolated between the intervals "
            "with and without climb and is only a guide."
        )
    return f"The band holds the energy of {100 * prediction.level:.0f} % of trips this long."


def _power(prediction: TripPrediction, axes: Axes) -> None:
    """Predicted power, and the measured one as a perfect model would predict it, kW."""
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
