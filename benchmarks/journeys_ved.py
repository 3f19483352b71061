"""Windows and recorded trips of VED: errors by split, vehicle and temperature, and intervals.

    python -m benchmarks.journeys_networks --fleet FLEET --out NETWORKS --left-out 0,1,2
    python -m benchmarks.journeys_ved --fleet FLEET --networks NETWORKS --left-out 0,1,2
    python -m benchmarks.journeys_ved                       writes docs and tables from the record

The 12 vehicles of VED with 20 or more usable all-electric trips (two of VED's three purely electric
cars are among them), eight splits of trips; 6 and 7 took part in no choice but the square of
cold's. Every vehicle takes the mean of its federated network and its ridge, remembers what its
earlier trips took beyond their predictions, corrects in the trip and by its trip balance, and has
intervals calibrated on the other vehicles. Fills the parts "windows" and "left_out" (each vehicle
outside map, network, ridge and calibration) and their keys of "summary" in
results/journeys_ved.json; only aggregates are stored, and relative errors of whole test trips under
the trip's name.
"""

import argparse
import json
import multiprocessing
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.journeys_networks import (
    SEEDS,
    SET_UPS,
    elevated,
    fleet_of,
    network_file,
    network_weights,
    settings,
)
from benchmarks.journeys_tables import write_tables
from benchmarks.ved_trips import NAMES, seed_list
from fedwatt.edge.trips import ZERO_AT_REST
from fedwatt.files import write_text
from fedwatt.journeys.filter import TripPrior, coldness, in_trip
from fedwatt.journeys.intervals import (
    KINDS,
    contribution,
    fitted_prior,
    fleet_intervals,
    fleet_means,
    in_wh,
    residual_sums,
    validation_scores,
)
from fedwatt.journeys.memory import PastTrip, past_trip, remembered_offset
from fedwatt.journeys.mixture import Mixture, chosen_mixture
from fedwatt.journeys.ridge import (
    fleet_ridge,
    mixed_ridge,
    series_features,
    trip_numbers,
)
from fedwatt.journeys.totals import energy_by_second, tile_ends
from fedwatt.models import get_model
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import Client, Fleet
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import feature_columns, trip_features

RECORD = Path(__file__).resolve().parents[1] / "results" / "journeys_ved.json"
LEAST_M = 2000.0
BANDS = ((-99, 5, "below 5 °C"), (5, 15, "5 to 15 °C"), (15, 99, "above 15 °C"))
LATER_S = 600
"""Seconds after the start from which the in-trip error by temperature is taken."""


@dataclass
class Rows:
    """Sums of squared errors and counts, by row, vehicle and temperature band."""

    squares: dict[str, dict[str, dict[str, list[float]]]] = field(default_factory=dict)
    trips: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    covered: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def add(self, row: str, vehicle: str, ambient_c: float, error_wh: FloatArray) -> None:
        """Count errors of windows [n]."""
        band = next(name for low, high, name in BANDS if low <= ambient_c < high)
        for key in ("all", band):
            cell = self.squares.setdefault(row, {}).setdefault(vehicle, {}).setdefault(key, [0, 0])
            cell[0] += float(error_wh @ error_wh)
            cell[1] += len(error_wh)

    def rmse(self, row: str, band: str = "all") -> dict[str, float]:
        """Return the RMSE by vehicle, Wh."""
        cells = self.squares.get(row, {})
        return {
            vehicle: round(float(np.sqrt(vehicle_errors[band][0] / vehicle_errors[band][1])), 3)
            for vehicle, vehicle_errors in cells.items()
            if vehicle_errors.get(band, [0, 0])[1]
        }

    def cover(self, kind: str, vehicle: str, share: float) -> None:
        """Count the share of a trip's errors that an interval covers."""
        self.covered.setdefault(kind, {}).setdefault(vehicle, []).append(share)

    def record(self) -> dict[str, Any]:
        """Return the aggregates that are stored."""
        bands = ["all", *(name for _, _, name in BANDS)]
        covered = {
            kind: {name: round(100 * float(np.mean(hits)), 2) for name, hits in cells.items()}
            for kind, cells in self.covered.items()
        }
        return {
            "rmse_wh": {r: {band: self.rmse(r, band) for band in bands} for r in self.squares},
            "trips_percent": self.trips,
            "covered_percent": covered,
            "coverage_error_percent": {
                kind: {name: _standard_error(shares) for name, shares in cells.items()}
                for kind, cells in self.covered.items()
            },
            "test_trips": {name: len(hits) for name, hits in self.covered["trips"].items()},
        }


