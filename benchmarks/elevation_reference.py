"""Compare the learned elevation map with SRTM's posts: errors on the same windows of VED.

    python -m benchmarks.elevation_reference --fleet FLEET --posts srtm3_posts.csv --workers 2

FLEET is VED imported with '--powertrain ev,phev-electric'; the posts are of SRTM3 around its
streets. Only windows count, in training as in test, whose every second the posts know. A window's
climb is read from the posts as they are, from the posts smoothed over 15 s, from the map learned
from training trips (k = 1, and as a run does it: k = 3 and private ground), or not at all.
Evaluated are each vehicle's own ridge and the network of elevation_unseen.py (FedAvg), shared and
personalised, on 3,000 test windows per vehicle.

Also compares the map of all training trips with the posts, node by node. Fills
results/elevation_reference.json cell by cell; elevation_tables.py writes docs/accuracy.md from it.
About 20 minutes of one core.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.elevation_cells import (
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
from fedwatt.windows.scaling import ridge
from fedwatt.windows.splits import window_means

RECORD = Path(__file__).resolve().parents[1] / "results" / "elevation_reference.json"
WHOLE = replace(FIXED, minimum_vehicles=1, private=False)
KINDS = ("none", "map", "map, smoothed", "learned", "learned, k = 3")
SMOOTHED_S = 15
WINDOW = 60
METHOD = "fedavg"


# ----------------------------------------------------------------------------- the climbs
@lru_cache(maxsize=1)
def map_rises(folder: Path, posts: Path) -> dict[tuple[str, str], FloatArray]:
    """Metres gained each second by the posts, by vehicle and trip; NaN where they do not know."""
    elevation = read_terrain_model([posts])
    rises = {}
    for vehicle in vehicles_of(folder):
        for trip in vehicle.trips:
            place = (trip.channels[name] for name in ("latitude_deg", "longitude_deg"))
            height_m = elevation.elevation_m(*place)
            one_region = np.zeros(trip.seconds, dtype=np.int64)
            rise = rise_m(height_m, one_region, trip.channels["speed_mps"])
            # `rise_m` bridges gaps; here a second counts only if it was known by itself.
            rises[vehicle.name, trip.name] = np.where(np.isfinite(height_m), rise, np.nan)
    return rises


@lru_cache(maxsize=2)
def fields(folder: Path, seed: int, with_all_trips: bool) -> Learned:
    """Return the elevation map learned from the training trips of a split."""
    return learn(vehicles_of(folder), WHOLE if with_all_trips else FIXED, data_settings(seed))


def rises(folder: Path, posts: Path, seed: int, kind: str, vehicle: Vehicle) -> list[FloatArray]:
    """Return the metres gained each second of each trip, 0 where unknown."""
    if kind.startswith("learned"):
        elevation_map = fields(folder, seed, kind != "learned, k = 3").maps[vehicle.name]
        return [np.nan_to_num(trip_rise_m(trip, elevation_map)) for trip in vehicle.trips]
    mapped = [
        np.nan_to_num(map_rises(folder, posts)[vehicle.name, trip.name]) for trip in vehicle.trips
    ]
    return [smoothed(rise) for rise in mapped] if kind == "map, smoothed" else mapped


def smoothed(rise: FloatArray) -> FloatArray:
    """Return the centred moving mean of each second."""
    total = np.convolve(rise, np.ones(SMOOTHED_S), mode="same")
    return np.asarray(total / np.convolve(np.ones(len(rise)), np.ones(SMOOTHED_S), mode="same"))


def covered_ends(trip: Trip, rise: FloatArray) -> IntArray:
    """Last seconds of the windows that the posts know from end to end."""
    ends = np.arange(WINDOW - 1, trip.seconds)
    finite_before = np.concatenate([[0], np.cumsum(np.isfinite(rise))])
    return np.asarray(ends[finite_before[ends + 1] - finite_before[ends + 1 - WINDOW] == WINDOW])


# -------------------------------------------------------------------------- evaluation
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
        """Return number of each trip of a split, and the ends of its windows."""
        numbered_trips = enumerate(zip(self.trips, self.ends, strict=True))
        return [(n, e[::stride]) for n, (t, e) in numbered_trips if self.split_of[t.name] == split]

    def test(self) -> IntArray:
        """Return the rows of the balanced test windows."""
        rows = np.concatenate([self.starts[n] + ends for n, ends in self.of("test")])
        return np.asarray(rows[balanced_choice(self.seed, self.name, len(rows))])


def rmse(predicted_wh: FloatArray, true_wh: FloatArray) -> float:
    """Return the root mean square error, Wh."""
    return float(np.sqrt(np.mean((predicted_wh - true_wh) ** 2)))


def ridge_rows(folder: Path, posts: Path, seed: int, kind: str) -> Rows:
    """Return the errors of every vehicle's ridge."""
    errors = {}
    for vehicle in vehicles_of(folder):
        windows = Windows(folder, posts, vehicle, seed)
        names = physics_features(list(vehicle.trips))
        climbs = rises(folder, posts, seed, kind, vehicle)
        rise_of = {trip.name: rise for trip, rise in zip(vehicle.trips, climbs, strict=True)}
        parts = []
        for trip in windows.trips:
            rise = rise_of[trip.name]
            climb = [np.maximum(rise, 0), np.maximum(-rise, 0)] if kind != "none" else []
            parts.append(np.column_stack([trip_features(trip, names, vehicle.name), *climb]))
        series = np.concatenate(parts)
        energy = np.concatenate([trip.channels["energy_wh"] for trip in windows.trips])

        def means(ends: IntArray, series: FloatArray = series) -> FloatArray:
            return np.stack([window_means(column, ends) for column in series.T], axis=1)

        train = np.concatenate([windows.starts[n] + e for n, e in windows.of("train", 5)])
        test = windows.test()
        beta = ridge(means(train), WINDOW * window_means(energy, train))
        predicted = means(test) @ beta[:-1] + beta[-1]
        errors[vehicle.name] = rmse(predicted, WINDOW * window_means(energy, test))
    return {f"ridge, {kind}": errors}


