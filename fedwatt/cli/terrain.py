"""`fedwatt terrain`: learn a fleet's hills from its energy, and draw them."""

from pathlib import Path
from typing import Annotated

import typer

from fedwatt.cli.console import console
from fedwatt.fleet import DataSettings
from fedwatt.fleet.store import read_fleet
from fedwatt.report.terrain import write_map
from fedwatt.terrain import TerrainSettings, learn_shared
from fedwatt.terrain.store import read_field, write_field

app = typer.Typer(help="Learn a fleet's hills and look at them.", no_args_is_help=True)
DEFAULTS = TerrainSettings()


@app.command("learn")
def learn_(
    fleet: Annotated[Path, typer.Argument(help="Folder made by 'fedwatt data'.")],
    out: Annotated[Path, typer.Option(help="File of the new field (Parquet).")],
    minimum_vehicles: Annotated[
        int, typer.Option(help="Vehicles that must have driven a node before it is published, k.")
    ] = DEFAULTS.minimum_vehicles,
    cell: Annotated[float, typer.Option(help="Metres between nodes.")] = DEFAULTS.cell_m,
    split_seed: Annotated[
        int, typer.Option(help="Which trips are for training; only these are used.")
    ] = 0,
) -> None:
    """Learn the elevation field that the vehicles of a fleet may share."""
    settings = TerrainSettings(minimum_vehicles=minimum_vehicles, cell_m=cell)
    with console.status("Surveying ..."):
        data = DataSettings(split_seed=split_seed)
        field, driven = learn_shared(read_fleet(fleet), settings, data)
    write_field(out, field)
    console.print(
        f"{field.nodes:,} of {driven:,} nodes were driven by {minimum_vehicles} or more vehicles "
        f"and are in {out}; the others stay on board.",
        highlight=False,
    )


@app.command("map")
def map_(
    field: Annotated[Path, typer.Argument(help="File made by 'fedwatt terrain learn'.")],
    out: Annotated[Path, typer.Option(help="A .png, .svg, .pdf or .html file.")],
) -> None:
    """Draw a field as shaded relief with contours; .html pans and zooms without a network."""
    write_map(read_field(field), out)
    console.print(f"Map: {out}")
