"""Write the tables of docs/accuracy.md from results/terrain_*.json, between their markers.

    python benchmarks/terrain_tables.py            # --check: only say whether it is up to date

Rows that have not been measured yet are left out.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from benchmarks import marked
from benchmarks import terrain_reference_tables as reference
from benchmarks.terrain_rows import Cells, by_seed, markdown, read, with_interval

REPOSITORY = Path(__file__).resolve().parents[1]
PAGE = REPOSITORY / "docs" / "accuracy.md"

UNSEEN = {
    "unseen_vehicle, fedavg, no elevation, personalised": ("personalised", "none", "–"),
    "unseen_vehicle, fedavg, k = 3 of others, private field, global": (
        "shared",
        "learned by the others; the rest from own trips",
        "3 vehicles (default)",
    ),
    "unseen_vehicle, fedavg, k = 3 of others, private field, personalised": (
        "personalised",
        "learned by the others; the rest from own trips",
        "3 vehicles (default)",
    ),
    "unseen_vehicle, fedavg, field of others, personalised": (
        "personalised",
        "learned by the others",
        "1 vehicle",
    ),
}
"""Row of terrain_ved.json → model, elevation source, and who must share a published place."""
INPUTS = ["measured", "measured", "none"]
"""Speed, climate power and own past of the trip, in every row."""


# ------------------------------------------------------------------------------ tables
def unseen_table() -> str:
    """Return the errors on vehicles that took no part, with the inputs of each row."""
    cells: Cells = read("terrain_ved.json")
    rows = []
    for row, about in UNSEEN.items():
        if values := by_seed(cells.get(row, {})):
            rows.append([*about, *INPUTS, with_interval(list(values.values())), str(len(values))])
    head = ["model", "elevation source", "published from", "speed", "climate power"]
    head += ["own past of the trip", "RMSE, Wh per minute", "splits"]
    return markdown(head, rows)


def fault_words() -> str:
    """Return how far the worst vehicle is off with wrong positions, beside no elevation.

    Errors over all vehicles are means over seeds, as in the other tables.
    """
    cells: Cells = read("terrain_faults.json")
    if not cells:
        return ""
    single: list[tuple[float, str]] = []
    chance = -1.0
    worst = dict[str, float]()
    for row, splits in cells.items():
        fault, which = row.rsplit(", ", 1)
        without = cells.get(f"no elevation, {which}")
        if without is None or fault in ("no elevation", "no fault"):
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
    cells: Cells = read("masked_elevation.json")
    if not cells:
        return ""

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
        "(`python -m benchmarks.masked_elevation`)."
    )


def change(
    ours: dict[str, dict[str, float]], theirs: dict[str, dict[str, float]], vehicles: Sequence[str]
) -> float:
    """By how much the RMSE over seeds and vehicles is larger than that of others, as a share."""
    one, other = (
        np.array([[row[seed][name] for name in vehicles] for seed in ours])
        for row in (ours, theirs)
    )
    return float(np.sqrt(np.mean(one**2) / np.mean(other**2)) - 1)


def percent(share: float) -> str:
    return f"{100 * share:+.1f} %"


def noise_words() -> str:
    """Return what noise leaves of a map, by the size of the fleet."""
    rows = [row for row in read("terrain_private.json").get("rows", ()) if row["epsilon"]]
    parts = [
        f"{row['vehicles']:,} vehicles, ε = {row['epsilon']:.1f}: {row['correlation']:.2f}"
        for row in rows
        if row["correlation"] is not None and 6 < row["epsilon"] < 9
    ]
    return (
        "Noise takes a large fleet. Correlation with the true elevations of an invented town "
        f"(`python -m benchmarks.terrain_private`): {'; '.join(parts)}."
    )


BLOCKS: dict[str, Callable[[], str]] = {
    "unseen": unseen_table,
    "one network": mask_words,
    "faults in words": fault_words,
    "reference": reference.table,
    "reference in words": reference.words,
    "noise": noise_words,
}


def filled(text: str) -> str:
    """The page with every block written anew."""
    return marked.filled(text, {name: table() or "Not measured." for name, table in BLOCKS.items()})


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--check", action="store_true", help="change nothing; fail if out of date")
    check = options.parse_args().check
    text = PAGE.read_text(encoding="utf-8")
    fresh = filled(text)
    if check:
        sys.exit(0 if fresh == text else f"{PAGE} is out of date: run this without --check.")
    PAGE.write_text(fresh, encoding="utf-8")


if __name__ == "__main__":
    main()
