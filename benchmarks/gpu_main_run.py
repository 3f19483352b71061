"""The paper's main run on a GPU: eleven methods, five seeds, ten vehicles of VED, E = 1.

    python benchmarks/gpu_main_run.py FLEET [--rounds 300] [--processes 11]

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`; the ten
vehicles with the most training windows are taken, with windows every second. Methods train one
after the other, or at the same time in so many processes: one stack of 15 small models leaves most
of a large GPU idle, and under NVIDIA's MPS (`nvidia-cuda-mps-control -d`) processes share it. With
fewer rounds than the paper's 300, the time of the last rounds (everything is compiled and recorded
by then) says what the missing ones would take. Needs torch, numpy and pyarrow.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.telemetry.store import load_fleet
from fedwatt.windows import Fleet

VEHICLES = 10
SEEDS = range(1, 6)
ROUNDS = 300
METHODS = (
    *("fedavg", "fedprox", "scaffold", "fednova", "fedadam", "moon", "feddyn", "fedel"),
    *("fo-fedavg", "ri-fedavg", "fo-ri-fedavg"),
)
"""Those of the paper."""
LONGEST_FIRST = sorted(METHODS, key=lambda name: name not in ("moon", "fo-ri-fedavg", "ri-fedavg"))
"""Those known to take longest begin, so that several processes end together."""


def fleet_of(folder: Path) -> Fleet:
    """The ten vehicles with the most training windows."""
    fleet = load_fleet(folder)
    most = sorted(fleet.clients, key=lambda client: -len(client.ends["train"]))[:VEHICLES]
    kept = {client.name for client in most}
    return replace(fleet, clients=tuple(c for c in fleet.clients if c.name in kept))


def timed(fleet: Fleet, method: str, rounds: int, device: str) -> dict[str, float]:
    """Seconds of a training, of one of its later rounds, and of 300 rounds."""
    training = Training(rounds=rounds)
    federation = Federation(fleet, training=training, seeds=SEEDS, device=device)
    marks = [perf_counter()]
    trained = federation.train(
        get(method), on_round=lambda state, record: marks.append(perf_counter())
    )
    took = marks[-1] - marks[0]
    each = [after - before for before, after in pairwise(marks)]
    later = median(each[len(each) // 2 :])
    best = [row["best_test_rmse"] for row in trained.history.rounds[-len(SEEDS) :]]
    return {
        "took_s": took,
        "round_s": later,
        "whole_s": took + (ROUNDS - rounds) * later,
        "best_test_rmse": sum(best) / len(best),
    }


def timed_in_process(folder: Path, method: str, rounds: int, device: str) -> dict[str, float]:
    torch.set_num_threads(1)
    return timed(fleet_of(folder), method, rounds, device)


def each_method(options: argparse.Namespace) -> Iterator[tuple[str, dict[str, float]]]:
    """Methods with their times, as they are done."""
    if options.processes == 1:
        fleet = fleet_of(options.fleet)
        for name in METHODS:
            yield name, timed(fleet, name, options.rounds, options.device)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.processes, mp_context=fresh) as pool:
        due = {
            pool.submit(timed_in_process, options.fleet, name, options.rounds, options.device): name
            for name in LONGEST_FIRST
        }
        for one in as_completed(due):
            yield due[one], one.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fleet", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("results/performance_main_run.json"))
    options = parser.parse_args()
    clients = fleet_of(options.fleet).clients
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "vehicles": len(clients),
        "windows": sum(len(client.ends["train"]) for client in clients),
        "seeds": len(SEEDS),
        "rounds_run": options.rounds,
        "processes": options.processes,
        "methods": {},
    }
    start = perf_counter()
    for name, own in each_method(options):
        found["methods"][name] = own
        print(
            f"{name:14} {own['took_s']:6.1f} s, {own['round_s']:.3f} s a round, "
            f"{ROUNDS} rounds: {own['whole_s']:5.0f} s",
            flush=True,
        )
    found["took_s"] = perf_counter() - start
    found["methods"] = {name: found["methods"][name] for name in METHODS}
    wholes = [own["whole_s"] for own in found["methods"].values()]
    found["whole_s"] = sum(wholes) if options.processes == 1 else found["took_s"]
    print(f"all eleven, five seeds: {found['took_s'] / 60:.1f} minutes for {options.rounds} rounds")
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
