"""The map of a field as a picture, or as one page that pans and zooms without any network."""

from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from fedwatt.elevation.elevation_map import Field
from fedwatt.errors import SettingError
from fedwatt.report.figures.elevation import FEW_MANY, USUAL_K, Relief, elevation_figure, relief_of
from fedwatt.report.page import fill
from fedwatt.report.style import INK, MUTED, PAPER, STYLE
from fedwatt.report.svg import saved

DPI: Final = 220
PAGE_PIXELS: Final = 2200
KINDS: Final = (".png", ".svg", ".pdf", ".html")


def write_map(field: Field, out: Path, *, driven: int = 0) -> None:
    """Draw a field into a .png, .svg or .pdf file, or an .html page that pans and zooms.

    `driven` is how many nodes were driven at all, also those that are not in the field; 0: unknown.
    """
    if out.suffix not in KINDS:
        raise SettingError(
            f"A map is written to a file that ends in {', '.join(KINDS)}, not {out}."
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".html":
        out.write_text(map_page(relief_of(field), driven), encoding="utf-8")
        return
    figure = elevation_figure(field)
    out.write_bytes(saved(figure, out.suffix[1:], dpi=DPI if out.suffix == ".png" else "figure"))


def map_page(relief: Relief, driven: int = 0) -> str:
    """Return the page: the relief as one picture, the nodes as numbers for the other layers."""
    west, east, south, north = relief.extent
    across = (relief.east_km - west) / (east - west)
    down = (north - relief.north_km) / (north - south)
    low = float(np.nanmin(relief.height_m))
    high = float(np.nanmax(relief.height_m))
    land = colormaps["terrain"](relief.colours(np.linspace(low, high, 9)))
    heat = colormaps["viridis_r"](np.linspace(0, 1, 16))
    with matplotlib.rc_context(STYLE):
        picture = relief.image(PAGE_PIXELS)
    facts: dict[str, Any] = {
        "kilometres": [east - west, north - south],
        "nodes": len(relief.east_km),
        "x": _packed(across * 65535, "<u2"),
        "y": _packed(down * 65535, "<u2"),
        "passes": _packed(np.clip(relief.passes, 1, 65535), "<u2"),
        "vehicles": _packed(np.clip(relief.vehicles, 0, 255), "u1"),
        "cell": relief.field.grid.cell_m / 1000,
        "heat": [to_hex(colour) for colour in heat],
        "few_many": list(FEW_MANY),
        "most_passes": int(max(relief.passes.max(), 2)),
    }
    return fill(
        "fedwatt.report",
        "elevation.html.jinja",
        picture=b64encode(picture).decode(),
        facts=facts,
        nodes=relief.field.nodes,
        shown=len(relief.east_km),
        least=int(relief.vehicles.min()),
        most=int(min(relief.vehicles.max(), 20)),
        usual_k=max(USUAL_K, int(relief.vehicles.min())),
        driven=driven,
        step=f"{relief.step_m:g}",
        low=f"{low:+.0f}".replace("-", "\N{MINUS SIGN}"),
        high=f"{high:+.0f}",
        land=[to_hex(colour) for colour in land],
        ink=INK,
        muted=MUTED,
        paper=PAPER,
    )


def _packed(values: np.ndarray, kind: str) -> str:
    return b64encode(np.round(values).astype(kind).tobytes()).decode()
