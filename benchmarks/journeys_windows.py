"""Windows and recorded trips of the journeys benchmark, one split of VED at a time.

Every vehicle mixes its federated network (`journeys_networks.py`) with its ridges, learns from the
trip under way, and predicts whole trips with true speed. Beside it stand what a fleet engineer has
without it: mean Wh/km, the ratio of measured to predicted energy so far, and no hills.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.journeys_networks import FEATURES, prepared, residual_fleet, settings
from fedwatt.edge.calibration import LEVEL, Outcome, alike, calibrate, clustered_quantile
from fedwatt.edge.card import ModelCard
from fedwatt.edge.trips import outcome
from fedwatt.journeys.filter import TripPrior, in_trip
from fedwatt.journeys.mixture import Mixture, chosen_mixture, fleet_ridge, vehicle_ridges
from fedwatt.journeys.prior import fitted_prior, in_wh, residual_sums
from fedwatt.journeys.ridge import LOCAL, moments, solve, window_features
from fedwatt.journeys.trip_balance import trip_balance
from fedwatt.models import get_model
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray
from fedwatt.windows import Client, Fleet, build_client, build_fleet
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import feature_names

MOST_TRAINING_TRIPS = 25
"""Training trips of a vehicle that the scale of its error bars is fitted to."""
LEAST_KM = 2.0
Errors = dict[str, dict[str, float]]
"""Row -> vehicle -> RMSE in Wh."""


@dataclass(frozen=True, eq=False)
class MixedModel:
    """A vehicle's mixture in place of a model file: what `edge.trips` asks of one."""

    client: Client
    mixture: Mixture
    weights: torch.Tensor | None
    card: ModelCard
    field: None = None

    def refuse_unless_telemetry(self) -> None:
        """It takes physical features and gives Wh."""

    def energies(self, series: FloatArray, ends: IntArray, known: None = None) -> FloatArray:
        """Wh of the windows of physical features [seconds, features] that end at `ends`."""
        assert self.client.scaler is not None
        scaled = self.client.scaler.forward(series).astype(np.float32)
        asked = replace(self.client, series=scaled, ends={"asked": ends})
        network = np.zeros(len(ends)) if self.weights is None else network_says(asked, self.weights)
        return self.client.energy_wh(self.mixture.predict(asked, "asked", network))


