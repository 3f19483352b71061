"""`fedwatt export` and `fedwatt adapt`: a run's model as a file for a vehicle."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fedwatt.cli.console import console
from fedwatt.cli.data.shared import Out
from fedwatt.cli.options import Method, Trust, VehicleFolder
from fedwatt.cli.route import Consumption, Mass

if TYPE_CHECKING:
    from fedwatt.edge.card import ModelCard

RunFolder = Annotated[Path, typer.Argument(help="Run folder.", metavar="RUN")]
Routes = Annotated[bool, typer.Option("--routes", help="Include the prediction of routes.")]


def export(
    run: RunFolder,
    out: Out,
    vehicle: VehicleFolder = None,
    method: Method = None,
    seed: Annotated[
        int | None,
        typer.Option(help="Set the seed of all random draws. [default: the run's first]"),
    ] = None,
    weights: Annotated[
        str | None,
        typer.Option(
            "--weights",
            help="Choose final, best, last or personalised. [default: as vehicles use]",
        ),
    ] = None,
    elevation: Annotated[
        Path | None,
        typer.Option(
            "--elevation-map", help="Read the elevation map in this file. [default: the run's]"
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="Use this folder for the vehicle's state between rounds."),
    ] = None,
    routes: Routes = False,
    licence: Annotated[
        str, typer.Option(help="Name the licence of the model, such as CC-BY-4.0.")
    ] = "",
    trust: Trust = None,
) -> None:
    """Export a model as one ONNX file with all that a vehicle needs."""
    from fedwatt.edge.export_run import export_run

    if weights is None:
        personalised = vehicle is not None and state is None and (run / "personalised").is_dir()
        weights = "personalised" if personalised else "final"
    folders: dict[str, Any] = {"vehicle": vehicle, "elevation": elevation, "state": state}
    with console.status("Exporting ..."):
        options: dict[str, Any] = {"method": method, "seed": seed, "model": weights}
        trained, card = export_run(run, out, routes=routes, licence=licence, **options, **folders)
    size = out.stat().st_size / 1000
    console.print(
        f"{out}: {card.backbone.upper()} trained by {card.method} (seed {trained.seed}, "
        f"{weights}), {size:.0f} kB. "
        f"'fedwatt inspect {out}' shows its card."
    )
    if card.vehicle:
        _show_vehicle(card)
    else:
        console.print("It takes scaled features. With --vehicle FOLDER it takes telemetry.")


def adapt(
    run: RunFolder,
    out: Out,
    vehicle: VehicleFolder = None,
    method: Method = None,
    consumption: Consumption = None,
    mass: Mass = None,
    routes: Routes = False,
    trust: Trust = None,
) -> None:
    """Export a model for a vehicle that was not in the run."""
    from fedwatt.edge.adapt import adapt as adapted

    with console.status("Adapting ..."):
        adaptation = adapted(
            run,
            out,
            vehicle=vehicle,
            method=method,
            mass_kg=mass,
            wh_per_km=consumption,
            routes=routes,
        )
    console.print(adaptation.chosen)
    console.print(adaptation.reason)
    console.print(
        f"{out}: {out.stat().st_size / 1000:.0f} kB. 'fedwatt inspect {out}' shows its card."
    )


def _show_vehicle(card: "ModelCard") -> None:
    """Print the properties of a file with a vehicle's scaling."""
    from fedwatt.windows.targets import TRIP_TARGETS

    bars = card.calibration
    if bars:
        message = f"{bars['level']:.0%} prediction intervals from {bars['trips']} {bars['source']}"
    elif card.target in TRIP_TARGETS:
        message = "no prediction intervals, which need a trip of the vehicle for validation"
    else:
        message = f"{card.target} of single windows, which has no prediction intervals"
    console.print(f"It takes the telemetry of {card.vehicle} and gives {card.output}; {message}.")
    if "nodes" in card.elevation:
        measured = card.elevation["source"] == "auto"
        first = "elevation where that is known, else from " if measured else ""
        nodes = f"{card.elevation['nodes']:,} nodes are in it"
        console.print(f"It reads climb from {first}positions: {nodes}.")
