"""Raw VED trips, fed sample by sample, where VED is at hand. The benchmark does all of them."""

import re

import numpy as np
import pytest

from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.climb import LOOK_AHEAD_S, trusted_positions
from fedwatt.elevation.learn import learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.cleaning import VED_CLEANING
from fedwatt.telemetry.cleaning.clean import clean_vehicle
from fedwatt.telemetry.readers.stream import Spill, silent
from fedwatt.telemetry.readers.ved import VedReader, engine_reason
from fedwatt.windows.client import split_of_trips

from .toys import trained

NUMBER = "443"


@pytest.fixture(scope="module")
def real(ved_file, tmp_path_factory):
    """A vehicle of VED as an import makes it, and the rows of its trips as they were recorded."""
    reader = VedReader([ved_file], ("ev", "phev-electric"), unlabelled=False)
    spill = Spill(tmp_path_factory.mktemp("ved"), reader.columns)
    reader.read(spill, silent)
    trips, _ = spill.take(NUMBER)
    raw = {trip.name: trip for trip in trips if not engine_reason(trip)}
    recorded = Vehicle(f"ved-{NUMBER}", (), labels="measured")
    vehicle, _ = clean_vehicle(recorded, raw.values(), VED_CLEANING)
    return vehicle, raw


def trips_of_the_test(vehicle, run):
    splits = split_of_trips(vehicle, run.config.data)
    test = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
    assert len(test) >= 4
    return test


def streamed(model, rows):
    predictor = EnergyPredictor(model)
    names = [name for name in predictor.channels if name in rows.channels]
    made = []
    for place, time_s in enumerate(rows.time_s.tolist()):
        made += predictor.push(time_s, {n: float(rows.channels[n][place]) for n in names})
    made += predictor.finish()
    return np.array([prediction.energy_wh for prediction in made])


def test_raw_trips_give_what_the_batch_pipeline_gives(real, tmp_path):
    vehicle, raw = real
    run = trained()
    export(run, tmp_path / "m.onnx", vehicle=vehicle)
    model = EnergyModel(tmp_path / "m.onnx")
    for trip in trips_of_the_test(vehicle, run):
        made = streamed(model, raw[re.match(r"\d+", trip.name)[0]])
        windows_wh = predict_trip(model, trip, vehicle.name).windows_wh
        assert made == pytest.approx(windows_wh, rel=1e-6)


def test_with_learned_hills_too(real, tmp_path):
    """Batch and stream agree to 1e-6 where a gap in the map ends within the look-ahead."""
    vehicle, raw = real
    run = trained(features="base, elevation")
    settings = ElevationSettings(minimum_vehicles=1, private=False)
    field = learn([vehicle], settings, run.config.data).shared
    assert field.nodes > 500
    export(run, tmp_path / "m.onnx", vehicle=vehicle, field=field)
    model = EnergyModel(tmp_path / "m.onnx")
    compared = 0
    for trip in trips_of_the_test(vehicle, run):
        made = streamed(model, raw[re.match(r"\d+", trip.name)[0]])
        prediction = predict_trip(model, trip, vehicle.name)
        latitude, longitude, trusted = trusted_positions(trip)
        reference = np.flatnonzero(trusted & np.isfinite(field.read(latitude, longitude)[0]))
        ends = np.arange(59, trip.seconds)
        following = np.searchsorted(reference, ends)
        over = np.append(reference, -1)[
            following
        ]  # -1: no more known ground, and so level for good
        settled = over <= ends + LOOK_AHEAD_S
        assert made[settled] == pytest.approx(prediction.windows_wh[settled], rel=1e-6)
        assert np.isfinite(made).all() and len(made) == len(ends)
        climbs = prediction.trip.channels["climb_m"].sum()
        compared += int(settled.sum()) if climbs > 1 else 0
    assert compared > 500
