"""Whether `fedwatt styles` finds styles where there are some, and none where there are none.

    python -m benchmarks.driving_styles [--ved fleets/ved]

Synthetic fleets of two kinds of drivers, who accelerate and brake 0.65 and 1.5 times as hard as
usual and want to go 8 % slower and faster, beside fleets of the usual drivers, whose habits vary
without groups; and VED. Writes results/driving_styles.json and the table of docs/styles.md.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import torch

from benchmarks.marked import write_blocks
from fedwatt.data import DataSettings, Fleet, Vehicle, build_fleet
from fedwatt.data.store import load_fleet
from fedwatt.data.synthetic import synthetic_vehicle
from fedwatt.federation import Federation, Training
from fedwatt.files import write_text
from fedwatt.physics.driver import DriverStyle, draw_style
from fedwatt.physics.duty import Duty
from fedwatt.styles import Styles, find_styles
from fedwatt.styles.verdict import adjusted_rand

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "results" / "driving_styles.json"
PAGE: Final = ROOT / "docs" / "styles.md"
SIZES: Final = (20, 60)
FLEETS: Final = (0, 1, 2, 3, 4)
FACTORS: Final = ((0.65, 0.92), (1.5, 1.08))
"""Of accelerations and of wanted speed, for each kind of driver."""
SETTINGS: Final = DataSettings(stride=10)
TRAINING: Final = Training(rounds=12, rate=0.02, participation=0.5)
SEEDS: Final = (1, 2, 3)


def drivers(count: int, seed: int, *, two: bool) -> Iterator[Vehicle]:
    """Vehicles of one town; with `two`, every other one has a brisk driver, the rest calm ones."""
    for number in range(count):
        effort, speed = FACTORS[number % 2] if two else (1.0, 1.0)

        def style(
            rng: np.random.Generator, duty: Duty, effort: float = effort, speed: float = speed
        ) -> DriverStyle:
            usual = draw_style(rng, duty)
            return replace(
                usual,
                accelerating_mps2=effort * usual.accelerating_mps2,
                braking_mps2=effort * usual.braking_mps2,
                speed_factor=speed * usual.speed_factor,
            )

        with patch("fedwatt.data.synthetic.draw_style", style):
            yield synthetic_vehicle(f"car-{number + 1:03d}", seed=seed, trips=12)


def looked_at(fleet: Fleet) -> Styles:
    """The styles that a trained fleet shows."""
    federation = Federation(fleet, training=TRAINING, seeds=SEEDS)
    trained = federation.train("fedavg")
    return find_styles(federation, trained.state.best_weights, "fedavg")


def measured(count: int, seed: int, *, two: bool) -> dict[str, Any]:
    """What was found in one fleet."""
    fleet = build_fleet(drivers(count, seed, two=two), SETTINGS, "drivers")
    found = looked_at(fleet)
    truth = np.array([int(name[-3:]) % 2 for name in found.members])
    agreement = adjusted_rand(truth, np.array([*found.members.values()])) if two else None
    return {
        "drivers": "two kinds" if two else "one kind",
        "vehicles": count,
        "fleet": seed,
        "clusters": found.clusters,
        "probability": found.probability,
        "agreement": found.agreement,
        "with_truth": agreement,
    }


def table(rows: list[dict[str, Any]], ved: dict[str, Any] | None) -> str:
    """The table of the page, and a sentence on VED."""
    lines = [
        "| drivers | vehicles | fleets in which styles were found | styles | ARI with the truth |",
        "|---|--:|--:|---|--:|",
    ]
    cases = dict.fromkeys((one["drivers"], one["vehicles"]) for one in rows)
    for kind, count in cases:
        own = [one for one in rows if (one["drivers"], one["vehicles"]) == (kind, count)]
        found = [one for one in own if one["clusters"] > 1]
        numbers = ", ".join(str(k) for k in sorted({one["clusters"] for one in found})) or "–"
        truth = "–"
        if found and found[0]["with_truth"] is not None:
            truth = f"{np.mean([one['with_truth'] for one in found]):.2f}"
        lines.append(f"| {kind} | {count} | {len(found)} of {len(own)} | {numbers} | {truth} |")
    text = "\n".join(lines)
    return text if ved is None else f"{text}\n\nVED, {ved['vehicles']} vehicles: {ved['sentence']}"


def main() -> None:
    """Measure, record and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ved", type=Path, help="an imported VED fleet")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for count in SIZES:
        for two in (True, False):
            for seed in FLEETS:
                rows.append(measured(count, seed, two=two))
                print(rows[-1], flush=True)
    ved = None
    if options.ved:
        found = looked_at(load_fleet(options.ved, SETTINGS))
        ved = {"vehicles": len(found.members), "sentence": found.sentence}
        print(ved)
    write_text(RECORD, json.dumps({"fleets": rows, "ved": ved}, indent=1) + "\n")
    write_blocks(PAGE, {"driving styles": table(rows, ved)})


if __name__ == "__main__":
    main()
