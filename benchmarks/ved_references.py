"""What federating gains over each vehicle alone on VED, without and with hills.

    python -m benchmarks.ved_references --fleet fleets/ved [--features level] [--device cuda]
    python -m benchmarks.ved_references --record

The first command trains (several processes may each take one of the feature sets), the second
reads the run folders, writes results/ved_references.json, the tables of docs/accuracy.md and a
sentence of README.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from benchmarks.marked import write_blocks
from fedwatt.runs import Observer, execute, from_toml

FEATURES: Final = {"level": "base", "hills": "base, terrain"}
COLUMNS: Final = {"kept": "kept_test_rmse", "best": "best_test_rmse", "last": "test_rmse"}
"""Test RMSE of all windows in the table of rounds, by model."""
CONFIG: Final = """
seeds = [1, 2, 3]
device = "{device}"
[fleet]
data = "{fleet}"
[data]
features = "{features}"
[training]
rounds = 40
[personal]
enabled = true
[[method]]
name = "fedavg"
rate = 0.02
"""


class Lines(Observer):
    """A line every tenth round."""

    def on_fleet(self, fleet: Any) -> None:
        print(fleet, flush=True)

    def on_start(self, label: str, done: int, rounds: int) -> None:
        print(label, flush=True)

    def on_round(self, label: str, state: Any, record: Any) -> None:
        if state.round % 10 == 0:
            print(label, state.round, record.rounds[0]["test_rmse"], flush=True)

    def on_reference(self, name: str) -> None:
        print(name, flush=True)


def recorded(folder: Path) -> dict[str, Any]:
    """What the report of a run says about federating, as numbers."""
    from fedwatt.report.answer import answer
    from fedwatt.report.load import load_run
    from fedwatt.report.references import federating, references_table
    from fedwatt.report.statistics import Estimate, final

    run = load_run(folder)
    found, table = federating(run), references_table(run)
    assert found is not None
    rows = [
        [
            asdict(cell) if isinstance(cell, Estimate) else None if cell != cell else cell
            for cell in row  # a cell that is not equal to itself is NaN: JSON has none
        ]
        for row in table.rows
    ]
    said = answer(run)
    return {
        "headline": said.headline,
        "sentence": said.sentences[0],
        "gain": asdict(found),
        "models": {
            model: {method: final(run, method, column) for method in run.methods}
            for model, column in COLUMNS.items()
        },
        "columns": [column.heading for column in table.columns],
        "rows": rows,
    }


def shown(folder: Path) -> str:
    """The report's first sentence and its table of references, in Markdown."""
    from fedwatt.report.answer import answer
    from fedwatt.report.load import load_run
    from fedwatt.report.references import references_table

    run = load_run(folder)
    said = answer(run)
    return f"{said.headline}. {said.sentences[0]}\n\n{references_table(run).markdown().strip()}"


def in_short(found: dict[str, Any]) -> str:
    """README's paragraph."""
    hills, level = (found[name]["gain"] for name in ("hills", "level"))

    def interval(gain: dict[str, Any]) -> str:
        return f"95 % interval {gain['saved']['low']:.1f} to {gain['saved']['high']:.1f}".replace(
            "-", "\N{MINUS SIGN}"
        )

    return (
        f"On the same cars, what federating gains over the best that each has alone: "
        f"**{hills['saved']['mean']:.1f} of {hills['alone']:.1f} Wh** with hills, which only a "
        f"fleet learns well ({interval(hills)}; {hills['better']} of {hills['saved']['seeds']} "
        f"cars are better off), and {level['saved']['mean']:.1f} of {level['alone']:.1f} Wh "
        f"without them ({interval(level)}: nothing clear; [tables]"
        "(docs/accuracy.md#what-federating-gains-over-each-vehicle-alone))."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fleet", type=Path, default=Path("fleets/ved"))
    parser.add_argument("--runs", type=Path, default=Path("runs/ved-references"))
    parser.add_argument("--features", choices=FEATURES, action="append")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results/ved_references.json"))
    options = parser.parse_args()
    if options.record:
        found = {name: recorded(options.runs / name) for name in FEATURES}
        options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        tables = {f"ved-references-{name}": shown(options.runs / name) for name in FEATURES}
        write_blocks(Path("docs/accuracy.md"), tables)
        write_blocks(Path("README.md"), {"what federating gains": in_short(found)})
        return
    for name in options.features or FEATURES:
        text = CONFIG.format(fleet=options.fleet, features=FEATURES[name], device=options.device)
        execute(from_toml(text), options.runs / name, Lines())


if __name__ == "__main__":
    main()
