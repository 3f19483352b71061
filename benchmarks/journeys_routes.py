"""Trips of VED from their routes alone: energy, duration, error bars, under way, newcomers.

    python benchmarks/journeys_routes.py --fleet FLEET

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`. The 12
vehicles with 20 or more usable all-electric trips, five splits, test trips of at least 2 km. Hills,
driving field, coefficients and error bars are learned by the fleet's exchanges from training and
validation trips; of a test trip only its positions and the outside temperature are used. Shapes of
features and a few constants were chosen on five other splits of the same trips.

"routes"     each test trip before it begins, beside the vehicle's mean Wh/km
"under way"  the total after 10, 25, 50 and 75 % of the way, beside the ratio so far
"newcomers"  each vehicle in a fleet that has never seen it: before any trip, and after 20

Fills the part "routes" and its keys of "summary" in results/journeys_ved.json.
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

from benchmarks.terrain_cells import NAMES, data_settings, vehicles_of
from fedwatt.data import Vehicle
from fedwatt.data.client import split_of_trips
from fedwatt.files import write_text
from fedwatt.journeys.fleet_routes import learn_routes
from fedwatt.journeys.route_bars import crps, interval
from fedwatt.journeys.route_board import Pass, RouteBoard, passes
from fedwatt.journeys.route_features import route_rise_m
from fedwatt.journeys.route_model import RouteModel
from fedwatt.terrain.field import Field
from fedwatt.terrain.grid import Grid
from fedwatt.terrain.learn import learn
from fedwatt.terrain.settings import TerrainSettings

RECORD = Path(__file__).resolve().parents[1] / "results" / "journeys_ved.json"
SETTINGS = TerrainSettings()
SEEDS = (0, 1, 2, 3, 4)
LEAST_M = 2000.0
SHARES = (10, 25, 50, 75)
FIRST_TRIPS = 20
GRID = Grid(cell_m=SETTINGS.cell_m)

Trips = Mapping[str, Sequence[Pass]]
Errors = dict[str, list[float]]
"""By vehicle."""


def recorded(vehicles: Sequence[Vehicle]) -> dict[str, dict[str, Pass]]:
    """All passes by vehicle and trip; the same for every split."""
    return {
        vehicle.name: {one.trip.name: one for one in passes(vehicle.trips, GRID)}
        for vehicle in vehicles
    }


def split(vehicles: Sequence[Vehicle], all_: Mapping[str, Mapping[str, Pass]], seed: int) -> Any:
    """Passes that teach, and test passes of at least 2 km, by vehicle."""
    taught: dict[str, tuple[Pass, ...]] = {}
    tested: dict[str, tuple[Pass, ...]] = {}
    for vehicle in vehicles:
        split_of = split_of_trips(vehicle, data_settings(seed))
        own = all_[vehicle.name]
        in_split = {name: split_of.get(name, "") for name in own}
        taught[vehicle.name] = tuple(
            own[name] for name, part in in_split.items() if part in ("train", "validation")
        )
        tested[vehicle.name] = tuple(
            own[name]
            for name, part in in_split.items()
            if part == "test" and own[name].trip.metres >= LEAST_M
        )
    return taught, tested


def board(vehicle: Vehicle, taught: Sequence[Pass], hills: Field | None) -> RouteBoard:
    return RouteBoard(tuple(taught), hills, float(vehicle.facts["mass_kg"]), GRID)


def split_rows(
    vehicles: Sequence[Vehicle], all_: Mapping[str, Mapping[str, Pass]], seed: int
) -> list[dict[str, Any]]:
    """One row for each test trip of a split."""
    taught, tested = split(vehicles, all_, seed)
    hills = learn(vehicles, SETTINGS, data_settings(seed)).own
    boards = {v.name: board(v, taught[v.name], hills[v.name]) for v in vehicles}
    fleet = learn_routes(boards, SETTINGS)
    rows = []
    for vehicle in vehicles:
        name = vehicle.name
        model = fleet.personal(boards[name], name)
        per_km = wh_per_km(taught[name])
        for one in tested[name]:
            row = {"seed": seed, "vehicle": name, **judge(model, hills[name], one, per_km)}
            rows.append(row | under_way(model, boards[name], hills[name], one))
    return rows


def under_way(
    model: RouteModel, own: RouteBoard, hills: Field, one: Pass
) -> dict[str, dict[str, float]]:
    """Errors of the total after a share of the way, %."""
    beta = {name: found.beta for name, found in model.coefficients.items()}
    x = own.features(one, route_rise_m(one.route, hills)[0], model.field)
    total = one.measured("energy")
    kappa, kinetic, constant = model.correction.tolist()
    errors: dict[str, dict[str, float]] = {"corrected": {}, "uncorrected": {}, "ratio": {}}
    for share in SHARES:
        going = one.driven(x, beta, share / 100, (kappa, kinetic, constant))
        spent, left, key = going.measured_wh, going.forecast_left_wh, str(share)
        forecast = float(going.energy_wh[-1]) - left
        errors["corrected"][key] = abs(going.total_wh / total - 1)
        errors["uncorrected"][key] = abs((spent + left) / total - 1)
        errors["ratio"][key] = abs((spent + left * spent / max(forecast, 20.0)) / total - 1)
    return errors


def wh_per_km(taught: Sequence[Pass]) -> float:
    """Mean consumption of passes."""
    energy = sum(one.measured("energy") for one in taught)
    return energy / sum(one.route.metres for one in taught) * 1000


def judge(model: RouteModel, hills: Field, one: Pass, per_km: float) -> dict[str, Any]:
    """Errors of a test trip from its route; `per_km` is the vehicle's mean Wh/km."""
    found = model.forecast(one.route, one.temperature_c, hills)
    energy, seconds = one.measured("energy"), one.measured("duration")
    levels = found.energy_levels_wh[-1]
    low50, high50 = interval(levels, 0.5)
    low90, high90 = interval(levels, 0.9)
    d_low, d_high = interval(found.duration_levels_s, 0.9)
    mean = per_km * one.route.metres / 1000
    return {
        "km": one.route.metres / 1000,
        "error": abs(found.total_wh / energy - 1),
        "wh_per_km_error": abs(mean / energy - 1),
        "duration_error": abs(found.seconds[-1] / seconds - 1),
        "covered_50": bool(low50 <= energy <= high50),
        "covered_90": bool(low90 <= energy <= high90),
        "duration_covered_90": bool(d_low <= seconds <= d_high),
        "half_width": (high90 - low90) / 2 / found.total_wh,
        "crps_wh": crps(levels, energy),
        "wh_per_km_crps_wh": abs(mean - energy),
    }


