"""`fedwatt data`: make fleets and look at them."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import console
from fedwatt.errors import SettingError
from fedwatt.fleet import DataSettings, synthetic_vehicles
from fedwatt.fleet.store import load_fleet, read_fleet, write_fleet

app = typer.Typer(help="Make fleets and look at them.", no_args_is_help=True)


@app.command()
def synth(
    out: Annotated[Path, typer.Option(help="Folder of the new fleet.")],
    vehicles: Annotated[int, typer.Option(help="How many vehicles.", min=1)] = 20,
    seed: Annotated[int, typer.Option(help="Another seed, another town and fleet.")] = 0,
    trips: Annotated[int, typer.Option(help="Trips of each vehicle.", min=3)] = 40,
) -> None:
    """Make a synthetic fleet: one folder a vehicle, trips at 1 Hz with energy from physics."""
    if out.exists() and any(out.iterdir()):
        raise SettingError(f"{out} is not empty. Choose another --out or remove it first.")
    made = synthetic_vehicles(vehicles, seed, trips=trips)
    with console.status("Driving ..."):
        write_fleet(out, made, source=f"synthetic fleet, seed {seed}")
    console.print(f"{vehicles} vehicles in {out}. Train on them with: fedwatt run --data {out}")


@app.command()
def describe(
    fleet: Annotated[Path, typer.Argument(help="Folder made by 'fedwatt data'.")],
) -> None:
    """Summarise a fleet: vehicles, trips, hours, energy, windows."""
    windows = {c.name: len(c.ends["train"]) for c in load_fleet(fleet, DataSettings()).clients}
    table = Table(title=f"{fleet}")
    for i, name in enumerate(
        ("vehicle", "kind", "labels", "trips", "hours", "km", "kWh", "Wh/km", "training windows")
    ):
        table.add_column(name, justify="left" if i < 3 else "right")
    for vehicle in read_fleet(fleet):
        seconds = sum(len(trip.channels["energy_wh"]) for trip in vehicle.trips)
        km = sum(trip.channels["speed_mps"].sum() for trip in vehicle.trips) / 1000
        wh = sum(trip.channels["energy_wh"].sum() for trip in vehicle.trips)
        table.add_row(
            vehicle.name,
            vehicle.kind,
            vehicle.labels,
            str(len(vehicle.trips)),
            f"{seconds / 3600:.1f}",
            f"{km:.0f}",
            f"{wh / 1000:.1f}",
            f"{wh / km:.0f}" if km else "–",
            f"{windows[vehicle.name]:,}",
        )
    console.print(table)
