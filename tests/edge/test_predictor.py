"""The stream: equal to the batch pipeline, unshaken by what sensors send, small and restartable."""

import json
import subprocess
import sys
import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.edge.clock import Timing
from fedwatt.edge.export import export
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.trips import predict_trip
from fedwatt.errors import DataError
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.cleaning.resample import resample

from .bare import ON_BOARD
from .toys import hold_of, raw_trip, trained


def samples(trip):
    names = list(trip.channels)
    columns = (values.tolist() for values in trip.channels.values())
    for time_s, *values in zip(trip.time_s.tolist(), *columns, strict=True):
        yield time_s, dict(zip(names, values, strict=True))


def streamed(predictor, rows):
    made = []
    for time_s, sample in rows:
        made += predictor.push(time_s, sample)
    return made + predictor.finish()


def batch(model, trip):
    return predict_trip(model, Trip("raw", resample(trip)), "car").windows_wh


@pytest.mark.parametrize("step_s", [0.1, 0.4, 0.9])
def test_a_stream_predicts_what_the_batch_pipeline_predicts(model, step_s):
    trip = raw_trip(rows=int(200 / step_s), step_s=step_s)
    made = streamed(EnergyPredictor(model, timing=Timing(hold_s=hold_of(trip))), samples(trip))
    expected = batch(model, trip)
    assert [prediction.second for prediction in made] == list(range(60, 60 + len(expected)))
    assert [prediction.energy_wh for prediction in made] == pytest.approx(expected, rel=1e-6)
    assert made[0].time_s == trip.time_s[0] + 60
    assert all(prediction.low_wh < prediction.energy_wh < prediction.high_wh for prediction in made)


def test_features_with_a_memory_and_slopes_are_the_same_too(vehicle, tmp_path):
    trip = raw_trip()
    trip.channels["grade"] = np.sin(trip.time_s) / 50
    slopes = (t.channels | {"grade": np.sin(np.arange(t.seconds)) / 30} for t in vehicle.trips)
    hilly = Vehicle("car", tuple(Trip(str(i), channels) for i, channels in enumerate(slopes)))
    run = trained(features="causal, physics, grade, climb")
    export(run, tmp_path / "m.onnx", vehicle=hilly)
    predictor = EnergyPredictor(tmp_path / "m.onnx", timing=Timing(hold_s=hold_of(trip)))
    made = streamed(predictor, samples(trip))
    assert [prediction.energy_wh for prediction in made] == pytest.approx(
        batch(predictor.model, trip), rel=1e-6
    )


def test_predictions_come_within_the_stated_delay(model):
    trip = raw_trip()
    predictor = EnergyPredictor(model)
    for time_s, sample in samples(trip):
        for prediction in predictor.push(time_s, sample):
            # hold 1.5 s, two seconds of look-ahead, one second not yet over, one row of 0.6 s
            assert time_s - prediction.time_s < 1.5 + 2 + 1 + 0.7


def test_shuffled_samples_within_the_patience_change_nothing(model):
    trip = raw_trip()
    rows = list(samples(trip))
    late = rows.copy()
    for place in range(7, len(rows) - 1, 9):
        late[place], late[place + 1] = late[place + 1], late[place]
    patient = Timing(patience_s=2.0)
    predictor = EnergyPredictor(model, timing=patient)
    in_order = streamed(EnergyPredictor(model, timing=patient), rows)
    assert streamed(predictor, late) == in_order and predictor.counts["reordered"] > 0
    twice = [row for row in rows for _ in range(2)]
    assert streamed(EnergyPredictor(model), twice) == streamed(EnergyPredictor(model), rows)


def test_a_long_gap_begins_another_trip(model):
    trip = raw_trip()
    rows = [row for row in samples(trip) if not 1080 < row[0] < 1095]
    predictor = EnergyPredictor(model)
    made = streamed(predictor, rows)
    starts = [prediction.time_s for prediction in made if prediction.second == 60]
    assert predictor.counts["trips cut"] == 1 and len(starts) == 2
    # No window reaches across the gap: the second trip's first is a minute after it.
    assert starts[1] == pytest.approx(next(t for t, _ in rows if t >= 1095) + 60)


def test_temperature_is_waited_for_and_then_reaches_back(model):
    trip = raw_trip()
    rows = list(samples(trip))
    silent = [(t, {k: v for k, v in s.items() if k != "ambient_c"}) for t, s in rows]
    predictor = EnergyPredictor(model)
    assert streamed(predictor, silent) == []
    for time_s, sample in silent[:300]:
        predictor.push(time_s, sample)
    assert predictor.waiting_for == ("ambient_c",)
    late = [(t, s | ({"ambient_c": 12.0} if t > 1070 else {})) for t, s in silent]
    early = [(t, s | {"ambient_c": 12.0}) for t, s in silent]
    made = streamed(EnergyPredictor(model), late)
    assert made and made == streamed(EnergyPredictor(model), early)[-len(made) :]


