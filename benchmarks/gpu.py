"""The stacked engine on a GPU beside the plain client loop on the same GPU.

    python benchmarks/gpu.py [--out results/performance_gpu.json] [--tf32] [--quick]

Needs torch and numpy only. For stacks of 3 to 600 vehicles it measures a round of 30 and one of
300 local steps through `Federation(device="cuda")`: the slope is the time of a step, the rest what
a round costs besides. FedAvg and FO-RI-FedAvg (between two probes), float32 with TF32 off and, if
asked, on; GRU and LSTM beside the loop with torch.nn's, which are cuDNN's and use TF32, torch's
default for them.
"""

import argparse
import json
import sys
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.networks import network
from benchmarks.recipe import (
    FEATURES,
    WINDOW,
    Loop,
    Recipe,
    interleaved,
    rounds_of,
)
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.models import GRU, LSTM, MLP, Model
from fedwatt.windows import Fleet

# Probes are a cost of their own (every R rounds) and are left out here.
METHODS = [get("fedavg"), get("fo-ri-fedavg", probe_every=10**6)]
STACKS = {3: (3, 1), 15: (15, 1), 30: (30, 1), 150: (30, 5), 600: (30, 20)}
"""Rows of the stack: (participants, seeds)."""
RECURRENT = {"GRU": GRU(FEATURES), "LSTM": LSTM(FEATURES)}
RECURRENT_STACKS = {size: STACKS[size] for size in (15, 150)}
SHORT = 30
LONG = 300
"""Local steps of the two rounds."""


def settle() -> None:
    torch.cuda.synchronize()


def loop(recipe: Recipe, fleet: Fleet, model: Model, repeats: int) -> float:
    """Seconds of one client-step of the plain loop with torch.nn's network of the same shape."""
    once = Loop(fleet, recipe, network(model), "cuda").run(range(3))
    return interleaved({"loop": once}, repeats=repeats, settle=settle)["loop"] / (3 * recipe.steps)


def stack(
    fleet: Fleet, model: Model, participants: int, seeds: int, repeats: int, tf32: bool
) -> list[dict[str, Any]]:
    """Times of one stack for each method."""
    ways = {}
    for method in METHODS:
        for steps in (SHORT, LONG):
            training = Training(
                rounds=10**6,
                evaluate_every=10**6,
                participation=participants / len(fleet.clients),
                steps=steps,
                tf32=tf32,
            )
            federation = Federation(
                fleet, model, training=training, seeds=range(1, seeds + 1), device="cuda"
            )
            ways[f"{method.name} {steps}"] = rounds_of(federation, method)
    seconds = interleaved(ways, repeats=repeats, warm_up=3, settle=settle)
    rows = []
    for method in METHODS:
        short, long = (seconds[f"{method.name} {steps}"] for steps in (SHORT, LONG))
        step = (long - short) / (LONG - SHORT)
        rows.append(
            {
                "method": method.name,
                "rows": participants * seeds,
                "step_s": step,
                "round_s": short,
                "besides_steps_s": short - SHORT * step,
                "client_steps_per_s": participants * seeds / step,
            }
        )
    return rows


def beside_loop(
    recipe: Recipe,
    fleet: Fleet,
    model: Model,
    stacks: dict[int, tuple[int, int]],
    repeats: int,
    tf32: bool = False,
) -> dict[str, Any]:
    """The plain loop and all stacks, with what they print."""
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    plain = loop(recipe, fleet, model, repeats)
    print(
        f"{type(model).__name__}, TF32 {'on' if tf32 else 'off'}: "
        f"plain loop {plain * 1e3:.3f} ms a client-step"
    )
    rows = []
    for size, (participants, seeds) in stacks.items():
        torch.cuda.reset_peak_memory_stats()
        for row in stack(fleet, model, participants, seeds, repeats, tf32):
            row["times_plain_loop"] = row["client_steps_per_s"] * plain
            row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            rows.append(row)
            print(
                f"  {row['method']:13} {size:4} rows: step {row['step_s'] * 1e3:7.3f} ms, "
                f"round besides {row['besides_steps_s'] * 1e3:7.1f} ms, "
                f"{row['client_steps_per_s']:11,.0f} client-steps/s, "
                f"{row['times_plain_loop']:7.0f} x plain"
            )
    return {"plain_client_step_s": plain, "stacks": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("results/performance_gpu.json"))
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--tf32", action="store_true", help="with TF32 as well")
    parser.add_argument("--quick", action="store_true", help="MLPs of 3 and 30 vehicles, 3 repeats")
    options = parser.parse_args()
    repeats = 3 if options.quick else options.repeats
    begin = perf_counter()
    recipe = Recipe()
    fleet = recipe.fleet()
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "recipe": "100 vehicles, 1,920 windows each, batch 64; MLP 480-64-32-1, 32 units; float32",
        "precisions": {},
    }
    quick = {size: STACKS[size] for size in (3, 30)}
    model = MLP(WINDOW, FEATURES)
    stacks = quick if options.quick else STACKS
    for precision in ("float32", "tf32")[: 2 if options.tf32 else 1]:
        found["precisions"][precision] = beside_loop(
            recipe, fleet, model, stacks, repeats, tf32=precision == "tf32"
        )
    found["recurrent"] = {
        name: beside_loop(recipe, fleet, own, {} if options.quick else RECURRENT_STACKS, repeats)
        for name, own in RECURRENT.items()
    }
    found["seconds"] = perf_counter() - begin
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
