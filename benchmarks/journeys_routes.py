"""Trips of VED from their routes alone: energy, duration, error bars, under way, unseen_vehicles.

    python benchmarks/journeys_routes.py --fleet FLEET
    python benchmarks/journeys_routes.py --fleet FLEET --unseen-seeds 0,1   leaves each vehicle out
    python benchmarks/journeys_routes.py               writes docs/journeys.md from the record

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`. The 12
vehicles with 20 or more usable all-electric trips, five splits, test trips of at least 2 km.
Elevation, driving field, coefficients and intervals are learned by the fleet's exchanges from
training and validation trips; of a test trip only its positions and the outside temperature are
used before it begins, and its energy so far under way. Shapes of features and a few constants were
chosen mostly on five other splits of the same trips, with some looks at these.

"routes"     each test trip before it begins, beside the vehicle's mean Wh/km; and the total after
             10, 25, 50 and 75 % of the way
"unseen_vehicles"  each vehicle in a fleet that has never seen it: before any trip, after 20 and
             after all its training trips, with the elevation that it learns from these

A trip of which the fleet knows less than a fifth of the way is refused; such trips are counted.
Fills the part "routes" and both keys of "summary" in results/journeys_ved.json.
"""

import argparse
import json
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.journeys_newcomers import STAGES, about_unseen_vehicles, unseen_vehicle_rows
from benchmarks.marked import write_blocks
from benchmarks.ved_trips import (
    NAMES,
    SETTINGS,
    data_settings,
    forecast_only,
    recorded,
    seed_list,
    split,
    three,
    vehicle_routes,
    vehicles_of,
    wh_per_km,
)
from fedwatt.elevation.learn import learn
from fedwatt.errors import DataError
from fedwatt.files import write_text
from fedwatt.journeys.fleet_routes import Pass
from fedwatt.journeys.in_trip import BLOCK_M, UnderWay
from fedwatt.journeys.route_exchange import learn_routes
from fedwatt.journeys.route_intervals import interval
from fedwatt.journeys.route_model import RouteModel
from fedwatt.telemetry import Vehicle

RECORD = Path(__file__).resolve().parents[1] / "results" / "journeys_ved.json"
PAGE = RECORD.parents[1] / "docs" / "journeys.md"
SEEDS = (0, 1, 2, 3, 4)
SHARES = (10, 25, 50, 75)


def split_rows(
    vehicles: Sequence[Vehicle], all_: Mapping[str, Mapping[str, Pass]], seed: int
) -> list[dict[str, Any]]:
    """One row for each test trip of a split; of one that is refused only that it is."""
    taught, tested = split(vehicles, all_, seed)
    learned = learn(vehicles, SETTINGS, data_settings(seed))
    elevations = learned.maps
    routes_by_vehicle = {
        v.name: vehicle_routes(v, taught[v.name], elevations[v.name]) for v in vehicles
    }
    fleet = learn_routes(routes_by_vehicle, SETTINGS, elevations=learned.shared)
    rows: list[dict[str, Any]] = []
    for vehicle in vehicles:
        name = vehicle.name
        model = fleet.personalised(routes_by_vehicle[name], name)
        per_km = wh_per_km(taught[name])
        for passing in tested[name]:
            row = {"seed": seed, "vehicle": name, "trip": passing.trip.name}
            try:
                row |= evaluate(model, passing, per_km)
            except DataError:  # the fleet knows less than a fifth of the way
                rows.append(row | {"refused": True})
                continue
            rows.append(row | in_trip(model, passing))
    return rows


def in_trip(model: RouteModel, passing: Pass) -> dict[str, dict[str, float]]:
    """Return errors of the total after a share of the way."""
    total = passing.measured("energy")
    predicted = model.forecast(passing.route, passing.temperature_c)
    errors = {}
    for share in SHARES:
        going = driven(model.in_trip(predicted), passing, share / 100)
        errors[str(share)] = abs(going.total_wh / total - 1)
    return {"corrected": errors}


def driven(going: UnderWay, passing: Pass, share: float) -> UnderWay:
    """Return the forecast, corrected by the first `share` of a recorded pass."""
    at_m = passing.at_m
    spent_wh = np.cumsum(passing.trip.channels["energy_wh"])
    speed_mps = passing.trip.channels["speed_mps"]
    last = int(np.searchsorted(at_m, share * going.metres[-1]))
    blocks = np.arange(BLOCK_M, at_m[: last + 1].max(initial=0.0) + 1e-9, BLOCK_M)
    for second in np.unique(np.append(np.searchsorted(at_m, blocks), last)):
        at = min(int(second), len(at_m) - 1)
        going.step(float(at_m[at]), at + 1.0, float(spent_wh[at]), float(speed_mps[at]))
    return going


