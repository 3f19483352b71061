"""Tune the learning rates of the first run, on other fleets than the one that it is shown on.

    python -m benchmarks.first_run_rates [--processes 2]

`fedwatt run` compares FedAvg and FO-RI-FedAvg with learned elevation on the built-in fleet of seed
0. Each method's learning rate is the one with the lowest validation error of the shared model after
the last round, mean over the built-in fleets of seeds 1 to 4; results/first_run_rates.json has them
all, and `fedwatt.runs.defaults.FIRST_RUN_RATES` what was chosen.
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

from fedwatt.runs.config import choose, from_tables
from fedwatt.runs.defaults import BUILT_IN
from fedwatt.runs.simulation import federation_for
from fedwatt.runs.source import learned_for, open_fleet

METHODS: Final = ("fedavg", "fo-ri-fedavg")
RATES: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
FLEETS: Final = (1, 2, 3, 4)


def trained(task: tuple[str, int]) -> list[dict[str, Any]]:
    """Train one method at every learning rate on the fleet of one seed."""
    torch.set_num_threads(1)
    method, seed = task
    config = from_tables(BUILT_IN.applied({"fleet": {"seed": seed}}))
    learned = learned_for(config)
    fleet = open_fleet(config, learned)
    rows = []
    for rate in RATES:
        choice = choose({"name": method, "learning_rate": rate})
        history = federation_for(config, choice, fleet).train(choice.method).history
        last = [row for row in history.rounds if row["round"] == config.training.rounds]
        errors = {
            column: round(float(np.mean([row[column] for row in last])), 3)
            for column in ("validation_rmse", "test_rmse_macro")
        }
        rows.append({"method": method, "learning_rate": rate, "fleet": seed} | errors)
    return rows


def chosen(rows: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Return each method's learning rate with the lowest validation error, mean over fleets."""
    rates: dict[str, dict[float, list[float]]] = {}
    for row in rows:
        error = row["validation_rmse"] if isfinite(row["validation_rmse"]) else np.inf
        rates.setdefault(row["method"], {}).setdefault(row["learning_rate"], []).append(error)
    return {
        method: min(errors, key=lambda rate: float(np.mean(errors[rate])))
        for method, errors in rates.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/first_run_rates.json"))
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with get_context("spawn").Pool(options.processes) as pool:
        for part in pool.imap_unordered(trained, product(METHODS, FLEETS)):
            rows += part
            print(*part, sep="\n", flush=True)
    rows.sort(key=lambda row: (row["method"], row["learning_rate"], row["fleet"]))
    result = {
        "features": BUILT_IN.sections["data"]["features"],
        "rounds": BUILT_IN.sections["training"]["rounds"],
        "fleets": FLEETS,
        "chosen": chosen(rows),
        "trainings": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    print(result["chosen"])


if __name__ == "__main__":
    main()
