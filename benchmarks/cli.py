"""`fedwatt bench`: ratios measured in one run on this machine."""

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from fedwatt.cli.console import console

if TYPE_CHECKING:
    from benchmarks.latency import Latency

PAPER_METHODS = ["fedavg", "scaffold", "fedadam", "fo-ri-fedavg"]
Repeats = Annotated[
    int, typer.Option(help="Repeat so many times in turns; medians are shown.", min=1)
]
Methods = Annotated[list[str] | None, typer.Option(help="Method; repeat for several.")]

app = typer.Typer(
    help="Measure speed, latency and large fleets on this machine.", no_args_is_help=True
)


def add_to(fedwatt: typer.Typer) -> None:
    """Make these commands of `fedwatt bench`."""
    fedwatt.add_typer(app, name="bench")


@app.command()
def engine(
    repeats: Repeats = 9,
    recurrent: Annotated[bool, typer.Option(help="Include GRU and LSTM.")] = True,
) -> None:
    """Time a round of 30 vehicles in the engine and in a plain PyTorch loop.

    The floor is the time that the round's products alone would take at this machine's best rate.
    """
    from benchmarks.engine import bench_recurrent, bench_rounds
    from fedwatt.report.style import name_of

    with console.status("Rounds"):
        record = bench_rounds(repeats=repeats)
    table = table_of(
        ("engine", "a round", "times the floor", "times FedAvg"),
        title=f"{record['recipe']}\n{machine_text(record['machine'])}",
        caption=f"Floor {record['floor_s'] * 1000:.0f} ms; gathering windows is "
        f"{record['gather_share']:.0%} of FedAvg's time on one thread.",
    )
    for name, seconds in record["seconds_a_round"].items():
        method, comma, detail = name.partition(",")
        table.add_row(
            name_of(method) + comma + detail,
            f"{seconds * 1000:.0f} ms",
            f"{record['times_the_floor'][name]:.1f}",
            f"{record['times_fedavg'][name]:.2f}",
        )
    console.print(table)
    fewer = max(1, repeats // 2)
    if recurrent:
        with console.status("GRU and LSTM"):
            steps = bench_recurrent(repeats=fewer)["seconds_a_client_step"]
        networks = ("model", "plain loop", "FedAvg", "times faster")
        table = table_of(networks, title="A step of one vehicle, batch 64, 60 seconds, 32 units")
        for model, row in steps.items():
            times = [f"{row[n] * 1000:.2f} ms" for n in ("plain loop", "fedavg")]
            table.add_row(model, *times, f"{row['plain loop'] / row['fedavg']:.1f}")
        console.print(table)


@app.command()
def probe(
    repeats: Repeats = 5,
    windows: Annotated[
        list[int] | None, typer.Option(help="Set the number of windows.", min=64)
    ] = None,
) -> None:
    """Time the roughness probe beside one forward pass per point."""
    from benchmarks.probe import bench_components, bench_probe

    with console.status("Probe"):
        record = bench_probe(repeats=repeats)
    console.print(
        f"{record['passes']:,} forward passes {record['seconds']['naive'] * 1000:.0f} ms, the "
        f"probe {record['seconds']['probe'] * 1000:.1f} ms: {record['times_faster']:.0f} times "
        f"faster; losses differ by {record['largest_difference']:.0e} at most. "
        f"{machine_text(record['machine'])}",
        highlight=False,
    )
    for size in windows or [20_000, 200_000]:
        with console.status(f"Rounds of three vehicles with {size:,} windows"):
            parts = bench_components(size, repeats=max(1, repeats // 2))
        share = parts["amortised_probe_share_R5"]
        title = f"{size:,} windows per vehicle: probe every 5 rounds adds {share:.1%}"
        table = table_of(("part of a probing round", "seconds"), title=title)
        for part, seconds in parts["parts_s"].items():
            table.add_row(part, f"{seconds:.3f}")
        console.print(table)


@app.command()
def fleet(
    vehicles: Annotated[int, typer.Option(help="Set the number of vehicles.", min=2)] = 100,
    called: Annotated[
        int, typer.Option("--asked", help="Set the number of vehicles called in a round.", min=1)
    ] = 100,
    rounds: Annotated[int, typer.Option(help="Set the number of rounds.", min=2)] = 5,
    poll: Annotated[float, typer.Option(help="Limit the pause between polls, s.")] = 5.0,
    faulty: Annotated[
        int,
        typer.Option(
            help="Let so many of a hundred vehicles misbehave, each in its way.",
            min=0,
            max=100,
        ),
    ] = 0,
    fast_path: Annotated[
        bool, typer.Option(help="Take the fast path, or only Flower's public interface.")
    ] = True,
) -> None:
    """Measure the cost of a fleet on one server; vehicles reply without training.

    Server, run and vehicles are processes on this machine, which share its cores.
    """
    from benchmarks.many_vehicles import Load, measured

    if called > vehicles:
        raise typer.BadParameter(f"{called} of {vehicles} vehicles cannot be called.")
    seconds, share = (60.0, 0.25) if faulty else (600.0, 0.0)
    load = Load(vehicles, called, rounds, poll, faulty, fast_path, seconds, share)
    cost = measured(load, lambda text: console.print(text, highlight=False))
    table = Table("", "", title=f"{vehicles:,} vehicles, {called:,} called per round")
    for meaning, value in cost.rows():
        table.add_row(meaning, value)
    console.print(table)


@app.command()
def latency(
    backbone: Annotated[
        list[str] | None, typer.Option(help="Choose mlp, gru or lstm; repeatable.")
    ] = None,
    windows: Annotated[int, typer.Option(help="Set the number of windows.", min=32)] = 10_000,
    seconds: Annotated[
        float,
        typer.Option(help="Limit the seconds of a measurement; slow models see fewer windows."),
    ] = 3.0,
) -> None:
    """Time one prediction in PyTorch and onnxruntime, batches of 1 and 32."""
    from benchmarks.latency import BACKBONES, backbone_subjects, measure

    with progress_bar("Backbones") as progress:
        latencies = measure(
            backbone_subjects(backbone or BACKBONES),
            windows=windows,
            longest_s=seconds,
            progress=progress,
        )
    console.print(latency_table(latencies))


def latency_table(latencies: "Sequence[Latency]") -> Table:
    """Return median (p95) of every model in µs per window, both engines side by side."""
    counts = sorted({latency.windows for latency in latencies})
    counted = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    engines = dict.fromkeys(latency.engine for latency in latencies)
    batches = dict.fromkeys(latency.batch for latency in latencies)
    pairs = [(batch, engine) for batch in batches for engine in engines]
    table = table_of(
        ("model", *(f"{engine} ×{batch}" for batch, engine in pairs), "windows/s"),
        title=f"µs per window, median (p95), one thread, {platform.machine()}",
        caption=f"{counted} windows each, in turns; windows/s in onnxruntime at batch 32",
    )
    by_place = {(entry.model, entry.batch, entry.engine): entry for entry in latencies}
    for model in dict.fromkeys(entry.model for entry in latencies):
        row = [by_place[model, batch, engine] for batch, engine in pairs]
        cells = (f"{_digits(entry.median_us)} ({_digits(entry.p95_us)})" for entry in row)
        table.add_row(model.upper(), *cells, f"{row[-1].throughput:,.0f}")
    return table


def _digits(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"


def table_of(columns: Sequence[str], **options: Any) -> Table:
    """Return an empty table whose first column is text and all others are numbers."""
    table = Table(**options)
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place else "left", no_wrap=not place)
    return table


def machine_text(machine: Mapping[str, Any]) -> str:
    """Return a machine in a line."""
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['threads']} threads, "
        f"torch {machine['torch']}"
    )


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function of (done, all) that moves a bar, or prints every quarter elsewhere."""
    if console.is_terminal:
        columns = (TextColumn("{task.description}", style="bold", markup=False), BarColumn())
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, of: bar.update(task, completed=done, total=of)
        return
    printed = 0

    def line(done: int, of: int) -> None:
        nonlocal printed
        quarter = 4 * done // of
        if quarter > printed:
            printed = quarter
            console.print(f"{what}: {25 * quarter} %", highlight=False)

    yield line
