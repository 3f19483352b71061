"""`fedwatt data merge`, `partition` and `spoil`: new fleets from stored ones."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.cli.data.shared import Fleet, Out, Seed, refuse_filled, say_made


def merge(
    fleets: Annotated[
        list[Path], typer.Argument(help="Two or more folders made by 'fedwatt data'.")
    ],
    out: Out,
) -> None:
    """Put fleets together; a vehicle whose name clashes gets its fleet's name before its own."""
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
        str, typer.Option(help="mild, moderate or severe skew, or dirichlet:ALPHA.")
    ] = "moderate",
    clients: Annotated[int, typer.Option(help="Clients to deal the trips to.", min=1)] = 10,
    seed: Seed = 0,
) -> None:
    """Deal a fleet's trips to new clients by driving regime, to study skewed data."""
    from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet
    from fedwatt.windows.partition import repartition

    refuse_filled(out)
    dealt = repartition(read_fleet(fleet), recipe, clients=clients, seed=seed)
    write_fleet(out, dealt, source=f"{fleet_source(fleet)}; dealt to {clients} clients, {recipe}")
    say_made(out)


def spoil(
    fleet: Fleet,
    out: Out,
    fault: Annotated[str, typer.Option(help="'label noise', 'sensor bias' or 'stuck channel'.")],
    share: Annotated[
        float, typer.Option(help="Share of vehicles to spoil.", min=0.0, max=1.0)
    ] = 0.2,
    size: Annotated[
        float, typer.Option(help="In standard deviations; for a stuck channel, share of a trip.")
    ] = 0.5,
    channel: Annotated[str, typer.Option(help="Input that is biased or stuck.")] = "speed_mps",
    seed: Seed = 0,
    split_seed: Annotated[int, typer.Option(help="data.split_seed of the runs to come.")] = 0,
    window: Annotated[int, typer.Option(help="data.window of the runs to come.", min=1)] = 60,
) -> None:
    """Spoil the training trips of some vehicles, to test how well methods cope.

    Runs on the fleet must split it the same way: same split seed and window, default shares.
    """
    from fedwatt.telemetry.store import fleet_source, read_fleet, write_fleet
    from fedwatt.windows import DataSettings
    from fedwatt.windows.faults import Fault, spoil_some

    refuse_filled(out)
    wrong = Fault(kind=fault, size=size, channel=channel)
    settings = DataSettings(split_seed=split_seed, window=window)
    vehicles = spoil_some(read_fleet(fleet), share, wrong, settings, seed)
    write_fleet(out, vehicles, source=f"{fleet_source(fleet)}; {share:.0%} with {fault}")
    say_made(out)
