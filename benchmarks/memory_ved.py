"""Peak memory of training on a VED fleet, in a process that does nothing else.

    python benchmarks/memory_ved.py FLEET [--out results/performance_memory.json]

FLEET is a folder made by `fedwatt data import ved`. Two rounds of FO-RI-FedAvg with probes, all
vehicles taking part, and the evaluations before, between and after them.
"""

import argparse
import json
import resource
from dataclasses import replace
from pathlib import Path

from benchmarks.machine import machine
from fedwatt import Run, Training, load_fleet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("fleet", type=Path)
    parser.add_argument("--vehicles", type=int, default=12, help="those with the most windows")
    parser.add_argument("--out", type=Path, default=Path("results/performance_memory.json"))
    options = parser.parse_args()
    fleet = load_fleet(options.fleet)
    largest = sorted(fleet.clients, key=lambda c: -len(c.ends["train"]))[: options.vehicles]
    kept = {client.name for client in largest}
    fleet = replace(fleet, clients=tuple(c for c in fleet.clients if c.name in kept))
    training = Training(rounds=2, participation=1.0)
    Run.on(fleet, training=training, device="cpu").train("fo-ri-fedavg")
    found = {
        "machine": machine(),
        "vehicles": len(fleet.clients),
        "windows": {split: fleet.windows(split) for split in ("train", "validation", "test")},
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
