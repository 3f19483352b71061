"""Time of the recipe's round on this machine, beside a plain PyTorch loop and the floor.

    python benchmarks/engine.py [--repeats 15] [--out results/performance_engine.json]
    python benchmarks/engine.py --memory FLEET     peak memory of training on a stored VED fleet
    python benchmarks/engine.py --tables           writes docs/performance.md from all records

All engines train the same amount of work. Times are medians of rounds that take turns, so that a
busy spell hits all of them alike. About three minutes on two quiet cores. Memory is that of two
rounds of FO-RI-FedAvg with probes, all vehicles taking part, and all evaluations.
"""

import argparse
import json
import os
import re
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch

from benchmarks.gpu import SHORT
from benchmarks.machine import GEMM_FLOPS, gemm, machine
from benchmarks.marked import write_blocks
from benchmarks.networks import network
from benchmarks.recipe import FEATURES, WINDOW, Loop, Recipe, interleaved, rounds_of
from benchmarks.tables import table
from fedwatt import Training, load_fleet
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.cpu import cut
from fedwatt.federation import Federation
from fedwatt.files import write_text
from fedwatt.methods import get
from fedwatt.models import GRU, LSTM, MLP
from fedwatt.report.style import name_of
from fedwatt.threads import threads

METHODS: Final = ("fedavg", "fedprox", "ri-fedavg", "fo-fedavg", "fo-ri-fedavg")
ROOT: Final = Path(__file__).resolve().parents[1]
RECORDS: Final = ROOT / "results"
PAGE: Final = ROOT / "docs" / "performance.md"
CONSTRAINTS: Final = ROOT / "constraints.txt"
Found = dict[str, Any]
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


# ------------------------------------------------------------------------------- page
WAYS = {
    "plain loop": "plain PyTorch client loop, 1 thread",
    "fedavg, 1 thread": "fedwatt, FedAvg, 1 thread",
}


def on(machine: Found, load: float | None = None) -> str:
    return (
        f"{machine['processor']}, {machine['cores']} cores, "
        f"{machine['threads']} thread{'' if machine['threads'] == 1 else 's'}, "
        f"Python {machine['python']}, torch {machine['torch']}"
        + ("" if load is None else f"; load {load:.1f} before the run")
    )


def on_gpu(record: Found) -> str:
    """Return the GPU and torch of a record, and the torch that is pinned now if it is another."""
    (pinned,) = re.findall(r"^torch==(\S+)$", CONSTRAINTS.read_text(encoding="utf-8"), re.MULTILINE)
    ran = record["torch"]
    other = f" (constraints.txt has {pinned})"
    return f"{record['device']}, torch {ran}{'' if ran.split('+')[0] == pinned else other}"


def engine_blocks(record: Found) -> dict[str, str]:
    mlp = record["mlp"]
    rows = [
        f"{WAYS.get(way) or 'fedwatt, ' + name_of(way)}|{seconds * 1000:.0f}|"
        f"{mlp['times_the_floor'][way]:.1f}|{mlp['times_fedavg'][way]:.2f}"
        for way, seconds in mlp["seconds_a_round"].items()
    ]
    steps = record["recurrent"]["seconds_a_client_step"]
    return {
        "engine": table("engine|ms per round|times the floor|times FedAvg's time", rows)
        + f"\n\nFloor: {mlp['floor_s'] * 1000:.0f} ms. "
        f"{on(mlp['machine'], record['load_before'])}.",
        "recurrent": "A step of one vehicle, and with torch.nn in a plain loop: "
        + "; ".join(
            f"{name} {seconds['fedavg'] * 1e3:.2f} and {seconds['plain loop'] * 1e3:.2f} ms"
            for name, seconds in steps.items()
        )
        + ".",
    }


