"""A stored fleet at a glance: how it drives, what it uses, and what cleaning left out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fedwatt.report.style import MUTED, WIDTH_IN, horizontal, styled
from fedwatt.telemetry import Vehicle

COLOUR = "#0072b2"


@dataclass(frozen=True)
class FleetFacts:
    """Sums over a fleet, from which its figure is drawn."""

    speed_kmh: NDArray[np.float64]
    """Of every second."""
    trip_km: NDArray[np.float64]
    trip_minutes: NDArray[np.float64]
    trip_wh_per_km: NDArray[np.float64]
    """Of trips of at least 1 km whose energy is recorded."""
    dropped_rows: dict[str, int]
    """By reason, from the vehicles' accounts; empty for a synthetic fleet."""


def fleet_facts(vehicles: Iterable[Vehicle]) -> FleetFacts:
    """Gather what the figure shows, one vehicle at a time."""
    speed: list[NDArray[np.float64]] = []
    km = []
    minutes = []
    use = []
    dropped: dict[str, int] = {}
    for vehicle in vehicles:
        for trip in vehicle.trips:
            speed.append(trip.channels["speed_mps"] * 3.6)
            km.append(float(trip.channels["speed_mps"].sum()) / 1000)
            minutes.append(trip.seconds / 60)
            if km[-1] >= 1 and "energy_wh" in trip.channels:
                use.append(float(trip.channels["energy_wh"].sum()) / km[-1])
        account: Any = vehicle.facts.get("account", {})
        for reason, rows in account.get("dropped", {}).get("rows", {}).items():
            dropped[reason] = dropped.get(reason, 0) + rows
    return FleetFacts(
        np.concatenate(speed), np.array(km), np.array(minutes), np.array(use), dropped
    )


@styled
def fleet_figure(facts: FleetFacts) -> Figure:
    """Draw four histograms, and dropped rows by reason where cleaning dropped any."""
    rows = 3 if facts.dropped_rows else 2
    figure = Figure(figsize=(1.6 * WIDTH_IN, 2.1 * rows))
    grid = figure.add_gridspec(rows, 2)
    panels = [
        ("Speed, km/h (share of seconds)", facts.speed_kmh),
        ("Trip length, km (share of trips)", facts.trip_km),
        ("Trip duration, minutes (share of trips)", facts.trip_minutes),
        ("Energy, Wh/km (share of trips over 1 km)", facts.trip_wh_per_km),
    ]
    for i, (title, values) in enumerate(panels):
        axes = figure.add_subplot(grid[i // 2, i % 2])
        low, high = np.quantile(values, [0.005, 0.995]) if len(values) else (0.0, 1.0)
        drawn = values[(values >= low) & (values <= high)]
        share = np.full(len(drawn), 100 / max(len(values), 1))
        axes.hist(drawn, bins=40, weights=share, color=COLOUR)
        axes.set_title(title)
        axes.set_ylabel("%")
    if facts.dropped_rows:
        axes = figure.add_subplot(grid[2, :])
        reasons = sorted(facts.dropped_rows.items(), key=lambda item: item[1])[-6:]
        axes.barh([reason for reason, _ in reasons], [rows for _, rows in reasons], color=MUTED)
        axes.set_title("Rows left out by cleaning")
        horizontal(axes)
    return figure
