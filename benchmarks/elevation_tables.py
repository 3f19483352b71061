"""Write the tables of docs/accuracy.md from results/elevation_*.json, between their markers.

python -m benchmarks.elevation_tables
"""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks.marked import write_blocks
from benchmarks.tables import Cells, by_seed, markdown, read, with_interval

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "accuracy.md"

CLIMBS = {
    "none": "none",
    "map": "SRTM",
    "map, smoothed": "SRTM, smoothed over 15 s",
    "learned, k = 3": "learned, published from 3 vehicles (default)",
    "learned": "learned, published from 1 vehicle",
}
MODELS = {
    "ridge": "local ridge",
    "shared": "shared network",
    "personalised": "personalised network",
}
UNSEEN = {
    "no elevation, personalised": ("personalised", "none", "–"),
    "k = 3 of others, private map, shared": (
        "shared",
        "learned by the others; the rest from own trips",
        "3 vehicles (default)",
    ),
    "k = 3 of others, private map, personalised": (
        "personalised",
        "learned by the others; the rest from own trips",
        "3 vehicles (default)",
    ),
    "map of others, personalised": ("personalised", "learned by the others", "1 vehicle"),
}
"""Row of elevation_unseen.json → model, elevation source, and who must share a published place."""
INPUTS = ["measured", "measured", "none"]
"""Speed, climate power and own past of the trip, in every row."""


# ------------------------------------------------------------------------------ tables
def unseen_table() -> str:
    """Return the errors on vehicles that took no part, with the inputs of each row."""
    cells: Cells = read("elevation_unseen.json")
    rows = []
    for row, model_and_map in UNSEEN.items():
        if values := by_seed(cells.get(row, {})):
            rows.append(
                [*model_and_map, *INPUTS, with_interval(list(values.values())), str(len(values))]
            )
    head = ["model", "elevation source", "published from", "speed", "climate power"]
    head += ["own past of the trip", "RMSE, Wh per minute", "splits"]
    return markdown(head, rows)


def reference_table() -> str:
    """Return window errors by elevation source, over the splits."""
    cells: Cells = read("elevation_reference.json")
    rows = [
        [head, *(with_interval(errors(cells, model, kind)) for model in MODELS)]
        for kind, head in CLIMBS.items()
    ]
    heads = [f"{name}, Wh per minute" for name in MODELS.values()]
    return markdown(["elevation source", *heads], rows)


def errors(cells: Cells, model: str, kind: str) -> list[float]:
    """Return the RMSE over all vehicles' windows of each split."""
    return list(by_seed(cells[f"{model}, {kind}"]).values())


def reference_words() -> str:
    """Return the comparison of the default map with the better reading of SRTM in words."""
    record = read("elevation_reference.json")
    gains = []
    for model, name in MODELS.items():
        best = np.min([errors(record, model, kind) for kind in ("map", "map, smoothed")], axis=0)
        learned = np.array(errors(record, model, "learned, k = 3"))
        gains.append(f"{name} {with_interval((100 * (1 - learned / best)).tolist())} %")
    nodes = record["nodes"]["k = 3"]
    return (
        "With the learned map of the defaults the error is lower than with the better reading of "
        f"SRTM by: {'; '.join(gains)} (mean over splits and its 95 % interval). Its "
        f"{nodes['nodes']:,} nodes, {nodes['known']:.0%} of them covered by SRTM: r = "
        f"{nodes['correlation']:.3f}, slope {nodes['slope']:.2f}, RMS {nodes['rms_m']:.1f} m, "
        f"median {nodes['median_m']:.1f} m."
    )


def fault_words() -> str:
    """Return how far the worst vehicle is off with wrong positions, beside no elevation.

    Errors over all vehicles are means over seeds, as in the other tables.
    """
    cells: Cells = read("elevation_faults.json")
    single: list[tuple[float, str]] = []
    chance = -1.0
    worst = dict[str, float]()
    for row, splits in cells.items():
        fault, which = row.rsplit(", ", 1)
        without = cells[f"no elevation, {which}"]
        if fault == "no elevation":
            continue
        each = {
            (seed, name): errors[name] / without[seed][name] - 1
            for seed, errors in splits.items()
            for name in errors
        }
        if "another initial model" in fault:
            chance = max(chance, *each.values())
            continue
        names = sorted(next(iter(splits.values())))
        for name in names:
            worst[name] = max(worst.get(name, -1.0), change(splits, without, [name]))
        single += [(share, f"{name}, {fault}") for (_, name), share in each.items()]
    most, where = max(single)
    last, second, *_ = sorted(worst, key=lambda name: -worst[name])
    return (
        f"With nine kinds of wrong positions, the worst vehicle is {last}, at "
        f"{percent(worst[last])} against no elevation over the splits; no other is above "
        f"{percent(worst[second])}. In one split of one vehicle it is at most {percent(most)} "
        f"({where}), where another initial model alone makes up to {percent(chance)}."
    )


def mask_words() -> str:
    """Return how one network compares with two, one for each of known and unknown elevation."""
    cells: Cells = read("elevation_masked.json")

    def compared(which: str, other: str) -> str:
        ours = by_seed(cells[f"one network, {which}"])
        theirs = by_seed(cells[f"{other}, recorded"])
        change = np.mean([100 * (ours[seed] / theirs[seed] - 1) for seed in ours])
        first = np.mean(list(ours.values()))
        second = np.mean(list(theirs.values()))
        return f"{first:.1f} instead of {second:.1f} Wh ({change:+.1f} %)"

    return (
        "One network serves known and unknown elevation: one training window in sixteen is "
        "repeated with its elevation masked. Over "
        f"{len(by_seed(cells['one network, recorded']))} splits its personalised models have "
        f"{compared('recorded', 'network with elevation')} of a network that sees no masked "
        "window, and, where all elevation is masked, "
        f"{compared('masked', 'network without elevation')} of a network without elevation "
        "(`python -m benchmarks.elevation_masked`)."
    )


def change(
    ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]], vehicles: Sequence[str]
) -> float:
    """Return by which share the RMSE over seeds and vehicles is larger than another one."""
    first, second = (
        np.array([[row[seed][name] for name in vehicles] for seed in ours])
        for row in (ours, theirs)
    )
    return float(np.sqrt(np.mean(first**2) / np.mean(second**2)) - 1)


def percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def noise_words() -> str:
    """Return what noise leaves of a map, by the size of the fleet."""
    rows = [row for row in read("elevation_noise.json").get("rows", ()) if row["epsilon"]]
    parts = [
        f"{row['vehicles']:,} vehicles, ε = {row['epsilon']:.1f}: {row['correlation']:.2f}"
        for row in rows
        if row["correlation"] is not None and 6 < row["epsilon"] < 9
    ]
    return (
        "Noise takes a large fleet. Correlation with the true elevations of an invented town "
        f"(`python -m benchmarks.elevation_noise`): {'; '.join(parts)}."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "unseen": unseen_table,
    "one network": mask_words,
    "faults in words": fault_words,
    "reference": reference_table,
    "reference in words": reference_words,
    "noise": noise_words,
}


def blocks() -> dict[str, str]:
    """Return every block of the page by its name."""
    return {name: table() for name, table in BLOCKS.items()}


if __name__ == "__main__":
    write_blocks(PAGE, blocks())
