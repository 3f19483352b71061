"""Time of the recipe's round on this machine, beside a plain PyTorch loop and the floor.

    python benchmarks/engine.py [--repeats 15] [--out results/performance_engine.json]
    python benchmarks/engine.py --memory FLEET     peak memory of training on a stored VED fleet

All engines train the same amount of work. Times are medians of rounds that take turns, so that a
busy spell hits all of them alike. About three minutes on two quiet cores. Memory is that of two
rounds of FO-RI-FedAvg with probes, all vehicles taking part, and all evaluations. The page's tables
are then written by benchmarks/performance_tables.py.
"""

import argparse
import json
import os
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch

from benchmarks.machine import GEMM_FLOPS, gemm, machine
from benchmarks.networks import network
from benchmarks.recipe import FEATURES, WINDOW, Loop, Recipe, interleaved, rounds_of
from fedwatt import Training, load_fleet
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.cpu import cut
from fedwatt.federation import Federation
from fedwatt.files import write_text
from fedwatt.methods import get
from fedwatt.models import GRU, LSTM, MLP
from fedwatt.threads import threads

METHODS: Final = ("fedavg", "fedprox", "ri-fedavg", "fo-fedavg", "fo-ri-fedavg")
RESULTS: Final = Path("results")
MEMORY_VEHICLES: Final = 12
"""The vehicles with the most windows."""


def bench_rounds(recipe: Recipe | None = None, *, repeats: int = 9) -> dict[str, Any]:
    """Return the median seconds of a round in every engine, the floor and the gather's share."""
    recipe = recipe or Recipe()
    cores = torch.get_num_threads()
    fleet = recipe.fleet()
    federation = Federation(fleet, training=recipe.training, device="cpu")
    loop = Loop(fleet, recipe, network(MLP(WINDOW, FEATURES)), "cpu").run(
        range(recipe.participants)
    )
    engines = {
        "floor": gemm(),
        "plain loop": limited(loop, 1),
        "gather": limited(gathering(federation, recipe), 1),
        "fedavg, 1 thread": limited(rounds_of(federation, get("fedavg")), 1),
    }
    for name in METHODS:
        lasting = {"probe_every": 10**6} if "ri-" in name else {}
        engines[name] = rounds_of(federation, get(name, **lasting))
    seconds = interleaved(engines, repeats=repeats, warm_up=2)
    floor = recipe.flops * seconds.pop("floor") / GEMM_FLOPS
    gathered = seconds.pop("gather") / seconds["fedavg, 1 thread"]
    return {
        "machine": machine() | {"threads": cores},
        "recipe": f"{recipe.vehicles} vehicles, {recipe.participants} per round, "
        f"{recipe.windows:,} windows each, batch {recipe.batch}, MLP 480-64-32-1",
        "repeats": repeats,
        "seconds_a_round": seconds,
        "floor_s": floor,
        "gather_share": gathered,
        "times_the_floor": {name: value / floor for name, value in seconds.items()},
        "times_fedavg": {name: value / seconds["fedavg"] for name, value in seconds.items()},
    }


def bench_recurrent(recipe: Recipe | None = None, *, repeats: int = 5) -> dict[str, Any]:
    """Time GRU and LSTM stacks beside torch.nn's in the plain loop; a tenth of the steps."""
    recipe = recipe or Recipe(windows=192)
    fleet = recipe.fleet()
    steps = {}
    for model in (GRU(FEATURES), LSTM(FEATURES)):
        federation = Federation(fleet, model, training=recipe.training, device="cpu")
        loop = Loop(fleet, recipe, network(model), "cpu").run(range(recipe.participants))
        engines = {
            "plain loop": limited(loop, 1),
            "fedavg": rounds_of(federation, get("fedavg")),
        }
        seconds = interleaved(engines, repeats=repeats)
        steps[type(model).__name__] = {
            name: value / recipe.client_steps for name, value in seconds.items()
        }
    return {"machine": machine(), "repeats": repeats, "seconds_a_client_step": steps}


def limited(train: Callable[[], None], count: int) -> Callable[[], None]:
    """Return `train` with `count` threads."""

    def once() -> None:
        with threads(count):
            train()

    return once


def gathering(federation: Federation, recipe: Recipe) -> Callable[[], None]:
    """Return a function that gathers a round's windows with torch; the round in C need not."""
    pool = federation.pool
    vehicles = list(range(recipe.participants))
    draws = [
        Draw(1, 0, name, windows=recipe.windows, end=recipe.steps, batch=recipe.batch)
        for name in federation.fleet.names[: recipe.participants]
    ]
    starts = Batches(pool, vehicles, draws).tensors[0]
    blocks = [starts[:, rows].flatten(1) for rows in cut(recipe.participants, 8)]
    buffers = [pool.rows.index_select(0, block[0]) for block in blocks]

    def once() -> None:
        for block, buffer in zip(blocks, buffers, strict=True):
            for step in block.unbind(0):
                torch.index_select(pool.rows, 0, step, out=buffer)

    return once


def measure_memory(folder: Path) -> dict[str, Any]:
    """Train on a stored fleet and return the most memory that this process ever held."""
    fleet = load_fleet(folder)
    largest = sorted(fleet.clients, key=lambda c: -len(c.ends["train"]))[:MEMORY_VEHICLES]
    names = {client.name for client in largest}
    fleet = replace(fleet, clients=tuple(c for c in fleet.clients if c.name in names))
    training = Training(rounds=2, participation=1.0)
    Federation(fleet, training=training, device="cpu").train("fo-ri-fedavg")
    return {
        "machine": machine(),
        "vehicles": len(fleet.clients),
        "windows": {split: fleet.windows(split) for split in ("train", "validation", "test")},
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--memory", type=Path, metavar="FLEET", help="measure memory instead")
    options = parser.parse_args()
    if options.memory is not None:
        record = measure_memory(options.memory)
        out = options.out or RESULTS / "performance_memory.json"
    else:
        fewer = max(1, options.repeats // 2)
        record = {
            "load_before": os.getloadavg()[0],
            "mlp": bench_rounds(repeats=options.repeats),
            "recurrent": bench_recurrent(repeats=fewer),
        }
        out = options.out or RESULTS / "performance_engine.json"
    write_text(out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
