"""What terrain_reference.py measured, as a table and in words."""

import numpy as np

from benchmarks.terrain_rows import VEHICLES, Cells, markdown, overall, read, with_interval

CLIMBS = {
    "none": "no climb",
    "map": "SRTM",
    "map, smoothed": "SRTM, smoothed over 15 s",
    "learned": "learned, fleet's field",
    "learned, k = 3": "learned, k = 3 and private ground",
    "both": "learned and SRTM",
}
JUDGED_MODELS = {
    "ridge": "ridge",
    "network, global": "network, global",
    "network, personal": "network, personal",
}


def table() -> str:
    """Window and trip errors by where climb is from, over the splits."""
    cells: Cells = read("terrain_reference.json")
    rows = []
    for kind, head in CLIMBS.items():
        row = [head]
        for model in JUDGED_MODELS:
            for what, digits in (("windows", 1), ("trips", 1)):
                found = values(cells, f"{model}, {kind}, {what}")
                row.append(with_interval(found, digits=digits) if found else "")
        rows.append(row)
    heads = [f"{name}, {what}" for name in JUDGED_MODELS for what in ("Wh a window", "trip, %")]
    return markdown(["climb", *heads], rows) if cells else ""


def values(cells: Cells, row: str) -> list[float]:
    """Of each split: RMSE over all vehicles' windows, or the mean of their median trip errors."""
    seeds = {s: own for s, own in cells.get(row, {}).items() if len(own) == VEHICLES}
    if row.endswith("windows"):
        return [overall(own) for own in seeds.values()]
    return [float(np.mean(list(own.values()))) for own in seeds.values()]


def gains() -> dict[str, list[float]]:
    """By model, how much lower than with the better of both maps the error is, split by split."""
    cells: Cells = read("terrain_reference.json")
    found = {}
    for model in JUDGED_MODELS:
        maps = [values(cells, f"{model}, {k}, windows") for k in ("map", "map, smoothed")]
        learned = values(cells, f"{model}, learned, windows")
        if learned and len(learned) == len(maps[0]) == len(maps[1]):
            best = np.min(maps, axis=0)
            found[model] = (100 * (1 - np.array(learned) / best)).tolist()
    return found


def words() -> str:
    """What the comparison with the map comes to."""
    found = gains()
    if not found:
        return ""
    listed = "; ".join(f"{model} {with_interval(own)} %" for model, own in found.items())
    nodes = read("terrain_reference.json").get("nodes", {})
    lines = [
        "With the fleet's own hills the error of a window is lower than with the better of the two "
        f"readings of SRTM by: {listed} (mean over splits and its 95 % interval)."
    ]
    for name, one in nodes.items():
        grades = ", ".join(
            f"{100 * grade['difference']:.2f} % over {grade['span_m'] / 1000:g} km "
            f"(of {100 * grade['reference']:.2f} %)"
            for grade in one["grades"]
        )
        lines.append(
            f"Node by node, {name}: {one['known']:.0%} of {one['nodes']:,} nodes are known to the "
            f"posts; r = {one['correlation']:.3f}, slope {one['slope']:.2f}, RMS "
            f"{one['rms_m']:.1f} m, median {one['median_m']:.1f} m; grades differ by {grades}."
        )
    return "\n\n".join(lines)
