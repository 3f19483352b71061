"""Measure the costs of every method relative to FedAvg, for docs/methods.md.

    python -m benchmarks.method_costs            measure, then write; about a minute on a quiet core
    python -m benchmarks.method_costs --tables   write the table of what was measured

Rounds of ten vehicles, 30 steps each, on one thread. All methods take turns, and medians count.
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.machine import machine
from benchmarks.marked import write_blocks
from benchmarks.probe import ProbingRound
from benchmarks.recipe import FEATURES, WINDOW, Recipe, interleaved, rounds_of
from fedwatt.federation import Availability, Federation
from fedwatt.files import write_text
from fedwatt.methods import METHODS, get
from fedwatt.methods.method import costs
from fedwatt.methods.roughness import RoughnessProximal
from fedwatt.models import get_model
from fedwatt.threads import threads

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "method_costs.json"
PAGE = ROOT / "docs" / "methods.md"
RECIPE = Recipe(vehicles=10, participants=10)
SPEEDS = (1.0, 0.5)
PROBING = "fo-ri-fedavg, all probing"
VARIANTS = {"scaffold": "option 1", "fedel": "computers of speeds 1 and 0.5"}
"""What else is measured of a method."""


def measure(repeats: int) -> dict[str, Any]:
    before = os.getloadavg()[0]
    rule = RoughnessProximal()
    fleet = RECIPE.fleet()

    def federation(availability: Availability | None = None) -> Federation:
        return Federation(fleet, training=RECIPE.training, availability=availability, device="cpu")

    same = federation()
    ways: dict[str, Callable[[], None]] = {
        name: rounds_of(same, get(name, **({"probe_every": 10**6} if "ri-" in name else {})))
        for name in METHODS
    }
    ways[f"scaffold, {VARIANTS['scaffold']}"] = rounds_of(same, get("scaffold", option=1))
    unequal = federation(Availability(speeds=SPEEDS))
    ways[f"fedel, {VARIANTS['fedel']}"] = rounds_of(unequal, get("fedel"))
    ways[PROBING] = ProbingRound(same, rule.directions, rule.points, rule.probe_batch)
    with threads(1):
        # Two rounds to warm up: by then every vehicle has something to remember.
        seconds = interleaved(ways, repeats=repeats, warm_up=2)
        computer = machine()
    probe = (seconds[PROBING] - seconds["fo-ri-fedavg"]) / RECIPE.participants
    return {
        "machine": computer,
        "load_before": before,
        "vehicles": RECIPE.participants,
        "steps": RECIPE.steps,
        "batch": RECIPE.batch,
        "repeats": repeats,
        "seconds_a_round": seconds,
        "times_fedavg": {name: value / seconds["fedavg"] for name, value in seconds.items()},
        "probe_in_steps": probe / (seconds["fedavg"] / RECIPE.client_steps),
    }


def table(times: dict[str, float]) -> str:
    """Return the table of all methods: time of a round, grouped by traffic and state in models."""
    model = get_model("mlp", window=WINDOW, features=FEATURES)
    groups: dict[str, list[str]] = {}
    for name in METHODS:
        cost = costs(get(name), model)
        sizes = (cost.up, cost.down, cost.vehicle, cost.server)
        key = " | ".join(f"{size / cost.weights:.0f}" for size in sizes)
        groups.setdefault(key, []).append(f"`{name}` {times[name]:.1f}")
    lines = [
        "| upload | download | vehicle state | server state | methods with their time |",
        "|--:|--:|--:|--:|---|",
    ]
    lines += [f"| {key} | {', '.join(names)} |" for key, names in groups.items()]
    return "\n".join(lines)


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return the block of the page by its name."""
    times = record["times_fedavg"]
    hardware = record["machine"]
    rule = RoughnessProximal()
    steps = round(record["probe_in_steps"], -1)
    passes = rule.directions * (rule.points + 1)
    variants = [
        f"`{name}` with {words}: {times[f'{name}, {words}']:.1f}"
        for name, words in VARIANTS.items()
    ]
    return {
        "costs": f"{table(times)}\n\n{'; '.join(variants)}. "
        "The roughness methods do not probe here; with a probe in every vehicle FO-RI-FedAvg takes "
        f"{times[PROBING]:.1f}. A probe evaluates the loss M (m + 1) = {passes:,} times, "
        f"which takes as long as about {steps:.0f} local steps. Medians of {record['repeats']} "
        f"rounds, {record['vehicles']} vehicles, {record['steps']} steps, "
        f"batches of {record['batch']}; "
        f"{hardware['processor']}, one thread, torch {hardware['torch']} "
        "(`benchmarks/method_costs.py`)."
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--tables", action="store_true", help="write what was measured before")
    parser.add_argument("--repeats", type=int, default=25)
    options = parser.parse_args()
    if not options.tables:
        write_text(RESULTS, json.dumps(measure(options.repeats), indent=1) + "\n")
    record = json.loads(RESULTS.read_text(encoding="utf-8"))
    for name, times in record["times_fedavg"].items():
        print(f"{name:40} {times:5.2f}")
    write_blocks(PAGE, tables(record))


if __name__ == "__main__":
    main()