def _standard_error(shares: Sequence[float]) -> float:
    """Return the standard error of a mean over trips, in percent."""
    return round(100 * float(np.std(shares) / np.sqrt(max(len(shares) - 1, 1))), 2)


@dataclass(frozen=True, eq=False)
class TripWindows:
    """Windows of a test trip in scaled features: those of `tile_ends` and two that stand."""

    trip: Trip
    series: np.ndarray[Any, Any]
    requested: IntArray
    inside: slice
    measured_wh: FloatArray
    speed_mps: FloatArray
    ambient_c: float

    def total_wh(self, windows_wh: FloatArray) -> float:
        """Return the trip's energy from the energies of its windows."""
        idle_wh = float(windows_wh[0]) / 60, float(windows_wh[-1]) / 60
        seconds = energy_by_second(windows_wh[1:-1], self.trip.seconds, window=60, idle_wh=idle_wh)
        return float(seconds.sum())


def trip_windows(trip: Trip, client: Client) -> TripWindows:
    """Return the windows of a trip as `fedwatt predict` asks for them."""
    assert client.scaler is not None
    features = client.features
    ends = []
    for second in (0, trip.seconds - 1):
        now = {name: values[second : second + 1] for name, values in trip.channels.items()}
        now |= {name: np.zeros(1) for name in ZERO_AT_REST if name in now}
        ends.append(np.repeat(feature_columns(now, features, begin=second), 60, axis=0))
    rows = np.concatenate([ends[0], trip_features(trip, features, client.name), ends[1]])
    requested = np.concatenate([[59], 60 + tile_ends(trip.seconds, window=60), [len(rows) - 1]])
    energy = np.concatenate([[0.0], np.cumsum(trip.channels["energy_wh"])])
    metres = np.concatenate([[0.0], np.cumsum(trip.channels["speed_mps"])])
    return TripWindows(
        trip,
        client.scaler.forward(rows).astype(np.float32),
        requested,
        slice(60, trip.seconds + 1),
        energy[60:] - energy[:-60],
        (metres[60:] - metres[:-60]) / 60,
        float(np.median(trip.channels["ambient_c"])),
    )


