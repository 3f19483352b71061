"""Large fleets: results/scale.json and the sentences of docs/scale.md.

    python benchmarks/scale.py           measure, then write the page
    python benchmarks/scale.py --write   write the page from the record

Rounds of 100, 1,000 and 10,000 synthetic vehicles with 100 participants; the server's time for one
reply; 300 simulated rounds of the traffic of a million vehicles. About a quarter of an hour on two
quiet cores, most of it for making 11,100 vehicles.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.fleet_sizes import as_rows, bench_scale
from benchmarks.machine import machine
from benchmarks.marked import write_blocks
from benchmarks.server import method_loads
from benchmarks.traffic import LargeFleet, churn, simulate_methods
from fedwatt.files import write_text
from fedwatt.methods import get
from fedwatt.methods.costs import costs
from fedwatt.models import get_model
from fedwatt.report.style import name_of

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"

SIZES = (100, 1_000, 10_000)
PARTICIPANTS = 100
TRIPS = 10
STEPS = 20
ROUNDS = 9
TRAINED = ("fedavg", "scaffold")
COUNTED = ("fedavg", "fo-ri-fedavg", "scaffold", "fednova", "fedadam", "moon", "feddyn", "fedel")
AVAILABLE = 0.2
LEAVE = 0.02
LOSS = 0.05
PAPER_ROUNDS = 300


def measure() -> dict[str, Any]:
    """Return the record: rounds of three fleets, and the traffic of a million vehicles."""
    return {
        "machine": machine(),
        "rounds": {
            "participants": PARTICIPANTS,
            "trips": TRIPS,
            "steps": STEPS,
            "rounds": ROUNDS,
            "rows": as_rows(
                bench_scale(
                    SIZES,
                    TRAINED,
                    participants=PARTICIPANTS,
                    trips=TRIPS,
                    steps=STEPS,
                    rounds=ROUNDS,
                    progress=lambda done, of: print(f"rounds: {done} of {of}", flush=True),
                )
            ),
        },
        "traffic": on_paper(),
    }


def on_paper() -> dict[str, Any]:
    """Simulate the traffic of a million vehicles with every method."""
    fleet = LargeFleet()
    loads = method_loads(COUNTED)
    traffic = simulate_methods(fleet, loads, churn(AVAILABLE, LEAVE, LOSS), rounds=PAPER_ROUNDS)
    methods = {}
    for name, own in traffic.items():
        base = get_model("mlp", window=60, features=8)
        kept = costs(get(name), base)
        methods[name] = (
            asdict(loads[name])
            | {"vehicle_bytes": 4 * kept.vehicle, "server_bytes": 4 * kept.server}
            | own.summary()
        )
    return {
        "fleet": asdict(fleet),
        "available": AVAILABLE,
        "p_leave": LEAVE,
        "reply_loss": LOSS,
        "methods": methods,
    }


def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return the sentences of the page by the name of their place."""
    return {"rounds": about_rounds(record)} | about_traffic(record["traffic"])


def about_rounds(record: dict[str, Any]) -> str:
    """Return the time and memory of a round in the smallest and the largest fleet."""
    rounds = record["rounds"]
    computer = record["machine"]
    costs_of_methods = []
    for method in TRAINED:
        rows = [row for row in rounds["rows"] if row["method"] == method]
        cells = " and ".join(
            f"{row['seconds']:.2f} s, {row['rounds_mb']:.0f} MB with {row['vehicles']:,} vehicles"
            for row in (rows[0], rows[-1])
        )
        costs_of_methods.append(f"{name_of(method)} takes {cells}")
    return (
        f"A round of {rounds['participants']} participants with {rounds['steps']} steps each: "
        f"{'; '.join(costs_of_methods)}. {computer['cores']} cores "
        f"({computer.get('processor') or computer['platform']}), one thread, PyTorch "
        f"{computer['torch']}, medians of {rounds['rounds']} rounds."
    )


def about_traffic(paper: dict[str, Any]) -> dict[str, str]:
    """Return sentences on the vehicles reached and on the duration of a round."""
    first = next(iter(paper["methods"].values()))
    fleet = paper["fleet"]
    most_mb = first["most_times"] * (first["down_bytes"] + first["up_bytes"]) / 1e6
    reached = (
        f"Of {fleet['vehicles']:,} vehicles {first['available']:,.0f} can be reached at a time and "
        f"{first['asked']:,.0f} are asked in a round; {first['replied']:,.0f} replies count, "
        f"{first['late']:,.0f} are late, {first['lost']:,.0f} get lost. {first['rounds']} rounds "
        f"last {first['hours']:.1f} hours with {name_of(next(iter(paper['methods'])))}; by then "
        f"{first['reached']:.0%} of the vehicles have been asked at least once, none more than "
        f"{first['most_times']} times, which is {most_mb:.1f} MB."
    )
    megabits = {way: 8e-6 * first[f"{way}_bytes"] for way in ("down", "up")}
    median_s = 2 * fleet["latency_s"] + fleet["steps"] / fleet["steps_per_s"]
    median_s += sum(megabits[way] / fleet[f"{way}_mbps"] for way in megabits)
    waiting = (
        "The spread between vehicles decides how long a round lasts: a vehicle with median "
        "computer and link is done in "
        f"{median_s:.1f} s, and the server waits {first['round_s']:.1f} s until "
        f"{fleet['enough']:.0%} of those asked have replied. Its work takes at most "
        f"{max(own['server_cores'] for own in paper['methods'].values()):.2f} of a core."
    )
    return {"rounds of a million": reached, "waiting": waiting}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="only write the page")
    if not parser.parse_args().write:
        write_text(RESULTS, json.dumps(measure(), indent=2) + "\n")
    write_blocks(PAGE, tables(json.loads(RESULTS.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