@pytest.mark.parametrize(("ambient_c", "same"), [(20.0, True), (-5.0, False)])
def test_climate_devices_that_never_report_take_their_usual_power(model, ambient_c, same):
    rows = [
        (t, {k: v for k, v in s.items() if not k.endswith("_w")} | {"ambient_c": ambient_c})
        for t, s in samples(raw_trip())
    ]
    off = [(t, s | {"ac_w": 0.0, "heater_w": 0.0}) for t, s in rows]
    # At 20 °C neither heater nor air conditioning usually runs; at -5 °C the heater does.
    assert (streamed(EnergyPredictor(model), rows) == streamed(EnergyPredictor(model), off)) == same


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31), share=st.floats(0, 0.6))
def test_nothing_a_sensor_sends_breaks_the_stream(model, seed, share):
    """Dropped, repeated, late, NaN, infinite, absurd: predictions stay finite and in order."""
    draw = np.random.default_rng(seed)
    predictor = EnergyPredictor(model)
    made = []
    rows = list(samples(raw_trip(seed=seed % 5)))
    for place, (time_s, sample) in enumerate(rows):
        if draw.uniform() < share:
            fault = draw.integers(7)
            if fault == 0:
                continue
            if fault == 1:
                made += predictor.push(time_s, sample)
            elif fault == 2:
                time_s, sample = rows[int(draw.integers(place + 1))]
            elif fault == 3:
                time_s = float(draw.choice([np.nan, np.inf, -np.inf, time_s + 1e7, -1e9]))
            elif fault == 4:
                absurd = (np.nan, np.inf, -1e30)
                sample = {k: float(draw.choice([*absurd, v])) for k, v in sample.items()}
            elif fault == 5:
                sample = {}
            else:
                time_s -= float(draw.exponential(3))
        made += predictor.push(time_s, sample)
    made += predictor.finish()
    assert all(
        np.isfinite([prediction.energy_wh, prediction.low_wh, prediction.high_wh]).all()
        for prediction in made
    )
    for before, after in pairwise(made):
        assert after.second == 60 or after.second == before.second + 1


def test_a_snapshot_goes_on_where_it_was_taken(model):
    rows = list(samples(raw_trip()))
    first = EnergyPredictor(model)
    made = [prediction for row in rows[:233] for prediction in first.push(*row)]
    text = first.snapshot()
    second = EnergyPredictor(model)
    second.restore(text)
    assert second.snapshot() == text and json.loads(text)["seconds_seen"] > 60
    remainder = streamed(second, rows[233:])
    assert made + remainder == streamed(EnergyPredictor(model), rows)


def test_a_snapshot_of_something_else_is_refused(model):
    predictor = EnergyPredictor(model)
    with pytest.raises(DataError, match="of another model or of other timing"):
        EnergyPredictor(model, timing=Timing(hold_s=2.0)).restore(predictor.snapshot())
    with pytest.raises(DataError, match="The snapshot is damaged"):
        predictor.restore("{}")


def test_memory_stays_what_it_is_after_the_first_minutes(model):
    predictor = EnergyPredictor(model)
    trip = {"speed_mps": 0.0, "ambient_c": 12.0, "ac_w": 0.0, "heater_w": 0.0}

    def drive(begin, end):
        for second in range(begin, end):
            # Stands for long stretches, which must not pile up readings either.
            trip["speed_mps"] = float(second % 7) if second % 1000 < 500 else 0.0
            predictor.push(float(second), trip)

    drive(0, 600)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    # The longest memory, that of a model with hills, is ten minutes.
    drive(600, 2600)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000
    assert all(len(times) < 10 for times, _ in predictor._clock.readings.values())


def test_the_vehicle_needs_numpy_and_onnxruntime_only(model):
    program = """
from fedwatt.edge.predictor import EnergyPredictor
predictor = EnergyPredictor(sys.argv[1])
made = []
for second in range(100):
    sample = {"speed_mps": second % 9, "ambient_c": 5.0}
    made += predictor.push(second, sample)
print(len(made), *sorted(BLOCKED & set(sys.modules)))
"""
    done = subprocess.run(
        [sys.executable, "-c", ON_BOARD + program, str(model.path)], capture_output=True, text=True
    )
    assert done.stdout.split() == ["37"], done.stderr
