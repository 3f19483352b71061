"""What hiding costs: test RMSE with the noise and the weights by chance of the default policy.

    python benchmarks/hiding.py [--ved FOLDER]

writes results/hiding.json and a table of docs/privacy.md. FedAvg with the default settings, 10
rounds, three seeds; the best-validated model's RMSE on test windows. Batches are the seeds', as it
makes no difference on average who draws them. Some minutes a fleet on one core.
"""

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.marked import write_blocks
from fedwatt.deploy.policy import Policy
from fedwatt.federation import Federation, Loop, State, Training
from fedwatt.federation.port import Present
from fedwatt.federation.simulated import SimulatedFleet
from fedwatt.federation.work import Work
from fedwatt.methods import Method, get
from fedwatt.metrics import Stopwatch
from fedwatt.privacy.hiding import chance_share, chance_weight, noisy
from fedwatt.synthetic import synthetic_fleet
from fedwatt.telemetry.store import load_fleet
from fedwatt.windows import Fleet

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "hiding.json"
SEEDS, ROUNDS = (1, 2, 3), 10
REPORTED = "reported RMSE varies by"
HIDING = (0.0, Policy().hiding)


class Hiding(SimulatedFleet):
    """Simulated vehicles that hide as those on the road do."""

    hiding: float = 0.0

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """The round's replies, each hidden."""
        work = super().work(method, state, present, watch)
        if not self.hiding:
            return work
        deltas = torch.stack([noisy(own, {}, self.hiding)[0] for own in work.deltas])
        weights = np.array([float(chance_weight(int(own))) for own in work.weights])
        return replace(work, deltas=deltas, weights=weights)


def best_rmse(federation: Federation, hiding: float) -> tuple[list[float], torch.Tensor]:
    """(test RMSE in Wh of the best-validated model by seed, the last model of the first seed)."""
    port = Hiding(federation)
    port.hiding = hiding
    loop = Loop(port, federation.terms, federation.model, federation.device)
    trained = loop.train(get("fedavg"))
    rows = [row for row in trained.history.rounds if row["evaluated"]]
    found = []
    for seed in SEEDS:
        own = [(row["validation_rmse"], row["test_rmse"]) for row in rows if row["seed"] == seed]
        found.append(round(float(min(own)[1]), 3))
    return found, trained.state.weights[:1]


def reported_spread(federation: Federation, weights: torch.Tensor) -> float:
    """Standard deviation of a model's reported RMSE over its mean, as shares are drawn."""
    test = federation.evaluate(weights)[0].test
    windows, squares = np.array([[own.windows, own.squared_wh2] for own in test]).T
    drawn = np.array([[chance_share() for _ in test] for _ in range(2000)])
    rmse = np.sqrt(drawn @ squares / (drawn @ windows))
    return float(rmse.std() / rmse.mean())


def fleets(ved: Path | None) -> dict[str, tuple[Fleet, float]]:
    """Fleets, and the share of vehicles in a round."""
    found = {
        "embedded, 3 of 3": (synthetic_fleet(3, 0), 1.0),
        "embedded, 6 of 20": (synthetic_fleet(20, 0), 0.3),
    }
    return found if ved is None else found | {"VED, 5 of 16": (load_fleet(ved), 0.3)}


def measured(ved: Path | None) -> dict[str, Any]:
    """RMSE by fleet and ν."""
    found: dict[str, Any] = {}
    for name, (fleet, share) in fleets(ved).items():
        training = Training(rounds=ROUNDS, participation=share, evaluate_every=5)
        federation = Federation(fleet, training=training, seeds=SEEDS, device="cpu")
        found[name] = {}
        for hiding in HIDING:
            found[name][f"{hiding:g}"], weights = best_rmse(federation, hiding)
        found[name][REPORTED] = round(reported_spread(federation, weights), 5)
        print(name, found[name], flush=True)
    return found


def table(found: dict[str, Any]) -> str:
    """Means over seeds, with their standard deviation."""
    names = [f"ν = {hiding:g}" for hiding in HIDING]
    lines = [f"| fleet, in a round | {' | '.join([*names, REPORTED])} |", "|---" * 4 + "|"]
    for fleet, own in found.items():
        rows = [own[f"{hiding:g}"] for hiding in HIDING]
        figures = [f"{np.mean(row):.1f} ± {np.std(row, ddof=1):.1f}" for row in rows]
        lines.append(f"| {fleet} | {' | '.join(figures)} | {own[REPORTED]:.2%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ved", type=Path, help="Folder of the imported VED fleet.")
    found = measured(parser.parse_args().ved)
    RESULT.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    write_blocks(ROOT / "docs" / "privacy.md", {"hiding": table(found)})


if __name__ == "__main__":
    main()
