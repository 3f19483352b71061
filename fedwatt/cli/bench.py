"""`fedwatt bench`: ratios measured in one run on this machine."""

import platform
from typing import Annotated

import torch
import typer
from rich.table import Table

from fedwatt.bench.engine import bench_engine
from fedwatt.cli.console import console
from fedwatt.fleet import synthetic_fleet

app = typer.Typer(help="Ratios measured in one run on this machine.", no_args_is_help=True)


@app.command()
def engine(
    method: Annotated[list[str] | None, typer.Option(help="Method; repeat for several.")] = None,
    vehicles: Annotated[int, typer.Option(help="Synthetic vehicles.", min=1)] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds.", min=1)] = 5,
    seeds: Annotated[int, typer.Option(help="Seeds 1..N, one stack.", min=1)] = 3,
    repeats: Annotated[int, typer.Option(help="Repetitions; medians are shown.", min=1)] = 3,
) -> None:
    """The stacked engine beside a plain PyTorch loop over vehicles, same work."""
    fleet = synthetic_fleet(vehicles=vehicles)
    with console.status("Training both ways ..."):
        results = bench_engine(
            fleet,
            method or ["fedavg", "fo-ri-fedavg"],
            rounds=rounds,
            seeds=range(1, seeds + 1),
            repeats=repeats,
        )
    table = Table(
        title=f"{vehicles} vehicles, {rounds} rounds, {seeds} seeds; "
        f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}"
    )
    for name in ("method", "stacked", "plain loop", "stacked / plain"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for result in results:
        table.add_row(
            result.method,
            f"{result.stacked_s:.2f} s",
            f"{result.plain_s:.2f} s",
            f"{result.ratio:.2f}",
        )
    console.print(table)


@app.command()
def latency(
    backbone: Annotated[list[str] | None, typer.Option(help="mlp, gru, lstm; repeatable.")] = None,
    windows: Annotated[int, typer.Option(help="Windows of each measurement.", min=32)] = 10_000,
    repeats: Annotated[int, typer.Option(help="Repetitions; the quietest counts.", min=1)] = 3,
) -> None:
    """Time of one prediction in PyTorch and onnxruntime, one thread, batches of 1 and 32."""
    from fedwatt.bench.latency import bench_backbones

    with console.status("Predicting ..."):
        found = bench_backbones(
            backbone or ["mlp", "gru", "lstm"], windows=windows, repeats=repeats
        )
    table = Table(title=f"{windows:,} windows, one thread, {platform.machine()}; per window")
    for name in ("model", "engine", "batch", "median", "p95", "windows/s"):
        table.add_column(name, justify="left" if name in ("model", "engine") else "right")
    for row in found:
        table.add_row(
            row.model.upper(),
            row.engine,
            str(row.batch),
            f"{row.median_us:.1f} µs",
            f"{row.p95_us:.1f} µs",
            f"{row.throughput:,.0f}",
        )
    console.print(table)