def network_predictions(client: Client, weights: torch.Tensor, series: Any, ends: IntArray) -> Any:
    """Return scaled predictions of a network, `weights` [D], for windows that end at `ends`."""
    model = get_model("mlp", window=client.window, features=len(client.features))
    rows = torch.from_numpy(np.asarray(series))
    parts = []
    with torch.no_grad():
        for some in np.array_split(ends, max(len(ends) // 4096, 1)):
            windows = rows[torch.from_numpy(some[:, None] + np.arange(1 - client.window, 1))]
            parts.append(model.predict(weights, windows).double().numpy())
    return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class VehicleModel:
    """Everything that predicts a vehicle's test trips.

    weights  of its network [D]
    mixture  its window model
    prior    of its trips, in Wh
    past     all its trips: a test trip uses those that ended before it began
    factors  by kind, half the width of an interval in deviations
    """

    client: Client
    weights: torch.Tensor
    mixture: Mixture
    ridge: FloatArray
    prior: TripPrior
    past: Sequence[PastTrip]
    factors: Mapping[str, float]


def vehicle_models(
    fleet: Fleet, vehicles: Sequence[Vehicle], weights: torch.Tensor, seed: int
) -> tuple[dict[str, VehicleModel], dict[str, Any]]:
    """Return the model of every vehicle, held-out ones included, and facts about the fleet."""
    shared = fleet_ridge(fleet.clients)
    mixtures = []
    scaled = []
    for client, vehicle_weights in zip(fleet.clients, weights, strict=True):
        network = {
            split: network_predictions(client, vehicle_weights, client.series, client.ends[split])
            for split in ("train", "validation", "test")
        }
        mixture = chosen_mixture(client, shared, network["validation"])
        mixtures.append(mixture)
        scaled.append({s: mixture.predict(client, s, network[s]) for s in network})
    members = [place for place, client in enumerate(fleet.clients) if not client.held_out]
    validated = [(fleet.clients[place], scaled[place]["validation"]) for place in members]
    prior = fitted_prior(residual_sums(*vehicle) for vehicle in validated)
    scores = [
        validation_scores(client, predicted["validation"], prior)
        for client, predicted in zip(fleet.clients, scaled, strict=True)
    ]
    means = fleet_means([scores[place] for place in members])
    parts = {place: contribution(scores[place], means) for place in members}
    calibrated = fleet_intervals(parts.values())
    models = {}
    for place, (client, vehicle) in enumerate(zip(fleet.clients, vehicles, strict=True)):
        other_vehicles = calibrated.without(parts[place]) if place in parts else calibrated
        models[client.name] = VehicleModel(
            client,
            weights[place],
            mixtures[place],
            mixed_ridge(client, shared),
            in_wh(replace(prior, factor=1.0), client.label_scale_wh),
            past_trips(client, vehicle, scaled[place], seed),
            {kind: other_vehicles.factor(kind, scores[place][kind]) for kind in KINDS},
        )
    return models, {
        "balanced": sum(mixture.balance is not None for mixture in mixtures),
    }


def past_trips(
    client: Client, vehicle: Vehicle, predicted: Mapping[str, FloatArray], seed: int
) -> list[PastTrip]:
    """Return all trips with their mean residuals, as the vehicle's model predicts them."""
    splits = split_of_trips(vehicle, settings(seed))
    past = []
    for split, values in predicted.items():
        trips = [trip for trip in vehicle.trips if splits.get(trip.name) == split]
        recorded = len(client.as_recorded().ends[split])
        residual = (client.labels[split].astype(np.float64) - values)[:recorded]
        number = trip_numbers(client.ends[split][:recorded], client.window)
        past += [
            past_trip(trip, residual[number == place], window=client.window, scale_wh=1.0)
            for place, trip in enumerate(trips)
        ]
    return past


def split_record(folder: Path, networks: Path, seed: int, share: int, inputs: str) -> Any:
    """Return everything of one split: errors by row, vehicle and band, trips, and intervals."""
    vehicles = elevated(folder, seed, share)
    file = network_file(networks, seed, share, inputs)
    weights = torch.from_numpy(network_weights(vehicles, file, seed, inputs))
    models, facts = vehicle_models(fleet_of(vehicles, seed, inputs), vehicles, weights, seed)
    rows = Rows()
    for vehicle in vehicles:
        _test_trips(rows, vehicle, models[vehicle.name], seed)
    return rows.record() | facts


def left_out_record(folder: Path, networks: Path, seed: int, name: str) -> Any:
    """Return the errors and coverage of a vehicle that nothing shared has seen."""
    share, inputs = SET_UPS[0]
    vehicles = elevated(folder, seed, share, name)
    file = network_file(networks, seed, share, inputs, name)
    weights = torch.from_numpy(network_weights(vehicles, file, seed, inputs, name))
    fleet = fleet_of(vehicles, seed, inputs, name)
    models, _ = vehicle_models(fleet, vehicles, weights, seed)
    rows = Rows()
    vehicle = next(vehicle for vehicle in vehicles if vehicle.name == name)
    _test_trips(rows, vehicle, models[name], seed)
    return rows.record()


def _test_trips(rows: Rows, vehicle: Vehicle, model: VehicleModel, seed: int) -> None:
    """Add the errors of a vehicle's test trips to the rows."""
    splits = split_of_trips(vehicle, settings(seed))
    training = [trip for trip in vehicle.trips if splits.get(trip.name) == "train"]
    energy_wh = sum(float(trip.channels["energy_wh"].sum()) for trip in training)
    wh_per_m = energy_wh / sum(trip.metres for trip in training)
    for trip in vehicle.trips:
        if splits.get(trip.name) == "test":
            _test_trip(rows, vehicle.name, trip, model, wh_per_m)


def _test_trip(rows: Rows, name: str, trip: Trip, model: VehicleModel, wh_per_m: float) -> None:
    """Add the errors of one test trip; without the trip's past, they are those of 5 s strides."""
    client = model.client
    windows = trip_windows(trip, client)
    network = network_predictions(client, model.weights, windows.series, windows.requested)
    ridge = series_features(windows.series, windows.requested, client.window) @ model.ridge
    mixture = replace(model.mixture, balance=None)
    linear = series_features(windows.series, windows.requested, client.window) @ mixture.linear
    cold = coldness(windows.ambient_c)
    offset = remembered_offset(model.past, trip.start_time_s, cold)
    mean = mixture.network * network + linear if mixture.network else linear
    scaled = {"network": network, "mixed-effects ridge": ridge, "mean of members": mean}
    scaled["with earlier trips"] = mean + offset
    energies = {row: client.energy_wh(values) for row, values in scaled.items()}
    measured_wh = windows.measured_wh
    for row, values in energies.items():
        rows.add(row, name, windows.ambient_c, (values[windows.inside] - measured_wh)[::5])
    windows_wh = energies["with earlier trips"]
    inside_wh = windows_wh[windows.inside]
    prior = model.prior
    speed_mps = windows.speed_mps
    corrected, deviation = in_trip(
        prior, inside_wh, measured_wh, 60, cold=cold, speed_mps=speed_mps
    )
    error = corrected - measured_wh
    rows.add("in trip", name, windows.ambient_c, error)
    rows.add("in trip, after ten minutes", name, windows.ambient_c, error[LATER_S:])
    later = (inside_wh - measured_wh)[LATER_S:]
    rows.add("with earlier trips, after ten minutes", name, windows.ambient_c, later)
    total_wh = float(trip.channels["energy_wh"].sum())
    totals = {
        "mean of members": windows.total_wh(energies["mean of members"]),
        "with earlier trips": windows.total_wh(windows_wh),
        "mean Wh/km": wh_per_m * trip.metres,
    }
    shift_wh = 0.0
    if model.mixture.balance is not None:
        means = windows.series[60:-60].mean(axis=0, dtype=np.float64)
        shift = float(model.mixture.balance.shift(means[None])[0]) * client.label_scale_wh
        shift_wh = shift * trip.seconds / 60
    totals["balanced"] = totals["with earlier trips"] + shift_wh
    totals["balanced, without earlier trips"] = totals["mean of members"] + shift_wh
    window_deviation = prior.window_deviation_wh(inside_wh, speed_mps, cold)
    trip_deviation = prior.trip_deviation_wh(
        totals["balanced"], trip.seconds / 60, trip.metres / trip.seconds, cold, 60
    )
    scores = {
        "windows": np.abs(inside_wh - measured_wh) / window_deviation,
        "in_trip": np.abs(error) / deviation,
        "trips": np.atleast_1d(np.abs(totals["balanced"] - total_wh) / trip_deviation),
    }
    for kind, score in scores.items():
        rows.cover(kind, name, float(np.mean(score <= model.factors[kind])))
    if trip.metres >= LEAST_M:
        for row, predicted_wh in totals.items():
            percent = round(100 * (predicted_wh / total_wh - 1), 2)
            rows.trips.setdefault(row, {}).setdefault(name, {})[trip.name] = percent


Task = tuple[Path, Path, int, int, str, str]
"""Fleet, networks, split, share, inputs, and the vehicle that is left out or ""."""


def measured(task: Task) -> Any:
    """Return the record of a task."""
    torch.set_num_threads(1)
    fleet, networks, seed, share, inputs, left_out = task
    if left_out:
        return left_out_record(fleet, networks, seed, left_out)
    return split_record(fleet, networks, seed, share, inputs)


def cells_of(record: dict[str, Any], task: Task) -> tuple[dict[str, Any], str]:
    """Return the part of the record that a task fills, and its key there."""
    _, _, seed, share, inputs, left_out = task
    if left_out:
        return record.setdefault("left_out", {}).setdefault(str(seed), {}), left_out
    windows = record.setdefault("windows", {})
    return windows.setdefault(f"share {share}, {inputs}", {}), str(seed)


def main() -> None:
    """Measure the splits that are missing, or write the page."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--fleet", type=Path)
    options.add_argument("--networks", type=Path)
    options.add_argument("--seeds", type=seed_list, default=SEEDS)
    options.add_argument("--left-out", type=seed_list, default="", help="leave each vehicle out")
    options.add_argument("--again", action="store_true", help="measure recorded splits again")
    options.add_argument("--jobs", type=int, default=1)
    options.add_argument("--record", type=Path, default=RECORD)
    chosen = options.parse_args()
    record = {}
    if chosen.record.exists():
        record = json.loads(chosen.record.read_text(encoding="utf-8"))
    if chosen.fleet is not None:
        folders = (chosen.fleet, chosen.networks)
        tasks: list[Task] = [
            (*folders, seed, *set_up, "") for set_up in SET_UPS for seed in chosen.seeds
        ]
        tasks += [(*folders, s, *SET_UPS[0], name) for s in chosen.left_out for name in NAMES]
        missing = []
        for task in tasks:
            cells, key = cells_of(record, task)
            if chosen.again or key not in cells:
                missing.append(task)
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(chosen.jobs, mp_context=context) as pool:
            running = {pool.submit(measured, task): task for task in missing}
            for finished in as_completed(running):
                cells, key = cells_of(record, running[finished])
                cells[key] = finished.result()
                print(running[finished][2:], "done", flush=True)
                write_text(chosen.record, json.dumps(record, indent=1, sort_keys=True) + "\n")
    if chosen.record == RECORD:
        write_tables(RECORD)


if __name__ == "__main__":
    main()
