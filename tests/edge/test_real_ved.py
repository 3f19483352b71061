"""Raw VED trips, fed sample by sample, where VED is at hand. The benchmark does all of them."""

import re

import numpy as np
import pytest

from fedwatt.edge.export import export
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.session import EnergyModel
from fedwatt.edge.trips import predict_trip
from fedwatt.fleet.client import split_of_trips
from fedwatt.fleet.imported import imported_vehicle
from fedwatt.telemetry.clean import clean_vehicle
from fedwatt.telemetry.cleaning import Cleaning
from fedwatt.telemetry.powertrain import engine_reason
from fedwatt.telemetry.spill import Spill
from fedwatt.telemetry.stream import silent
from fedwatt.telemetry.trips import split_trips
from fedwatt.telemetry.ved import VedReader

from .toys import trained


@pytest.mark.parametrize("number", ["443"])
def test_raw_trips_give_what_the_batch_pipeline_gives(number, ved_file, tmp_path):
    reader = VedReader([ved_file], ("ev", "phev-electric"), unlabelled=False)
    spill = Spill(tmp_path, reader.columns)
    reader.read(spill, silent)
    trips, _ = split_trips(spill.take(number), reader.columns, str)
    raw = {trip.name: trip for trip in trips if not engine_reason(trip)}
    cleaning = Cleaning(maximum_standing_gap_s=31.0)
    clean, _ = clean_vehicle(f"ved-{number}", raw.values(), cleaning)
    vehicle = imported_vehicle(clean)
    run = trained()
    export(run, tmp_path / "m.onnx", vehicle=vehicle)
    model = EnergyModel(tmp_path / "m.onnx")
    splits = split_of_trips(vehicle, run.config.data)
    test = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
    assert len(test) >= 4
    for trip in test:
        rows = raw[re.match(r"\d+", trip.name)[0]]
        predictor = EnergyPredictor(model)
        names = [name for name in predictor.channels if name in rows.channels]
        made = []
        for place, time_s in enumerate(rows.time_s.tolist()):
            made += predictor.push(time_s, {n: float(rows.channels[n][place]) for n in names})
        made += predictor.finish()
        wanted = predict_trip(model, trip, vehicle.name).windows_wh
        assert np.array([found.energy_wh for found in made]) == pytest.approx(wanted, rel=1e-6)
