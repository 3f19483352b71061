"""The roughness probe beside forward passes, and the parts of a round as the paper measures them.

    python benchmarks/probe.py [--repeats 11] [--out results/performance_probe.json]

Three vehicles with 1,920, 20,000 and 200,000 windows each; about three minutes on two quiet cores.
"""

import argparse
import json
import os
from pathlib import Path

from fedwatt.bench.probe import bench_backbones, bench_components, bench_probe

WINDOWS = (1_920, 20_000, 200_000)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/performance_probe.json"))
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--windows", type=int, nargs="+", default=WINDOWS)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    found = {"load_before": before, "probe": bench_probe(repeats=options.repeats)}
    print(f"{found['probe']['times_faster']:.1f} times faster than forward passes", flush=True)
    found["backbones_s"] = bench_backbones(repeats=1)
    found["rounds"] = []
    for windows in options.windows:
        found["rounds"].append(bench_components(windows, repeats=options.repeats))
        share = found["rounds"][-1]["amortised_probe_share_R5"]
        print(f"{windows:,} windows: the probe adds {share:.2%} at R = 5", flush=True)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
