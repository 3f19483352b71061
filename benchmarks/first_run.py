"""Record the first run: what its report says first, and its first figure.

    python -m benchmarks.first_run [--run RUN]    runs `fedwatt run` unless a run folder is given
    python -m benchmarks.first_run --rates        tunes the learning rates of the first run

Writes results/first_run.json, docs/figures/first_run.svg and the block of the README. Each method's
learning rate is the one with the lowest validation error of the shared model after the last round,
mean over the built-in fleets of seeds 1 to 4, on which the first run is not shown:
results/first_run_rates.json, chosen in `fedwatt.runs.defaults.FIRST_RUN_RATES`.
"""

import argparse
import json
import tempfile
from collections.abc import Sequence
from itertools import product
from math import isfinite
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from benchmarks.marked import filled, write_blocks
from fedwatt.files import write_bytes, write_text
from fedwatt.runs.config import RunConfig, choose, from_tables, from_toml, to_tables
from fedwatt.runs.defaults import BUILT_IN, choose_recipe
from fedwatt.runs.run import Run
from fedwatt.runs.simulation import federation_for
from fedwatt.runs.source import learned_for, open_fleet

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = ROOT / "results" / "first_run.json"
FIGURE: Final = ROOT / "docs" / "figures" / "first_run.svg"
README: Final = ROOT / "README.md"
BLOCK: Final = "first run"
RATES_RECORD: Final = ROOT / "results" / "first_run_rates.json"
METHODS: Final = ("fedavg", "fo-ri-fedavg")
RATES: Final = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
FLEETS: Final = (1, 2, 3, 4)


def first_config() -> RunConfig:
    """Return the configuration of `fedwatt run` without options."""
    return from_tables(choose_recipe({}).applied({}))


def settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a record must share with the run that it is of."""
    tables = to_tables(config)
    return {
        "fleet": tables["fleet"],
        "seeds": tables["seeds"],
        "features": tables["data"]["features"],
        "personalised": tables["personalisation"]["enabled"],
        "rounds": tables["training"]["rounds"],
        "rates": {method["label"]: method.get("learning_rate") for method in tables["method"]},
    }


def recorded(folder: Path) -> dict[str, Any]:
    """Return what the report of a run says first, its stages and its settings."""
    from fedwatt.report.answer import answer
    from fedwatt.report.baselines import baseline_stages, federated_stages
    from fedwatt.report.load import load_run

    run = load_run(folder)
    summary = answer(run)
    stages = [*baseline_stages(run), *federated_stages(run)]
    return settings(from_toml(run.origins[0].config)) | {
        "headline": summary.headline,
        "sentences": list(summary.sentences),
        "stages": {stage.name: stage.errors for stage in stages},
    }


def block(record: dict[str, Any]) -> str:
    """Return the paragraph of the README."""
    # The headline says already which method is better.
    return f"> **{record['headline']}.** {' '.join(record['sentences'][:-1])}"


def outdated(readme: str, record: dict[str, Any]) -> bool:
    """Tell whether the README says something else than the record."""
    return filled(readme, {BLOCK: block(record)}) != readme


def drawn(folder: Path) -> bytes:
    """Return the report's first figure."""
    from fedwatt.report.figures.results import stages_figure
    from fedwatt.report.load import load_run
    from fedwatt.report.page import saved

    return saved(stages_figure(load_run(folder)))


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


def tune(processes: int) -> None:
    """Train every method at every learning rate on every fleet, and record the chosen ones."""
    with get_context("spawn").Pool(processes) as pool:
        parts = pool.map(trained, product(METHODS, FLEETS))
    result = {
        "features": BUILT_IN.sections["data"]["features"],
        "rounds": BUILT_IN.sections["training"]["rounds"],
        "fleets": FLEETS,
        "chosen": chosen([row for part in parts for row in part]),
        "trainings": [row for part in parts for row in part],
    }
    write_text(RATES_RECORD, json.dumps(result, indent=1) + "\n")
    print(result["chosen"])


def main() -> None:
    """Run, record, draw and write; or tune the learning rates."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", type=Path, help="a finished run of 'fedwatt run' without options")
    parser.add_argument("--rates", action="store_true", help="tune the learning rates")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    if options.rates:
        tune(options.processes)
        return
    with tempfile.TemporaryDirectory(prefix="fedwatt-") as scratch:
        folder = options.run or Path(scratch) / "first"
        if options.run is None:
            Run(first_config(), out=folder).execute()
        record = recorded(folder)
        write_bytes(FIGURE, drawn(folder))
    write_text(RECORD, json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    write_blocks(README, {BLOCK: block(record)})


if __name__ == "__main__":
    main()