def newcomer_rows(
    vehicles: Sequence[Vehicle], all_: Mapping[str, Mapping[str, Pass]], seed: int, me: str
) -> dict[str, list[float]]:
    """Errors of one vehicle that is in no hills, field or coefficients of the others."""
    taught, tested = split(vehicles, all_, seed)
    others = [vehicle for vehicle in vehicles if vehicle.name != me]
    mine = next(vehicle for vehicle in vehicles if vehicle.name == me)
    learned = learn(others, SETTINGS, data_settings(seed))
    boards = {v.name: board(v, taught[v.name], learned.own[v.name]) for v in others}
    fleet = learn_routes(boards, SETTINGS)
    per_km = wh_per_km([one for vehicle in others for one in taught[vehicle.name]])
    first = board(mine, (), learned.shared)
    later = board(mine, taught[me][:FIRST_TRIPS], learned.shared)
    models = {
        "before any trip": fleet.personal(first, me, contributed=False),
        "after 20 trips": fleet.personal(later, me, contributed=False),
    }
    errors: dict[str, list[float]] = {name: [] for name in ("fleet's Wh/km", *models)}
    errors |= {"covered": [], "wider": [models["before any trip"].bars["energy"].wider]}
    for one in tested[me]:
        energy = one.measured("energy")
        errors["fleet's Wh/km"].append(abs(per_km * one.route.metres / 1000 / energy - 1))
        for name, model in models.items():
            found = model.forecast(one.route, one.temperature_c, learned.shared)
            errors[name].append(abs(found.total_wh / energy - 1))
            if name == "before any trip":
                low, high = interval(found.energy_levels_wh[-1], 0.9)
                errors["covered"].append(float(low <= energy <= high))
    return errors


def three(values: Sequence[float]) -> list[float]:
    """Median, mean and 90th percentile, %."""
    found = 100 * np.array(values)
    return [round(float(x), 2) for x in (np.median(found), found.mean(), np.percentile(found, 90))]