def probe_blocks(record: Found) -> dict[str, str]:
    probe = record["probe"]
    rounds = record["rounds"]
    share = table(
        "windows of a vehicle|FedAvg, ms per round|three probes, ms|added at R = 5",
        (
            f"{share_row['windows']:,}|{share_row['seconds_a_round']['fedavg'] * 1e3:.0f}|"
            f"{share_row['probe_s'] * 1e3:.0f}|{share_row['amortised_probe_share_R5']:.2%}"
            for share_row in rounds
        ),
    )
    return {
        "probe": f"{probe['passes']:,} forward passes take "
        f"{probe['seconds']['naive'] * 1e3:.0f} ms, "
        f"the probe {probe['seconds']['probe'] * 1e3:.1f} ms: **{probe['times_faster']:.1f} times "
        f"faster**, losses equal to {probe['largest_difference']:.0e}. "
        f"{on(probe['machine'], record['load_before'])}.\n\n{share}",
    }


def gpu_blocks(record: Found) -> dict[str, str]:
    """Return the table of the MLP's stacks beside a plain loop."""
    head = f"stack|vehicles|ms per step|times the loop|in a round of {SHORT} steps"
    plain = record["plain_client_step_s"]
    rows = [f"plain loop, float32|1|{plain * 1e3:.3f}|1|1"]
    rows += [
        f"{name_of(stack['method'])}, float32|{stack['rows']}|{stack['step_s'] * 1e3:.3f}|"
        f"{stack['times_plain_loop']:,.0f}|"
        f"{SHORT * stack['rows'] * plain / stack['round_s']:,.0f}"
        for stack in record["stacks"]
    ]
    return {"gpu": f"{table(head, rows)}\n\n{on_gpu(record)}."}


def agreement_blocks(record: Found) -> dict[str, str]:
    rows = record["largest_difference_over_largest_weight"]
    worst = {p: max(rows, key=lambda row: row[p]) for p in ("float64", "float32")}
    most = ", ".join(f"{row[p]:.0e} in {p} ({name_of(row['method'])})" for p, row in worst.items())
    middle = median(row["float32"] for row in rows)
    return {
        "agreement": "Largest difference of any weight between the two engines after three rounds, "
        f"relative to the largest weight: {most}; the median over {len(rows)} trainings is "
        f"{middle:.0e} in float32. A ReLU unit whose input is 0 to within rounding can be on in "
        "one engine and off in the other; on a processor, float32 and float64 differ in this way."
    }


def memory_blocks(record: Found) -> dict[str, str]:
    windows = sum(record["windows"].values())
    return {
        "memory": f"Two rounds of FO-RI-FedAvg on {record['vehicles']} vehicles of VED "
        f"({windows:,} windows), all of them training, with every evaluation: "
        f"**{record['peak_mb']:.0f} MB** at the highest, the whole process. "
        f"{on(record['machine'])}."
    }


FILES: dict[str, Callable[[Found], dict[str, str]]] = {
    "engine": engine_blocks,
    "probe": probe_blocks,
    "gpu": gpu_blocks,
    "agreement": agreement_blocks,
    "memory": memory_blocks,
}


def blocks() -> dict[str, str]:
    """Markdown by the name of its place on the page, of all records that are there."""
    made: dict[str, str] = {}
    for file, tables in FILES.items():
        path = RECORDS / f"performance_{file}.json"
        made |= tables(json.loads(path.read_text(encoding="utf-8")))
    return made


def main() -> None:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--memory", type=Path, metavar="FLEET", help="measure memory instead")
    parser.add_argument("--tables", action="store_true", help="write the page")
    options = parser.parse_args()
    if options.tables:
        write_blocks(PAGE, blocks())
        return
    if options.memory is not None:
        record = measure_memory(options.memory)
        out = options.out or RECORDS / "performance_memory.json"
    else:
        fewer = max(1, options.repeats // 2)
        record = {
            "load_before": os.getloadavg()[0],
            "mlp": bench_rounds(repeats=options.repeats),
            "recurrent": bench_recurrent(repeats=fewer),
        }
        out = options.out or RECORDS / "performance_engine.json"
    write_text(out, json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
