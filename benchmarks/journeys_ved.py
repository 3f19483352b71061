"""Journeys on VED: windows and trips with true speed; `journeys_routes.py` adds routes.

    python -m benchmarks.journeys_networks --fleet FLEET --out NETWORKS --workers 16
    python -m benchmarks.journeys_ved --fleet FLEET --networks NETWORKS --workers 2

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`; of it the
12 vehicles with 20 or more usable all-electric trips (two of VED's three purely electric cars are
among them). Five splits of trips, everything federated. Fills the part "windows" and its keys of
"summary" in results/journeys_ved.json, split by split (what is there is kept), and the tables of
docs/journeys.md from it. Only aggregates over a vehicle's test trips are stored.
"""

import argparse
import json
import multiprocessing
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.journeys_windows import window_rows
from benchmarks.marked import write_blocks
from benchmarks.terrain_rows import overall, with_interval
from fedwatt.files import write_text

ROOT = Path(__file__).resolve().parents[1]
RECORD, PAGE = ROOT / "results" / "journeys_ved.json", ROOT / "docs" / "journeys.md"


# ------------------------------------------------------------------------------ summary
def summary(splits: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers that the page leads with, of windows and of trips with true speed."""
    rows: dict[str, list[float]] = {}
    for found in splits.values():
        for row, errors in found["rows"].items():
            rows.setdefault(row, []).append(overall(errors))
    trips = [one for found in splits.values() for one in found["trips"]]
    errors = [
        np.concatenate([one["errors_percent"] for one in found["trips"]])
        for found in splits.values()
    ]

    def share(covered: str, of: str) -> float:
        inside, all_ = (float(sum(one[name] for one in trips)) for name in (covered, of))
        return round(inside / all_, 4)

    whole = np.concatenate(errors)
    return {
        "window_rmse_wh": round(float(np.mean(rows["mixture"])), 3),
        "window_rmse_in_trip_wh": round(float(np.mean(rows["in trip"])), 3),
        "trip_error_true_speed_median": round(float(np.median(whole)), 3),
        "trip_error_true_speed_mean": round(float(whole.mean()), 3),
        "trip_error_true_speed_90th": round(float(np.quantile(whole, 0.9)), 3),
        "coverage_windows": share("windows_covered", "windows"),
        "coverage_windows_in_trip": share("in_trip_covered", "windows"),
        "coverage_trips_true_speed": share("trips_covered", "trips"),
    }


# ------------------------------------------------------------------------------- tables
def windows_table(splits: Mapping[str, Any]) -> str:
    lines = ["| model | RMSE, Wh | splits |", "|---|---|---|"]
    rows = list(dict.fromkeys(row for found in splits.values() for row in found["rows"]))
    for row in rows:
        values = [overall(own["rows"][row]) for own in splits.values() if row in own["rows"]]
        lines.append(f"| {row} | {with_interval(values, digits=2)} | {len(values)} |")
    return "\n".join(lines)


def trips_table(splits: Mapping[str, Any]) -> str:
    lines = [
        "| trips of 2 km or more | median | mean | 90th percentile |",
        "|---|---|---|---|",
    ]
    for row, name in (
        ("mixture", "errors_percent"),
        ("mixture without balance of trips", "unbalanced_errors_percent"),
        ("mean Wh/km", "wh_per_km_errors_percent"),
    ):
        parts = [np.concatenate([one[name] for one in found["trips"]]) for found in splits.values()]
        cells = []
        for measure in (np.median, np.mean, lambda own: np.quantile(own, 0.9)):
            cells.append(f"{with_interval([float(measure(own)) for own in parts])} %")
        lines.append(f"| {row}, true speed | {' | '.join(cells)} |")
    return "\n".join(lines)


def vehicles_table(splits: Mapping[str, Any]) -> str:
    rows = ("mean Wh/km", "ridge without hills", "mixture", "in trip")
    lines = [
        f"| vehicle | {' | '.join(rows)} | trip error, median | windows covered | trips covered |",
        f"|---|{'---|' * (len(rows) + 3)}",
    ]
    vehicles = [one["vehicle"] for one in next(iter(splits.values()))["trips"]]
    for vehicle in vehicles:
        cells = []
        for row in rows:
            cells.append(with_interval([own["rows"][row][vehicle] for own in splits.values()]))
        own = [one for f in splits.values() for one in f["trips"] if one["vehicle"] == vehicle]
        errors = np.concatenate([one["errors_percent"] for one in own])
        cells.append(f"{np.median(errors):.1f} %")
        for covered, of in (("windows_covered", "windows"), ("trips_covered", "trips")):
            cells.append(f"{sum(one[covered] for one in own) / sum(one[of] for one in own):.0%}")
        lines.append(f"| {vehicle} | {' | '.join(cells)} |")
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    """The blocks of docs/journeys.md on windows and recorded trips."""
    splits = json.loads(RECORD.read_text(encoding="utf-8"))["windows"]
    return {
        "windows": windows_table(splits),
        "recorded trips": trips_table(splits),
        "vehicles": vehicles_table(splits),
    }


def write(splits: dict[str, Any]) -> None:
    """The part on windows with its keys of the summary, and the tables of the page."""
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    record["windows"] = splits
    record["summary"] = record.get("summary", {}) | summary(splits)
    write_text(RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")
    if len(splits) > 1:
        write_blocks(PAGE, blocks())


# --------------------------------------------------------------------------------- work
def split_record(folder: Path, networks: Path, seed: int) -> dict[str, Any]:
    """Everything of one split that concerns windows and recorded trips."""
    torch.set_num_threads(1)
    rows, more = window_rows(folder, networks, seed)
    return {"rows": rows, **more}


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--fleet", type=Path, required=True)
    options.add_argument("--networks", type=Path, required=True)
    options.add_argument("--seeds", default="1,2,3,4,5")
    options.add_argument("--workers", type=int, default=1)
    options.add_argument("--tables", action="store_true", help="only write summary and tables")
    options.add_argument("--again", action="store_true", help="measure splits that are there, too")
    chosen = options.parse_args()
    known: dict[str, Any] = {}
    if RECORD.exists():
        known = json.loads(RECORD.read_text(encoding="utf-8")).get("windows", {})
    if not chosen.tables:
        seeds = [s for s in chosen.seeds.split(",") if chosen.again or s not in known]
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(chosen.workers, mp_context=spawn) as pool:
            tasks = {
                pool.submit(split_record, chosen.fleet, chosen.networks, int(seed)): seed
                for seed in seeds
            }
            for done in as_completed(tasks):
                known[tasks[done]] = done.result()
                print(f"split {tasks[done]}: {summary(known)}", flush=True)
                write(known)
    write(known)


if __name__ == "__main__":
    main()
