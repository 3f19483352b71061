"""The fleet's own hills against a map's: errors with either, both and neither, on the same windows.

    python -m benchmarks.terrain_reference --fleet FLEET --posts srtm3_posts.csv --workers 2

FLEET is VED imported with '--powertrain ev,phev-electric'; the posts are of SRTM3 around its
streets. Only windows count, in training as in test, whose every second the posts know. A window's
climb is read from the posts as they are, from the posts smoothed over 15 s, from the field that the
training trips taught (k = 1, and as a run does it: k = 3 and private ground), from both, or not at
all. Evaluated are each vehicle's own ridge and the network of terrain_ved.py (FedAvg), global and
personalised, on 3,000 test windows a vehicle; and on trips: the minutes of a test trip one after
the other, as far as the posts know them, at least 2 km in all.

Also holds the field of all training trips against the posts, node by node. Fills
results/terrain_reference.json cell by cell; terrain_tables.py writes docs/accuracy.md from it.
About 20 minutes of one core.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.terrain_cells import (
    FIXED,
    TRAINING,
    Record,
    Rows,
    Task,
    balanced_choice,
    data_settings,
    parser,
    run,
    vehicles_of,
)
from fedwatt.elevation.climb import climbing, rise_m, trip_rise_m
from fedwatt.elevation.compare import compare_with_reference
from fedwatt.elevation.learn import Learned, learn
from fedwatt.evaluation import Personalisation, personalise
from fedwatt.federation import Federation
from fedwatt.federation.evaluate import predictions_of
from fedwatt.models import get_model
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.maps import read_terrain_model
from fedwatt.telemetry.trip import FloatArray, IntArray, Trip
from fedwatt.windows import Client, build_fleet
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import physics_features, trip_features
from fedwatt.windows.ridge import ridge
from fedwatt.windows.splits import window_means

RECORD = Path(__file__).resolve().parents[1] / "results" / "terrain_reference.json"
WHOLE = replace(FIXED, minimum_vehicles=1, private=False)
KINDS = ("none", "map", "map, smoothed", "learned", "learned, k = 3", "both")
SMOOTHED_S = 15
LEAST_TRIP_M = 2000.0
WINDOW = 60
METHOD = "fedavg"
JUDGED = ("windows", "trips")


# ----------------------------------------------------------------------------- the climbs
@lru_cache(maxsize=1)
def map_rises(folder: Path, posts: Path) -> dict[tuple[str, str], FloatArray]:
    """Metres gained each second by the posts, by vehicle and trip; NaN where they do not know."""
    elevation = read_terrain_model([posts])
    found = {}
    for vehicle in vehicles_of(folder):
        for trip in vehicle.trips:
            place = (trip.channels[name] for name in ("latitude_deg", "longitude_deg"))
            height_m = elevation.elevation_m(*place)
            one_region = np.zeros(trip.seconds, dtype=np.int64)
            rise = rise_m(height_m, one_region, trip.channels["speed_mps"])
            # `rise_m` bridges gaps; here a second counts only if it was known by itself.
            found[vehicle.name, trip.name] = np.where(np.isfinite(height_m), rise, np.nan)
    return found


@lru_cache(maxsize=2)
def fields(folder: Path, seed: int, whole: bool) -> Learned:
    """What the training trips of a split taught."""
    return learn(vehicles_of(folder), WHOLE if whole else FIXED, data_settings(seed))


def rises(folder: Path, posts: Path, seed: int, kind: str, vehicle: Vehicle) -> list[FloatArray]:
    """Metres gained each second of each trip, for each source of the kind; 0 where unknown."""
    given = []
    for trip in vehicle.trips:
        mapped = np.nan_to_num(map_rises(folder, posts)[vehicle.name, trip.name])
        if kind == "map":
            given.append([mapped])
        elif kind == "map, smoothed":
            given.append([smoothed(mapped)])
        elif kind == "none":
            given.append([])
        else:
            own = fields(folder, seed, kind != "learned, k = 3").maps[vehicle.name]
            learned = np.nan_to_num(trip_rise_m(trip, own))
            given.append([learned, mapped] if kind == "both" else [learned])
    return [
        np.array(one).reshape(-1, trip.seconds)
        for one, trip in zip(given, vehicle.trips, strict=True)
    ]


def smoothed(rise: FloatArray) -> FloatArray:
    """The mean of the seconds around each."""
    total = np.convolve(rise, np.ones(SMOOTHED_S), mode="same")
    return np.asarray(total / np.convolve(np.ones(len(rise)), np.ones(SMOOTHED_S), mode="same"))


def covered_ends(trip: Trip, rise: FloatArray) -> IntArray:
    """Last seconds of the windows that the posts know from end to end."""
    ends = np.arange(WINDOW - 1, trip.seconds)
    known = np.concatenate([[0], np.cumsum(np.isfinite(rise))])
    return np.asarray(ends[known[ends + 1] - known[ends + 1 - WINDOW] == WINDOW])


def tiles(ends: IntArray) -> IntArray:
    """Of the ends of windows, those that follow each other without overlapping."""
    chosen = []
    last = -WINDOW
    for end in ends:
        if end - last >= WINDOW:
            chosen.append(end)
            last = end
    return np.array(chosen, dtype=np.int64)


# ----------------------------------------------------------------------------- judging
class Windows:
    """The covered windows of a vehicle: ends within each trip, and the tiles of its test trips."""

    def __init__(self, folder: Path, posts: Path, vehicle: Vehicle, seed: int) -> None:
        self.split_of = split_of_trips(vehicle, data_settings(seed))
        self.trips = [trip for trip in vehicle.trips if trip.name in self.split_of]
        mapped = map_rises(folder, posts)
        self.ends = [covered_ends(trip, mapped[vehicle.name, trip.name]) for trip in self.trips]
        self.starts = np.cumsum([0, *(trip.seconds for trip in self.trips)])[:-1]
        self.name = vehicle.name
        self.seed = seed

    def of(self, split: str, stride: int = 1) -> list[tuple[int, IntArray]]:
        """Number of each trip of a split, and the ends of its windows."""
        there = enumerate(zip(self.trips, self.ends, strict=True))
        return [(n, e[::stride]) for n, (t, e) in there if self.split_of[t.name] == split]

    def test(self) -> tuple[IntArray, list[tuple[IntArray, float]]]:
        """Rows of the balanced test windows, and of the tiles of each trip with its energy."""
        rows = np.concatenate([self.starts[n] + ends for n, ends in self.of("test")])
        chosen = rows[balanced_choice(self.seed, self.name, len(rows))]
        whole = []
        for number, ends in self.of("test"):
            own = tiles(ends)
            trip = self.trips[number]
            speed = np.concatenate([[0], np.cumsum(trip.channels["speed_mps"])])
            energy = np.concatenate([[0], np.cumsum(trip.channels["energy_wh"])])
            metres = (speed[own + 1] - speed[own + 1 - WINDOW]).sum()
            if metres >= LEAST_TRIP_M:
                wh = (energy[own + 1] - energy[own + 1 - WINDOW]).sum()
                whole.append((self.starts[number] + own, float(wh)))
        return chosen, whole


def evaluated(windows: Windows, predicted_wh: FloatArray, true_wh: FloatArray) -> dict[str, float]:
    """RMSE of balanced windows in Wh and median error of trips in %, from test predictions."""
    chosen, whole = windows.test()
    error = (predicted_wh - true_wh)[: len(chosen)]
    begin = len(chosen)
    shares = []
    for rows, wh in whole:
        total = predicted_wh[begin : begin + len(rows)].sum()
        begin += len(rows)
        shares.append(100 * abs(total - wh) / abs(wh))
    return {"windows": float(np.sqrt(np.mean(error**2))), "trips": float(np.median(shares))}


def ridge_rows(folder: Path, posts: Path, seed: int, kind: str) -> Rows:
    rows: dict[str, dict[str, float]] = {f"ridge, {kind}, {what}": {} for what in JUDGED}
    for vehicle in vehicles_of(folder):
        windows = Windows(folder, posts, vehicle, seed)
        names = physics_features(list(vehicle.trips))
        own = []
        found = rises(folder, posts, seed, kind, vehicle)
        given = {trip.name: rise for trip, rise in zip(vehicle.trips, found, strict=True)}
        for trip in windows.trips:
            ways = [np.maximum(way, 0) for one in given[trip.name] for way in (one, -one)]
            own.append(np.column_stack([trip_features(trip, names, vehicle.name), *ways]))
        series = np.concatenate(own)
        energy = np.concatenate([trip.channels["energy_wh"] for trip in windows.trips])

        def means(ends: IntArray, series: FloatArray = series) -> FloatArray:
            return np.stack([window_means(column, ends) for column in series.T], axis=1)

        train = np.concatenate([windows.starts[n] + e for n, e in windows.of("train", 5)])
        chosen, whole = windows.test()
        test = np.concatenate([chosen, *(rows for rows, _ in whole)])
        beta = ridge(means(train), WINDOW * window_means(energy, train))
        predicted = means(test) @ beta[:-1] + beta[-1]
        for what, value in evaluated(
            windows, predicted, WINDOW * window_means(energy, test)
        ).items():
            rows[f"ridge, {kind}, {what}"][vehicle.name] = value
    return rows


def network_rows(folder: Path, posts: Path, seed: int, device: str, kind: str) -> Rows:
    recipe = {"none": "base", "both": "base, elevation, climb"}.get(kind, "base, elevation")
    data = data_settings(seed, recipe)
    vehicles = vehicles_of(folder)
    every = {vehicle.name: Windows(folder, posts, vehicle, seed) for vehicle in vehicles}
    climbing_ = (with_rises(v, rises(folder, posts, seed, kind, v)) for v in vehicles)
    fleet = build_fleet(climbing_, data, "ved")
    clients = tuple(covered(client, every[client.name]) for client in fleet.clients)
    fleet = replace(fleet, clients=clients)
    model = get_model("mlp", window=WINDOW, features=len(fleet.features))
    federation = Federation(fleet, model, training=TRAINING, seeds=(seed,), device=device)
    best = federation.train(METHOD).state.best_weights
    found = {
        "global": predictions_of(federation.model, best, federation.pool).test[0],
        "personalised": personalise(federation, best, Personalisation()).test[0],
    }
    rows: dict[str, dict[str, float]] = {}
    offsets = federation.pool.test.offsets
    for which, predicted in found.items():
        for k, client in enumerate(fleet.clients):
            own = client.energy_wh(predicted[offsets[k] : offsets[k + 1]])
            true = client.energy_wh(client.labels["test"])
            for what, value in evaluated(every[client.name], own, true).items():
                rows.setdefault(f"network, {which}, {kind}, {what}", {})[client.name] = value
    return rows


def with_rises(vehicle: Vehicle, given: Sequence[FloatArray]) -> Vehicle:
    """The vehicle with climb from the first source and, of a second one, as grade."""
    trips = []
    for trip, rise in zip(vehicle.trips, given, strict=True):
        own = climbing(trip, rise[0]) if len(rise) else trip
        if len(rise) > 1:
            speed = trip.channels["speed_mps"]
            grade = np.divide(rise[1], speed, out=np.zeros(len(speed)), where=speed > 0.3)
            own = replace(own, channels={**own.channels, "grade": grade})
        trips.append(own)
    return replace(vehicle, trips=tuple(trips))


def covered(client: Client, windows: Windows) -> Client:
    """The client with covered windows only; test windows are the balanced ones, then tiles."""
    rows: dict[str, IntArray] = {}
    labels: dict[str, Any] = {}
    for split in ("train", "validation", "test"):
        stride = {"train": 5, "validation": 10}.get(split, 1)
        if split == "test":
            chosen, whole = windows.test()
            rows[split] = np.concatenate([chosen, *(own for own, _ in whole)])
        else:
            parts = windows.of(split, stride)
            rows[split] = np.concatenate([windows.starts[n] + ends for n, ends in parts])
        energy = np.concatenate([trip.channels["energy_wh"] for trip in windows.trips])
        wh = WINDOW * window_means(energy, rows[split])
        scaled = (wh - client.label_center_wh) / client.label_scale_wh
        labels[split] = scaled.astype(np.float32)
    return replace(client, ends=rows, labels=labels, masked=0, strata={})


# ------------------------------------------------------------------------------ tasks
def tasks(folder: Path, posts: Path, seeds: Sequence[int], device: str) -> Iterator[Task]:
    for seed in seeds:
        for kind in KINDS:
            rows = tuple(f"ridge, {kind}, {what}" for what in JUDGED)
            yield Task(rows, seed, ridge_rows, (folder, posts, seed, kind))
    for seed in seeds:
        for kind in KINDS:
            rows = tuple(
                f"network, {which}, {kind}, {what}"
                for which in ("global", "personalised")
                for what in JUDGED
            )
            yield Task(rows, seed, network_rows, (folder, posts, seed, device, kind))


def nodes(folder: Path, posts: Path) -> dict[str, Any]:
    """The field of all training trips of split 1 against the posts, k = 1 and k = 3."""
    elevation = read_terrain_model([posts])
    found = {}
    for k in (1, 3):
        settings = replace(FIXED, minimum_vehicles=k)
        field = learn(vehicles_of(folder), settings, data_settings(1)).shared
        one = asdict(compare_with_reference(field, elevation))
        found[f"k = {k}"] = {n: v for n, v in one.items() if n not in ("learned_m", "reference_m")}
    return found


def main() -> None:
    options = parser(__doc__, RECORD)
    options.add_argument("--posts", type=Path, required=True, help="SRTM posts (.csv) or tiles")
    chosen = options.parse_args()
    seeds = [int(part) for part in chosen.seeds.split(",")]
    run(
        list(tasks(chosen.fleet, chosen.posts, seeds, chosen.device)),
        Record(chosen.record),
        chosen.workers,
    )
    whole = json.loads(chosen.record.read_text(encoding="utf-8"))
    whole["nodes"] = nodes(chosen.fleet, chosen.posts)
    chosen.record.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
