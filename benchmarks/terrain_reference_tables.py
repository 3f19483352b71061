"""What terrain_reference.py measured, as a table and in words."""

import numpy as np

from benchmarks.terrain_rows import VEHICLES, Cells, markdown, overall, read, with_interval

CLIMBS = {
    "none": "none",
    "map": "SRTM",
    "map, smoothed": "SRTM, smoothed over 15 s",
    "learned, k = 3": "learned, published from 3 vehicles (default)",
    "learned": "learned, published from 1 vehicle",
}
MODELS = {
    "ridge": "local ridge",
    "network, global": "shared network",
    "network, personalised": "personalised network",
}


def table() -> str:
    """Return window errors by elevation source, over the splits."""
    cells: Cells = read("terrain_reference.json")
    rows = []
    for kind, head in CLIMBS.items():
        row = [head]
        for model in MODELS:
            errors = values(cells, f"{model}, {kind}, windows")
            row.append(with_interval(errors, digits=1) if errors else "")
        rows.append(row)
    heads = [f"{name}, Wh per minute" for name in MODELS.values()]
    return markdown(["elevation source", *heads], rows) if cells else ""


def values(cells: Cells, row: str) -> list[float]:
    """Of each split: RMSE over all vehicles' windows, or the mean of their median trip errors."""
    seeds = {s: own for s, own in cells.get(row, {}).items() if len(own) == VEHICLES}
    if row.endswith("windows"):
        return [overall(own) for own in seeds.values()]
    return [float(np.mean(list(own.values()))) for own in seeds.values()]


def gains() -> dict[str, list[float]]:
    """Return by model how many percent lower the error is than with the better reading of SRTM.

    One number for each split; the learned map is the default, published from three vehicles.
    """
    cells: Cells = read("terrain_reference.json")
    found = {}
    for model in MODELS:
        maps = [values(cells, f"{model}, {k}, windows") for k in ("map", "map, smoothed")]
        learned = values(cells, f"{model}, learned, k = 3, windows")
        if learned and len(learned) == len(maps[0]) == len(maps[1]):
            best = np.min(maps, axis=0)
            found[model] = (100 * (1 - np.array(learned) / best)).tolist()
    return found


def words() -> str:
    """Return the comparison with SRTM in words."""
    found = gains()
    if not found:
        return ""
    listed = "; ".join(f"{MODELS[name]} {with_interval(own)} %" for name, own in found.items())
    one = read("terrain_reference.json")["nodes"]["k = 3"]
    return (
        "With the learned map of the defaults the error is lower than with the better reading of "
        f"SRTM by: {listed} (mean over splits and its 95 % interval). Its {one['nodes']:,} nodes, "
        f"{one['known']:.0%} of them covered by SRTM: r = {one['correlation']:.3f}, slope "
        f"{one['slope']:.2f}, RMS {one['rms_m']:.1f} m, median {one['median_m']:.1f} m."
    )
