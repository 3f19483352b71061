"""A run folder without training, and telemetry whose batch result is known."""

from pathlib import Path

import numpy as np
import torch

from fedwatt.edge.card import ModelCard
from fedwatt.edge.export import TrainedModel
from fedwatt.edge.trip_page import render
from fedwatt.edge.trips import Forecast, TripPrediction
from fedwatt.federation.selection import GLOBAL_MODELS
from fedwatt.models import get_model
from fedwatt.randomness import generator
from fedwatt.runs.config import from_tables
from fedwatt.runs.model_file import model_prefix, write_models
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.cleaning.resample import updates, usual_hold_s
from fedwatt.telemetry.trip import RawTrip


def trained(backbone: str = "mlp", **data: object) -> TrainedModel:
    """A model as it starts: what it predicts is no matter here, that it is the same one is."""
    config = from_tables(
        {
            "seeds": [1],
            "data": data,
            "model": {"name": backbone},
            "method": [{"name": "fedavg"}],
        }
    )
    model = get_model(backbone, window=config.data.window, features=len(config.data.columns))
    weights = model.initial(generator(0, "edge", backbone)).float()
    parts = {name: part.numpy() for name, part in model.layout.split(weights).items()}
    return TrainedModel(parts, config, "fedavg", 1)


def run_folder(folder: Path, backbone: str = "mlp", **data: object) -> Path:
    """A finished run as `fedwatt export` finds it."""
    return write_run(folder, trained(backbone, **data))


def write_run(folder: Path, model: TrainedModel) -> Path:
    """The folder of a finished run."""
    tensors = {
        model_prefix("fedavg", which, 1) + name: torch.from_numpy(part.copy())
        for which in GLOBAL_MODELS
        for name, part in model.weights.items()
    }
    write_models(folder, tensors, model.config)
    return folder


def a_vehicle(trips: int = 16) -> Vehicle:
    return next(iter(synthetic_vehicles(1, trips=trips)))


def raw_trip(rows: int = 400, seed: int = 0, step_s: float = 0.4) -> RawTrip:
    """Rows at uneven times, speed held between readings a second apart, as a bus logger has it."""
    draw = np.random.default_rng(seed)
    time_s = np.round(np.cumsum(draw.uniform(0.5 * step_s, 1.5 * step_s, rows)), 2) + 1000
    reading = np.floor(time_s - time_s[0]).astype(int)
    course = np.maximum(np.cumsum(draw.normal(0, 1, reading[-1] + 1)) + 8, 0)
    course[100:125] = 0.0  # a red light
    channels = {
        "speed_mps": course[reading],
        "ambient_c": np.where(time_s - time_s[0] < 60, 11.5, 12.0),
        "ac_w": np.full(rows, 400.0),
        "heater_w": np.where(reading % 40 < 20, 0.0, 1500.0),
    }
    return RawTrip("raw", time_s, channels)


def hold_of(trip: RawTrip) -> float:
    """The usual hold that an import measures on the whole trip."""
    time_s = np.round(trip.time_s - trip.time_s[0], 6)
    return usual_hold_s(time_s, updates(trip.channels["speed_mps"]))


def rendered(found: TripPrediction, card: ModelCard, vehicle: str = "", charge=None) -> str:
    """The page of a predicted trip."""
    return render(Forecast(found.trip, vehicle, card, found, None, charge))
