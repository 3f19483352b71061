"""The paper's main run on a GPU: eleven methods, five seeds, ten vehicles of VED, E = 1.

    python benchmarks/gpu_main_run.py FLEET [--rounds 300] [--out results/performance_main_run.json]

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`; the ten
vehicles with the most training windows are taken, with windows every second. With fewer rounds than
the paper's 300, the time of the last rounds (everything is compiled and recorded by then) says what
the missing ones would take. Needs torch, numpy and pyarrow.
"""

import argparse
import json
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from fedwatt.federation import Federation, Training
from fedwatt.fleet.store import load_fleet
from fedwatt.methods import METHODS, get

VEHICLES, SEEDS, ROUNDS = 10, range(1, 6), 300


def timed(federation: Federation, method: str) -> tuple[float, list[float]]:
    """Seconds of a training, and of each of its rounds."""
    marks = [perf_counter()]
    federation.train(get(method), on_round=lambda state, record: marks.append(perf_counter()))
    return marks[-1] - marks[0], [after - before for before, after in pairwise(marks)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("fleet", type=Path)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--out", type=Path, default=Path("results/performance_main_run.json"))
    options = parser.parse_args()
    fleet = load_fleet(options.fleet)
    most = sorted(fleet.clients, key=lambda client: -len(client.ends["train"]))[:VEHICLES]
    kept = {client.name for client in most}
    fleet = replace(fleet, clients=tuple(c for c in fleet.clients if c.name in kept))
    federation = Federation(
        fleet, training=Training(rounds=options.rounds), seeds=SEEDS, device=options.device
    )
    found = {
        "device": torch.cuda.get_device_name() if options.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "vehicles": len(fleet.clients),
        "windows": sum(len(client.ends["train"]) for client in fleet.clients),
        "seeds": len(SEEDS),
        "rounds_run": options.rounds,
        "methods": {},
    }
    for name in METHODS:
        took, rounds = timed(federation, name)
        later = median(rounds[len(rounds) // 2 :])
        whole = took + (ROUNDS - options.rounds) * later
        found["methods"][name] = {"took_s": took, "round_s": later, "whole_s": whole}
        print(f"{name:14} {took:6.1f} s, {later:.3f} s a round, {ROUNDS} rounds: {whole:5.0f} s")
    found["whole_s"] = sum(own["whole_s"] for own in found["methods"].values())
    print(f"all eleven, five seeds, {ROUNDS} rounds: {found['whole_s'] / 60:.1f} minutes")
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
