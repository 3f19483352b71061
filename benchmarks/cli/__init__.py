"""`fedwatt bench`: ratios measured in one run on this machine."""

import platform
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from benchmarks.cli import speed
from benchmarks.cli.progress import progress_bar
from benchmarks.cli.scale import fleet, scale, traffic
from fedwatt.cli.console import console

if TYPE_CHECKING:
    from benchmarks.latency import Latency

app = typer.Typer(help="Ratios measured in one run on this machine.", no_args_is_help=True)
app.command()(speed.engine)
app.command()(speed.probe)
app.command()(speed.reference)
app.command("import")(speed.importing)
app.command()(scale)
app.command()(traffic)
app.command()(fleet)


def add_to(fedwatt: typer.Typer) -> None:
    """Make these commands of `fedwatt bench`."""
    fedwatt.add_typer(app, name="bench")


@app.command()
def latency(
    backbone: Annotated[list[str] | None, typer.Option(help="mlp, gru, lstm; repeatable.")] = None,
    windows: Annotated[int, typer.Option(help="Windows of each measurement.", min=32)] = 10_000,
    seconds: Annotated[
        float, typer.Option(help="Longest time of one measurement; slow models see fewer windows.")
    ] = 3.0,
    methods: Annotated[bool, typer.Option(help="Also the models of all methods.")] = True,
) -> None:
    """Time of one prediction in PyTorch and onnxruntime, one thread, batches of 1 and 32."""
    from benchmarks.latency import BACKBONES, backbone_subjects, measure, method_subjects, spread
    from fedwatt.report.style import name_of

    timed = partial(measure, windows=windows, longest_s=seconds)
    with progress_bar(console, "Backbones") as progress:
        found = timed(backbone_subjects(backbone or BACKBONES), progress=progress)
    console.print(latency_table(found, str.upper, "Backbones"))
    if not methods:
        return
    with progress_bar(console, "Methods") as progress:
        found = timed(method_subjects(), progress=progress)
    console.print(latency_table(found, name_of, "The MLP of every method"))
    between, within = spread(found, "onnxruntime", 1)
    console.print(
        f"In onnxruntime at batch 1 the methods' medians differ by {between:.1%}, one model's in "
        f"the course of the run by {within:.1%} (standard deviations).",
        highlight=False,
    )


def latency_table(found: "Sequence[Latency]", name: Callable[[str], str], title: str) -> Table:
    """Median (p95) of every model, microseconds a window, both engines side by side."""
    table = Table(
        title=f"{title}: µs a window, median (p95), one thread, {platform.machine()}",
        caption=f"{_range([one.windows for one in found])} windows each, in turns; windows/s in "
        "onnxruntime at batch 32",
    )
    engines = list(dict.fromkeys(one.engine for one in found))
    batches = list(dict.fromkeys(one.batch for one in found))
    table.add_column("model", no_wrap=True)
    for batch in batches:
        for runtime in engines:
            table.add_column(f"{runtime} ×{batch}", justify="right")
    table.add_column("windows/s", justify="right")
    by = {(one.model, one.engine, one.batch): one for one in found}
    for model in dict.fromkeys(one.model for one in found):
        row = [by[model, runtime, batch] for batch in batches for runtime in engines]
        cells = (f"{_digits(one.median_us)} ({_digits(one.p95_us)})" for one in row)
        table.add_row(name(model), *cells, f"{row[-1].throughput:,.0f}")
    return table


def _range(numbers: list[int]) -> str:
    low = min(numbers)
    high = max(numbers)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _digits(microseconds: float) -> str:
    return f"{microseconds:.1f}" if microseconds < 100 else f"{microseconds:.0f}"
