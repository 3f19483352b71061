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
from fedwatt.elevation.level import Evidence
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
GATES = (0.5, 0.7, 0.8, 0.9)


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


def gate_table(record: Mapping[str, Any]) -> str:
    """Mean test RMSE of both models and of what a gate with each share would have used."""
    gates = [f"gate at {share:g}" for share in GATES]
    lines = [
        f"| vehicle alone | level | hills | {' | '.join(gates)} |",
        f"|---|---|---|{'---|' * 4}",
    ]
    for fleet, splits in record.items():
        own = list(splits.values())
        level, hilly = (np.mean([one[name] for one in own]) for name in ("level", "hilly"))
        cells = []
        for share in GATES:
            used = [
                one["hilly" if seen.bears_out(share) else "level"]
                for one, seen in zip(own, map(_evidence, own), strict=True)
            ]
            cells.append(f"{np.mean(used):.1f}")
        lines.append(f"| {fleet} | {level:.1f} | {hilly:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def gate_words(record: Mapping[str, Any]) -> str:
    """How often hills were better, and how often gates turn good ones away."""
    own = [one for fleet, found in record.items() if "recorded" in fleet for one in found.values()]
    better = [one for one in own if one["hilly"] < one["level"]]
    away = {
        share: sum(not _evidence(one).bears_out(share) for one in better)
        for share in (GATES[0], GATES[-1])
    }
    return (
        f"With recorded positions hills were better in {len(better)} of {len(own)} trainings, of "
        f"which a gate at {GATES[0]:g} turns {away[GATES[0]]} away and one at {GATES[-1]:g}, the "
        f"library's, {away[GATES[-1]]}. Wrong positions are mostly given up before, when a vehicle "
        "chooses its field, so that the gate has little left to do."
    )


def _evidence(one: Mapping[str, Any]) -> Evidence:
    """What was recorded of a vehicle's validation windows; null where no climb is known."""
    sure, left = (np.nan if one[name] is None else one[name] for name in ("sure", "far"))
    return Evidence(sure, left)


def blocks() -> dict[str, str]:
    """The blocks of results/few_trips.md."""
    kept, gate = (
        json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("final_model", "hills_gate")
    )
    return {
        "kept model": kept_table(kept),
        "kept model in words": kept_words(kept),
        "broken means in words": broken_words(kept),
        "hills gate": gate_table(gate),
        "hills gate in words": gate_words(gate),
    }


if __name__ == "__main__":
    write_blocks(PAGE, blocks())
