"""The engine's round on this machine beside a plain PyTorch loop, JAX, Flower and the floor.

    python benchmarks/engine.py [--repeats 15] [--out results/performance_engine.json]

All ways train the same amount of work; those that can take turns do, and medians count. About four
minutes on two quiet cores, of which Flower takes one. The page's tables are then written by
benchmarks/performance_tables.py.
"""

import argparse
import json
import os
from pathlib import Path

from fedwatt.bench.rounds import bench_recurrent, bench_rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/performance_engine.json"))
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    found = {
        "load_before": before,
        "mlp": bench_rounds(repeats=options.repeats, say=print),
        "recurrent": bench_recurrent(repeats=max(1, options.repeats // 2)),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found["mlp"]["times_fedavg"], indent=1))


if __name__ == "__main__":
    main()
