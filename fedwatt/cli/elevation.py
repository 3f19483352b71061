"""`fedwatt elevation`: learn a fleet's elevation map, draw it, compare it with others."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from fedwatt.cli.console import Json, console, print_json
from fedwatt.cli.data.shared import Fleet
from fedwatt.cli.options import OUT_HELP
from fedwatt.cli.panels import Panels
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import DataError, SettingError
from fedwatt.windows import DataSettings

if TYPE_CHECKING:
    from fedwatt.elevation.elevation_map import ElevationMap

app = typer.Typer(cls=Panels, no_args_is_help=True)
FieldFile = Annotated[Path, typer.Argument(help="File of 'elevation learn', or a run folder.")]
DEFAULTS = ElevationSettings()
DATA = DataSettings()


@app.command("learn")
def learn_(
    fleet: Fleet,
    out: Annotated[Path, typer.Option(help=OUT_HELP)],
    minimum_vehicles: Annotated[
        int, typer.Option("--min-vehicles", help="Publish nodes of at least so many vehicles, k.")
    ] = DEFAULTS.minimum_vehicles,
    cell: Annotated[float, typer.Option(help="Set the metres between nodes.")] = DEFAULTS.cell_m,
    split_seed: Annotated[
        int, typer.Option(help="Set data.split_seed of the runs to come.")
    ] = DATA.split_seed,
    split: Annotated[
        tuple[float, float, float],
        typer.Option(help="Set data.split of the runs to come."),
    ] = DATA.split,
    window: Annotated[int, typer.Option(help="Set data.window of the runs to come.")] = DATA.window,
    held_out: Annotated[
        int, typer.Option(help="Set data.held_out of the runs to come.")
    ] = DATA.held_out,
) -> None:
    """Learn the elevation map that the vehicles of a fleet may share."""
    from fedwatt.elevation.learn import publish_map

    settings = ElevationSettings(minimum_vehicles=minimum_vehicles, cell_m=cell)
    data = DataSettings(split_seed=split_seed, split=split, window=window, held_out=held_out)
    with console.status("Surveying ..."):
        field, driven = publish_map(fleet, out, settings, data)
    console.print(
        f"{field.nodes:,} of {driven:,} nodes were driven by {minimum_vehicles} or more vehicles "
        f"and are in {out}; the others stay in the vehicles."
    )


@app.command("map")
def map_(
    field: FieldFile,
    out: Annotated[Path, typer.Option(help=OUT_HELP)],
) -> None:
    """Draw a map as shaded relief with contours; an .html file pans and zooms."""
    from fedwatt.elevation.store import driven_nodes, read_map_file
    from fedwatt.report.figures.elevation import write_map

    file = map_file(field)
    write_map(read_map_file(file), out, driven=driven_nodes(file))
    console.print(f"Map: {out}")


@app.command("compare")
def compare_(
    field: FieldFile,
    truth: Annotated[
        Path,
        typer.Argument(help="Fleet with measured elevation, or .hgt, GeoTIFF, .csv or .parquet."),
    ],
    plot: Annotated[Path | None, typer.Option(help="Draw a figure into this SVG file.")] = None,
    as_json: Json = False,
) -> None:
    """Compare a learned map with measured elevation or a terrain model."""
    from fedwatt.elevation.store import read_map_file

    learned = read_map_file(map_file(field))
    fleet = (truth / "fleet.json").is_file()
    if fleet and plot is not None:
        raise SettingError("--plot draws a comparison with a terrain model, not with a fleet.")
    rows = _against_fleet(learned, truth) if fleet else _against_model(learned, truth, plot)
    if as_json:
        print_json(rows)
        return
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for name, value in rows.items():
        table.add_row(name, value)
    console.print(table)
    if plot is not None:
        console.print(f"Figure: {plot}")


def _against_fleet(field: "ElevationMap", fleet: Path) -> dict[str, str]:
    """Return the agreement of an elevation map with a fleet's measured elevation."""
    from fedwatt.elevation.compare import compare
    from fedwatt.telemetry.store import read_fleet

    found = compare(field, read_fleet(fleet))
    return {
        "seconds driven with both": f"{found.seconds:,}",
        "of these known to the field": f"{found.known:.1%}",
        "correlation of elevations": f"{found.correlation:.3f}",
        "metres of the field for a metre measured": f"{found.scale:.3f}",
        "elevations differ by (RMS)": f"{found.difference_m:.1f} m",
        "minutes compared": f"{found.minutes:,}",
        "correlation of climbs in a minute": f"{found.climb_correlation:.3f}",
        "climbs differ by (RMS)": f"{found.climb_difference_m:.1f} m",
        "a level road would miss (RMS)": f"{found.climb_m:.1f} m",
    }


def _against_model(field: "ElevationMap", model: Path, figure: Path | None) -> dict[str, str]:
    """Return the agreement of an elevation map with a terrain model, drawn into `figure` if
    given.
    """
    from fedwatt.elevation.compare import compare_with_reference
    from fedwatt.telemetry.maps import read_terrain_model

    found = compare_with_reference(field, read_terrain_model([model]))
    if figure is not None:
        from fedwatt.report.figures.elevation import baseline_figure
        from fedwatt.report.page import saved

        figure.write_bytes(saved(baseline_figure(found)))
    rows = {
        "nodes of the field": f"{found.nodes:,}",
        "of these known to the terrain model": f"{found.known:.1%}",
        "correlation of elevations": f"{found.correlation:.3f}",
        "metres of the field for a metre of the model": f"{found.slope:.3f}",
        "elevations differ by (RMS)": f"{found.rms_m:.1f} m",
        "elevations differ by (median)": f"{found.median_m:.1f} m",
    }
    for one in found.grades:
        about = f"grades over {one.span_m / 1000:g} km differ by (RMS; level road)"
        nothing = "no nodes that far apart"
        percent = f"{one.difference:.2%} ({one.reference:.2%})"
        rows[about] = percent if one.pairs else nothing
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
