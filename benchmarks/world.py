"""Four regions as one benchmark: Ann Arbor, Changchun, Rabat and the embedded town.

    python -m benchmarks.world --data DATA --workers 16

DATA holds ved/EV_PHEV.parquet (with VED's static files), changchun/trips.parquet and twizy/; they
are imported into --fleets (by default `fleets`) as docs/data.md says, unless they are there. A
region of which neither is there is left out. For each region, by default over three splits:

windows     RMSE of each vehicle's own ridge with the climb it would read (terrain.source = "auto"),
            of the strength its validation windows like best, beside the spread of the labels; Wh of
            a minute, of a Twizy points of charge in five
trips       median error of the sum over the windows that tile a test trip of at least 2 km, %
hills       each vehicle's field, learned from energy alone, against the elevation it measured
routes      error from the route alone: median, mean and 90th percentile, %, and of the total under
            way, after 10, 25, 50 and 75 % (`journeys_routes`); trips that leave what the fleet
            knows are refused and counted
transfer    error of a ridge of all vehicles of another region, in the new car as it is and after 1,
            5 and 20 of its training trips, beside which the others' windows count as 10; RMSE over
            the spread of the labels, so that 1 is what knowing nothing gives

Only what two regions both label can be transferred, so the Twizy's charge is not. Writes
results/world.json and the tables of docs/accuracy.md. About ten minutes of one core.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.journeys_passes import forecast_only, recorded, three
from benchmarks.journeys_routes import SHARES, split_rows
from benchmarks.marked import write_blocks
from benchmarks.terrain_rows import markdown
from fedwatt.elevation.compare import compare
from fedwatt.elevation.learn import give_terrain, learn
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.errors import DataError, counted
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.store import read_fleet
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import trip_features
from fedwatt.windows.ridge import RIDGE, pulled
from fedwatt.windows.windows import window_means

ROOT = Path(__file__).resolve().parents[1]
RESULTS, PAGE = ROOT / "results" / "world.json", ROOT / "docs" / "accuracy.md"
SEEDS = (1, 2, 3)
TOWN, VED, CHANGCHUN, TWIZY = "town, synthetic", "Ann Arbor, VED", "Changchun", "Rabat, Twizy"
EVERYWHERE = (TOWN, VED, CHANGCHUN, TWIZY)
IMPORTS = {
    "ved": ("ved", "ved/EV_PHEV.parquet", "--powertrain", "ev,phev-electric"),
    "changchun": ("csv", "changchun/trips.parquet", "--map", "changchun"),
    "twizy": ("csv", "twizy", "--map", "twizy"),
}
"""Reader, recording and options of each fleet's documented import."""
STRIDE, LEAST_TRIPS, LEAST_M = 10, 20, 2000.0
FIRST_TRIPS = (0, 1, 5, 20)
PRIOR_TRIPS = 10
STRENGTHS = (RIDGE, 1e-2, 1e-1, 1.0)
FEATURES = (
    "speed", "acceleration", "drag", "driving", "braking", "ambient", "cold", "heat", "ac",
    "heater", "warm_up", "ascent", "descent",
)  # fmt: skip


@dataclass(frozen=True)
class Region:
    """A fleet, and how its windows are labelled."""

    vehicles: tuple[Vehicle, ...]
    data: DataSettings

    def settings(self, seed: int) -> DataSettings:
        return replace(self.data, split_seed=seed)


@dataclass(frozen=True, eq=False)
class Windows:
    """Means of features [windows, features + 1], labels [windows], and the trip of each window."""

    x: FloatArray
    y: FloatArray
    trip: FloatArray


def imported(data: Path, fleets: Path) -> None:
    """Import what is recorded in `data` and not among the fleets yet."""
    for name, (reader, recording, *options) in IMPORTS.items():
        if (data / recording).exists() and not (fleets / name).exists():
            fedwatt = [sys.executable, "-c", "from fedwatt.cli import main; main()"]
            where = [str(data / recording), *options, "--out", str(fleets / name)]
            command = [*fedwatt, "data", "import", reader, *where]
            subprocess.run(command, check=True)


