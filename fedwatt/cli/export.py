"""`fedwatt export`: a run's model as a file for the vehicle."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.", metavar="RUN")],
    out: Annotated[Path, typer.Option(help="Model file to write, such as model.onnx.")],
    vehicle: Annotated[
        Path | None,
        typer.Option(help="Folder of a vehicle: its scaling and error bars go into the file."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method; the run's first if left out.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed; the run's first if left out.")] = None,
    model: Annotated[str, typer.Option(help="'best' by validation, or 'last'.")] = "best",
    form: Annotated[str, typer.Option(help="Weights as float32, float16 or int8.")] = "float32",
) -> None:
    """Write an ONNX model with all a vehicle has to know about it."""
    from fedwatt.edge.export import export as write
    from fedwatt.edge.export import read_trained
    from fedwatt.fleet.store import read_vehicle

    trained = read_trained(run, method=method, seed=seed, which=model)
    own = None if vehicle is None else read_vehicle(vehicle)
    with console.status("Exporting ..."):
        card = write(trained, out, vehicle=own, form=form)
    size = out.stat().st_size / 1000
    console.print(
        f"{out}: {card.backbone.upper()} trained by {card.method} (seed {trained.seed}, {model}), "
        f"{card.form}, {size:.0f} kB.",
        highlight=False,
    )
    if own is None:
        console.print("It takes scaled features. With --vehicle FOLDER it takes telemetry.")
        return
    bars = card.calibration
    console.print(
        f"It takes the telemetry of {own.name} and gives Wh; {bars['level']:.0%} error bars from "
        f"{bars['trips']} {bars['source']}.",
        highlight=False,
    )
    if card.form != "float32":
        console.print(f"{card.form} adds {card.loss_wh:+.3f} Wh to the RMSE of its test windows.")
