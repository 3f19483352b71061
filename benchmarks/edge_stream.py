"""Raw VED test trips, fed sample by sample, against the batch pipeline."""

import math
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.climb import LOOK_AHEAD_S, trusted_positions
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.readers.stream import Spill, silent
from fedwatt.telemetry.readers.ved import VedReader
from fedwatt.telemetry.trip import RawTrip
from fedwatt.windows import DataSettings
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.splits import window_ends, window_sums


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