@lru_cache(maxsize=1)
def regions(fleets: Path) -> dict[str, Region]:
    """The regions whose data are at hand."""
    energy = DataSettings(features="physics, terrain", evaluation_stride=STRIDE)
    charge = replace(energy, target="soc", window=300)
    found = {TOWN: Region(tuple(synthetic_vehicles(8, trips=30)), energy)}
    for name, folder, data, least in (
        (VED, fleets / "ved", energy, LEAST_TRIPS),
        (CHANGCHUN, fleets / "changchun", energy, 3),
        (TWIZY, fleets / "twizy", charge, 3),
    ):
        if folder.exists():
            kept = (v for v in read_fleet(folder) if len(v.trips) >= least)
            found[name] = Region(tuple(kept), data)
    return found


def windows_of(vehicle: Vehicle, data: DataSettings, split: str, *, tiles: bool = False) -> Windows:
    """Windows of a vehicle's trips of a split; as `tiles` they do not overlap."""
    split_of, target, xs, ys, trips = split_of_trips(vehicle, data), data.predicts, [], [], []
    stride = data.window if tiles else STRIDE
    for number, trip in enumerate(vehicle.trips):
        if split_of.get(trip.name) != split or (tiles and trip.metres < LEAST_M):
            continue
        ends, labels = target.windows(
            trip, vehicle.facts, vehicle.name, length=data.window, stride=stride
        )
        rows = trip_features(trip, FEATURES, vehicle.name)
        means = [window_means(column, ends, length=data.window) for column in rows.T]
        xs.append(np.column_stack([*means, np.ones(len(ends))]))
        ys.append(labels)
        trips.append(np.full(len(ends), number))
    if not xs:
        return Windows(np.zeros((0, len(FEATURES) + 1)), np.zeros(0), np.zeros(0))
    return Windows(np.concatenate(xs), np.concatenate(ys), np.concatenate(trips))


Sums = tuple[FloatArray, FloatArray]
"""Means of x xᵀ [features + 1, features + 1] and of x y [features + 1] over windows."""


def sums(windows: Windows) -> Sums:
    count = max(len(windows.x), 1)
    return windows.x.T @ windows.x / count, windows.x.T @ windows.y / count


def own_ridge(vehicle: Vehicle, data: DataSettings) -> FloatArray:
    """A vehicle's ridge with the strength that its validation windows like best."""
    train, judged = (windows_of(vehicle, data, split) for split in ("train", "validation"))
    candidates = [pulled(*sums(train), strength) for strength in STRENGTHS]
    return min(candidates, key=lambda beta: rmse(judged, beta))


def rmse(found: Windows, beta: FloatArray) -> float:
    return float(np.sqrt(np.mean((found.x @ beta - found.y) ** 2)))


def climbing(region: Region, seed: int) -> list[Vehicle]:
    """The vehicles with the climb that they would read."""
    learned = learn(region.vehicles, TerrainSettings(), region.settings(seed))
    return list(give_terrain(region.vehicles, learned))


def judged(region: Region, vehicles: Sequence[Vehicle], seed: int) -> dict[str, Any]:
    """Window and trip errors of the vehicles' own ridges."""
    data, squares, spreads, trips = region.settings(seed), [], [], []
    for vehicle in vehicles:
        beta = own_ridge(vehicle, data)
        test = windows_of(vehicle, data, "test")
        squares.append(rmse(test, beta) ** 2)
        spreads.append(float(np.var(test.y)))
        whole = windows_of(vehicle, data, "test", tiles=True)
        for number in np.unique(whole.trip):
            own = whole.trip == number
            true = float(whole.y[own].sum())
            if abs(true) > 0:
                trips.append(100 * abs(float((whole.x[own] @ beta).sum()) - true) / abs(true))
    return {
        "unit": data.predicts.unit,
        "window_s": data.window,
        "vehicles": len(vehicles),
        "rmse": float(np.sqrt(np.mean(squares))),
        "spread": float(np.sqrt(np.mean(spreads))),
        "trips": len(trips),
        "trip_error_median_percent": float(np.median(trips)),
    }


