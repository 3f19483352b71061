"""Draw the elevation map that VED's electric cars learn from their own energy, for the README.

    python -m benchmarks.elevation_map --fleet fleets/ved [--elevation-model POSTS]

The map has only nodes of an 80 m grid that at least three vehicles drove; the figure shows their
interpolated elevation and no trip, position or time of a vehicle. Writes
docs/figures/elevation_map.png and results/elevation_map.json.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib import colormaps
from matplotlib.cm import ScalarMappable
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.files import write_bytes, write_text
from fedwatt.report.figures.elevation import relief_of
from fedwatt.report.page import saved
from fedwatt.report.style import styled

ROOT: Final = Path(__file__).parents[1]
FIGURE: Final = ROOT / "docs" / "figures" / "elevation_map.png"
RECORD: Final = ROOT / "results" / "elevation_map.json"
LEAST_VEHICLES: Final = 3
"""Vehicles that must share a place before it is on the map: the default of a run."""
DPI: Final = 110


@styled
def map_figure(field: ElevationMap, vehicles: int) -> Figure:
    """Draw the largest region of an elevation map, wide enough for a page's first screen."""
    fewest = int(field.vehicles.min())
    if fewest < LEAST_VEHICLES:
        raise SystemExit(f"A node of the map was driven by {fewest} vehicles: it is not shown.")
    relief = relief_of(field)
    west, east, south, north = relief.extent
    width = 6.6
    figure = Figure(figsize=(width, width * (north - south) / (east - west) * 0.86 + 0.5))
    axes = figure.subplots()
    relief.draw(axes)
    axes.set(aspect="equal", xlim=(west, east), ylim=(south, north))
    axes.set(xlabel="km east", ylabel="km north")
    axes.grid(visible=False)
    axes.set_title(
        f"Elevation of Ann Arbor, learned by {vehicles} cars from their battery energy\n"
        f"(contours every {relief.step_m:g} m)"
    )
    low = float(np.nanmin(relief.height_m))
    high = float(np.nanmax(relief.height_m))
    land = ListedColormap(colormaps["terrain"](relief.colours(np.linspace(low, high, 256))))
    bar = figure.colorbar(
        ScalarMappable(Normalize(low, high), land), ax=axes, shrink=0.7, pad=0.02, aspect=30
    )
    bar.set_label("m above the mean")
    bar.outline.set_visible(False)
    return figure


def measured(field: ElevationMap, driven: int, elevation_model: Path | None) -> dict[str, Any]:
    """Return the size of a map and, with a terrain model, how far they agree."""
    record: dict[str, Any] = {
        "least_vehicles": LEAST_VEHICLES,
        "nodes": field.nodes,
        "driven_nodes": driven,
    }
    if elevation_model is not None:
        from fedwatt.elevation.compare import compare_with_reference
        from fedwatt.telemetry.terrain_model import read_terrain_model

        agreement = compare_with_reference(field, read_terrain_model([elevation_model]))
        record["terrain_model"] = {
            "nodes": agreement.nodes,
            "correlation": round(agreement.correlation, 3),
            "slope": round(agreement.slope, 3),
            "median_m": round(agreement.median_m, 2),
            "rms_m": round(agreement.rms_m, 2),
        }
    return record


def main() -> None:
    """Learn, draw and record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fleet", type=Path, default=Path("fleets/ved"))
    parser.add_argument("--elevation-model", type=Path, help="elevation posts to compare with")
    options = parser.parse_args()
    from fedwatt.elevation.learn import publish_map
    from fedwatt.telemetry.store import StoredVehicles
    from fedwatt.windows import DataSettings

    with tempfile.TemporaryDirectory(prefix="fedwatt-") as scratch:
        settings = ElevationSettings(minimum_vehicles=LEAST_VEHICLES)
        file = Path(scratch) / "map.parquet"
        field, driven = publish_map(options.fleet, file, settings, DataSettings())
    vehicles = StoredVehicles(options.fleet).count
    write_bytes(FIGURE, saved(map_figure(field, vehicles), "png", dpi=DPI))
    record = measured(field, driven, options.elevation_model)
    write_text(RECORD, json.dumps({"vehicles": vehicles} | record, indent=1) + "\n")


if __name__ == "__main__":
    main()
