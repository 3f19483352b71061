"""`fedwatt data merge`, `partition` and `corrupt`: new fleets from stored ones."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.cli.data.shared import Fleet, Out, Seed, refuse_filled, say_made


def merge(
    fleets: Annotated[list[Path], typer.Argument(help="Folders of two or more fleets.")],
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
        str, typer.Option(help="Skew: mild, moderate, severe or dirichlet:ALPHA.")
    ] = "moderate",
    clients: Annotated[int, typer.Option(help="Number of clients.", min=1)] = 10,
    seed: Seed = 0,
) -> None:
    """Partition a fleet's trips by driving regime, to study skewed data."""
    from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet
    from fedwatt.windows.partition import repartition

    refuse_filled(out)
    dealt = repartition(read_fleet(fleet), recipe, clients=clients, seed=seed)
    write_fleet(out, dealt, source=f"{fleet_source(fleet)}; dealt to {clients} clients, {recipe}")
    say_made(out)


def corrupt(
    fleet: Fleet,
    out: Out,
    fault: Annotated[str, typer.Option(help="Fault: label noise, sensor bias or stuck channel.")],
    share: Annotated[float, typer.Option(help="Share of vehicles.", min=0.0, max=1.0)] = 0.2,
    size: Annotated[
        float, typer.Option(help="Standard deviations; share of a trip for a stuck channel.")
    ] = 0.5,
    channel: Annotated[str, typer.Option(help="Input that is biased or stuck.")] = "speed_mps",
    seed: Seed = 0,
    split_seed: Annotated[
        int, typer.Option(help="Seed of the split of later runs (data.split_seed).")
    ] = 0,
    window: Annotated[
        int, typer.Option(help="Samples of a window of later runs (data.window).", min=1)
    ] = 60,
) -> None:
    """Corrupt training trips of some vehicles, to test methods against faults."""
    from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet
    from fedwatt.windows import DataSettings
    from fedwatt.windows.faults import Fault, spoil_some

    refuse_filled(out)
    wrong = Fault(kind=fault, size=size, channel=channel)
    settings = DataSettings(split_seed=split_seed, window=window)
    vehicles = spoil_some(read_fleet(fleet), share, wrong, settings, seed)
    write_fleet(out, vehicles, source=f"{fleet_source(fleet)}; {share:.0%} with {fault}")
    say_made(out)
