"""A file with hills and its level model: how far from PyTorch, and what two networks cost."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.edge_agreement import physical, torch_predictions
from benchmarks.latency import Subject
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import TrainedModel, export
from fedwatt.edge.graph import Network, build
from fedwatt.models import Model, get_model
from fedwatt.telemetry import Vehicle
from fedwatt.windows import Fleet


def both_agree(
    run: TrainedModel, hilly: Fleet, level: Fleet, vehicles: Mapping[str, Vehicle], folder: Path
) -> dict[str, float]:
    """Largest relative difference of each network of the file, in Wh on all test windows.

    Relative as in `edge_agreement`. `vehicles` have their climb.
    """
    file = folder / "both.onnx"
    card = export(run, file)
    card = replace(card, output="Wh", level=card.level | {"borne_out": True})
    runs = pair(run)
    worst = {"hills": 0.0, "level": 0.0}
    for clients in zip(hilly.clients, level.clients, strict=True):
        networks = [
            Network(one.weights, own.scaler, own.label_center_wh, own.label_scale_wh)
            for one, own in zip(runs, clients, strict=True)
        ]
        file.write_bytes(build(card, *networks).SerializeToString())
        model = EnergyModel(file)
        ends = clients[0].ends["test"]
        series = physical(vehicles[clients[0].name], hilly)
        for name, one, own in zip(worst, runs, clients, strict=True):
            wanted = own.energy_wh(torch_predictions(*in_torch(one), own))
            got = model.energies(series, ends, np.full(len(ends), name == "hills"))
            gap = np.abs(got - wanted) / np.maximum(np.abs(wanted), own.label_scale_wh)
            worst[name] = max(worst[name], float(gap.max()))
    return worst


def subjects(run: TrainedModel, folder: Path) -> list[Subject]:
    """Return the network with elevation, alone and with the one without, in both engines."""
    (hilly, weights), (level, level_weights) = (in_torch(one) for one in pair(run))
    columns = run.config.data.columns
    kept = torch.tensor([columns.index(name) for name in pair(run)[1].config.data.columns])
    # Both networks are computed for every window, whichever is asked for.
    known = np.arange(1024) % 2 == 0

    def alone(batch: np.ndarray) -> torch.Tensor:
        return hilly.predict(weights, torch.from_numpy(batch))

    def chosen(batch: np.ndarray) -> torch.Tensor:
        plain = level.predict(level_weights, torch.from_numpy(batch)[..., kept])
        return torch.where(torch.from_numpy(known[: len(batch)]), alone(batch), plain)

    files = []
    for one in (replace(run, level=None), run):
        export(one, folder / "subject.onnx")
        files.append(EnergyModel(folder / "subject.onnx"))
    one_network, both = files

    def chosen_on_board(batch: np.ndarray) -> np.ndarray:
        return both.energy(batch, known[: len(batch)])

    return [
        Subject("MLP with hills", {"PyTorch": alone, "onnxruntime": one_network.energy}),
        Subject("and its level model", {"PyTorch": chosen, "onnxruntime": chosen_on_board}),
    ]


def pair(run: TrainedModel) -> tuple[TrainedModel, TrainedModel]:
    """Return the model with elevation and the one without."""
    assert run.level is not None
    return run, run.level


def in_torch(run: TrainedModel) -> tuple[Model, torch.Tensor]:
    """Return the network and its weights [D]."""
    data = run.config.data
    model = get_model(run.config.model.name, window=data.window, features=len(data.columns))
    parts = [torch.from_numpy(run.weights[name]).ravel() for name in model.layout.shapes]
    return model, torch.cat(parts)
