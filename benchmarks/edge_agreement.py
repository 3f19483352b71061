"""Largest difference of onnxruntime from PyTorch over every test window of a fleet."""

from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedwatt.edge.card import ModelCard
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import TrainedModel, export
from fedwatt.edge.graph import Network, build
from fedwatt.models import Model, get_model
from fedwatt.telemetry import Vehicle
from fedwatt.windows import Client, Fleet
from fedwatt.windows.features import trip_features


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
