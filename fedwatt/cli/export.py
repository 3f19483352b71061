"""`fedwatt export`: a run's model as a file for the vehicle."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedwatt.cli.console import console
from fedwatt.cli.options import Trust

if TYPE_CHECKING:
    from fedwatt.edge.card import ModelCard


def export(
    run: Annotated[Path, typer.Argument(help="Folder of a finished run.", metavar="RUN")],
    out: Annotated[Path, typer.Option(help="Model file to write, such as model.onnx.")],
    vehicle: Annotated[
        Path | None,
        typer.Option(help="Folder of a vehicle: its scaling and error bars go into the file."),
    ] = None,
    method: Annotated[str | None, typer.Option(help="Method; the run's first if left out.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed; the run's first if left out.")] = None,
    model: Annotated[
        str,
        typer.Option(
            help="'kept', as a rule the mean of 'best' (by validation) and 'last'; one of these; "
            "or 'personalised', the vehicle's own."
        ),
    ] = "kept",
    form: Annotated[str, typer.Option(help="Weights as float32, float16 or int8.")] = "float32",
    elevation: Annotated[
        Path | None,
        typer.Option(help="Elevation field for a model with hills; the run's own if left out."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="State folder of the vehicle, for a run of a real fleet: its own model and hills."
        ),
    ] = None,
    routes: Annotated[
        bool, typer.Option("--routes", help="Also predict trips from their routes alone.")
    ] = False,
    licence: Annotated[
        str, typer.Option(help="Licence of the model, for its card, such as CC-BY-4.0.")
    ] = "",
    trust: Trust = None,
) -> None:
    """Write a model file (ONNX) with everything that a vehicle needs to use it."""
    from fedwatt.edge.export_run import export_run

    folders: dict[str, Any] = {"vehicle": vehicle, "elevation": elevation, "state": state}
    with console.status("Exporting ..."):
        options: dict[str, Any] = {"method": method, "seed": seed, "model": model, "form": form}
        trained, card = export_run(run, out, routes=routes, licence=licence, **options, **folders)
    size = out.stat().st_size / 1000
    console.print(
        f"{out}: {card.backbone.upper()} trained by {card.method} (seed {trained.seed}, {model}), "
        f"{card.form}, {size:.0f} kB. 'fedwatt inspect {out}' says what it was trained on."
    )
    if card.vehicle:
        _show_vehicle(card)
    else:
        _show_for_any(card)


def _show_for_any(card: "ModelCard") -> None:
    """Print the properties of a file of scaled features."""
    console.print("It takes scaled features. With --vehicle FOLDER it takes telemetry.")


def _show_vehicle(card: "ModelCard") -> None:
    """Print the properties of a file with a vehicle's scaling."""
    bars = card.calibration
    message = (
        f"{bars['level']:.0%} prediction intervals from {bars['trips']} {bars['source']}"
        if bars
        else f"{card.target} of single windows, which has no prediction intervals"
    )
    console.print(f"It takes the telemetry of {card.vehicle} and gives {card.output}; {message}.")
    if "nodes" in card.elevation:
        measured = card.elevation["source"] == "auto"
        first = "elevation where that is known, else from " if measured else ""
        nodes = f"{card.elevation['nodes']:,} nodes are in it"
        console.print(f"It reads climb from {first}positions: {nodes}.")
    if card.loss_wh is not None and card.form != "float32":
        console.print(f"{card.form} adds {card.loss_wh:+.3f} Wh to the RMSE of its test windows.")
