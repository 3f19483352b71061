"""Agreement of exported models: with PyTorch, and of samples with the batch pipeline."""

import math
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from fedwatt.edge.card import ModelCard
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import TrainedModel, export
from fedwatt.edge.graph import Network, build
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.climb import LOOK_AHEAD_S, trusted_positions
from fedwatt.models import Model, get_model
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.readers.stream import Spill, silent
from fedwatt.telemetry.readers.ved import VedReader
from fedwatt.telemetry.trip import RawTrip
from fedwatt.windows import Client, DataSettings, Fleet
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.features import trip_features
from fedwatt.windows.splits import window_ends, window_sums


def agreement(
    run: TrainedModel,
    weights: torch.Tensor,
    fleet: Fleet,
    vehicles: dict[str, Vehicle],
    folder: Path,
) -> dict[str, Any]:
    """Largest relative difference of the scaled form and of the one with each vehicle's scaling.

    Relative to the prediction or, where that is smaller, to one standard deviation of the label.
    """
    backbone = run.config.model.name
    model = get_model(backbone, window=fleet.window, features=len(fleet.features))
    file = folder / "model.onnx"
    plain_card = export(run, file)
    plain = EnergyModel(file)
    worst = {"scaled features": 0.0, "physical features": 0.0}
    windows = 0
    squares = []
    for client in fleet.clients:
        ends = client.ends["test"]
        reference = torch_predictions(model, weights, client)
        gap = np.abs(plain.energies(client.series, ends) - reference)
        relative = gap / np.maximum(np.abs(reference), 1.0)
        worst["scaled features"] = max(worst["scaled features"], float(relative.max()))
        scaled = with_scaling(run, plain_card, client, file)
        wh = client.energy_wh(reference)
        got = scaled.energies(physical(vehicles[client.name], fleet), ends)
        relative = np.abs(got - wh) / np.maximum(np.abs(wh), client.label_scale_wh)
        worst["physical features"] = max(worst["physical features"], float(relative.max()))
        windows += len(ends)
        squares.append(np.mean((wh - client.energy_wh(client.labels["test"])) ** 2))
    rmse_wh = float(np.mean(np.sqrt(squares)))
    return {"windows": windows, "rmse_wh": rmse_wh, "worst_relative": worst}


def with_scaling(run: TrainedModel, card: ModelCard, client: Client, file: Path) -> EnergyModel:
    """Return the model from physical features to Wh, without prediction intervals."""
    network = Network(run.weights, client.scaler, client.label_center_wh, client.label_scale_wh)
    made = build(ModelCard(**{**vars(card), "output": "Wh"}), network)
    file.write_bytes(made.SerializeToString())
    return EnergyModel(file)


def physical(vehicle: Vehicle, fleet: Fleet) -> np.ndarray:
    """Unscaled features in the rows of the client's series, [seconds, features]."""
    usable = [trip for trip in vehicle.trips if trip.seconds >= fleet.window]
    return np.concatenate([trip_features(trip, fleet.features, vehicle.name) for trip in usable])


def torch_predictions(model: Model, weights: torch.Tensor, client: Client) -> np.ndarray:
    """Return PyTorch's scaled predictions of a vehicle's test windows."""
    ends = client.ends["test"]
    predictions = []
    with torch.inference_mode():
        for some in np.array_split(ends, max(1, len(ends) // 512)):
            rows = some[:, None] + np.arange(1 - client.window, 1)
            predictions.append(
                model.predict(weights, torch.from_numpy(client.series[rows])).numpy()
            )
    return np.concatenate(predictions).astype(float)


def stream(
    file: Path,
    powertrain: tuple[str, ...],
    models: dict[str, EnergyModel],
    vehicles: dict[str, Vehicle],
    settings: DataSettings,
) -> dict[str, Any]:
    """Of each vehicle: trips, windows, differences in Wh, and both ways' RMSE.

    With hills a gap in the known ground may still be open when a window is due. `settled` windows
    are those without such a gap; there the two have to be the same.
    """
    raw = raw_trips(file, powertrain, [name.partition("-")[2] for name in vehicles])
    by_vehicle = {}
    for name, vehicle in vehicles.items():
        splits = split_of_trips(vehicle, settings)
        test = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
        gaps = []
        settled = []
        errors = []
        for trip in test:
            source = re.match(r"\d+", trip.name)
            assert source is not None
            batch = predict_trip(models[name], trip, name).windows_wh
            parts = streamed(EnergyPredictor(models[name]), raw[name][source[0]])
            same = [part for part in parts if len(part) == len(batch)]
            made = min(same, key=lambda part: float(np.abs(part - batch).max()), default=None)
            made = np.full(len(batch), math.inf) if made is None else made
            measured = window_sums(trip.channels["energy_wh"], window_ends(trip.seconds))
            gaps.append(np.abs(made - batch))
            settled.append(settled_windows(models[name], trip))
            errors.append(np.stack([made - measured, batch - measured]))
        gap = np.concatenate(gaps)
        sure = np.concatenate(settled)
        squares = np.mean(np.concatenate(errors, axis=1) ** 2, axis=1)
        by_vehicle[name] = {
            "trips": len(test),
            "windows": len(gap),
            "settled": int(sure.sum()),
            "worst_wh": float(gap[sure].max()),
            "worst_open_wh": float(gap[~sure].max(initial=0.0)),
            "rmse_stream_wh": math.sqrt(squares[0]),
            "rmse_batch_wh": math.sqrt(squares[1]),
        }
    return by_vehicle


def settled_windows(model: EnergyModel, trip: Trip) -> np.ndarray:
    """Windows whose last gap in the known ground is over within the look-ahead, [windows]."""
    ends = window_ends(trip.seconds)
    if model.field is None:
        return np.ones(len(ends), dtype=bool)
    latitude, longitude, trusted = trusted_positions(trip)
    known_rows = np.flatnonzero(trusted & np.isfinite(model.field.read(latitude, longitude)[0]))
    # After the last known second climb is not known, in the batch pipeline, too.
    following = np.append(known_rows, -1)[np.searchsorted(known_rows, ends)]
    return following <= ends + LOOK_AHEAD_S


def raw_trips(
    file: Path, powertrain: tuple[str, ...], numbers: list[str]
) -> dict[str, dict[str, RawTrip]]:
    """Rows of every trip as VED has them, in schema units, uncleaned."""
    reader = VedReader([file], powertrain, unlabelled=False)
    recordings = {}
    with TemporaryDirectory() as folder:
        spill = Spill(Path(folder), reader.columns)
        reader.read(spill, silent)
        for number in numbers:
            trips, _ = spill.take(number)
            recordings[f"ved-{number}"] = {trip.name: trip for trip in trips}
    return recordings


def streamed(predictor: EnergyPredictor, trip: RawTrip) -> list[np.ndarray]:
    """Window energies of each part that the stream makes of a raw trip."""
    channels = [name for name in predictor.channels if name in trip.channels]
    columns = [trip.channels[name].tolist() for name in channels]
    made = []
    for time_s, *values in zip(trip.time_s.tolist(), *columns, strict=True):
        made += predictor.push(time_s, dict(zip(channels, values, strict=True)))
    made += predictor.finish()
    parts: list[list[float]] = []
    for prediction in made:
        if prediction.second == predictor.model.card.window:
            parts.append([])
        parts[-1].append(prediction.energy_wh)
    return [np.array(part) for part in parts]
