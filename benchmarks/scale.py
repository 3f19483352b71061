"""Large fleets: results/scale.json, the tables of docs/scale.md and its two figures.

    python benchmarks/scale.py [--ved FLEET]    measure, then write the page's tables and draw
    python benchmarks/scale.py --draw           the page and figures of what was measured before

Rounds of 100, 1,000 and 10,000 synthetic vehicles with 100 participants; what a server does for one
reply; 300 rounds of a million vehicles on paper. With `--ved`, the folder of a fleet made by
`fedwatt data import ved`, also the peak memory of `fedwatt run` on it. About a quarter of an hour
on two quiet cores, most of it for making 11,100 vehicles.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from benchmarks.fleet_sizes import as_rows, bench_scale
from benchmarks.machine import machine
from benchmarks.marked import write_blocks
from benchmarks.server import method_loads
from benchmarks.traffic import LargeFleet, Traffic, churn, simulate_methods
from fedwatt.files import write_atomically, write_text
from fedwatt.methods import get
from fedwatt.methods.costs import costs
from fedwatt.models import get_model
from fedwatt.report.style import LOOKS, MUTED, WIDTH_IN, name_of, styled
from fedwatt.telemetry.store import load_fleet

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "scale.json"
PAGE = ROOT / "docs" / "scale.md"
FIGURES = ROOT / "docs" / "figures"

SIZES, PARTICIPANTS, TRIPS, STEPS, ROUNDS = (100, 1_000, 10_000), 100, 10, 20, 9
TRAINED = ("fedavg", "scaffold")
COUNTED = ("fedavg", "fo-ri-fedavg", "scaffold", "fednova", "fedadam", "moon", "feddyn", "fedel")
AVAILABLE, LEAVE, LOSS, PAPER_ROUNDS = 0.2, 0.02, 0.05, 300
# The process tells its own peak: what the system keeps of it begins with that of its parent.
STARTING = """
import sys
from pathlib import Path
from fedwatt.cli import main
file = Path(sys.argv.pop(1))
try:
    main()
finally:
    file.write_text(Path("/proc/self/status").read_text())
"""
RUNS = {
    "defaults": ("--rounds", "2"),
    "all vehicles in every round, 5 seeds": (
        "--rounds", "1", "--participation", "1", "--seeds", "1,2,3,4,5",
    ),
}  # fmt: skip


def measure(ved: Path | None) -> dict[str, Any]:
    found: dict[str, Any] = {
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
    if ved is not None:
        found["ved"] = ved_memory(ved)
    elif RESULTS.exists():
        found["ved"] = json.loads(RESULTS.read_text(encoding="utf-8")).get("ved")
    return found


def on_paper() -> dict[str, Any]:
    """A million vehicles under the load of every method."""
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
    first = traffic[COUNTED[0]]
    return {
        "fleet": asdict(fleet),
        "available": AVAILABLE,
        "p_leave": LEAVE,
        "reply_loss": LOSS,
        "methods": methods,
        "course": course(first),
        "times_asked": np.bincount(first.times).tolist(),
    }


def course(traffic: Traffic) -> dict[str, list[float]]:
    """Every fifth round of the first method's simulation, for the figure."""
    shown = slice(0, None, 5)
    return {
        "round": (np.arange(len(traffic.seconds)) + 1)[shown].tolist(),
        "hours": (traffic.seconds.cumsum() / 3600)[shown].round(4).tolist(),
        "reached": (traffic.reached / len(traffic.times))[shown].round(5).tolist(),
        "seconds": traffic.seconds[shown].round(2).tolist(),
    }


def ved_memory(fleet: Path) -> dict[str, Any]:
    """Peak memory of `fedwatt run` on a stored fleet."""
    loaded = load_fleet(fleet)
    peaks = {}
    for name, options in RUNS.items():
        with tempfile.TemporaryDirectory() as out:
            arguments = ["run", "--data", str(fleet), "--device", "cpu", "--out", f"{out}/run"]
            status = Path(out) / "status"
            command = [sys.executable, "-c", STARTING, str(status), *arguments, *options]
            subprocess.run(command, check=True)
            (peak,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text())
            peaks[name] = int(peak) / 1024
    splits = ("train", "validation", "test")
    return {
        "vehicles": len(loaded.clients),
        "windows": sum(loaded.windows(split) for split in splits),
        "peak_mb": peaks,
    }


def tables(found: dict[str, Any]) -> dict[str, str]:
    """Markdown by the name of its place on the page."""
    rounds, paper = found["rounds"], found["traffic"]
    made = {"rounds": rounds_table(rounds), "traffic": traffic_table(paper)}
    made |= about_traffic(paper)
    ved = found.get("ved")
    if ved:
        peaks = ", ".join(f"{name}: {peak:.0f} MB" for name, peak in ved["peak_mb"].items())
        made["ved"] = (
            f"Peak memory of the whole process on {ved['vehicles']} vehicles of VED with "
            f"{ved['windows']:,} windows: {peaks}."
        )
    own = found["machine"]
    made["machine"] = (
        # Records of before the processor was kept have its kind alone.
        f"Measured on {own['cores']} cores ({own.get('processor') or own['platform']}), one "
        f"thread, Python {own['python']}, PyTorch {own['torch']}; medians of {rounds['rounds']} "
        f"rounds, {rounds['participants']} participants with {rounds['steps']} steps each, the "
        "fleets in turns."
    )
    return made


