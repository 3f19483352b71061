"""The stacked engine on a GPU: speed, agreement with the CPU, and the paper's main run.

    python benchmarks/gpu.py speed [--tf32] [--quick]          results/performance_gpu.json
    python benchmarks/gpu.py agreement [--models mlp,gru,lstm]  results/performance_agreement.json
    python benchmarks/gpu.py main-run FLEET [--processes 11]    results/performance_main_run.json

Speed: rounds of 30 and of 300 local steps for stacks of 3 to 600 vehicles; the slope is the time of
a step. FedAvg and FO-RI-FedAvg (between two probes), float32 with TF32 off and, if asked, on; GRU
and LSTM beside the loop with torch.nn's, which are cuDNN's and use TF32, torch's default for them.

Agreement: every method trains a ragged fleet (some vehicles finish their round long before others,
batches are short) for three rounds on both devices in float64 and float32; the largest difference
of a weight is relative to the largest weight. Float64 shows that both engines do the same, float32
what rounding makes of it. Results of models that are not asked for stay in the file.

Main run: the eleven methods of the paper, five seeds, the ten vehicles of FLEET (VED's electric
trips, stored) with the most training windows. Methods train one after the other, or at the same
time in so many processes that share the GPU under NVIDIA's MPS (`nvidia-cuda-mps-control -d`). With
fewer rounds than 300, the time of the last rounds says what the missing ones would take.

Needs torch, numpy and pyarrow.
"""

import argparse
import json
import multiprocessing
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks.networks import network
from benchmarks.recipe import FEATURES, WINDOW, Loop, Recipe, interleaved, rounds_of
from fedwatt.federation import Availability, Federation, Training
from fedwatt.files import write_text
from fedwatt.methods import METHODS, get
from fedwatt.models import GRU, LSTM, MLP, Model
from fedwatt.synthetic import synthetic_fleet
from fedwatt.telemetry.store import load_fleet
from fedwatt.windows import DataSettings, Fleet

RESULTS: Final = Path(__file__).resolve().parents[1] / "results"
# Probes are a cost of their own (every R rounds) and are left out here.
TIMED = [get("fedavg"), get("fo-ri-fedavg", probe_every=10**6)]
STACKS = {3: (3, 1), 15: (15, 1), 30: (30, 1), 150: (30, 5), 600: (30, 20)}
"""Rows of the stack: (participants, seeds)."""
RECURRENT = {"GRU": GRU(FEATURES), "LSTM": LSTM(FEATURES)}
RECURRENT_STACKS = {size: STACKS[size] for size in (15, 150)}
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
    fleet: Fleet, model: Model, participants: int, seeds: int, repeats: int, tf32: bool
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
                tf32=tf32,
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


def beside_loop(
    recipe: Recipe,
    fleet: Fleet,
    model: Model,
    stacks: dict[int, tuple[int, int]],
    repeats: int,
    tf32: bool = False,
) -> dict[str, Any]:
    """Measure the plain loop and all stacks."""
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


def measure_speed(repeats: int, *, tf32: bool, quick: bool) -> dict[str, Any]:
    """Measure stacks of the MLP, GRU and LSTM beside the plain loop."""
    begin = perf_counter()
    recipe = Recipe()
    fleet = recipe.fleet()
    stacks = {size: STACKS[size] for size in (3, 30)} if quick else STACKS
    precisions = {"float32": False} | ({"tf32": True} if tf32 else {})
    model = MLP(WINDOW, FEATURES)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "recipe": "100 vehicles, 1,920 windows each, batch 64; MLP 480-64-32-1, 32 units; float32",
        "precisions": {
            name: beside_loop(recipe, fleet, model, stacks, repeats, tf32=on)
            for name, on in precisions.items()
        },
        "recurrent": {
            name: beside_loop(recipe, fleet, layer, {} if quick else RECURRENT_STACKS, repeats)
            for name, layer in RECURRENT.items()
        },
        "seconds": perf_counter() - begin,
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


def measure_agreement(models: Sequence[str], recorded: dict[str, Any]) -> dict[str, Any]:
    """Train on both devices; rows of models that are not asked for stay as recorded."""
    name = "largest_difference_over_largest_weight"
    rows = [row for row in recorded.get(name, []) if row["model"] not in models]
    for model in models:
        fleet = fleet_for(model)
        windows = [len(client.ends["train"]) for client in fleet.clients]
        for method in BACKBONES[model]:
            row: dict[str, Any] = {"model": model, "method": method, "windows": windows}
            for precision in ("float64", "float32"):
                cpu = final(fleet, method, model, "cpu", precision)
                begin = perf_counter()
                gpu = final(fleet, method, model, "cuda", precision)
                row[precision] = float((cpu - gpu).abs().max() / cpu.abs().max())
                row[f"{precision}_gpu_s"] = perf_counter() - begin
            rows.append(row)
            print(row, flush=True)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "rounds": AGREEMENT_ROUNDS,
        name: rows,
    }


