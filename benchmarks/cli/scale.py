"""`fedwatt bench scale`, `traffic` and `fleet`: large fleets, trained, on paper, on a server."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from benchmarks.cli.progress import progress_bar
from fedwatt.cli.console import console

if TYPE_CHECKING:
    from benchmarks.traffic import Traffic

PAPER_METHODS = ["fedavg", "scaffold", "fedadam", "fo-ri-fedavg"]


def scale(
    vehicles: Annotated[
        list[int] | None, typer.Option(help="Size of a fleet; repeat for several.", min=1)
    ] = None,
    method: Annotated[list[str] | None, typer.Option(help="Method; repeat for several.")] = None,
    participants: Annotated[int, typer.Option(help="Vehicles that train in a round.", min=1)] = 100,
    trips: Annotated[int, typer.Option(help="Trips of a synthetic vehicle.", min=3)] = 10,
    rounds: Annotated[int, typer.Option(help="Rounds; medians are shown.", min=1)] = 9,
) -> None:
    """Time and memory of a round for fleets of very different size, as many participants in each.

    With the default sizes, 100, 1,000 and 10,000 vehicles, most of the time goes into making the
    vehicles: about six minutes on one core.
    """
    from benchmarks.fleet_sizes import as_rows, bench_scale
    from fedwatt.report.style import name_of

    sizes = sorted(vehicles or [100, 1_000, 10_000])
    if sizes[0] < participants:
        raise typer.BadParameter(f"The fleet of {sizes[0]} has fewer than {participants} vehicles.")
    console.print(f"Making {sum(sizes):,} vehicles ...", highlight=False)
    with progress_bar(console, "Rounds") as progress:
        found = bench_scale(
            sizes,
            method or ["fedavg", "scaffold"],
            participants=participants,
            trips=trips,
            rounds=rounds,
            progress=progress,
        )
    table = Table(
        title=f"{participants} participants a round, 20 steps each, one thread",
        caption="Ratios are to the smallest fleet. Memory: the highest in a round, beyond that "
        "before the first one.",
    )
    for name in ("method", "vehicles", "on disk", "a round", "ratio", "memory", "ratio"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for row in as_rows(found):
        table.add_row(
            name_of(row["method"]),
            f"{row['vehicles']:,}",
            f"{row['disk_mb']:,.0f} MB",
            f"{row['seconds']:.2f} s",
            f"{row['time_ratio']:.2f}",
            f"{row['rounds_mb']:.0f} MB",
            f"{row['memory_ratio']:.2f}",
        )
    console.print(table)


def traffic(
    vehicles: Annotated[int, typer.Option(help="Vehicles of the fleet.", min=1)] = 1_000_000,
    participation: Annotated[
        float, typer.Option(help="Share of available vehicles asked in a round.")
    ] = 0.01,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 300,
    method: Annotated[list[str] | None, typer.Option(help="Method; repeat for several.")] = None,
    available: Annotated[
        float, typer.Option(help="Share of vehicles that can be reached.", min=0.001, max=1)
    ] = 0.2,
    leave: Annotated[
        float, typer.Option(help="Probability that a vehicle is gone by the next round.")
    ] = 0.02,
    loss: Annotated[float, typer.Option(help="Share of replies that get lost.")] = 0.05,
    enough: Annotated[float, typer.Option(help="Share of replies that ends a round.")] = 0.9,
    deadline: Annotated[float, typer.Option(help="Longest round, seconds.")] = 60.0,
    steps: Annotated[int, typer.Option(help="Local steps of a median vehicle.")] = 200,
    steps_per_s: Annotated[float, typer.Option(help="Median speed of vehicles' computers.")] = 100,
    down: Annotated[float, typer.Option(help="Median link to a vehicle, Mbit/s.")] = 20.0,
    up: Annotated[float, typer.Option(help="Median link from a vehicle, Mbit/s.")] = 5.0,
) -> None:
    """What rounds of a very large fleet cost: participants, churn, bytes, time. Nothing trains.

    Links, computers and availability are assumptions; give your own. The server's time for a reply
    is measured on this machine first.
    """
    from benchmarks.server import method_loads
    from benchmarks.traffic import LargeFleet, churn, simulate_methods

    fleet = LargeFleet(
        vehicles=vehicles,
        participation=participation,
        steps=steps,
        steps_per_s=steps_per_s,
        down_mbps=down,
        up_mbps=up,
        enough=enough,
        deadline_s=deadline,
    )
    terms = churn(available, leave, loss)
    with progress_bar(console, "Rounds") as progress:
        loads = method_loads(method or PAPER_METHODS)
        found = simulate_methods(fleet, loads, terms, rounds=rounds, progress=progress)
    console.print(traffic_table(found, vehicles, rounds))


def traffic_table(found: "Mapping[str, Traffic]", vehicles: int, rounds: int) -> Table:
    """What a round takes with each method, means over the rounds."""
    from fedwatt.report.style import name_of

    first = next(iter(found.values())).summary()
    table = Table(
        title=f"{vehicles:,} vehicles, {first['asked']:,.0f} asked a round, {rounds} rounds",
        caption=f"{first['reached']:.1%} of the vehicles were asked at least once; of those asked "
        f"{first['lost'] / first['asked']:.1%} got lost and {first['late'] / first['asked']:.1%} "
        "were late. Gbit/s and cores of the server are means over the rounds.",
    )
    for name in ("method", "round", "down", "up", "Gbit/s", "server cores", "MB a vehicle"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for name, own in found.items():
        figures = own.summary()
        table.add_row(
            name_of(name),
            f"{figures['round_s']:.1f} s",
            f"{figures['down_gb_per_round']:.2f} GB",
            f"{figures['up_gb_per_round']:.2f} GB",
            f"{figures['gigabit_per_s']:.2f}",
            f"{figures['server_cores']:.3f}",
            f"{figures['megabytes_per_vehicle']:.2f}",
        )
    return table


def fleet(
    vehicles: Annotated[int, typer.Option(help="Vehicles that are connected.", min=2)] = 100,
    asked: Annotated[int, typer.Option(help="Of them, asked in a round.", min=1)] = 100,
    rounds: Annotated[int, typer.Option(help="Rounds; the first is not counted.", min=2)] = 5,
    poll: Annotated[float, typer.Option(help="Longest pause between two looks, s.")] = 5.0,
    faulty: Annotated[
        int,
        typer.Option(
            help="Of a hundred vehicles, how many misbehave: silent, garbage, slow, dropping or "
            "with a wrong clock. Rounds then call a quarter more (deploy.over_selection).",
            min=0,
            max=100,
        ),
    ] = 0,
    fast_path: Annotated[
        bool, typer.Option(help="Take the fast path, or only Flower's public interface.")
    ] = True,
) -> None:
    """What a fleet costs one server: vehicles that do not train, over real TLS and keys.

    Server, run and vehicles are processes on this machine, which share its cores.
    """
    from benchmarks.many_vehicles import Load, measured

    if asked > vehicles:
        raise typer.BadParameter(f"{asked} of {vehicles} vehicles cannot be asked.")
    seconds, share = (60.0, 0.25) if faulty else (600.0, 0.0)
    load = Load(vehicles, asked, rounds, poll, faulty, fast_path, seconds, share)
    cost = measured(load, lambda text: console.print(text, highlight=False))
    table = Table("", "", title=f"{vehicles:,} vehicles, {asked:,} asked a round")
    for meaning, value in cost.rows():
        table.add_row(meaning, value)
    console.print(table)
