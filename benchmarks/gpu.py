"""Measure the stacked engine on a GPU: its speed, and its agreement with the CPU.

    python -m benchmarks.gpu speed       results/performance_gpu.json
    python -m benchmarks.gpu agreement   results/performance_agreement.json

Speed: rounds of 30 and of 300 local steps for stacks of 3 to 600 vehicles; the slope is the time of
a step. FedAvg and FO-RI-FedAvg (between two probes), float32 with TF32 off.

Agreement: every method trains a ragged fleet (some vehicles finish their round long before others,
batches are short) for three rounds on both devices in float64 and float32; the largest difference
of a weight is relative to the largest weight. Float64 shows that both engines do the same, float32
what rounding makes of it.
"""

import argparse
import json
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.networks import network
from benchmarks.recipe import FEATURES, WINDOW, Loop, Recipe, interleaved, rounds_of
from fedwatt.federation import Availability, Federation, Training
from fedwatt.files import write_text
from fedwatt.methods import METHODS, get
from fedwatt.models import MLP, Model
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings, Fleet

RESULTS: Final = Path(__file__).resolve().parents[1] / "results"
# Probes are a cost of their own (every R rounds) and are left out here.
TIMED = [get("fedavg"), get("fo-ri-fedavg", probe_every=10**6)]
STACKS = {3: (3, 1), 30: (30, 1), 600: (30, 20)}
"""Rows of the stack: (participants, seeds)."""
SHORT = 30
LONG = 300
"""Local steps of the two rounds."""


def settle() -> None:
    """Wait for the GPU."""
    torch.cuda.synchronize()


def loop(recipe: Recipe, fleet: Fleet, model: Model, repeats: int) -> float:
    """Return seconds of one client-step of the plain loop with torch.nn's network."""
    once = Loop(fleet, recipe, network(model), "cuda").run(range(3))
    return interleaved({"loop": once}, repeats=repeats, settle=settle)["loop"] / (3 * recipe.steps)


def stack(
    fleet: Fleet, model: Model, participants: int, seeds: int, repeats: int
) -> list[dict[str, Any]]:
    """Return the times of one stack for each method."""
    engines = {}
    for method in TIMED:
        for steps in (SHORT, LONG):
            training = Training(
                rounds=10**6,
                evaluate_every=10**6,
                participation=participants / len(fleet.clients),
                steps=steps,
            )
            federation = Federation(
                fleet, model, training=training, seeds=range(1, seeds + 1), device="cuda"
            )
            engines[f"{method.name} {steps}"] = rounds_of(federation, method)
    seconds = interleaved(engines, repeats=repeats, warm_up=3, settle=settle)
    rows = []
    for method in TIMED:
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


def measure_speed(repeats: int) -> dict[str, Any]:
    """Measure stacks of the MLP beside the plain loop."""
    torch.set_float32_matmul_precision("highest")
    recipe = Recipe()
    fleet = recipe.fleet()
    model = MLP(WINDOW, FEATURES)
    plain = loop(recipe, fleet, model, repeats)
    rows = []
    for participants, seeds in STACKS.values():
        for row in stack(fleet, model, participants, seeds, repeats):
            row["times_plain_loop"] = row["client_steps_per_s"] * plain
            rows.append(row)
            print(row, flush=True)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "plain_client_step_s": plain,
        "stacks": rows,
    }


SOME = ("fedavg", "scaffold", "moon", "fo-ri-fedavg")
BACKBONES = {"mlp": tuple(METHODS), "gru": SOME, "lstm": SOME}
AGREEMENT_ROUNDS = 3


def fleet_for(model: str) -> Fleet:
    """Return a ragged fleet, smaller for recurrent models."""
    if model == "mlp":
        return synthetic_fleet(vehicles=8, settings=DataSettings(stride=20))
    return synthetic_fleet(vehicles=4, settings=DataSettings(window=20, stride=60))


def final(fleet: Fleet, method: str, model: str, device: str, precision: str) -> torch.Tensor:
    """Return the weights after the last round."""
    training = Training(
        rounds=AGREEMENT_ROUNDS,
        precision=precision,
        participation=0.6,
        evaluate_every=AGREEMENT_ROUNDS,
    )
    # Computers of two speeds let FedEL leave its network early.
    availability = Availability(speeds=(1.0, 0.5))
    federation = Federation(
        fleet, model, training=training, availability=availability, seeds=(1, 2), device=device
    )
    # A probe of a recurrent model takes seconds; a few points of it show as much.
    small = {"directions": 2, "points": 10} if model != "mlp" and "ri-" in method else {}
    return federation.train(get(method, **small)).state.weights.double().cpu()


def measure_agreement() -> dict[str, Any]:
    """Train every method on both devices."""
    rows = []
    for model, methods in BACKBONES.items():
        fleet = fleet_for(model)
        for method in methods:
            row: dict[str, Any] = {"model": model, "method": method}
            for precision in ("float64", "float32"):
                cpu, gpu = (
                    final(fleet, method, model, device, precision) for device in ("cpu", "cuda")
                )
                row[precision] = float((cpu - gpu).abs().max() / cpu.abs().max())
            rows.append(row)
            print(row, flush=True)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": AGREEMENT_ROUNDS,
        "largest_difference_over_largest_weight": rows,
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("measurement", choices=("speed", "agreement"))
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    if options.measurement == "speed":
        record = measure_speed(options.repeats)
        write_text(RESULTS / "performance_gpu.json", json.dumps(record, indent=1) + "\n")
    else:
        record = measure_agreement()
        write_text(RESULTS / "performance_agreement.json", json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
