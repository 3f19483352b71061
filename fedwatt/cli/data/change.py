"""`fedwatt data merge`, `partition`, `corrupt` and `describe`: from stored fleets."""

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import Json, console, print_table
from fedwatt.cli.data.shared import Fleet, Out, Seed, refuse_filled, say_made

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


def partition(
    fleet: Fleet,
    out: Out,
    recipe: Annotated[
        str, typer.Option(help="Skew clients: mild, moderate, severe or dirichlet:ALPHA.")
    ] = "moderate",
    clients: Annotated[int, typer.Option(help="Set the number of clients.", min=1)] = 10,
    seed: Seed = 0,
) -> None:
    """Partition a fleet's trips by driving regime, to study skewed data."""
    from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet
    from fedwatt.windows.experiments import repartition

    refuse_filled(out)
    dealt = repartition(read_fleet(fleet), recipe, clients, seed)
    write_fleet(out, dealt, source=f"{fleet_source(fleet)}; dealt to {clients} clients, {recipe}")
    say_made(out)


def corrupt(
    fleet: Fleet,
    out: Out,
    share: Annotated[
        float, typer.Option(help="Corrupt this share of the vehicles.", min=0.0, max=1.0)
    ] = 0.2,
    noise: Annotated[
        float, typer.Option(help="Set the noise of a minute's energy, in standard deviations.")
    ] = 0.5,
    seed: Seed = 0,
    split_seed: Annotated[int, typer.Option(help="Set data.split_seed of the runs to come.")] = 0,
    window: Annotated[int, typer.Option(help="Set data.window of the runs to come.", min=1)] = 60,
) -> None:
    """Add noise to the training labels of some vehicles, to test methods against it."""
    from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet
    from fedwatt.windows import DataSettings
    from fedwatt.windows.experiments import corrupt_some

    refuse_filled(out)
    settings = DataSettings(split_seed=split_seed, window=window)
    vehicles = corrupt_some(read_fleet(fleet), share, noise, settings, seed)
    write_fleet(out, vehicles, source=f"{fleet_source(fleet)}; {share:.0%} with label noise")
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
    channels: dict[str, None] = {}
    for vehicle in read_fleet(fleet):
        channels |= dict.fromkeys(name for trip in vehicle.trips for name in trip.channels)
        rows.append(_row(vehicle, window))
        account += Account.from_json(vehicle.facts.get("account", {}))
    headings = (*COLUMNS, f"{window} s windows")
    print_table(fleet_source(fleet), headings, rows, as_json=as_json)
    if as_json:
        return
    console.print(f"Channels: {', '.join(channels)}.")
    if account.entries:
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
