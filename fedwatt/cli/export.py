"""`fedwatt export`: a run's model as a file for the vehicle."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.errors import DataError


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
        typer.Option(help="'best' by validation, 'last', or 'personal': the vehicle's own."),
    ] = "best",
    form: Annotated[str, typer.Option(help="Weights as float32, float16 or int8.")] = "float32",
    terrain: Annotated[
        Path | None,
        typer.Option(help="Elevation field for a model with hills; the run's own if left out."),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            help="State folder of the vehicle, for a run of a real fleet: its own model and hills."
        ),
    ] = None,
) -> None:
    """Write an ONNX model with all a vehicle has to know about it."""
    from fedwatt.data.store import read_vehicle
    from fedwatt.deploy.state_folder import StateFolder
    from fedwatt.edge.export import export as write
    from fedwatt.edge.export import personal, read_trained
    from fedwatt.runs.hills import learns_hills, vehicle_field
    from fedwatt.terrain.level import LEVEL

    which = "best" if model == "personal" else model
    trained = read_trained(run, method=method, seed=seed, which=which)
    if vehicle is not None and not (vehicle / "vehicle.json").is_file():
        raise DataError(
            f"{vehicle} is not a vehicle's folder: it has no vehicle.json. Give one of the folders "
            "inside a fleet."
        )
    kept = None if state is None else StateFolder.of(state, run)
    own = None if vehicle is None else read_vehicle(vehicle)
    with console.status("Exporting ..."):
        if model == "personal":
            file = None if kept is None else kept.personal(trained.method)
            level_file = None
            if state is not None and trained.level is not None:
                level_file = StateFolder.of(state, run / LEVEL).personal(trained.method)
            trained = personal(trained, run, own, file, level_file)
        if kept is not None and terrain is None and learns_hills(trained.config):
            terrain = kept.hills()
        field = None
        if own is not None:
            field = vehicle_field(trained.config, run, trained.method, own.name, terrain)
        card = write(trained, out, vehicle=own, form=form, field=field)
    size = out.stat().st_size / 1000
    console.print(
        f"{out}: {card.backbone.upper()} trained by {card.method} (seed {trained.seed}, {model}), "
        f"{card.form}, {size:.0f} kB.",
        highlight=False,
    )
    if own is None:
        console.print("It takes scaled features. With --vehicle FOLDER it takes telemetry.")
        if card.level:
            console.print(
                "It holds a level model as well, for windows whose climb is not known. Whether "
                "hills are borne out is a vehicle's to say, so windows with known climb are all "
                "predicted with hills."
            )
        return
    bars = card.calibration
    console.print(
        f"It takes the telemetry of {own.name} and gives Wh; {bars['level']:.0%} error bars from "
        f"{bars['trips']} {bars['source']}.",
        highlight=False,
    )
    if "nodes" in card.terrain:
        console.print(f"It reads climb from positions: {card.terrain['nodes']:,} nodes are in it.")
    if card.level:
        console.print(_about_hills(card.level["borne_out"], card.level["windows"]))
    if card.form != "float32":
        console.print(f"{card.form} adds {card.loss_wh:+.3f} Wh to the RMSE of its test windows.")


def _about_hills(borne_out: bool, windows: int) -> str:
    judged = f"on its {windows:,} validation windows with known climb"
    if borne_out:
        return (
            f"Hills are borne out {judged}: windows with known climb are predicted with hills, all "
            "others by the level model."
        )
    return f"Hills are not borne out {judged}: the level model predicts every window."
