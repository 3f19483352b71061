"""Windows and recorded trips of VED: errors by split, vehicle and temperature, and intervals.

    python -m benchmarks.journeys_networks --fleet FLEET --out NETWORKS
    python -m benchmarks.journeys_ved --fleet FLEET --networks NETWORKS
    python -m benchmarks.journeys_ved                       writes docs and tables from the record

The 12 vehicles of VED with 20 or more usable all-electric trips (two of VED's three purely electric
cars are among them), eight splits of trips; 6 and 7 took no part in any choice. Every vehicle takes
the mean of its federated network and its ridges, corrects it in the trip and by its trip balance,
and has intervals calibrated on the other vehicles. Fills the part "windows" and its keys of
"summary" in results/journeys_ved.json; only aggregates are stored, and relative errors of whole
test trips under the trip's name.
"""

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.journeys_networks import INPUTS, SEEDS, SHARES, elevated, network_file, settings
from benchmarks.journeys_tables import write_tables
from fedwatt.edge.trips import ZERO_AT_REST
from fedwatt.files import write_text
from fedwatt.journeys.filter import coldness, in_trip
from fedwatt.journeys.intervals import (
    KINDS,
    contribution,
    fitted_prior,
    fleet_intervals,
    fleet_means,
    in_wh,
    residual_sums,
    score_sums,
    validation_scores,
)
from fedwatt.journeys.mixture import Mixture, chosen_mixture
from fedwatt.journeys.ridge import fleet_ridge, local_ridge, mixed_ridge, series_features
from fedwatt.journeys.totals import energy_by_second, tile_ends
from fedwatt.models import get_model
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.trip import FloatArray, IntArray
from fedwatt.windows import Client, build_fleet
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
            vehicle: round(float(np.sqrt(own[band][0] / own[band][1])), 3)
            for vehicle, own in cells.items()
            if own.get(band, [0, 0])[1]
        }