def rounds_table(rounds: dict[str, Any]) -> str:
    """Time and memory of a round for each method and size."""
    lines = [
        "| method | vehicles | on disk | a round | ratio | memory of rounds | ratio | "
        "memory of the fleet |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for row in rounds["rows"]:
        lines.append(
            f"| {name_of(row['method'])} | {row['vehicles']:,} | {row['disk_mb']:,.0f} MB | "
            f"{row['seconds']:.2f} s | {row['time_ratio']:.2f} | {row['rounds_mb']:.0f} MB | "
            f"{row['memory_ratio']:.2f} | +{row['fleet_mb']:.0f} MB |"
        )
    return "\n".join(lines)


def traffic_table(paper: dict[str, Any]) -> str:
    """What a round of a million vehicles takes with each method."""
    lines = [
        "| method | to a vehicle | from a vehicle | kept on it | server, ms a reply | a round | "
        "Gbit/s | server cores | MB a vehicle in all rounds, mean |",
        "|---|--:|--:|--:|--:|--:|--:|--:|--:|",
    ]
    for name, own in paper["methods"].items():
        lines.append(
            f"| {name_of(name)} | {own['down_bytes'] / 1000:.0f} kB | "
            f"{own['up_bytes'] / 1000:.0f} kB | {own['vehicle_bytes'] / 1000:.0f} kB | "
            f"{1000 * own['server_s']:.2f} | {own['round_s']:.1f} s | "
            f"{own['gigabit_per_s']:.2f} | {own['server_cores']:.3f} | "
            f"{own['megabytes_per_vehicle']:.2f} |"
        )
    return "\n".join(lines)


def about_traffic(paper: dict[str, Any]) -> dict[str, str]:
    """Sentences on who is reached, and on what a round waits for."""
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
        "Computers and links decide how long a round lasts, and the spread between vehicles more "
        "than either: a vehicle that has the median of everything is done in "
        f"{median_s:.1f} s, and the server waits {first['round_s']:.1f} s until "
        f"{fleet['enough']:.0%} of those asked have replied. Its own work takes "
        f"{max(own['server_cores'] for own in paper['methods'].values()):.2f} of a core at most."
    )
    return {"rounds of a million": reached, "waiting": waiting}


@styled
def scale_figure(rounds: dict[str, Any]) -> Figure:
    """Time and memory of a round against the size of the fleet."""
    figure = Figure(figsize=(WIDTH_IN, 2.4))
    panels = figure.subplots(1, 2)
    for axes, column, title in zip(
        panels, ("seconds", "rounds_mb"), ("A round (s)", "Memory of rounds (MB)"), strict=True
    ):
        for method in TRAINED:
            own = [row for row in rounds["rows"] if row["method"] == method]
            look = LOOKS[method]
            axes.plot(
                [row["vehicles"] for row in own],
                [row[column] for row in own],
                color=look.colour,
                marker=look.marker,
                linestyle=look.dash,
                label=name_of(method),
            )
        axes.set_xscale("log")
        axes.set_xticks(SIZES, [f"{size:,}" for size in SIZES])
        axes.minorticks_off()
        axes.set_ylim(0, 1.1 * max(row[column] for row in rounds["rows"]))
        axes.set_xlabel("vehicles")
        axes.set_title(title)
    panels[0].legend(loc="lower right")
    return figure


@styled
def traffic_figure(paper: dict[str, Any]) -> Figure:
    """How the rounds of a million vehicles reach them."""
    figure = Figure(figsize=(WIDTH_IN, 2.4))
    left, right = figure.subplots(1, 2)
    look = LOOKS["fo-ri-fedavg"]
    left.plot(paper["course"]["hours"], paper["course"]["reached"], color=look.colour)
    left.yaxis.set_major_formatter(lambda value, _: f"{value:.0%}")
    left.set_ylim(bottom=0)
    left.set_xlabel("hours")
    left.set_title("Vehicles reached so far")
    counts = np.array(paper["times_asked"])
    right.bar(range(len(counts)), counts / counts.sum(), color=look.colour, width=0.8)
    right.set_yscale("log")
    right.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    right.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set_xlabel(f"times asked in {PAPER_ROUNDS} rounds")
    right.set_title("Share of vehicles")
    right.tick_params(axis="y", colors=MUTED)
    return figure


def draw(found: dict[str, Any]) -> None:
    write_blocks(PAGE, tables(found))
    for name, figure in (
        ("scale", scale_figure(found["rounds"])),
        ("traffic", traffic_figure(found["traffic"])),
    ):
        save = partial(figure.savefig, format="svg", metadata={"Date": None})
        write_atomically(FIGURES / f"{name}.svg", save)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draw", action="store_true", help="only draw what was measured before")
    parser.add_argument("--ved", type=Path, help="folder of a fleet imported from VED")
    arguments = parser.parse_args()
    if not arguments.draw:
        write_text(RESULTS, json.dumps(measure(arguments.ved), indent=2) + "\n")
    draw(json.loads(RESULTS.read_text(encoding="utf-8")))


if __name__ == "__main__":
    main()