def network_says(client: Client, weights: torch.Tensor, split: str = "asked") -> FloatArray:
    """Scaled predictions of a network, `weights` [D], on the windows of a split."""
    model = get_model("mlp", window=client.window, features=len(client.features))
    series, found = torch.from_numpy(client.series), []
    with torch.no_grad():
        for ends in np.array_split(client.ends[split], max(len(client.ends[split]) // 2048, 1)):
            rows = torch.from_numpy(ends[:, None] + np.arange(1 - client.window, 1))
            found.append(model.predict(weights, series[rows]).double().numpy())
    return np.concatenate(found)


def card() -> ModelCard:
    """As much of a card as `edge.trips` reads."""
    names = feature_names(FEATURES)
    about: dict[str, Any] = {"method": "", "run_hash": "", "library": "", "backbone": "mlp"}
    units = tuple("" for _ in names)
    return ModelCard(features=names, units=units, window=60, interval_s=1.0, output="Wh", **about)


def rmse(error: FloatArray) -> float:
    return float(np.sqrt(np.mean(np.square(error))))


# ------------------------------------------------------------------------------ windows
def window_rows(folder: Path, networks: Path | None, seed: int) -> tuple[Errors, dict[str, Any]]:
    """RMSE by row and vehicle of one split, and what else was found there."""
    vehicles = prepared(folder, seed)
    fleet = build_fleet(vehicles, settings(seed), "VED")
    weights = {
        kind: read_weights(networks, seed, kind) for kind in ("energy", "second", "residual")
    }
    shared, rows = fleet_ridge(fleet.clients), Rows()
    mixtures = {}
    for place, client in enumerate(fleet.clients):
        own = {kind: None if w is None else w[place] for kind, w in weights.items()}
        found, validation = _vehicle_rows(rows, client, shared, own)
        mixtures[client.name] = (client, found, validation, own["energy"])
    _without_hills(rows, vehicles, seed)
    _wh_per_km(rows, vehicles, seed)
    sums = [
        residual_sums(client, mixture.predict(client, "validation", validation))
        for client, mixture, validation, _ in mixtures.values()
    ]
    prior = fitted_prior(sums, fleet.window)
    trips = [_trip_rows(rows, vehicle, mixtures[vehicle.name], prior, seed) for vehicle in vehicles]
    return rows.found, {"prior": asdict(prior), "trips": trips}


class Rows:
    """Errors by row and vehicle."""

    def __init__(self) -> None:
        self.found: Errors = {}

    def add(self, row: str, vehicle: str, error_wh: FloatArray) -> None:
        self.found.setdefault(row, {})[vehicle] = round(rmse(error_wh), 3)


def read_weights(folder: Path | None, seed: int, kind: str) -> torch.Tensor | None:
    """Personal weights [vehicles, D] of a split; None where they have not been trained."""
    file = None if folder is None else folder / f"seed-{seed}-{kind}.npz"
    if file is None or not file.exists():
        return None
    return torch.from_numpy(np.load(file)["weights"])


def _vehicle_rows(
    rows: Rows, client: Client, shared: FloatArray, own: Mapping[str, torch.Tensor | None]
) -> tuple[Mixture, FloatArray]:
    """Rows of a vehicle's models; its mixture, and what its network says of validation windows."""
    true = client.energy_wh(client.labels["test"])
    ridges = vehicle_ridges(client, shared)
    x = window_features(client, "test")

    def add(row: str, scaled: FloatArray) -> None:
        rows.add(row, client.name, client.energy_wh(scaled) - true)

    add("ridge", x @ ridges[0])
    add("ridge, mixed effects", x @ ridges[1])
    add("mean of the ridges", x @ (ridges[0] + ridges[1]) / 2)
    if own["energy"] is None:
        flat = np.full(len(client.ends["validation"]), np.nan)
        mixture = chosen_mixture(client, ridges, flat)
        validation, test = np.zeros(len(flat)), np.zeros(len(true))
    else:
        validation = network_says(client, own["energy"], "validation")
        test = network_says(client, own["energy"], "test")
        add("network", test)
        mixture = chosen_mixture(client, ridges, validation)
        add("mean of network and ridge", (test + x @ ridges[0]) / 2)
    add("mixture", mixture.predict(client, "test", test))
    add("mixture without balance of trips", mixture.predict(client, "test", test) - x @ ridges[2])
    if own["second"] is not None:
        second = network_says(client, own["second"], "test")
        add("mean of two networks", (test + second) / 2)
        add("mixture with a second network", mixture.predict(client, "test", (test + second) / 2))
    if own["residual"] is not None:
        (alone,) = residual_fleet(Fleet((client,), settings(1), "")).clients
        left = network_says(alone, own["residual"], "test")
        add("ridge and a network of its residual", x @ ridges[0] + left)
        both = (mixture.predict(client, "test", test) + x @ ridges[0] + left) / 2
        add("mixture with a residual network", both)
    return mixture, validation


def _without_hills(rows: Rows, vehicles: tuple[Vehicle, ...], seed: int) -> None:
    """Rows of ridges that lack something, or have something more."""
    for row, features in (
        ("ridge without hills", "base, physics, cold_start, hot_start"),
        ("ridge without journey features", "base, physics, terrain"),
    ):
        for vehicle in vehicles:
            client = build_client(vehicle, settings(seed, features))
            beta = solve(moments(client), LOCAL)
            found = client.energy_wh(window_features(client, "test") @ beta)
            rows.add(row, vehicle.name, found - client.energy_wh(client.labels["test"]))


def _wh_per_km(rows: Rows, vehicles: tuple[Vehicle, ...], seed: int) -> None:
    """The vehicle's mean Wh/km times the metres of the window."""
    for vehicle in vehicles:
        client = build_client(vehicle, settings(seed, "speed"))
        assert client.scaler is not None
        center, scale = float(client.scaler.center[0]), float(client.scaler.scale[0])
        metres = {s: window_features(client, s)[:, 0] * scale + center for s in ("train", "test")}
        true = {s: client.energy_wh(client.labels[s]) for s in ("train", "test")}
        per_metre = true["train"].sum() / metres["train"].sum()
        rows.add("mean Wh/km", vehicle.name, metres["test"] * per_metre - true["test"])


# -------------------------------------------------------------------------------- trips
def _trip_rows(
    rows: Rows, vehicle: Vehicle, of: tuple[Any, ...], usual: TripPrior, seed: int
) -> dict[str, Any]:
    """In-trip rows of a vehicle, and its trips: errors, coverage and widths."""
    client, mixture, _, weights = of
    model: Any = MixedModel(client, mixture, weights, card())
    splits = split_of_trips(vehicle, settings(seed))

    def outcomes(split: str, most: int | None = None) -> list[Outcome]:
        chosen = [trip for trip in vehicle.trips if splits.get(trip.name) == split]
        return [outcome(model, trip, vehicle.name) for trip in chosen[:most]]

    seen, judged, tested = outcomes("train", MOST_TRAINING_TRIPS), outcomes("validation"), []
    trips = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
    tested = [outcome(model, trip, vehicle.name) for trip in trips]
    prior = in_wh(usual, client.label_scale_wh)
    scores = ([one.in_trip_scores(prior, 60) for one in part] for part in (judged, seen))
    prior = replace(prior, factor=clustered_quantile(alike(*scores), LEVEL))
    bars = calibrate(seen, judged)
    errors: dict[str, list[FloatArray]] = {"in trip": [], "in trip, ratio so far": []}
    inside: dict[str, list[BoolArray]] = {"windows": [], "in trip": []}
    for one in tested:
        corrected, deviation = in_trip(prior, one.windows_wh, one.measured_wh, 60)
        errors["in trip"].append(corrected - one.measured_wh)
        errors["in trip, ratio so far"].append(ratio_so_far(one) - one.measured_wh)
        inside["in trip"].append(np.abs(corrected - one.measured_wh) <= prior.factor * deviation)
        low, high = bars.around(one.windows_wh, one.speed_mps)
        inside["windows"].append((low <= one.measured_wh) & (one.measured_wh <= high))
    for row, found in errors.items():
        rows.add(row, vehicle.name, np.concatenate(found))
    about = _about_trips(vehicle, trips, tested, bars, inside, per_km(vehicle, splits))
    return about | {"unbalanced_errors_percent": _unbalanced(vehicle, client, trips, tested)}


def _unbalanced(
    vehicle: Vehicle, client: Client, trips: list[Trip], tested: list[Outcome]
) -> list[float]:
    """Errors of whole trips by the mixture without its balance of trips, in percent."""
    own = moments(client)
    balance = Mixture(0.0, trip_balance(client, own, solve(own, LOCAL)))
    model: Any = MixedModel(client, balance, None, card())
    errors = []
    for trip, one in zip(trips, tested, strict=True):
        if trip.metres >= 1000 * LEAST_KM:
            of_windows = client.label_center_wh * one.seconds / client.window
            added = outcome(model, trip, vehicle.name).trip_wh - of_windows
            off = one.trip_wh - added - one.trip_measured_wh
            errors.append(round(100 * abs(off / one.trip_measured_wh), 3))
    return errors


def ratio_so_far(one: Outcome) -> FloatArray:
    """Each window's prediction times measured over predicted energy of the minutes before it."""
    found = one.windows_wh.copy()
    for place in range(60, len(found)):
        before = slice(place % 60, place - 59, 60)
        predicted = one.windows_wh[before].sum()
        found[place] *= one.measured_wh[before].sum() / predicted if predicted > 1 else 1.0
    return found


def per_km(vehicle: Vehicle, splits: Mapping[str, str]) -> float:
    """Mean Wh/m of the vehicle's training trips."""
    training = [trip for trip in vehicle.trips if splits.get(trip.name) == "train"]
    energy_wh = sum(float(trip.channels["energy_wh"].sum()) for trip in training)
    return energy_wh / sum(float(trip.channels["speed_mps"].sum()) for trip in training)


def _about_trips(
    vehicle: Vehicle,
    trips: list[Trip],
    tested: list[Outcome],
    bars: Any,
    inside: Mapping[str, list[BoolArray]],
    wh_per_m: float,
) -> dict[str, Any]:
    """Errors of whole trips in percent, and how often intervals hold."""
    errors, simple, covered, widths = [], [], [], []
    for trip, one in zip(trips, tested, strict=True):
        low, high = bars.trip(one.trip_wh, one.seconds)
        covered.append(float(low) <= one.trip_measured_wh <= float(high))
        metres = float(trip.channels["speed_mps"].sum())
        if metres >= 1000 * LEAST_KM:
            size = abs(one.trip_measured_wh) / 100
            errors.append(round(abs(one.trip_wh - one.trip_measured_wh) / size, 3))
            simple.append(round(abs(metres * wh_per_m - one.trip_measured_wh) / size, 3))
            widths.append(float(high - low) / 2 / size)
    return {
        "vehicle": vehicle.name,
        "errors_percent": errors,
        "wh_per_km_errors_percent": simple,
        "trips": len(tested),
        "trips_covered": int(np.sum(covered)),
        "half_width_percent": round(float(np.median(widths)), 2),
        "windows": int(sum(map(len, inside["windows"]))),
        "windows_covered": int(sum(one.sum() for one in inside["windows"])),
        "in_trip_covered": int(sum(one.sum() for one in inside["in trip"])),
    }
