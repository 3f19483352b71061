"""Memory of earlier trips in a model file: predict, the stream, its bound, and vehicles without."""

import json
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.trips import past_trips, predict_trip, remembered_wh
from fedwatt.journeys.memory import LIMIT
from fedwatt.journeys.ridge import fleet_ridge
from fedwatt.telemetry.store import write_vehicle
from fedwatt.windows import build_client
from fedwatt.windows.client import prepared

from .toys import a_vehicle, trained

HOUR = 3600.0
HEATER_WH_S = 0.5
"""At most, of a heater that no channel reports."""
run = trained(features="physics")
# A network that is far off leaves the prediction to the ridge.
run = replace(run, weights={name: 10 * values for name, values in run.weights.items()})


def heated(lasting: bool):
    """Return a vehicle with a trip an hour; a heater changes slowly, or at random."""
    draw = np.random.default_rng(3)
    trips = []
    for number, trip in enumerate(a_vehicle(30).trips):
        on = 0.5 + 0.5 * np.sin(number / 4) if lasting else draw.random()
        energy_wh = 0.2 * trip.channels["speed_mps"] + HEATER_WH_S * on
        channels = {**trip.channels, "energy_wh": energy_wh}
        channels["ambient_c"] = np.full(trip.seconds, -5.0)
        trips.append(replace(trip, channels=channels, start_time_s=2 * HOUR * number))
    return replace(a_vehicle(1), trips=tuple(trips))


def model_of(vehicle, folder):
    shared = fleet_ridge([build_client(prepared(vehicle, run.config.data), run.config.data)])
    export(replace(run, fleet_ridge=shared), folder / "model.onnx", vehicle=vehicle)
    return EnergyModel(folder / "model.onnx")


@pytest.fixture(scope="module")
def vehicle():
    return heated(lasting=True)


@pytest.fixture(scope="module")
def model(vehicle, tmp_path_factory):
    return model_of(vehicle, tmp_path_factory.mktemp("memory"))


def test_a_vehicle_whose_trips_resemble_each_other_remembers(vehicle, model):
    assert model.card.memory_scale_wh > 0
    errors = []
    for trip in vehicle.trips[5:]:
        offset_wh = remembered_wh(model, trip, vehicle)
        measured_wh = trip.channels["energy_wh"].sum()
        plain = predict_trip(model, trip, vehicle.name)
        moved = predict_trip(model, trip, vehicle.name, offset_wh=offset_wh)
        assert moved.windows_wh - plain.windows_wh == pytest.approx(offset_wh)
        assert moved.total_wh - plain.total_wh == pytest.approx(offset_wh * trip.seconds / 60)
        errors.append(
            [abs(trip_prediction.total_wh - measured_wh) for trip_prediction in (plain, moved)]
        )
    before, after = np.mean(errors, axis=0)
    assert after < 0.8 * before


def test_no_earlier_trips_however_absurd_move_a_window_beyond_half_a_label_scale(vehicle, model):
    most_wh = LIMIT * model.card.memory_scale_wh
    for wh_s in (-1e6, 1e6):
        trips = [
            replace(trip, channels={**trip.channels, "energy_wh": np.full(trip.seconds, wh_s)})
            for trip in vehicle.trips
        ]
        absurd = replace(vehicle, trips=tuple(trips))
        offset_wh = remembered_wh(model, vehicle.trips[-1], absurd)
        assert 0.1 * most_wh < abs(offset_wh) <= most_wh


def test_where_earlier_trips_did_not_gain_little_is_remembered(tmp_path):
    independent = heated(lasting=False)
    model = model_of(independent, tmp_path)
    errors = []
    for trip in independent.trips[5:]:
        offset_wh = remembered_wh(model, trip, independent)
        residual_wh = past_trips(model, [trip], 1.0)[0].residual
        errors.append([residual_wh, residual_wh - offset_wh])
    before, after = np.sqrt(np.mean(np.square(errors), axis=0))
    # Of trips' means alone; errors of windows have noise as well, and grow by less.
    assert after <= 1.05 * before


def test_earlier_trips_that_cannot_be_predicted_are_left_out(vehicle, model):
    def without(trip, name):
        channels = {key: values for key, values in trip.channels.items() if key != name}
        return replace(trip, channels=channels)

    *earlier, before, now = vehicle.trips
    expected = remembered_wh(model, now, replace(vehicle, trips=tuple(earlier)))
    short = replace(before, channels={name: v[:30] for name, v in before.channels.items()})
    for broken in (without(before, "energy_wh"), without(before, "ambient_c"), short):
        damaged = replace(vehicle, trips=(*earlier, broken))
        assert remembered_wh(model, now, damaged) == pytest.approx(expected, rel=0.2)


def test_trips_without_times_and_other_vehicles_have_no_memory(vehicle, model):
    trip = vehicle.trips[-1]
    assert remembered_wh(model, replace(trip, start_time_s=np.nan), vehicle) == 0.0
    assert remembered_wh(model, trip, replace(vehicle, name="other")) == 0.0
    assert remembered_wh(model, trip, None) == 0.0


def test_predict_says_what_earlier_trips_add(vehicle, model, tmp_path):
    write_vehicle(tmp_path / "car", vehicle)
    trip = vehicle.trips[-1]
    arguments = ["predict", str(model.path), str(tmp_path / "car" / trip.name), "--json"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    answer = json.loads(result.output)
    offset_wh = remembered_wh(model, trip, vehicle)
    change = f"{offset_wh:+.1f} Wh per minute".replace("-", "−")
    remark = f"Earlier trips of {vehicle.name} change the prediction by {change}."
    assert remark in answer["remarks"]
    total_wh = predict_trip(model, trip, vehicle.name, offset_wh=offset_wh).total_wh
    assert answer["predicted energy"] == f"{total_wh:,.0f} Wh"


def drive(predictor, trip):
    """Stream a trip with its energy; return the energies of its predictions."""
    names = ("speed_mps", "ambient_c", "ac_w", "heater_w")
    made = []
    for second in range(trip.seconds):
        sample = {name: float(trip.channels[name][second]) for name in names}
        energy_wh = float(trip.channels["energy_wh"][second])
        time_s = trip.start_time_s + second
        made += predictor.step(sample, energy_wh=energy_wh, time_s=time_s)
    made += predictor.finish()
    return np.array([prediction.energy_wh for prediction in made])


def test_a_stream_remembers_the_trips_that_it_has_seen(vehicle, model):
    earlier = vehicle.trips[-3:-1]
    now = vehicle.trips[-1]
    predictor = EnergyPredictor(model)
    for trip in earlier:
        drive(predictor, trip)
    batch = past_trips(model, earlier, model.card.memory_scale_wh)
    for streamed, expected in zip(predictor.past_trips, batch, strict=True):
        assert streamed.residual == pytest.approx(expected.residual, abs=0.02)
        assert (streamed.begin_s, streamed.cold) == (expected.begin_s, expected.cold)
    restored = EnergyPredictor(model)
    restored.restore(predictor.snapshot())
    energy_predictor = EnergyPredictor(model, past_trips=predictor.past_trips)
    plain_wh = drive(EnergyPredictor(model), now)
    streamed_wh = drive(predictor, now)
    alone = replace(vehicle, trips=(*earlier, now))
    offset_wh = remembered_wh(model, now, alone)
    assert abs(offset_wh) > 1
    assert streamed_wh - plain_wh == pytest.approx(offset_wh, rel=0.1)
    for predictor in (restored, energy_predictor):
        assert (drive(predictor, now) == streamed_wh).all()