def evaluate(model: RouteModel, passing: Pass, per_km: float) -> dict[str, Any]:
    """Errors of a test trip from its route; `per_km` is the vehicle's mean Wh/km."""
    predicted = model.forecast(passing.route, passing.temperature_c)
    energy = passing.measured("energy")
    seconds = passing.measured("duration")
    low, high = interval(predicted.energy_levels_wh[-1], 0.9)
    mean = per_km * passing.route.metres / 1000
    return {
        "error": abs(predicted.total_wh / energy - 1),
        "wh_per_km_error": abs(mean / energy - 1),
        "duration_error": abs(predicted.seconds[-1] / seconds - 1),
        "covered_90": bool(low <= energy <= high),
    }


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the part of "summary" on routes."""
    refused = len(rows) - len(rows := forecast_only(rows))

    def of(name: str) -> list[float]:
        return [float(row[name]) for row in rows]

    error = three(of("error"))
    return {
        "trips": len(rows),
        "trips_refused": refused,
        "coverage_by_vehicle": by_vehicle(rows),
        "trip_error_route_only_median": error[0],
        "trip_error_route_only_mean": error[1],
        "trip_error_route_only_p90": error[2],
        "trip_error_wh_per_km": three(of("wh_per_km_error")),
        "duration_error": three(of("duration_error")),
        "in_trip_route_only": {
            str(share): three([row["corrected"][str(share)] for row in rows])[0] for share in SHARES
        },
    }


def by_vehicle(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return mean, least and all vehicles' coverage of 90 % intervals, %."""
    cells = {
        name: round(
            100 * float(np.mean([r["covered_90"] for r in rows if r["vehicle"] == name])), 1
        )
        for name in NAMES
    }
    mean = round(float(np.mean(list(cells.values()))), 1)
    return {"mean": mean, "least": min(cells.values()), "vehicles": cells}


@lru_cache(maxsize=1)
def opened(folder: Path) -> Any:
    """Return the vehicles and their passes; opened once per process."""
    vehicles = vehicles_of(folder)
    return vehicles, recorded(vehicles)


def work(task: tuple[Path, int, str]) -> list[dict[str, Any]]:
    """Rows of a split, or of an unseen vehicle in it."""
    folder, seed, me = task
    vehicles, all_ = opened(folder)
    return unseen_vehicle_rows(vehicles, all_, seed, me) if me else split_rows(vehicles, all_, seed)


def update(part: str, content: Any, keys: Mapping[str, Any], record: Path = RECORD) -> None:
    """Put `content` under `part`, and `keys` into "summary", leaving all else in the record."""
    before = json.loads(record.read_text()) if record.exists() else {}
    before[part] = content
    before["summary"] = before.get("summary", {}) | dict(keys)
    write_text(record, json.dumps(before, indent=1, sort_keys=True) + "\n")


def table(keys: Mapping[str, Any]) -> str:
    """Return the record as the table of docs/journeys.md."""

    def cells(values: Sequence[float]) -> str:
        return " | ".join(f"{value:.1f}" for value in values)

    error = [keys[f"trip_error_route_only_{name}"] for name in ("median", "mean", "p90")]
    covered = [keys["coverage_by_vehicle"][name] for name in ("mean", "least")]
    moving = [keys["in_trip_route_only"][str(share)] for share in SHARES]
    lines = [
        f"| {keys['trips']:,} trips, error in % | median | mean | 90th percentile |",
        "|---|---|---|---|",
        f"| energy, from route and temperature | {cells(error)} |",
        f"| energy, the vehicle's mean Wh/km | {cells(keys['trip_error_wh_per_km'])} |",
        f"| duration | {cells(keys['duration_error'])} |",
        "",
        f"90 % intervals cover {covered[0]:.1f} % on average over vehicles and {covered[1]:.1f} % "
        f"for the least. After 10, 25, 50 and 75 % of the way the median error of the total is "
        f"{', '.join(f'{value:.1f}' for value in moving)} %.",
    ]
    new = keys.get("unseen_vehicles")
    if new:
        splits = ",".join(map(str, new["seeds"]))
        lines += [
            "",
            f"| unseen vehicles, splits {splits}: % | trips | median error | covered "
            "| least vehicle |",
            "|---|---|---|---|---|",
        ]
        for stage in STAGES:
            cell = new[stage]
            shares = f"{cell['covered']:.1f} | {cell['least_covered']:.1f}"
            lines.append(f"| {stage} | {cell['trips']:,} | {cell['error'][0]:.1f} | {shares} |")
    return "\n".join(lines)


def blocks() -> dict[str, str]:
    """Return the block of docs/journeys.md on routes."""
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    return {"routes": table(record["summary"])}


def main() -> None:
    """Measure the splits that are missing, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fleet", type=Path)
    parser.add_argument("--seeds", type=seed_list, default=list(SEEDS))
    parser.add_argument("--unseen-seeds", type=seed_list, default="0", help="leave one out")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--record", type=Path, default=RECORD)
    options = parser.parse_args()
    if options.fleet is None:
        write_blocks(PAGE, blocks())
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.jobs, mp_context=context) as pool:
        tasks = [(options.fleet, seed, "") for seed in options.seeds]
        tasks += [(options.fleet, seed, me) for seed in options.unseen_seeds for me in NAMES]
        results = list(pool.map(work, tasks))
    rows = [row for task_rows in results[: len(options.seeds)] for row in task_rows]
    new = [row for task_rows in results[len(options.seeds) :] for row in task_rows]
    keys = summary(rows) | ({"unseen_vehicles": about_unseen_vehicles(new)} if new else {})
    content = {"errors_percent": errors_by_trip(forecast_only(rows))}
    update("routes", content, keys, options.record)


def errors_by_trip(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, float]]]:
    """Return relative errors, %, by split, vehicle and test trip, for paired differences."""
    errors: dict[str, dict[str, dict[str, float]]] = {}
    for row in rows:
        of_vehicle = errors.setdefault(str(row["seed"]), {}).setdefault(row["vehicle"], {})
        of_vehicle[row["trip"]] = round(100 * row["error"], 3)
    return errors


if __name__ == "__main__":
    main()