def network_rows(folder: Path, posts: Path, seed: int, device: str, kind: str) -> Rows:
    """Return the errors of the shared and the personalised networks."""
    data = data_settings(seed, "base" if kind == "none" else "base, elevation")
    vehicles = vehicles_of(folder)
    every = {vehicle.name: Windows(folder, posts, vehicle, seed) for vehicle in vehicles}
    climbed = (with_rises(v, rises(folder, posts, seed, kind, v)) for v in vehicles)
    fleet = build_fleet(vehicles if kind == "none" else climbed, data, "ved")
    clients = tuple(covered(client, every[client.name]) for client in fleet.clients)
    fleet = replace(fleet, clients=clients)
    model = get_model("mlp", window=WINDOW, features=len(fleet.features))
    federation = Federation(fleet, model, training=TRAINING, seeds=(seed,), device=device)
    best = federation.train(METHOD).state.best_weights
    predictions = {
        "shared": predictions_of(federation.model, best, federation.pool).test[0],
        "personalised": personalise(federation, best, Personalisation()).test[0],
    }
    rows: dict[str, dict[str, float]] = {}
    offsets = federation.pool.test.offsets
    for which, predicted in predictions.items():
        errors = rows.setdefault(f"{which}, {kind}", {})
        for k, client in enumerate(fleet.clients):
            predicted_wh = client.energy_wh(predicted[offsets[k] : offsets[k + 1]])
            errors[client.name] = rmse(predicted_wh, client.energy_wh(client.labels["test"]))
    return rows


def with_rises(vehicle: Vehicle, climbs: Sequence[FloatArray]) -> Vehicle:
    """Return the vehicle with these climbs."""
    trips = (climbing(trip, rise) for trip, rise in zip(vehicle.trips, climbs, strict=True))
    return replace(vehicle, trips=tuple(trips))


def covered(client: Client, windows: Windows) -> Client:
    """Return the client with covered windows only."""
    rows: dict[str, IntArray] = {}
    labels: dict[str, Any] = {}
    for split in ("train", "validation", "test"):
        stride = {"train": 5, "validation": 10}.get(split, 1)
        if split == "test":
            rows[split] = windows.test()
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
    """Yield a task for every model, elevation source and split."""
    for seed in seeds:
        for kind in KINDS:
            yield Task((f"ridge, {kind}",), seed, ridge_rows, (folder, posts, seed, kind))
    for seed in seeds:
        for kind in KINDS:
            rows = (f"shared, {kind}", f"personalised, {kind}")
            yield Task(rows, seed, network_rows, (folder, posts, seed, device, kind))


def nodes(folder: Path, posts: Path) -> dict[str, Any]:
    """Compare the map of all training trips of split 1 with the posts, for k = 1 and k = 3."""
    elevation = read_terrain_model([posts])
    by_seed = {}
    for k in (1, 3):
        settings = replace(FIXED, minimum_vehicles=k)
        field = learn(vehicles_of(folder), settings, data_settings(1)).shared
        comparison = asdict(compare_with_reference(field, elevation))
        by_seed[f"k = {k}"] = {
            n: v for n, v in comparison.items() if n not in ("learned_m", "reference_m")
        }
    return by_seed


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
    record = json.loads(chosen.record.read_text(encoding="utf-8"))
    record["nodes"] = nodes(chosen.fleet, chosen.posts)
    chosen.record.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