def hills(region: Region, seed: int) -> dict[str, float] | None:
    """Fields of energy alone against measured elevation; None where either is missing."""
    cars = [
        vehicle
        for vehicle in region.vehicles
        if all({"energy_wh", "elevation_m"} <= set(trip.channels) for trip in vehicle.trips)
    ]
    if not cars:
        return None
    learned = learn(cars, TerrainSettings(source="learn"), region.settings(seed))
    known = [(learned.own[car.name], car) for car in cars if learned.own[car.name].nodes]
    each = [compare(field, [car]) for field, car in known]
    names = ("correlation", "scale", "difference_m", "climb_difference_m", "climb_m")
    return {name: float(np.mean([getattr(one, name) for one in each])) for name in names}


def routes(region: Region, seed: int) -> dict[str, Any]:
    """Errors from the route alone, before and under way; why not, where there are none."""
    if region.data.target != "energy":
        return {"none": "no energy was measured"}
    try:
        passes = recorded(region.vehicles)
        rows = split_rows(region.vehicles, passes, seed)
    except DataError as problem:  # too few vehicles to share how they drive
        return {"none": str(problem)}
    known = forecast_only(rows)
    in_trip = {
        str(share): three([row["corrected"][str(share)] for row in known])[0] for share in SHARES
    }
    error = three([row["error"] for row in known])
    return {
        "trips": len(known),
        "refused": len(rows) - len(known),
        "route_only_percent": error,
        "in_trip_percent": in_trip,
    }


def transfer(regions: dict[str, Region], seed: int) -> dict[str, dict[str, list[float]]]:
    """RMSE over spread in each region of the ridge of another, after so many trips of the car."""
    energy = [name for name, region in regions.items() if region.data.target == "energy"]
    climbed = {name: climbing(regions[name], seed) for name in energy}
    found: dict[str, dict[str, list[float]]] = {}
    for here in energy:
        for there in energy:
            data = regions[there].settings(seed)
            taught = [windows_of(v, data, "train") for v in climbed[there]]
            shares: list[list[float]] = [[] for _ in FIRST_TRIPS]
            for place, vehicle in enumerate(climbed[here]):
                others = [w for n, w in enumerate(taught) if here != there or n != place]
                if not others:
                    continue
                prior = sums(joined(others))
                for column, share in enumerate(adapted(vehicle, regions[here], seed, prior)):
                    shares[column].append(share)
            if shares[0]:
                means = [float(np.mean(column)) for column in shares]
                found.setdefault(here, {})[there] = means
    return found


def joined(parts: Sequence[Windows]) -> Windows:
    x, y, trip = (np.concatenate([getattr(p, name) for p in parts]) for name in ("x", "y", "trip"))
    return Windows(x, y, trip)


def adapted(vehicle: Vehicle, region: Region, seed: int, prior: Sums) -> list[float]:
    """RMSE over the labels' spread of a car, before any of its trips and after some.

    The windows behind `prior` count as much as 10 of its trips.
    """
    data = region.settings(seed)
    train, test = (windows_of(vehicle, data, split) for split in ("train", "test"))
    numbers = list(dict.fromkeys(train.trip.tolist()))
    usual = len(train.trip) / max(len(numbers), 1)
    found = []
    for count in FIRST_TRIPS:
        some = np.isin(train.trip, numbers[:count])
        own = Windows(train.x[some], train.y[some], train.trip[some])
        share = len(own.x) / (len(own.x) + PRIOR_TRIPS * usual)
        gram, right = (
            share * mine + (1 - share) * theirs
            for mine, theirs in zip(sums(own), prior, strict=True)
        )
        found.append(rmse(test, pulled(gram, right, RIDGE)) / float(np.std(test.y)))
    return found


def work(task: tuple[Path, int, str]) -> dict[str, Any]:
    """All that a split gives of a region; without one, what regions are worth to each other."""
    fleets, seed, name = task
    there = regions(fleets)
    if not name:
        return transfer(there, seed)
    region = there[name]
    found = {
        "windows": judged(region, climbing(region, seed), seed),
        "hills": hills(region, seed),
        "routes": routes(region, seed),
    }
    print(seed, name, found, flush=True)
    return found


