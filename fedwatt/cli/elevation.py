"""`fedwatt elevation`: learn a fleet's elevation map, draw it, compare it with a terrain model."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fedwatt.cli.console import Json, Panels, console, print_json, ruled_table
from fedwatt.cli.data.shared import Fleet, Out
from fedwatt.cli.options import Assignments
from fedwatt.errors import DataError

if TYPE_CHECKING:
    from fedwatt.elevation.compare import TerrainAgreement

app = typer.Typer(cls=Panels, no_args_is_help=True)
MapFile = Annotated[Path, typer.Argument(help="File of 'elevation learn', or a run folder.")]


@app.command("learn")
def learn_(
    fleet: Fleet,
    out: Out,
    assignments: Assignments = None,
) -> None:
    """Learn the elevation map that a run with these settings may read."""
    from fedwatt.elevation.learn import publish_map
    from fedwatt.runs.config import from_tables, override

    config = from_tables(override({}, assignments or []))
    settings = config.elevation
    with console.status("Surveying ..."):
        elevation_map, driven = publish_map(fleet, out, settings, config.data)
    console.print(
        f"{elevation_map.nodes:,} of {driven:,} nodes were driven by "
        f"{settings.minimum_vehicles} or more vehicles and are in {out}; the others stay in the "
        "vehicles."
    )


@app.command("map")
def map_(
    elevation_map: MapFile,
    out: Out,
) -> None:
    """Draw a map as shaded relief with contours, as PNG, SVG or PDF."""
    from fedwatt.elevation.store import read_map_file
    from fedwatt.report.figures.elevation import write_map

    write_map(read_map_file(map_file(elevation_map)), out)
    console.print(f"Map: {out}")


@app.command("compare")
def compare_(
    elevation_map: MapFile,
    model: Annotated[Path, typer.Argument(help="Terrain model: .hgt, GeoTIFF, .csv or .parquet.")],
    as_json: Json = False,
) -> None:
    """Compare a learned map with a terrain model."""
    from fedwatt.elevation.compare import compare_with_reference
    from fedwatt.elevation.store import read_map_file
    from fedwatt.telemetry.terrain_model import read_terrain_model

    learned = read_map_file(map_file(elevation_map))
    agreement = compare_with_reference(learned, read_terrain_model([model]))
    rows = _agreement_rows(agreement)
    if as_json:
        print_json(rows)
    else:
        console.print(ruled_table("", ("", ""), rows.items()))


def _agreement_rows(agreement: "TerrainAgreement") -> dict[str, str]:
    """Return the agreement of a map with a terrain model."""
    rows = {
        "nodes of the map": f"{agreement.nodes:,}",
        "of these covered by the terrain model": f"{agreement.covered:.1%}",
        "correlation of elevations": f"{agreement.correlation:.3f}",
        "metres of the map per metre of the model": f"{agreement.slope:.3f}",
        "elevations differ by (RMS)": f"{agreement.rms_m:.1f} m",
        "elevations differ by (median)": f"{agreement.median_m:.1f} m",
    }
    for grade in agreement.grades:
        percent = f"{grade.difference:.2%} ({grade.reference:.2%})"
        name = f"grades over {grade.span_m / 1000:g} km differ by (RMS; level map)"
        rows[name] = percent if grade.pairs else "no nodes that far apart"
    return rows


def map_file(path: Path) -> Path:
    """Return the elevation map of a file or of a run folder."""
    if not path.is_dir():
        return path
    file = path / "elevation_map.parquet"
    if not file.is_file():
        raise DataError(
            f"{path} has no elevation map {file.name}. A run has one if its features include "
            "elevation."
        )
    return file
