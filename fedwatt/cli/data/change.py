"""`fedwatt data merge` and `describe`: stored fleets."""

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import Json, console, print_table
from fedwatt.cli.data.shared import Fleet, Out, refuse_filled, say_made

if TYPE_CHECKING:
    from fedwatt.telemetry import Vehicle

COLUMNS = ("vehicle", "labels", "trips", "hours", "km", "kWh", "Wh/km")


def merge(
    fleets: Annotated[
        list[Path], typer.Argument(help="Read two or more folders made by 'fedwatt data'.")
    ],
    out: Out,
) -> None:
    """Merge fleets; names that clash get the fleet's name in front."""
    from fedwatt.telemetry.store import merge_fleets

    refuse_filled(out)
    with console.status("Merging ..."):
        sentences = merge_fleets(fleets, out)
    for sentence in sentences:
        console.print(sentence)
    say_made(out)


def describe(
    fleet: Fleet,
    as_json: Json = False,
) -> None:
    """Summarise a fleet: vehicles, trips, energy, and what cleaning left out."""
    from fedwatt.telemetry.cleaning.account import Account
    from fedwatt.telemetry.store import fleet_source, read_fleet
    from fedwatt.windows import DataSettings

    window = DataSettings().window
    rows = []
    account = Account()
    for vehicle in read_fleet(fleet):
        rows.append(_row(vehicle, window))
        account += Account.from_json(vehicle.facts.get("account", {}))
    headings = (*COLUMNS, f"{window} s windows")
    print_table(fleet_source(fleet), headings, rows, as_json=as_json)
    if account.entries and not as_json:
        console.print("\n".join(account.sentences()))


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
