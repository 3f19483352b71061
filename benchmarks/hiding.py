"""What hiding costs: test RMSE with the noise and the weights by chance of the default policy.

    python benchmarks/hiding.py [--ved FOLDER]

writes results/hiding.json and a table of docs/privacy.md. FedAvg with the default settings, 20
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
from fedwatt.data import Fleet, synthetic_fleet
from fedwatt.data.store import load_fleet
from fedwatt.deploy.policy import Policy
from fedwatt.federation import Federation, Loop, State, Training
from fedwatt.federation.port import Present
from fedwatt.federation.simulated import SimulatedFleet
from fedwatt.federation.work import Work
from fedwatt.methods import Method, get
from fedwatt.metrics import Stopwatch
from fedwatt.privacy.hiding import chance_weight, noisy

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "results" / "hiding.json"
SEEDS, ROUNDS = (1, 2, 3), 20
HIDING = (0.0, Policy().hiding, 2 * Policy().hiding)


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


def best_rmse(federation: Federation, hiding: float) -> list[float]:
    """Test RMSE in Wh of the best-validated model, by seed."""
    port = Hiding(federation)
    port.hiding = hiding
    loop = Loop(port, federation.terms, federation.model, federation.device)
    rows = [row for row in loop.train(get("fedavg")).history.rounds if row["evaluated"]]
    found = []
    for seed in SEEDS:
        own = [(row["validation_rmse"], row["test_rmse"]) for row in rows if row["seed"] == seed]
        found.append(round(float(min(own)[1]), 3))
    return found


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
        found[name] = {f"{hiding:g}": best_rmse(federation, hiding) for hiding in HIDING}
        print(name, found[name], flush=True)
    return found


def table(found: dict[str, Any]) -> str:
    """Means over seeds, with their standard deviation."""
    names = [f"ν = {hiding:g}" for hiding in HIDING]
    lines = [f"| fleet, in a round | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for fleet, own in found.items():
        figures = (f"{np.mean(v):.1f} ± {np.std(v, ddof=1):.1f}" for v in own.values())
        lines.append(f"| {fleet} | {' | '.join(figures)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ved", type=Path, help="Folder of the imported VED fleet.")
    found = measured(parser.parse_args().ved)
    RESULT.write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
    write_blocks(ROOT / "docs" / "privacy.md", {"hiding": table(found)})


if __name__ == "__main__":
    main()
