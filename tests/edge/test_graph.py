"""The ONNX graph says what PyTorch says, for every backbone, scaled and not."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.graph import Network, build
from fedwatt.federation import Federation, Training
from fedwatt.models import get_model
from fedwatt.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.windows import DataSettings, build_fleet
from fedwatt.windows.features import trip_features

from .toys import trained

BACKBONES = ("mlp", "gru", "lstm")


@pytest.fixture(scope="module")
def embedded():
    """The embedded fleet: 20 vehicles, 40 trips each."""
    vehicles = list(synthetic_vehicles(20))
    return vehicles, build_fleet(vehicles, DataSettings(), "embedded")


@cache
def learned(backbone):
    """A model that has learned: six rounds on three vehicles about halve its error."""
    fleet = synthetic_fleet(vehicles=3, trips=10)
    model = get_model(backbone, window=60, features=8)
    training = Training(
        rounds=6, steps=20, participation=1.0, learning_rate=0.1, batch=32, evaluate_every=6
    )
    federation = Federation(fleet, model, training=training, seeds=(1,), device="cpu")
    done = federation.train("fedavg")
    errors = [row["test_rmse"] for row in done.history.rounds if row["round"] in (0, 6)]
    assert errors[1] < 0.6 * errors[0]
    parts = model.layout.split(done.state.weights[0][: model.layout.size])
    return replace(trained(backbone), weights={name: part.numpy() for name, part in parts.items()})


def torch_energy(run, client):
    data = run.config.data
    model = get_model(run.config.model.name, window=data.window, features=len(data.columns))
    weights = torch.from_numpy(np.concatenate([part.ravel() for part in run.weights.values()]))
    ends = client.ends["test"]
    with torch.inference_mode():
        return np.concatenate(
            [
                model.predict(
                    weights,
                    torch.from_numpy(client.series[some[:, None] + np.arange(1 - data.window, 1)]),
                ).numpy()
                for some in np.array_split(ends, len(ends) // 500 + 1)
            ]
        ).astype(float)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_onnx_and_torch_agree_on_every_test_window_of_the_embedded_fleet(
    backbone, embedded, tmp_path
):
    # Two orders of float32 summation: 1e-5 of the prediction, or of one deviation of the label
    # where the prediction passes through 0.
    _, fleet = embedded
    run = learned(backbone)
    file = tmp_path / "model.onnx"
    export(run, file)
    model = EnergyModel(file)
    for client in fleet.clients:
        reference = torch_energy(run, client)
        gap = np.abs(model.energies(client.series, client.ends["test"]) - reference)
        assert (gap <= 1e-5 * np.maximum(np.abs(reference), 1.0)).all()


@pytest.mark.parametrize("backbone", BACKBONES)
def test_the_scaled_form_maps_physical_features_to_wh(backbone, embedded, tmp_path):
    vehicles, fleet = embedded
    run = learned(backbone)
    export(run, tmp_path / "model.onnx")
    card = replace(EnergyModel(tmp_path / "model.onnx").card, output="Wh")
    for vehicle, client in zip(vehicles, fleet.clients, strict=True):
        scales = client.scaler, client.label_center_wh, client.label_scale_wh
        made = build(card, Network(run.weights, *scales))
        (tmp_path / "model.onnx").write_bytes(made.SerializeToString())
        model = EnergyModel(tmp_path / "model.onnx")
        usable = [trip for trip in vehicle.trips if trip.seconds >= 60]
        rows = [trip_features(trip, fleet.features, vehicle.name) for trip in usable]
        got = model.energies(np.concatenate(rows), client.ends["test"])
        expected = client.energy_wh(torch_energy(run, client))
        gap = np.abs(got - expected)
        assert (gap <= 1e-5 * np.maximum(np.abs(expected), client.label_scale_wh)).all()
