"""Tables of docs/journeys.md on choices with few trips, from results/*.json.

python -m benchmarks.few_trips_tables
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks

ROOT = Path(__file__).resolve().parents[1]
RULES = {
    "last": "round, last",
    "best-validated": "round, within 0/√trips",
    "latest within 1/8√n of the best": "round, within 0.125/√trips",
    "mean of the last five": "mean 5, last",
    "best-validated mean of five": "mean 5, within 0/√trips",
}
SURE, GATES = 2.0, (0.5, 0.7, 0.8, 0.9)


def kept_table(record: Mapping[str, Any]) -> str:
    """Test RMSE of the better of last and best-validated, and what each rule adds to it."""
    lines = [
        f"| fleet | validation trips | better of the two, Wh | {' | '.join(RULES)} |",
        f"|---|---|---|{'---|' * len(RULES)}",
    ]
    for fleet, splits in record.items():
        means = {
            name: float(np.mean([own[rule] for own in splits.values()]))
            for name, rule in RULES.items()
        }
        least = min(means["last"], means["best-validated"])
        trips = np.mean([own["validation trips"] for own in splits.values()])
        cells = [f"{100 * (value / least - 1):+.1f} %" for value in means.values()]
        lines.append(f"| {fleet} | {trips:.0f} | {least:.2f} | {' | '.join(cells)} |")
    return "\n".join(lines)


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
                one["hilly"]
                if one["far"] is not None and (one["sure"] >= SURE or one["far"] <= share)
                else one["level"]
                for one in own
            ]
            cells.append(f"{np.mean(used):.1f}")
        lines.append(f"| {fleet} | {level:.1f} | {hilly:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    kept, gate = (
        json.loads((ROOT / "results" / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("kept_model", "hills_gate")
    )
    blocks = {"kept model": kept_table(kept), "hills gate": gate_table(gate)}
    write_blocks(ROOT / "docs" / "journeys.md", blocks)


if __name__ == "__main__":
    main()
