"""Whether deterministic trainings have the same bits whoever is in their stack, and what it costs.

    python benchmarks/gpu_determinism.py [--out results/determinism_gpu.json] [--rounds 8]
                                         [--methods fedavg,moon] [--stacks 1,12]

Each method trains five seeds on ten synthetic vehicles, alone and beside other trainings of its
kind, in both modes. The digest of its weights must be the same in all deterministic trainings, also
of another process: run it twice and compare. Needs a GPU; takes about two minutes.
"""

import argparse
import json
import time
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from statistics import median

import torch

from fedwatt.federation import Availability, Federation, Training
from fedwatt.federation.loop import TrainingResult
from fedwatt.federation.together import train_side_by_side
from fedwatt.methods import get
from fedwatt.runs.provenance import provenance
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings, Fleet

METHODS = ("fedavg", "fo-ri-fedavg", "scaffold", "feddyn", "moon", "fedel")
STACKS = (1, 4, 12, 30)
"""Trainings side by side, of fifteen vehicles each."""


def trained(
    fleet: Fleet, method: str, count: int, training: Training
) -> tuple[TrainingResult, list[float]]:
    """(The last of `count` trainings side by side, seconds of each round but the first two).

    The others have other rates, and seeds of their own.
    """
    classes = Availability(speeds=(1.0, 0.5) if method == "fedel" else (1.0,))
    pairs = [
        (
            Federation(
                fleet,
                training=replace(training, learning_rate=0.05 if last else 0.01 + 0.001 * place),
                availability=classes,
                seeds=tuple(range(1, 6)) if last else tuple(range(10 * place, 10 * place + 5)),
                device="cuda",
            ),
            get(method),
        )
        for place in range(1, count + 1)
        for last in [place == count]
    ]
    times: list[float] = []

    def follow(place: int, state: object, record: object) -> None:
        if place == count - 1:
            torch.cuda.synchronize()
            times.append(time.perf_counter())

    found = train_side_by_side(pairs, on_round=follow)[-1]
    return found, [after - before for before, after in pairwise(times[1:])]


def digest(result: TrainingResult) -> str:
    """Of the final weights and of all errors."""
    errors = [row["test_rmse"] for row in result.history.rounds]
    weights = result.state.weights.cpu().numpy().tobytes()
    return sha256(weights + json.dumps(errors).encode()).hexdigest()[:16]


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("results/determinism_gpu.json"))
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--methods", type=lambda text: text.split(","), default=METHODS)
    parser.add_argument("--stacks", type=lambda text: [*map(int, text.split(","))], default=STACKS)
    options = parser.parse_args()
    settings = DataSettings(stride=5, evaluation_stride=60)
    fleet = synthetic_fleet(10, trips=20, settings=settings)
    training = Training(rounds=options.rounds, participation=0.3, evaluate_every=options.rounds)
    rows = []
    for method in options.methods:
        for deterministic in (True, False):
            mode = replace(training, deterministic=deterministic)
            own = {}
            for count in options.stacks:
                result, seconds = trained(fleet, method, count, mode)
                error = result.history.rounds[-1]["test_rmse"]
                row = {
                    "method": method,
                    "deterministic": deterministic,
                    "trainings": count,
                    "digest": digest(result),
                    "last_test_rmse": error,
                    "ms_a_round": 1000 * median(seconds),
                }
                own[count] = row["digest"]
                rows.append(row)
                print(json.dumps(row), flush=True)
            if deterministic and len(set(own.values())) > 1:
                print(f"{method}: NOT deterministic: {own}", flush=True)
    made = provenance(torch.device("cuda"))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps({"made with": made, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
