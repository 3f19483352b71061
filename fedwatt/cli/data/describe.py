"""`fedwatt data describe`: a stored fleet in a table and a figure."""

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console, write_figure
from fedwatt.cli.data.shared import Fleet

if TYPE_CHECKING:
    from fedwatt.telemetry import Vehicle

COLUMNS = ("vehicle", "labels", "trips", "hours", "km", "kWh", "Wh/km")


def describe(
    fleet: Fleet,
    plot: Annotated[Path | None, typer.Option(help="Draw the fleet into this SVG file.")] = None,
) -> None:
    """Summarise a fleet: vehicles, trips, hours, energy, windows, and what cleaning left out."""
    from fedwatt.telemetry.cleaning.account import Account
    from fedwatt.telemetry.store import fleet_source, read_fleet
    from fedwatt.windows import DataSettings

    window = DataSettings().window
    table = Table(title=fleet_source(fleet), title_justify="left")
    for i, name in enumerate((*COLUMNS, f"{window} s windows")):
        table.add_column(name, justify="left" if i < 2 else "right")
    account = Account()
    for vehicle in read_fleet(fleet):
        table.add_row(*_row(vehicle, window))
        account += Account.from_json(vehicle.facts.get("account", {}))
    console.print(table)
    if account.entries:
        console.print("\n".join(account.sentences()))
    if plot is not None:
        from fedwatt.report.figures.fleet import fleet_facts, fleet_figure

        write_figure(plot, fleet_figure(fleet_facts(read_fleet(fleet))))


def _row(vehicle: "Vehicle", window: int) -> tuple[str, ...]:
    km = sum(trip.channels["speed_mps"].sum() for trip in vehicle.trips) / 1000
    recorded = [trip.channels.get("energy_wh") for trip in vehicle.trips]
    wh = sum(float("nan") if energy is None else energy.sum() for energy in recorded)
    # Every second that can end a window, whatever features, splits and strides a run chooses.
    windows = sum(max(trip.seconds - window + 1, 0) for trip in vehicle.trips)
    name = vehicle.name if vehicle.kind == "passenger" else f"{vehicle.name} ({vehicle.kind})"
    return (
        name,
        vehicle.labels,
        str(len(vehicle.trips)),
        f"{sum(trip.seconds for trip in vehicle.trips) / 3600:.1f}",
        f"{km:.0f}",
        "–" if isnan(wh) else f"{wh / 1000:.1f}",
        f"{wh / km:.0f}" if km and not isnan(wh) else "–",
        f"{windows:,}",
    )
