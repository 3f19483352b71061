"""Measure whether the example finds driving-style clusters only where there are some.

    python -m benchmarks.driving_styles [--ved fleets/ved]

Synthetic fleets of two kinds of drivers, who accelerate and brake less and more hard than usual and
want to go 8 % slower and faster, beside fleets of the usual drivers, whose habits vary without
groups; and VED. Writes results/driving_styles.json and the table of the example's README.
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
from examples.driving_styles import Styles, find_styles
from examples.driving_styles.verdict import adjusted_rand
from fedwatt.federation import Federation, Training
from fedwatt.files import write_text
from fedwatt.synthetic.driver import DriverStyle, draw_style
from fedwatt.synthetic.fleet import synthetic_vehicle
from fedwatt.synthetic.vehicle import Duty
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import load_fleet
from fedwatt.windows import DataSettings, Fleet, build_fleet

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "results" / "driving_styles.json"
PAGE: Final = ROOT / "examples" / "driving_styles" / "README.md"
SIZES: Final = (20, 60)
FLEETS: Final = (0, 1, 2, 3, 4)
EFFORTS: Final = {
    "usual": (1.0, 1.0),
    "two kinds, 0.65 and 1.5 times the effort": (0.65, 1.5),
    "two kinds, 0.45 and 2.2 times the effort": (0.45, 2.2),
}
"""Accelerations over the usual ones, of every other driver."""
SPEEDS: Final = (0.92, 1.08)
"""Speed wanted over the usual one, where there are two kinds."""
SETTINGS: Final = DataSettings(stride=10)
TRAINING: Final = Training(rounds=12, learning_rate=0.02, participation=0.5)
SEEDS: Final = (1, 2, 3)


def drivers(count: int, seed: int, efforts: tuple[float, float]) -> Iterator[Vehicle]:
    """Yield vehicles of one town; every other driver has the second effort."""
    for number in range(count):
        effort = efforts[number % 2]
        speed = SPEEDS[number % 2] if efforts[0] != efforts[1] else 1.0

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

        with patch("fedwatt.synthetic.fleet.draw_style", style):
            yield synthetic_vehicle(f"car-{number + 1:03d}", seed=seed, trips=12)


def styles_of(fleet: Fleet) -> Styles:
    """Train a fleet and return its driving-style clusters."""
    federation = Federation(fleet, training=TRAINING, seeds=SEEDS)
    trained = federation.train("fedavg")
    return find_styles(federation, trained.state.best_weights, "fedavg")


def measured(count: int, seed: int, kind: str) -> dict[str, Any]:
    """Return the clusters of one fleet and their agreement with the truth."""
    fleet = build_fleet(drivers(count, seed, EFFORTS[kind]), SETTINGS, "drivers")
    styles = styles_of(fleet)
    truth = np.array([int(name[-3:]) % 2 for name in styles.members])
    agreement = adjusted_rand(truth, np.array([*styles.members.values()]))
    return {
        "drivers": kind,
        "vehicles": count,
        "fleet": seed,
        "clusters": styles.clusters,
        "probability": styles.probability,
        "agreement": styles.agreement,
        "with_truth": agreement if kind != "usual" else None,
    }


def table(rows: list[dict[str, Any]], ved: dict[str, Any] | None) -> str:
    """Return the table of the page, and a sentence on VED."""
    lines = [
        "| drivers | vehicles | fleets in which styles were found | styles | ARI with the truth |",
        "|---|--:|--:|---|--:|",
    ]
    cases = dict.fromkeys((row["drivers"], row["vehicles"]) for row in rows)
    for kind, count in cases:
        fleets = [row for row in rows if (row["drivers"], row["vehicles"]) == (kind, count)]
        clustered = [row for row in fleets if row["clusters"] > 1]
        numbers = ", ".join(str(k) for k in sorted({row["clusters"] for row in clustered})) or "–"
        truth = "–"
        if clustered and clustered[0]["with_truth"] is not None:
            truth = f"{np.mean([row['with_truth'] for row in clustered]):.2f}"
        share = f"{len(clustered)} of {len(fleets)}"
        lines.append(f"| {kind} | {count} | {share} | {numbers} | {truth} |")
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
        for kind in EFFORTS:
            for seed in FLEETS:
                rows.append(measured(count, seed, kind))
                print(rows[-1], flush=True)
    ved = None
    if options.ved:
        styles = styles_of(load_fleet(options.ved, SETTINGS))
        ved = {"vehicles": len(styles.members), "sentence": styles.sentence}
        print(ved)
    write_text(RECORD, json.dumps({"fleets": rows, "ved": ved}, indent=1) + "\n")
    write_blocks(PAGE, {"driving styles": table(rows, ved)})


if __name__ == "__main__":
    main()