def summary(rows: Sequence[Mapping[str, Any]], newcomers: Mapping[str, list[float]]) -> Any:
    """The keys of "summary" that are about routes."""

    def of(name: str) -> list[float]:
        return [float(row[name]) for row in rows]

    error = three(of("error"))
    new = {
        name: three(values)[0]
        for name, values in newcomers.items()
        if name not in ("wider", "covered")
    }
    return {
        "trips": len(rows),
        "trip_error_route_only_median": error[0],
        "trip_error_route_only_mean": error[1],
        "trip_error_route_only_p90": error[2],
        "trip_error_wh_per_km": three(of("wh_per_km_error")),
        "duration_error_median": three(of("duration_error"))[0],
        "duration_error": three(of("duration_error")),
        "coverage_90_routes": round(100 * float(np.mean(of("covered_90"))), 1),
        "coverage_50_routes": round(100 * float(np.mean(of("covered_50"))), 1),
        "coverage_90_duration": round(100 * float(np.mean(of("duration_covered_90"))), 1),
        "crps_wh": round(float(np.mean(of("crps_wh"))), 1),
        "crps_wh_per_km": round(float(np.mean(of("wh_per_km_crps_wh"))), 1),
        "in_trip_route_only": _in_trip(rows, "corrected"),
        "in_trip_uncorrected": _in_trip(rows, "uncorrected"),
        "in_trip_ratio_so_far": _in_trip(rows, "ratio"),
        "newcomers": new | {"covered": round(100 * float(np.mean(newcomers["covered"])), 1)}
        if newcomers
        else {},
    }


def _in_trip(rows: Sequence[Mapping[str, Any]], name: str) -> dict[str, float]:
    return {str(share): three([row[name][str(share)] for row in rows])[0] for share in SHARES}


def by_length(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Coverage and half-width of 90 % bars by length of way."""
    found = {}
    for low, high in ((0, 4), (4, 8), (8, 1000)):
        own = [row for row in rows if low <= row["km"] < high]
        found[f"{low} to {high} km"] = {
            "trips": len(own),
            "covered_90": round(100 * float(np.mean([row["covered_90"] for row in own])), 1),
            "half_width": three([row["half_width"] for row in own])[0],
        }
    return found


def spread(rows: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Mean over splits of a split's median, and its standard deviation."""
    seeds = sorted({row["seed"] for row in rows})
    medians = [np.median([row[name] for row in rows if row["seed"] == seed]) for seed in seeds]
    return [round(float(np.mean(medians)), 4), round(float(np.std(medians, ddof=1)), 4)]


@lru_cache(maxsize=1)
def opened(folder: Path) -> Any:
    """The vehicles and their passes, once a process."""
    vehicles = vehicles_of(folder)
    return vehicles, recorded(vehicles)


def work(task: tuple[Path, int, str]) -> Any:
    """Rows of a split, or errors of a newcomer in it."""
    folder, seed, me = task
    vehicles, all_ = opened(folder)
    return newcomer_rows(vehicles, all_, seed, me) if me else split_rows(vehicles, all_, seed)


def update(part: str, content: Any, keys: Mapping[str, Any], record: Path = RECORD) -> None:
    """Put `content` under `part`, and `keys` into "summary", leaving all else in the record."""
    known = json.loads(record.read_text()) if record.exists() else {}
    known[part] = content
    known["summary"] = known.get("summary", {}) | dict(keys)
    write_text(record, json.dumps(known, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--fleet", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--no-newcomers", action="store_true")
    parser.add_argument("--record", type=Path, default=RECORD)
    asked = parser.parse_args()
    rows: list[dict[str, Any]] = []
    newcomers: dict[str, list[float]] = {}
    by_newcomer: dict[str, dict[str, list[float]]] = {}
    tasks = [(asked.fleet, seed, "") for seed in asked.seeds]
    if not asked.no_newcomers:
        tasks += [(asked.fleet, seed, me) for seed in asked.seeds for me in NAMES]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.jobs, mp_context=context) as pool:
        for (_, seed, me), found in zip(tasks, pool.map(work, tasks), strict=True):
            print(seed, me or "all vehicles", flush=True)
            if not me:
                rows += found
                continue
            for name, values in found.items():
                newcomers.setdefault(name, []).extend(values)
                by_newcomer.setdefault(me, {}).setdefault(name, []).extend(values)
    keys = summary(rows, newcomers)
    print(json.dumps(keys, indent=1))
    by_vehicle = {
        name: three([row["error"] for row in rows if row["vehicle"] == name]) for name in NAMES
    }
    content = {
        "seeds": asked.seeds,
        "by_vehicle": by_vehicle,
        "by_length": by_length(rows),
        "newcomers": {
            me: {name: three(values)[0] for name, values in found.items() if name != "wider"}
            | {"wider": round(float(np.mean(found["wider"])), 2)}
            for me, found in by_newcomer.items()
        },
        "intervals": {name: spread(rows, name) for name in ("error", "duration_error", "crps_wh")},
    }
    update("routes", content, keys, asked.record)


if __name__ == "__main__":
    main()
