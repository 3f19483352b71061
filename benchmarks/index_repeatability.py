"""Measure the repeatability of indices of a vehicle's loss on VED.

    python -m benchmarks.index_repeatability --fleet fleets/ved --workers 5
    python -m benchmarks.index_repeatability --tables

FedAvg trains the 12 vehicles of the other benchmarks, five splits. After 2, 20 and 100 rounds every
vehicle's loss is probed REPEATS times, each time along fresh directions (common to all vehicles)
and on a fresh batch: by the paper's index at its defaults and by J1 (M = 16, 33 evaluations); J1
also on one batch for all repeats, as `si-fedavg` has it.
The intraclass correlation is the share of an index's variance that is between vehicles (Shrout and
Fleiss, 1979, one way), pooled over splits about each split's mean.

Writes results/index_repeatability.json and a block of docs/methods.md. Needs torch and numpy; the
tables need scipy.
"""

import argparse
import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from benchmarks.elevation_cells import balanced, data_settings, vehicles_of
from benchmarks.marked import write_blocks
from fedwatt.federation import Federation, State, Training
from fedwatt.federation.local_round import LocalRound
from fedwatt.methods import RoughnessProximal, get
from fedwatt.methods.experimental.sharpness import (
    SharpnessProximal,
    filter_normalised,
    relative_sharpness,
)
from fedwatt.methods.roughness import loss_slices, roughness_index, unit
from fedwatt.methods.rule import Batch, Start
from fedwatt.metrics import Stopwatch
from fedwatt.windows import build_fleet

ROOT: Final = Path(__file__).resolve().parents[1]
RESULTS: Final = ROOT / "results" / "index_repeatability.json"
PAGE: Final = ROOT / "docs" / "methods.md"
SEEDS: Final = (1, 2, 3, 4, 5)
STAGES: Final = (2, 20, 100)
REPEATS: Final = 8
LATER: Final = 10_000
"""Rounds that no training reaches: each repeat draws as one of them."""
NAMES: Final = {
    "paper": ("I_k, fresh batches", 1010),
    "j1": ("J1, fresh batches", 33),
    "j1_fixed": ("J1, fixed batch (`si-fedavg`)", 33),
}
ROUGHNESS = RoughnessProximal()
SHARPNESS = SharpnessProximal()


# ------------------------------------------------------------------------------- measuring
def slices(start: Start, row: int, lines: Tensor, radius: float, points: int, on: Batch) -> Tensor:
    """Return φ [M, points + 1] of the vehicle in `row`."""
    offsets = torch.linspace(-radius, radius, points + 1, dtype=torch.float64)
    return loss_slices(start.model, start.loss, start.origin[row], lines, offsets, on)


def indices(start: Start, row: int) -> dict[str, float]:
    """Measure every index of the vehicle in `row` once."""
    batch = start.probe_batch(row, SHARPNESS.probe_batch, "repeatability")
    fixed = start.fixed_batch(row, SHARPNESS.probe_batch, "repeatability")
    directions = start.probe_directions(row, 16)
    lines = filter_normalised(start.model, start.origin[row], directions)
    rough = slices(start, row, unit(directions[:10]), ROUGHNESS.radius, ROUGHNESS.points, batch)
    measurements = {"paper": roughness_index(rough, ROUGHNESS.radius)}
    for name, on in (("j1", batch), ("j1_fixed", fixed)):
        sliced = slices(start, row, lines, SHARPNESS.radius, 2, on)
        measurements[name] = relative_sharpness(sliced)
    return {name: measurements[name].item() for name in NAMES}


def begun(federation: Federation, state: State, round: int) -> LocalRound:
    """Begin a round of FedAvg after `state`, drawn as round number `round`."""
    port = federation.simulated
    now = replace(state, round=round)
    return port.begin(get("fedavg"), now, port.calls(state, port.present(state)), Stopwatch())


def measured(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Measure all stages of one split."""
    torch.set_num_threads(1)
    fleet = balanced(build_fleet(vehicles_of(folder), data_settings(seed), "ved"), seed)
    half = Training(rounds=max(STAGES), learning_rate=0.05, participation=0.5, evaluate_every=1000)
    federation, all_taking_part = (
        Federation(fleet, training=training, seeds=(seed,), device="cpu")
        for training in (half, replace(half, participation=1.0))
    )
    state, _ = federation.start(get("fedavg"))
    stages = []
    for stage in STAGES:
        while state.round < stage:
            state, _ = federation.advance(get("fedavg"), state)
        rows: dict[str, list[list[float]]] = {name: [] for name in NAMES}
        for repeat in range(REPEATS):
            start = begun(all_taking_part, state, LATER + repeat).start
            vehicle_indices = [indices(start, row) for row in range(len(start.vehicles))]
            for name in NAMES:
                rows[name].append([values[name] for values in vehicle_indices])
        stages.append({"seed": seed, "round": stage, "indices": rows})
        print(f"split {seed}, round {stage}", flush=True)
    return stages


# ---------------------------------------------------------------------------------- tables
def icc(groups: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """Return the one-way intraclass correlation of groups [repeats, vehicles] with its interval."""
    from scipy.stats import f

    between = within = 0.0
    free_between = free_within = 0
    for values in groups:
        repeats, vehicles = values.shape
        means = values.mean(axis=0)
        between += repeats * float(((means - means.mean()) ** 2).sum())
        within += float(((values - means) ** 2).sum())
        free_between += vehicles - 1
        free_within += vehicles * (repeats - 1)
    ratio = (between / free_between) / (within / free_within)

    def share(value: float) -> float:
        return float((value - 1) / (value + REPEATS - 1))

    low = ratio / f.ppf(0.975, free_between, free_within)
    high = ratio * f.ppf(0.975, free_within, free_between)
    return share(ratio), share(low), share(high)


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return the block of docs/methods.md."""
    by_stage = {n: [row for row in record["rows"] if row["round"] == n] for n in STAGES}
    heads = " | ".join(f"after {n} rounds" for n in STAGES)
    lines = [f"| index | evaluations | {heads} |", "|---|--:|" + "--:|" * len(STAGES)]
    for name in ("paper", "j1", "j1_fixed"):
        words, evaluations = NAMES[name]
        cells = []
        for rows in by_stage.values():
            value, low, high = icc([np.array(row["indices"][name]) for row in rows])
            cells.append(f"{value:.2f} [{low:.2f}, {high:.2f}]")
        lines.append(f"| {words} | {evaluations:,} | {' | '.join(cells)} |")
    lines += [
        "",
        "Intraclass correlation (share of variance between vehicles) with 95 % interval: "
        f"{REPEATS} repeats, 12 vehicles of VED, {len(SEEDS)} splits "
        "(`benchmarks/index_repeatability.py`).",
    ]
    return {"index": "\n".join(lines)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fleet", type=Path, default=Path("fleets/ved"))
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--tables", action="store_true", help="only write the page")
    options = parser.parse_args()
    if not options.tables:
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(options.workers, mp_context=spawn) as pool:
            parts = list(pool.map(measured, [options.fleet] * len(SEEDS), SEEDS))
        record = {"rows": [row for part in parts for row in part]}
        options.out.write_text(json.dumps(record) + "\n", encoding="utf-8")
        return
    write_blocks(PAGE, tables(json.loads(options.out.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
