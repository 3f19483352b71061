"""The recipe's round on this machine, beside a plain PyTorch loop, JAX, Flower and the floor.

    python benchmarks/engine.py [--repeats 15] [--out results/performance_engine.json]

All ways train the same amount of work. Times are medians of rounds that take turns, so that a busy
spell hits all of them alike. Flower's simulation cannot take turns; it runs first, and its median
stands beside the others'. About four minutes on two quiet cores, of which Flower takes one. The
page's tables are then written by benchmarks/performance_tables.py.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.machine import GEMM_FLOPS, gemm, machine
from benchmarks.networks import network
from benchmarks.recipe import (
    FEATURES,
    WINDOW,
    Loop,
    Recipe,
    interleaved,
    rounds_of,
)
from fedwatt.cores import threads
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.cpu import cut
from fedwatt.errors import RunError
from fedwatt.federation import Federation
from fedwatt.methods import get
from fedwatt.models import GRU, LSTM, MLP

METHODS = ("fedavg", "fedprox", "ri-fedavg", "fo-fedavg", "fo-ri-fedavg")


def bench_rounds(
    recipe: Recipe | None = None,
    *,
    repeats: int = 9,
    others: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Median seconds of a round in every way, the floor and the gather's share.

    The programs of `others` know the recipe's own numbers only.
    """
    others, recipe = others and recipe is None, recipe or Recipe()
    cores, flower = torch.get_num_threads(), []
    if others and find_spec("flwr") and find_spec("ray"):
        say("Flower's Ray simulation")
        flower = flower_seconds(rounds=repeats + 1)
    fleet = recipe.fleet()
    federation = Federation(fleet, training=recipe.training, device="cpu")
    loop = Loop(fleet, recipe, network(MLP(WINDOW, FEATURES)), "cpu").run(
        range(recipe.participants)
    )
    ways = {
        "floor": gemm(),
        "plain loop": limited(loop, 1),
        "gather": limited(gathering(federation, recipe), 1),
        "fedavg, 1 thread": limited(rounds_of(federation, get("fedavg")), 1),
    }
    for name in METHODS:
        lasting = {"probe_every": 10**6} if "ri-" in name else {}
        ways[name] = rounds_of(federation, get(name, **lasting))
    say("rounds in turns")
    if others and find_spec("jax"):
        with subprocess.Popen(
            [sys.executable, "-m", "benchmarks.jax_round"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            ways["jax"] = asked(process)
            seconds = interleaved(ways, repeats=repeats, warm_up=2)
            process.communicate()
    else:
        seconds = interleaved(ways, repeats=repeats, warm_up=2)
    floor = recipe.flops * seconds.pop("floor") / GEMM_FLOPS
    gathered = seconds.pop("gather") / seconds["fedavg, 1 thread"]
    if flower:
        seconds["flower"] = median(flower)
    return {
        "machine": machine() | {"threads": cores},
        "recipe": f"{recipe.vehicles} vehicles, {recipe.participants} a round, "
        f"{recipe.windows:,} windows each, batch {recipe.batch}, MLP 480-64-32-1",
        "repeats": repeats,
        "seconds_a_round": seconds,
        "floor_s": floor,
        "gather_share": gathered,
        "times_the_floor": {name: value / floor for name, value in seconds.items()},
        "times_fedavg": {name: value / seconds["fedavg"] for name, value in seconds.items()},
    }


def bench_modules(recipe: Recipe | None = None, *, repeats: int = 5) -> dict[str, Any]:
    """A module of one's own beside the same network by name: a round, and a round with its probe.

    The bar is twice the time.
    """
    recipe = recipe or Recipe()
    fleet, own = recipe.fleet(), network(MLP(WINDOW, FEATURES))
    ways = {}
    for name, model in (("by name", MLP(WINDOW, FEATURES)), ("own module", own)):
        federation = Federation(fleet, model, training=recipe.training, device="cpu")
        ways[f"fedavg, {name}"] = rounds_of(federation, get("fedavg"))
        for lasting, what in ((10**6, "fo-ri-fedavg"), (1, "fo-ri-fedavg with probe")):
            ways[f"{what}, {name}"] = rounds_of(
                federation, get("fo-ri-fedavg", probe_every=lasting)
            )
    # A first probe makes the memory that later ones use, and is twice as long as they are.
    seconds = interleaved(ways, repeats=repeats, warm_up=3)
    return {
        way: {
            "by_name_s": seconds[f"{way}, by name"],
            "own_module_s": seconds[f"{way}, own module"],
            "times": seconds[f"{way}, own module"] / seconds[f"{way}, by name"],
        }
        for way in ("fedavg", "fo-ri-fedavg", "fo-ri-fedavg with probe")
    }


def bench_recurrent(recipe: Recipe | None = None, *, repeats: int = 5) -> dict[str, Any]:
    """GRU and LSTM stacks beside the plain loop with torch.nn's; rounds of a tenth of the steps."""
    recipe = recipe or Recipe(windows=192)
    fleet = recipe.fleet()
    found = {}
    for model in (GRU(FEATURES), LSTM(FEATURES)):
        federation = Federation(fleet, model, training=recipe.training, device="cpu")
        loop = Loop(fleet, recipe, network(model), "cpu").run(range(recipe.participants))
        ways = {
            "plain loop": limited(loop, 1),
            "fedavg": rounds_of(federation, get("fedavg")),
            "fo-ri-fedavg": rounds_of(federation, get("fo-ri-fedavg", probe_every=10**6)),
        }
        seconds = interleaved(ways, repeats=repeats)
        found[type(model).__name__] = {
            name: value / recipe.client_steps for name, value in seconds.items()
        }
    return {"machine": machine(), "repeats": repeats, "seconds_a_client_step": found}


def limited(way: Callable[[], None], count: int) -> Callable[[], None]:
    """`way` with `count` threads."""

    def once() -> None:
        with threads(count):
            way()

    return once


def gathering(federation: Federation, recipe: Recipe) -> Callable[[], None]:
    """What it takes to gather a round's windows, as torch does it; the round in C need not."""
    pool, vehicles = federation.pool, list(range(recipe.participants))
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


def asked(process: "subprocess.Popen[str]") -> Callable[[], None]:
    """A way that asks another program for one more round and waits for its answer."""
    assert process.stdin is not None and process.stdout is not None
    question, answer = process.stdin, process.stdout
    answer.readline()

    def once() -> None:
        question.write("\n")
        question.flush()
        if not answer.readline():
            raise RunError("The JAX round ended early; see its message above.")

    return once


def flower_seconds(*, rounds: int) -> list[float]:
    """Seconds of each of Flower's rounds but the first."""
    command = [sys.executable, "-m", "benchmarks.flower_round", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"Flower's simulation failed:\n{done.stderr[-2000:]}")
    seconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("results/performance_engine.json"))
    parser.add_argument("--repeats", type=int, default=15)
    options = parser.parse_args()
    before = os.getloadavg()[0]
    found: dict[str, Any] = {
        "load_before": before,
        "mlp": bench_rounds(repeats=options.repeats, say=print),
        "modules": bench_modules(repeats=max(1, options.repeats // 2)),
        "recurrent": bench_recurrent(repeats=max(1, options.repeats // 2)),
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(found["mlp"]["times_fedavg"], indent=1))


if __name__ == "__main__":
    main()
