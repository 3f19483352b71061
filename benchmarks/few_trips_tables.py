"""Tables of results/few_trips.md on choices with few trips, from results/*.json.

python -m benchmarks.few_trips_tables
"""

import json
from collections.abc import Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from fedwatt.federation.selection import BROKEN

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "results" / "few_trips.md"
RULES = {
    "last": "round, last",
    "best-validated": "round, within 0/√trips",
    "latest within 1/8√n of the best": "round, within 0.125/√trips",
    "mean of the last five": "mean 5, last",
    "best-validated mean of five": "mean 5, within 0/√trips",
    "mean of the five best": "mean of the 5 best",
    "mean of best and last": "mean of the 1 best and last",
    "kept by a run": "kept by a run",
    "mean of the five best and the last five": "mean of the 5 best and last",
}
RATIO = "validation of the mean over that of the best"
STRICT = 1.1
"""A limit to broken means that would be too low."""


def kept_table(record: Mapping[str, Any]) -> str:
    """Test RMSE of the better of last and best-validated, and what each rule adds to it."""
    lines = [
        f"| fleet | validation trips | better of the two, Wh | {' | '.join(RULES)} |",
        f"|---|---|---|{'---|' * len(RULES)}",
    ]
    for fleet, splits in record.items():
        least, added = _added(splits)
        trips = np.mean([own["validation trips"] for own in splits.values()])
        cells = [f"{value:+.1f} %" for value in added.values()]
        lines.append(f"| {fleet} | {trips:.0f} | {least:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _added(splits: Mapping[str, Any]) -> tuple[float, dict[str, float]]:
    """Mean test RMSE of the better of last and best-validated, and what each rule adds, in %."""
    means = {
        name: float(np.mean([own[rule] for own in splits.values()])) for name, rule in RULES.items()
    }
    least = min(means["last"], means["best-validated"])
    return least, {name: 100 * (value / least - 1) for name, value in means.items()}


def kept_words(record: Mapping[str, Any]) -> str:
    """Which rules are within 1 % everywhere."""
    added = [_added(splits)[1] for splits in record.values()]
    worst = {name: max(own[name] for own in added) for name in RULES}
    others = [name for name in RULES if name != "kept by a run"]
    good = [f"the {name} (at worst {worst[name]:+.1f} %)" for name in others if worst[name] <= 1]
    found = " and ".join(good) if good else "no rule"
    best = worst["best-validated"]
    return (
        f"Within 1 % of the better of the two on every fleet, by the mean over splits: {found}. "
        f"The best-validated model alone is at worst {best:+.1f} %."
    )


def broken_words(record: Mapping[str, Any]) -> str:
    """How badly means of best and last validate, and what a run keeps."""
    every = [own for splits in record.values() for own in splits.values()]
    broken = sum(own[RATIO] > BROKEN for own in every)
    worst = max(every, key=itemgetter(RATIO))
    tested = 100 * (worst["mean of the 1 best and last"] / worst["mean of the 1 best"] - 1)
    added = max(_added(splits)[1]["kept by a run"] for splits in record.values())
    strict = max(map(_added_by_strict, record.values()))
    return (
        f"What a run keeps is at worst {added:+.1f} % from the better of the two. Of these "
        f"{len(every)} means {broken or 'none'} validated above {BROKEN:g} times the best model, "
        f"at which a mean counts as broken; the highest was {worst[RATIO]:.2f} times, of a mean "
        f"whose test error is {tested:+.1f} % beside the best model's. With {STRICT:g} in place of "
        f"{BROKEN:g}, what is kept would be at worst {strict:+.1f} %: the trips that chose "
        "the best round cannot choose again."
    )


def _added_by_strict(splits: Mapping[str, Any]) -> float:
    """What a stricter limit to broken means would add to the better of last and best, in %."""
    kept = [
        own["mean of the 1 best and last" if own[RATIO] <= STRICT else "mean of the 1 best"]
        for own in splits.values()
    ]
    return 100 * (float(np.mean(kept)) / _added(splits)[0] - 1)


def blocks() -> dict[str, str]:
    """The blocks of results/few_trips.md."""
    file = ROOT / "results" / "final_model.json"
    kept = json.loads(file.read_text(encoding="utf-8"))
    return {
        "kept model": kept_table(kept),
        "kept model in words": kept_words(kept),
        "broken means in words": broken_words(kept),
    }


if __name__ == "__main__":
    write_blocks(PAGE, blocks())