def tables(found: dict[str, Any]) -> dict[str, str]:
    """The block of docs/accuracy.md: means over splits."""
    seeds = list(found.values())
    rows = []
    for name in seeds[0]["regions"]:
        own = [seed["regions"][name] for seed in seeds]
        windows = own[0]["windows"]
        of = {k: np.mean([o["windows"][k] for o in own]) for k in ("rmse", "spread")}
        trip = np.mean([o["windows"]["trip_error_median_percent"] for o in own])
        ground = [o["hills"] for o in own if o["hills"]]
        height = (
            f"r {np.mean([g['correlation'] for g in ground]):.2f}, "
            f"{np.mean([g['difference_m'] for g in ground]):.1f} m"
            if ground
            else "not measured"
        )
        unit = f"{windows['unit']} in {windows['window_s']} s"
        cells = [f"{of['rmse']:.3g} of {of['spread']:.3g} {unit}", f"{trip:.1f} %"]
        ways = route_cells([o["routes"] for o in own])
        rows.append([name, str(windows["vehicles"]), *cells, *ways, height])
    head = ["region", "vehicles", "window error of the spread", "trip", "route only"]
    head += ["half way, route only", "trips refused", "hills"]
    missing = [name for name in EVERYWHERE if name not in seeds[0]["regions"]]
    recorded = f"Recorded on {counted(len(seeds), 'split')}"
    recorded += f", without {', '.join(missing)}." if missing else "."
    moved = transfer_table([seed["transfer"] for seed in seeds])
    lines = [recorded, "", markdown(head, rows), "", moved]
    return {"world": "\n".join(lines)}


def route_cells(seeds: Sequence[dict[str, Any]]) -> list[str]:
    """Median errors before the trip and half way, and the share of trips that were refused."""
    if any("none" in own for own in seeds):
        return ["–", "–", "–"]
    before = np.mean([own["route_only_percent"][0] for own in seeds])
    half_way = np.mean([own["in_trip_percent"]["50"] for own in seeds])
    refused = sum(own["refused"] for own in seeds)
    of = refused + sum(own["trips"] for own in seeds)
    return [f"{before:.1f} %", f"{half_way:.1f} %", f"{refused} of {of}"]


def transfer_table(seeds: Sequence[dict[str, dict[str, list[float]]]]) -> str:
    head = ["a car of", "model of", *(f"after {count} trips" for count in FIRST_TRIPS)]
    rows = []
    for here, others in seeds[0].items():
        for there in others:
            means = np.mean([seed[here][there] for seed in seeds], axis=0)
            of = f"{there} (the others)" if here == there else there
            rows.append([here, of, *(f"{value:.2f}" for value in means)])
    return markdown(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="recordings, to be imported where needed")
    parser.add_argument("--fleets", type=Path, default=Path("fleets"), help="imported fleets")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)), help="of splits")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--tables", action="store_true", help="only write the record's tables")
    chosen = parser.parse_args()
    if not chosen.tables:
        record(chosen)
    found = json.loads(RESULTS.read_text(encoding="utf-8"))
    write_blocks(PAGE, tables(found))


def record(chosen: argparse.Namespace) -> None:
    """Measure every region and split, and write the record."""
    if chosen.data is not None:
        imported(chosen.data, chosen.fleets)
    names, seeds = list(regions(chosen.fleets)), chosen.seeds.split(",")
    tasks = [(chosen.fleets, int(seed), name) for name in ("", *names) for seed in seeds]
    with ProcessPoolExecutor(
        chosen.workers, mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        done = dict(zip(tasks, pool.map(work, tasks), strict=True))
    found = {
        seed: {
            "regions": {name: done[chosen.fleets, int(seed), name] for name in names},
            "transfer": done[chosen.fleets, int(seed), ""],
        }
        for seed in seeds
    }
    RESULTS.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