@dataclass(frozen=True, eq=False)
class TripWindows:
    """Windows of a test trip in scaled features: those of `tile_ends` and two that stand."""

    trip: Trip
    series: np.ndarray[Any, Any]
    asked: IntArray
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
    asked = np.concatenate([[59], 60 + tile_ends(trip.seconds, window=60), [len(rows) - 1]])
    energy = np.concatenate([[0.0], np.cumsum(trip.channels["energy_wh"])])
    metres = np.concatenate([[0.0], np.cumsum(trip.channels["speed_mps"])])
    return TripWindows(
        trip,
        client.scaler.forward(rows).astype(np.float32),
        asked,
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


def split_record(folder: Path, networks: Path, seed: int, share: int, inputs: str) -> Any:
    """Return everything of one split: errors by row, vehicle and band, trips, and intervals."""
    vehicles = elevated(folder, seed, share)
    fleet = build_fleet(vehicles, settings(seed, inputs), "VED")
    file = network_file(networks, seed, share, inputs)
    weights = torch.from_numpy(np.load(file)["weights"])
    shared = fleet_ridge(fleet.clients)
    mixtures = []
    validated = []
    for client, own in zip(fleet.clients, weights, strict=True):
        network = network_predictions(client, own, client.series, client.ends["validation"])
        mixtures.append(chosen_mixture(client, shared, network))
        validated.append((client, mixtures[-1].predict(client, "validation", network)))
    prior = fitted_prior(residual_sums(*vehicle) for vehicle in validated)
    scores = [validation_scores(*vehicle, prior) for vehicle in validated]
    means = fleet_means(map(score_sums, scores))
    parts = [contribution(vehicle, means) for vehicle in scores]
    whole = fleet_intervals(parts)
    rows = Rows()
    for place, vehicle in enumerate(vehicles):
        client = fleet.clients[place]
        others = whole.without(parts[place])
        factors = {kind: others.factor(kind, scores[place][kind]) for kind in KINDS}
        local = local_ridge(client)
        mixed = mixed_ridge(client, shared)
        members = {
            "network": Mixture(1.0, np.zeros(len(local))),
            "local ridge": Mixture(0.0, local),
            "mixed-effects ridge": Mixture(0.0, mixed),
            "mean of members": replace(mixtures[place], balance=None),
        }
        in_vehicle = replace(prior, factor=1.0)
        _test_trips(
            rows,
            vehicle,
            client,
            weights[place],
            members,
            (in_wh(in_vehicle, client.label_scale_wh), factors, mixtures[place]),
            seed,
        )
    bands = ["all", *(name for _, _, name in BANDS)]
    return {
        "rmse_wh": {row: {band: rows.rmse(row, band) for band in bands} for row in rows.squares},
        "trips_percent": rows.trips,
        "covered_percent": {
            kind: {name: round(100 * float(np.mean(own)), 2) for name, own in cells.items()}
            for kind, cells in rows.covered.items()
        },
        "balanced": sum(mixture.balance is not None for mixture in mixtures),
        "left_out_members": sum(mixture.network not in (0.0, 1 / 3) for mixture in mixtures),
        "calibrated_on": {"vehicles": whole.vehicles - 1, "trips": whole.trips},
        "noise_factor": round(prior.noise_wh / 0.09, 3),
    }


def _test_trips(
    rows: Rows,
    vehicle: Vehicle,
    client: Client,
    weights: torch.Tensor,
    members: Mapping[str, Mixture],
    model: tuple[Any, Mapping[str, float], Mixture],
    seed: int,
) -> None:
    """Add the errors of a vehicle's test trips to the rows."""
    prior, factors, mixture = model
    splits = split_of_trips(vehicle, settings(seed))
    training = [trip for trip in vehicle.trips if splits.get(trip.name) == "train"]
    energy_wh = sum(float(trip.channels["energy_wh"].sum()) for trip in training)
    wh_per_m = energy_wh / sum(trip.metres for trip in training)
    for trip in vehicle.trips:
        if splits.get(trip.name) != "test":
            continue
        own = trip_windows(trip, client)
        x = series_features(own.series, own.asked, client.window)
        network = network_predictions(client, weights, own.series, own.asked)
        cold = coldness(own.ambient_c)
        found: dict[str, FloatArray] = {}
        for row, member in members.items():
            found[row] = client.energy_wh(member.network * network + x @ member.linear)
            error = found[row][own.inside] - own.measured_wh
            rows.add(row, vehicle.name, own.ambient_c, error[::5])
        windows_wh = found["mean of members"]
        inside_wh = windows_wh[own.inside]
        corrected, deviation = in_trip(
            prior, inside_wh, own.measured_wh, 60, cold=cold, speed_mps=own.speed_mps
        )
        error = corrected - own.measured_wh
        rows.add("in trip", vehicle.name, own.ambient_c, error)
        rows.add("in trip, after ten minutes", vehicle.name, own.ambient_c, error[LATER_S:])
        later = (inside_wh - own.measured_wh)[LATER_S:]
        rows.add("mean of members, after ten minutes", vehicle.name, own.ambient_c, later)
        usual = prior.window_deviation_wh(inside_wh, own.speed_mps, cold)
        covered = rows.covered
        off = np.abs(inside_wh - own.measured_wh)
        inside = {
            "windows": np.mean(off <= factors["windows"] * usual),
            "in_trip": np.mean(np.abs(error) <= factors["in_trip"] * deviation),
        }
        measured = float(trip.channels["energy_wh"].sum())
        balanced = own.total_wh(windows_wh)
        totals = {"mean of members": balanced}
        if mixture.balance is not None:
            mean = own.series[60:-60].mean(axis=0, dtype=np.float64)
            shift = float(mixture.balance.shift(mean[None])[0]) * client.label_scale_wh
            balanced += shift * trip.seconds / 60
        totals["balanced"] = balanced
        totals["mean Wh/km"] = wh_per_m * trip.metres
        size = prior.trip_deviation_wh(
            balanced, trip.seconds / 60, trip.metres / trip.seconds, cold, 60
        )
        inside["trips"] = float(abs(balanced - measured) <= factors["trips"] * size)
        for kind, value in inside.items():
            covered.setdefault(kind, {}).setdefault(vehicle.name, []).append(float(value))
        if trip.metres >= LEAST_M:
            for row, total in totals.items():
                percent = round(100 * (total / measured - 1), 2)
                rows.trips.setdefault(row, {}).setdefault(vehicle.name, {})[trip.name] = percent


def main() -> None:
    """Measure the splits that are missing, or write the page."""
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--fleet", type=Path)
    options.add_argument("--networks", type=Path)
    options.add_argument("--seeds", default=SEEDS)
    options.add_argument("--again", action="store_true", help="measure recorded splits again")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    record = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    if chosen.fleet is not None:
        windows = record.setdefault("windows", {})
        for share in SHARES:
            for inputs in INPUTS:
                splits = windows.setdefault(f"share {share}, {inputs}", {})
                for seed in chosen.seeds.split(","):
                    if seed in splits and not chosen.again:
                        continue
                    splits[seed] = split_record(
                        chosen.fleet, chosen.networks, int(seed), share, inputs
                    )
                    overall = np.mean(list(splits[seed]["rmse_wh"]["in trip"]["all"].values()))
                    print(f"share {share}, {inputs}, split {seed}: {overall:.2f} Wh", flush=True)
                    write_text(RECORD, json.dumps(record, indent=1, sort_keys=True) + "\n")
    write_tables(RECORD)


if __name__ == "__main__":
    main()
