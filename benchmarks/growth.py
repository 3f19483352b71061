"""Measure how cost grows: results/growth.json and a table of docs/scale.md.

    python -m benchmarks.growth [--jobs 8]      measure, then write the page
    python -m benchmarks.growth --write         the page of what was measured

Processor time of a round and the memory that rounds reach, against vehicles, participants, weights,
windows and seeds, one of them varied at a time. Every point is a process of its own with one
thread, so that points may be measured side by side. Slopes are of straight lines through the
logarithms: 1 is proportional, 0 is constant.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np

from fedwatt.synthetic.fleet import TownVehicles
from fedwatt.telemetry import Vehicle

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "growth.json"
PAGE = ROOT / "docs" / "scale.md"

USUAL: Final = {"vehicles": 100_000, "participants": 50, "width": 64, "trips": 6, "seeds": 1}
STEPS: Final = 10
DRIVEN: Final = 8
AXES: Final[dict[str, tuple[str, tuple[int, ...]]]] = {
    "vehicles": ("vehicles", (100, 1_000, 10_000, 100_000, 1_000_000)),
    "participants": ("participants a round", (10, 30, 100, 300, 1_000)),
    "width": ("weights of the model", (20, 200, 2_000, 20_000)),
    "trips": ("windows of a vehicle", (3, 6, 12, 24, 48)),
    "seeds": ("seeds", (1, 2, 4, 8, 16)),
}
"""What is varied, and over which values; a model is an MLP of `width` and 32 units."""


class RepeatedVehicles(TownVehicles):
    """Vehicles of the town of which `DRIVEN` are driven; all others repeat their trips."""

    @cached_property
    def driven(self) -> list[Vehicle]:
        """The vehicles that are driven."""
        return super().vehicles(range(DRIVEN))

    def vehicles(self, places: Sequence[int]) -> list[Vehicle]:
        """Return the vehicles at these places: names with the trips of a driven one."""
        return [replace(self.driven[place % DRIVEN], name=self.name(place)) for place in places]


def measure_point(axis: str, value: int, rounds: int) -> dict[str, Any]:
    """One point, in this process."""
    import torch

    from benchmarks.machine import machine
    from fedwatt.federation import Federation, Training
    from fedwatt.methods import get
    from fedwatt.models import get_model

    torch.set_num_threads(1)
    size = USUAL | {axis: value}
    if axis == "width":
        size["participants"] = 10  # a round of 10⁷ weights holds several copies of each model
    size["participants"] = min(size["participants"], size["vehicles"])
    fleet = RepeatedVehicles(size["vehicles"], 0, size["trips"]).lazy_fleet()
    model = get_model("mlp", window=60, features=8, hidden=(size["width"], 32))
    training = Training(
        rounds=10**6,
        participation=size["participants"] / size["vehicles"],
        # An epoch where windows are varied, and as many steps for all others.
        steps=0 if axis == "trips" else STEPS,
        evaluate_vehicles=20,
        learning_rate=0.005,
    )
    federation = Federation(
        fleet, model, training=training, seeds=tuple(range(1, size["seeds"] + 1)), device="cpu"
    )
    method = get("fedavg")
    begin = time.process_time()
    state, _ = federation.start(method)
    start = time.process_time() - begin
    resting = _memory_mb("VmRSS")
    seconds = []
    for _ in range(rounds + 1):
        begin = time.process_time()
        state, _ = federation.advance(method, state)
        seconds.append(time.process_time() - begin)
    at = {"width": model.layout.size, "trips": round(fleet.windows("train") / size["vehicles"])}
    return {
        "axis": axis,
        "at": at.get(axis, value),
        "seconds": median(seconds[1:]),
        "rounds_mb": _memory_mb("VmHWM") - resting,
        "resting_mb": resting,
        "start_s": start,
        "machine": machine(),
    }


def _memory_mb(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(field))


def measure(jobs: int, rounds: int) -> list[dict[str, Any]]:
    """All points, `jobs` at a time."""
    points = [(axis, value) for axis, (_, values) in AXES.items() for value in values]

    def measured(point: tuple[str, int]) -> dict[str, Any]:
        words = [
            sys.executable,
            __file__,
            "--one",
            point[0],
            str(point[1]),
            "--rounds",
            str(rounds),
        ]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, env=environment)
        print(*point, flush=True)
        point_record: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return point_record

    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(measured, points))


def slope(rows: Sequence[dict[str, Any]], column: str) -> float:
    """Return the slope of a straight line through the logarithms."""
    values = np.log([max(row[column], 1e-3) for row in rows])
    return float(np.polyfit(np.log([row["at"] for row in rows]), values, 1)[0])


def page(rows: Sequence[dict[str, Any]]) -> str:
    """Return the slopes as a table."""
    lines = [
        "| round against | from | to | time, from | to | slope |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for axis, (title, _) in AXES.items():
        points = [row for row in rows if row["axis"] == axis]
        first = points[0]
        last = points[-1]
        lines.append(
            f"| {title} | {first['at']:,} | {last['at']:,} | {first['seconds']:.2f} s | "
            f"{last['seconds']:.2f} s | {slope(points, 'seconds'):.2f} |"
        )
    computer = rows[0]["machine"]
    return "\n".join(lines) + (
        f"\n\nProcessor time of one thread, {computer['processor']}, PyTorch {computer['torch']}. "
        f"Unless varied: {USUAL['vehicles']:,} vehicles, {USUAL['participants']} participants (10 "
        f"for weights), the trips of {DRIVEN} town cars, {STEPS} steps (an epoch for windows), MLP "
        "480-64-32-1, FedAvg, one seed."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="points measured at a time")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", nargs=2, metavar=("AXIS", "VALUE"))
    parser.add_argument("--write", action="store_true", help="only write the page")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure_point(options.one[0], int(options.one[1]), options.rounds)))
        return
    if not options.write:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record = measure(options.jobs, options.rounds)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if options.write or options.out == RESULTS:
        from benchmarks.marked import write_blocks

        rows = json.loads(RESULTS.read_text(encoding="utf-8"))
        write_blocks(PAGE, {"growth": page(rows)})


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
