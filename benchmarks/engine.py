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
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
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
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.cpu import cut
from fedwatt.errors import RunError
from fedwatt.federation import Federation
from fedwatt.methods import get
from fedwatt.models import GRU, LSTM, MLP
from fedwatt.threads import threads

METHODS = ("fedavg", "fedprox", "ri-fedavg", "fo-fedavg", "fo-ri-fedavg")


def bench_rounds(
    recipe: Recipe | None = None,
    *,
    repeats: int = 9,
    others: bool = True,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Return the median seconds of a round in every way, the floor and the gather's share.

    The programs of `others` know the recipe's own numbers only. One that raises or loses a client
    is listed under "failed" with its reason, and all the others are measured.
    """
    others, recipe = others and recipe is None, recipe or Recipe()
    cores = torch.get_num_threads()
    flower: list[float] = []
    failed: dict[str, str] = {}
    if others and find_spec("flwr") and find_spec("ray"):
        say("Flower's Ray simulation")
        try:
            flower = flower_seconds(rounds=repeats + 1)
        except RunError as error:
            failed["flower"] = str(error)
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
        try:
            seconds = beside_jax(ways, repeats)
        except (RunError, OSError) as error:
            failed["jax"] = str(error)
            say("rounds in turns, without JAX")
            seconds = interleaved(ways, repeats=repeats, warm_up=2)
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
        "failed": failed,
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
    fleet = recipe.fleet()
    own = network(MLP(WINDOW, FEATURES))
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


def beside_jax(ways: Mapping[str, Callable[[], None]], repeats: int) -> dict[str, float]:
    """Measure `ways` in turns with rounds of a JAX program; RunError where that program ends."""
    command = [sys.executable, "-m", "benchmarks.jax_round"]
    with (
        tempfile.TemporaryFile("w+") as messages,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=messages, text=True
        ) as process,
    ):
        try:
            all_ways = {**ways, "jax": next_round(process)}
            seconds = interleaved(all_ways, repeats=repeats, warm_up=2)
            process.communicate()
        except (RunError, OSError) as error:
            process.kill()
            with suppress(OSError):  # a request that nobody will read is still to be written
                process.communicate()
            messages.seek(0)
            raise RunError(f"The JAX program failed: {last_line(messages.read())}") from error
    return seconds


def next_round(process: "subprocess.Popen[str]") -> Callable[[], None]:
    """Return a function that lets another program train one more round and waits for it."""
    assert process.stdin is not None and process.stdout is not None
    request = process.stdin
    answer = process.stdout

    def wait() -> None:
        if not answer.readline():
            raise RunError("The program ended.")

    def once() -> None:
        request.write("\n")
        request.flush()
        wait()

    wait()  # until the program has compiled
    return once


def flower_seconds(*, rounds: int) -> list[float]:
    """Return the seconds of each of Flower's rounds but the first; RunError where one fails."""
    command = [sys.executable, "-m", "benchmarks.flower_round", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunError(f"Flower's simulation failed: {last_line(done.stderr)}")
    # A server that raises does not always end the simulation with an error.
    try:
        seconds: list[float] = json.loads(last_line(done.stdout))
    except ValueError as error:
        raise RunError(f"Flower's simulation printed no times: {last_line(done.stderr)}") from error
    if len(seconds) != rounds - 1:
        raise RunError(
            f"Flower's simulation finished {len(seconds)} of {rounds - 1} rounds: "
            f"{last_line(done.stderr)}"
        )
    return seconds


def last_line(text: str) -> str:
    """Return the last line that is not empty, which names the cause of a traceback.

    >>> last_line("Traceback ...\\nRunError: Flower trained 29 of 30 clients.\\n\\n")
    'RunError: Flower trained 29 of 30 clients.'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


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