VEHICLES = 10
SEEDS = range(1, 6)
ROUNDS = 300
PAPER_METHODS = (
    *("fedavg", "fedprox", "scaffold", "fednova", "fedadam", "moon", "feddyn", "fedel"),
    *("fo-fedavg", "ri-fedavg", "fo-ri-fedavg"),
)

LONGEST_FIRST = sorted(
    PAPER_METHODS, key=lambda name: name not in ("moon", "fo-ri-fedavg", "ri-fedavg")
)
"""The longest begin, so that several processes end together."""


def fleet_of(folder: Path) -> Fleet:
    """Return the ten vehicles with the most training windows."""
    fleet = load_fleet(folder)
    most = sorted(fleet.clients, key=lambda client: -len(client.ends["train"]))[:VEHICLES]
    names = {client.name for client in most}
    return replace(fleet, clients=tuple(c for c in fleet.clients if c.name in names))


def timed(fleet: Fleet, method: str, rounds: int, device: str) -> dict[str, float]:
    """Return seconds of a training, of one of its later rounds, and of 300 rounds."""
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
    """Return `timed` of a fleet that this process opens."""
    torch.set_num_threads(1)
    return timed(fleet_of(folder), method, rounds, device)


def method_times(
    folder: Path, rounds: int, processes: int, device: str
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield methods with their times, as they are done."""
    if processes == 1:
        fleet = fleet_of(folder)
        for name in PAPER_METHODS:
            yield name, timed(fleet, name, rounds, device)
        return
    fresh = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=fresh) as pool:
        due = {
            pool.submit(timed_in_process, folder, name, rounds, device): name
            for name in LONGEST_FIRST
        }
        for future in as_completed(due):
            yield due[future], future.result()


def measure_main_run(folder: Path, rounds: int, processes: int, device: str) -> dict[str, Any]:
    """Train every method of the paper."""
    clients = fleet_of(folder).clients
    times = {}
    start = perf_counter()
    for name, timing in method_times(folder, rounds, processes, device):
        times[name] = timing
        print(
            f"{name:14} {timing['took_s']:6.1f} s, {timing['round_s']:.3f} s per round, "
            f"{ROUNDS} rounds: {timing['whole_s']:5.0f} s",
            flush=True,
        )
    took = perf_counter() - start
    one_by_one = sum(timing["whole_s"] for timing in times.values())
    return {
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "torch": torch.__version__,
        "vehicles": len(clients),
        "windows": sum(len(client.ends["train"]) for client in clients),
        "seeds": len(SEEDS),
        "rounds_run": rounds,
        "processes": processes,
        "methods": {name: times[name] for name in PAPER_METHODS},
        "took_s": took,
        "whole_s": one_by_one if processes == 1 else took,
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    speed = commands.add_parser("speed")
    speed.add_argument("--repeats", type=int, default=7)
    speed.add_argument("--tf32", action="store_true", help="with TF32 as well")
    speed.add_argument("--quick", action="store_true", help="MLPs of 3 and 30 vehicles, 3 repeats")
    agreement = commands.add_parser("agreement")
    agreement.add_argument("--models", default="mlp,gru,lstm")
    main_run = commands.add_parser("main-run")
    main_run.add_argument("fleet", type=Path)
    main_run.add_argument("--rounds", type=int, default=ROUNDS)
    main_run.add_argument("--processes", type=int, default=1)
    main_run.add_argument("--device", default="cuda")
    for command in (speed, agreement, main_run):
        command.add_argument("--out", type=Path, help="JSON file to write")
    options = parser.parse_args()
    names = {"speed": "gpu", "agreement": "agreement", "main-run": "main_run"}
    out = options.out or RESULTS / f"performance_{names[options.command]}.json"
    if options.command == "speed":
        repeats = 3 if options.quick else options.repeats
        record = measure_speed(repeats, tf32=options.tf32, quick=options.quick)
    elif options.command == "agreement":
        recorded = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
        record = measure_agreement(options.models.split(","), recorded)
    else:
        record = measure_main_run(options.fleet, options.rounds, options.processes, options.device)
    write_text(out, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
