"""`fedwatt bench engine`, `probe`, `reference` and `import`: time of the work, beside others'."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from fedwatt.cli.console import console

Repeats = Annotated[int, typer.Option(help="Repetitions in turns; medians are shown.", min=1)]


def engine(
    repeats: Repeats = 9,
    others: Annotated[bool, typer.Option(help="Also JAX and Flower, if installed.")] = True,
    recurrent: Annotated[bool, typer.Option(help="Also GRU and LSTM.")] = True,
    modules: Annotated[
        bool, typer.Option(help="Also a module of one's own beside the same network by name.")
    ] = True,
) -> None:
    """A round of 30 vehicles in the engine, in a plain PyTorch loop, in JAX and in Flower.

    The floor is the time that the round's products alone would take at this machine's best rate.
    """
    from benchmarks.engine import bench_recurrent, bench_rounds

    with console.status("Rounds") as status:
        found = bench_rounds(repeats=repeats, others=others, say=status.update)
    table = Table(
        title=f"{found['recipe']}\n{on(found['machine'])}",
        caption=f"Floor {found['floor_s'] * 1000:.0f} ms; gathering windows is "
        f"{found['gather_share']:.0%} of FedAvg's time on one thread.",
    )
    for name in ("way", "a round", "times the floor", "times FedAvg"):
        table.add_column(name, justify="left" if name == "way" else "right")
    for way, seconds in found["seconds_a_round"].items():
        table.add_row(
            labels(way),
            f"{seconds * 1000:.0f} ms",
            f"{found['times_the_floor'][way]:.1f}",
            f"{found['times_fedavg'][way]:.2f}",
        )
    for way, reason in found["failed"].items():
        table.add_row(labels(way), "failed", reason, "")
    console.print(table)
    if modules:
        console.print(_modules_table(repeats))
    if not recurrent:
        return
    with console.status("GRU and LSTM"):
        times = bench_recurrent(repeats=max(1, repeats // 2))["seconds_a_client_step"]
    table = Table(title="A step of one vehicle, batch 64, 60 seconds, 32 units")
    for name in ("model", "plain loop", "FedAvg", "FO-RI-FedAvg", "times faster"):
        table.add_column(name, justify="left" if name == "model" else "right")
    for model, own in times.items():
        cells = (f"{own[way] * 1000:.2f} ms" for way in ("plain loop", "fedavg", "fo-ri-fedavg"))
        table.add_row(model, *cells, f"{own['plain loop'] / own['fedavg']:.1f}")
    console.print(table)


def _modules_table(repeats: int) -> Table:
    """A module of one's own beside the same network by name."""
    from benchmarks.engine import bench_modules

    with console.status("A module of one's own"):
        found = bench_modules(repeats=max(1, repeats // 2))
    table = Table(title="The same MLP as an nn.Module and by name; bar 2 times")
    for name in ("a round of", "by name", "own module", "times"):
        table.add_column(name, justify="left" if name == "a round of" else "right")
    for way, own in found.items():
        times = [f"{own[name] * 1000:.0f} ms" for name in ("by_name_s", "own_module_s")]
        table.add_row(way, *times, f"{own['times']:.2f}")
    return table


def probe(
    repeats: Repeats = 5,
    windows: Annotated[
        list[int] | None, typer.Option(help="Windows a vehicle has; repeat for several.", min=64)
    ] = None,
) -> None:
    """The roughness probe beside one forward pass a point, and its share of a round."""
    from benchmarks.probe import bench_components, bench_probe

    with console.status("Probe"):
        found = bench_probe(repeats=repeats)
    console.print(
        f"{found['passes']:,} forward passes {found['seconds']['naive'] * 1000:.0f} ms, the probe "
        f"{found['seconds']['probe'] * 1000:.1f} ms: {found['times_faster']:.0f} times faster; "
        f"losses differ by {found['largest_difference']:.0e} at most. {on(found['machine'])}",
        highlight=False,
    )
    for size in windows or [20_000, 200_000]:
        with console.status(f"Rounds of three vehicles with {size:,} windows"):
            parts = bench_components(size, repeats=max(1, repeats // 2))
        share = parts["amortised_probe_share_R5"]
        table = Table(title=f"{size:,} windows a vehicle: probe every 5 rounds adds {share:.1%}")
        for name in ("part of a probing round", "seconds"):
            table.add_column(name, justify="left" if name != "seconds" else "right")
        for part, seconds in parts["parts_s"].items():
            table.add_row(part, f"{seconds:.3f}")
        console.print(table)


def reference(
    method: Annotated[list[str] | None, typer.Option(help="Method; repeat for several.")] = None,
    vehicles: Annotated[int, typer.Option(help="Synthetic vehicles.", min=1)] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 5,
    seeds: Annotated[int, typer.Option(help="Seeds 1..N, one stack.", min=1)] = 3,
    repeats: Repeats = 3,
) -> None:
    """The engine beside the one-vehicle-at-a-time reference whose numbers it must reproduce."""
    from benchmarks.machine import machine
    from benchmarks.reference import bench_reference
    from fedwatt.synthetic import synthetic_fleet

    fleet = synthetic_fleet(vehicles=vehicles)
    with console.status("Training both ways ..."):
        results = bench_reference(
            fleet,
            method or ["fedavg", "fo-ri-fedavg"],
            rounds=rounds,
            seeds=range(1, seeds + 1),
            repeats=repeats,
        )
    table = Table(
        title=f"{vehicles} vehicles, {rounds} rounds, {seeds} seeds; {on(machine())}",
    )
    for name in ("method", "engine", "reference", "engine / reference"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for result in results:
        table.add_row(
            result.method,
            f"{result.stacked_s:.2f} s",
            f"{result.plain_s:.2f} s",
            f"{result.ratio:.2f}",
        )
    console.print(table)


def importing(
    path: Annotated[Path, typer.Argument(help="File or folder with VED's data.", exists=True)],
    repeats: Repeats = 3,
) -> None:
    """Rows a second and peak memory of an import of VED, each in a fresh process."""
    from benchmarks.import_ved import bench_import

    with console.status("Importing"):
        found = bench_import(path, repeats=repeats)
    console.print(
        f"{found['rows']:,} rows in {found['seconds']:.1f} s ({found['cpu_seconds']:.1f} s of "
        f"processor time), {found['rows'] / found['seconds']:,.0f} rows a second, peak memory "
        f"{found['peak_mb']:.0f} MB; {found['vehicles']} vehicles, {found['hours']:.1f} h.",
        highlight=False,
    )


def on(machine: dict[str, Any]) -> str:
    """A machine in a few words."""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"torch {machine['torch']}"
    )


def labels(way: str) -> str:
    """A way of training in words."""
    from fedwatt.report.style import name_of

    named = {"plain loop": "plain PyTorch loop, 1 thread", "jax": "JAX, jit", "flower": "Flower"}
    method, comma, rest = way.partition(",")
    return named.get(way) or name_of(method) + comma + rest
