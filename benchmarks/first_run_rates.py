"""Tune the rates of the default comparison, on other fleets than the one that it is shown on.

    python -m benchmarks.first_run_rates [--processes 2]

`fedwatt run` compares FedAvg and FO-RI-FedAvg on the embedded fleet of seed 0. Each method's rate
is the one with the lowest validation error after the last round, mean over the embedded fleets of
seeds 1 to 4; results/first_run_rates.json has them all, and
`fedwatt.runs.config.DEFAULT_METHODS` what was chosen.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import product
from math import isfinite
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from fedwatt.federation import Federation, Training
from fedwatt.synthetic import synthetic_fleet

METHODS: Final = ("fedavg", "fo-ri-fedavg")
RATES: Final = (0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
FLEETS: Final = (1, 2, 3, 4)
SEEDS: Final = (1, 2, 3)


def trained(task: tuple[str, float, int, int, int, int]) -> dict[str, Any]:
    """Errors by round of one method at one rate on the fleet of one seed."""
    torch.set_num_threads(1)
    method, learning_rate, seed, vehicles, trips, rounds = task
    fleet = synthetic_fleet(vehicles=vehicles, seed=seed, trips=trips)
    federation = Federation(
        fleet, training=Training(rounds=rounds, learning_rate=learning_rate), seeds=SEEDS
    )
    history = federation.train(method).history
    by_round = {
        column: [
            round(float(np.mean([r[column] for r in history.rounds if r["round"] == t])), 3)
            for t in range(rounds + 1)
        ]
        for column in ("validation_rmse", "test_rmse", "test_rmse_macro")
    }
    return {
        "method": method,
        "learning_rate": learning_rate,
        "fleet": seed,
        "trips": trips,
    } | by_round


def chosen(trainings: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The rate of each method with the lowest final validation error, mean over fleets."""
    rates: dict[str, dict[float, list[float]]] = {}
    for training in trainings:
        last = training["validation_rmse"][-1]
        error = last if isfinite(last) else np.inf
        rates.setdefault(training["method"], {}).setdefault(training["learning_rate"], []).append(
            error
        )
    return {
        method: min(
            errors_by_rate, key=lambda learning_rate: float(np.mean(errors_by_rate[learning_rate]))
        )
        for method, errors_by_rate in rates.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/first_run_rates.json"))
    parser.add_argument("--vehicles", type=int, default=20)
    parser.add_argument("--trips", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    size = (options.vehicles, options.trips, options.rounds)
    tasks = [(*task, *size) for task in product(METHODS, RATES, FLEETS)]
    with get_context("spawn").Pool(options.processes) as pool:
        trainings = []
        for training in pool.imap_unordered(trained, tasks):
            trainings.append(training)
            last = training["validation_rmse"][-1]
            print(
                f"{training['method']} at {training['rate']} on fleet {training['fleet']}: {last}",
                flush=True,
            )
    trainings.sort(
        key=lambda training: (training["method"], training["learning_rate"], training["fleet"])
    )
    result = {
        "vehicles": options.vehicles,
        "trips": options.trips,
        "rounds": options.rounds,
        "seeds": SEEDS,
        "fleets": FLEETS,
        "chosen": chosen(trainings),
        "found": trainings,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result) + "\n", encoding="utf-8")
    print(result["chosen"])


if __name__ == "__main__":
    main()
