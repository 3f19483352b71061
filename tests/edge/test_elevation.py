"""Climb on board: the field in the file, positions in a stream, bad positions, measured heights."""

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.edge.clock import Timing
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.climb import CLIMB, LOOK_AHEAD_S, climb_from, trip_rise_m, with_elevation
from fedwatt.elevation.elevation_map import ElevationMap, map_from_text, map_to_text
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError, SettingError
from fedwatt.telemetry import Trip
from fedwatt.telemetry.cleaning.resample import resample, updates, usual_hold_s
from fedwatt.telemetry.trip import RawTrip

from .bare import ON_BOARD
from .toys import a_vehicle, hold_of, raw_trip, trained

LATITUDE = 42.28
LONGITUDE = -83.74
M_PER_DEGREE = 111_195.0


def elevation_field() -> ElevationMap:
    """Hills of 30 m over 4 km by 4 km around the start, each node known."""
    grid = Grid()
    span = np.arange(-0.03, 0.03, 0.0003)
    latitude, longitude = (part.ravel() for part in np.meshgrid(span, 1.4 * span))
    corners, _ = grid.corners(LATITUDE + latitude, LONGITUDE + longitude)
    keys = np.unique(corners)
    at, east = grid.positions(keys)
    height = 30 * np.sin(300 * (at - LATITUDE)) + 20 * np.cos(250 * (east - LONGITUDE))
    nothing = np.zeros(len(keys), dtype=np.int64)
    return ElevationMap(grid, keys, height, nothing, nothing.astype(float), nothing)


def on_the_road(speed_mps: np.ndarray, time_s: np.ndarray) -> dict[str, np.ndarray]:
    """Positions to the north and back again, as far as the wheels turn."""
    metres = np.concatenate([[0.0], np.cumsum(speed_mps[1:] * np.diff(time_s))])
    north = 1500 * (1 - np.abs(metres / 1500 % 2 - 1))
    return {
        "latitude_deg": LATITUDE + north / M_PER_DEGREE,
        "longitude_deg": LONGITUDE + metres / 30 / M_PER_DEGREE,
    }


def located_vehicle():
    vehicle = a_vehicle()
    trips = [
        Trip(t.name, t.channels | on_the_road(t.channels["speed_mps"], np.arange(t.seconds)))
        for t in vehicle.trips
    ]
    return replace(vehicle, trips=tuple(trips))


@pytest.fixture(scope="module")
def hilly(tmp_path_factory) -> EnergyModel:
    """The file of a model with elevation."""
    file = tmp_path_factory.mktemp("hilly") / "model.onnx"
    run = trained(features="base, elevation")
    export(run, file, vehicle=located_vehicle(), field=elevation_field())
    return EnergyModel(file)


def located_rows(rows: int = 500, step_s: float = 0.5) -> RawTrip:
    """A raw trip whose position is read every third second and held in between."""
    trip = raw_trip(rows=rows, step_s=step_s)
    present = on_the_road(trip.channels["speed_mps"], trip.time_s)
    held = np.searchsorted(trip.time_s, trip.time_s[0] + (trip.time_s - trip.time_s[0]) // 3 * 3)
    return RawTrip("raw", trip.time_s, trip.channels | {k: v[held] for k, v in present.items()})


def timing_of(trip: RawTrip) -> Timing:
    """Return the timing of a trip as an import measures it on the whole trip."""
    time_s = np.round(trip.time_s - trip.time_s[0], 6)
    latitude = trip.channels["latitude_deg"]
    longitude = trip.channels["longitude_deg"]
    reference = np.isfinite(latitude) & np.isfinite(longitude)
    rows = updates(latitude[reference], longitude[reference])
    return Timing(hold_s=hold_of(trip), position_hold_s=usual_hold_s(time_s[reference], rows))


def streamed(predictor: EnergyPredictor, trip: RawTrip) -> list[float]:
    names = list(trip.channels)
    made = []
    for place, time_s in enumerate(trip.time_s.tolist()):
        made += predictor.push(time_s, {n: float(trip.channels[n][place]) for n in names})
    return [result.energy_wh for result in made + predictor.finish()]


def as_known_then(model: EnergyModel, trip: Trip) -> list[float]:
    """The batch pipeline's prediction of each window from the trip up to four seconds after it."""
    result = []
    for end in range(60, trip.seconds + 1):
        until = min(end + LOOK_AHEAD_S, trip.seconds)
        so_far = Trip("cut", {name: values[:until] for name, values in trip.channels.items()})
        result.append(predict_trip(model, so_far, "car").windows_wh[end - 60])
    return result


def test_a_field_travels_in_the_file(hilly):
    field = elevation_field()
    assert np.array_equal(hilly.field.keys, field.keys)
    assert np.array_equal(hilly.field.region, field.region) and hilly.field.grid == field.grid
    # float32 at 50 m: half a step is 2e-6 m
    assert hilly.field.elevation_m == pytest.approx(field.elevation_m, abs=2e-6)
    assert hilly.card.elevation["nodes"] == field.nodes
    assert hilly.card.features[-3:] == ("ascent", "descent", "climb_known")


@pytest.mark.parametrize("known_s", [0, 100])
def test_where_measured_elevation_is_silent_climb_is_the_fields(known_s, tmp_path):
    """The map of a vehicle that measures elevation is in its file as well, as in training."""
    vehicle = located_vehicle()
    field = replace(elevation_field(), measured=True)
    export(trained(features="base, elevation"), tmp_path / "m.onnx", vehicle=vehicle, field=field)
    model = EnergyModel(tmp_path / "m.onnx")
    trip = vehicle.trips[0]
    assert model.card.elevation["source"] == "auto" and model.field.measured
    level = np.where(np.arange(trip.seconds) < known_s, 7.0, np.nan)
    trip = replace(trip, channels={**trip.channels, "elevation_m": level})
    result = predict_trip(model, trip, vehicle.name).trip
    rise = result.channels["climb_m"] - result.channels["descent_m"]
    assert rise[:known_s] == pytest.approx(0.0, abs=1e-12)
    learned = trip_rise_m(trip, model.field)
    assert rise[known_s:] == pytest.approx(learned[known_s:], abs=1e-12)
    assert np.abs(rise).sum() > 10


def test_a_damaged_field_is_refused_in_one_sentence(hilly, tmp_path):
    text, subject = map_to_text(elevation_field())
    for wrong in ("", text[:-8], text.replace("A", "B", 3), "ü"):
        with pytest.raises(DataError, match=r"m\.onnx has a damaged elevation map"):
            map_from_text(wrong, subject, "m.onnx")
    model = onnx.load(hilly.path)
    for prop in list(model.metadata_props):
        if prop.key == "fedwatt.field":
            model.metadata_props.remove(prop)
    onnx.save(model, tmp_path / "lost.onnx")
    with pytest.raises(DataError, match="has a damaged elevation map"):
        EnergyModel(tmp_path / "lost.onnx")


def test_a_model_with_hills_cannot_be_exported_without_a_field(tmp_path):
    with pytest.raises(SettingError, match="Give the file of one with --elevation"):
        export(trained(features="base, elevation"), tmp_path / "m.onnx", vehicle=located_vehicle())


def test_positions_in_climb_out_as_in_the_batch_pipeline(hilly):
    trip = located_rows()
    batch = Trip("raw", resample(trip))
    driven = predict_trip(hilly, batch, "car")
    # The way goes up and down by tens of metres; a level road would show here.
    assert all(driven.trip.channels[name].sum() > 20 for name in CLIMB)
    level = Trip("level", {k: v for k, v in batch.channels.items() if "deg" not in k})
    assert np.abs(driven.windows_wh - predict_trip(hilly, level, "car").windows_wh).max() > 1
    predictor = EnergyPredictor(hilly, timing=timing_of(trip))
    assert streamed(predictor, trip) == pytest.approx(driven.windows_wh, rel=1e-6)


def faults(trip: RawTrip, kind: str) -> RawTrip:
    since = trip.time_s - trip.time_s[0]
    latitude, longitude = (trip.channels[f"{n}_deg"].copy() for n in ("latitude", "longitude"))
    hit = (since > 100) & (since < 160)
    if kind == "tunnel":
        latitude[hit] = longitude[hit] = np.nan
    elif kind == "late fix":
        latitude[since < 90] = longitude[since < 90] = np.nan
    elif kind == "leap":
        latitude[(since > 120) & (since < 124)] += 0.01
    elif kind == "frozen":
        latitude[hit], longitude[hit] = latitude[hit][0], longitude[hit][0]
    elif kind == "no fix at all":
        latitude[:] = longitude[:] = 0.0
    elif kind == "half a position":
        longitude[hit] = np.nan
    where = {"latitude_deg": latitude, "longitude_deg": longitude}
    return RawTrip("raw", trip.time_s, trip.channels | where)


@pytest.mark.parametrize(
    "kind", ["tunnel", "late fix", "leap", "frozen", "no fix at all", "half a position"]
)
def test_bad_positions_have_the_policy_of_the_batch_pipeline(hilly, kind):
    trip = faults(located_rows(), kind)
    batch = Trip("raw", resample(trip))
    made = streamed(EnergyPredictor(hilly, timing=timing_of(trip)), trip)
    windows_wh = predict_trip(hilly, batch, "car").windows_wh
    then = np.array(as_known_then(hilly, batch))
    if kind == "late fix":
        # Before its first fix a stream knows no position; an import lets the first reach back.
        made, windows_wh, then = made[40:], windows_wh[40:], then[40:]
    # Each second the stream says what the batch pipeline would say of the trip so far ...
    assert made == pytest.approx(then, rel=1e-6)
    # ... and after the fault, a minute of windows later, what it says of the whole trip.
    assert made[-20:] == pytest.approx(windows_wh[-20:], rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**31), share=st.floats(0, 0.6))
def test_nothing_a_receiver_sends_breaks_the_stream(hilly, seed, share):
    """Dropped, repeated, late, NaN, absurd and half positions: energies stay finite, in order."""
    draw = np.random.default_rng(seed)
    predictor = EnergyPredictor(hilly)
    trip = located_rows(rows=300)
    rows = [
        (t, {name: float(values[place]) for name, values in trip.channels.items()})
        for place, t in enumerate(trip.time_s.tolist())
    ]
    made = []
    for place, (time_s, sample) in enumerate(rows):
        if draw.uniform() < share:
            fault = draw.integers(6)
            if fault == 0:
                continue
            if fault == 1:
                made += predictor.push(time_s, sample)
            elif fault == 2:
                time_s, sample = rows[int(draw.integers(place + 1))]
            else:
                absurd = [np.nan, np.inf, 0.0, 91.0, -180.0, float(draw.uniform(-90, 90))]
                wrong = [("latitude_deg",), ("longitude_deg",), ("latitude_deg", "longitude_deg")]
                sample = sample | {n: float(draw.choice(absurd)) for n in wrong[fault - 3]}
        made += predictor.push(time_s, sample)
    made += predictor.finish()
    assert all(
        np.isfinite([prediction.energy_wh, prediction.low_wh, prediction.high_wh]).all()
        for prediction in made
    )
    for before, after in pairwise(made):
        assert after.second == 60 or after.second == before.second + 1


def test_predictions_come_within_the_stated_delay(hilly):
    trip = located_rows()
    predictor = EnergyPredictor(hilly)
    late = []
    for place, time_s in enumerate(trip.time_s.tolist()):
        sample = {name: float(values[place]) for name, values in trip.channels.items()}
        late += [time_s - prediction.time_s for prediction in predictor.push(time_s, sample)]
    # hold 4.5 s, four seconds of look-ahead, one second not yet over, one row of 0.75 s
    assert 4 < max(late) < 4.5 + 4 + 1 + 0.8


def test_without_positions_the_road_is_level(hilly):
    trip = located_rows()
    no_receiver = {k: v for k, v in trip.channels.items() if "deg" not in k}
    silent = RawTrip("raw", trip.time_s, no_receiver)
    made = streamed(EnergyPredictor(hilly, timing=timing_of(trip)), silent)
    level = Trip("raw", resample(silent))
    assert climb_from(level, "field") == "nothing"
    assert made == pytest.approx(predict_trip(hilly, level, "car").windows_wh, rel=1e-6)


def test_measured_heights_in_place_of_a_field(tmp_path):
    field = elevation_field()
    vehicle = located_vehicle()
    trips = []
    for trip in vehicle.trips:
        elevation_m, _ = field.read(trip.channels["latitude_deg"], trip.channels["longitude_deg"])
        trips.append(Trip(trip.name, trip.channels | {"elevation_m": np.nan_to_num(elevation_m)}))
    run = trained(features="base, elevation")
    config = replace(run.config, elevation=replace(run.config.elevation, source="measured"))
    measured = replace(vehicle, trips=tuple(trips))
    card = export(replace(run, config=config), tmp_path / "m.onnx", vehicle=measured)
    assert card.elevation == {"source": "elevation"}
    raw = raw_trip()
    raw.channels["elevation_m"] = 20 * np.sin(raw.time_s / 20)
    predictor = EnergyPredictor(tmp_path / "m.onnx", timing=Timing(hold_s=hold_of(raw)))
    batch = predict_trip(predictor.model, Trip("raw", resample(raw)), "car")
    assert batch.trip.channels["climb_m"].sum() > 20
    # Rows are 0.4 s apart and each brings another height, whose usual hold is shorter than speed's.
    assert streamed(predictor, raw) == pytest.approx(batch.windows_wh, rel=2e-2)


def test_what_a_plan_says_of_its_road_is_used(hilly):
    plan = {"speed_mps": np.full(90, 10.0), "ambient_c": np.full(90, 10.0)}
    plan |= {"ac_w": np.zeros(90), "heater_w": np.zeros(90)}
    level = Trip("l", plan)
    up = Trip("u", plan | {"grade": np.full(90, 0.05)})
    assert predict_trip(hilly, up, "").trip.channels["climb_m"] == pytest.approx(0.5)
    assert predict_trip(hilly, level, "").trip.channels["climb_m"] == pytest.approx(0.0)
    trip = Trip("g", plan | {"climb_m": np.ones(90), "descent_m": np.zeros(90)})
    assert climb_from(trip, "field") == "climb"
    assert predict_trip(hilly, trip, "").trip.channels["climb_m"] == pytest.approx(1.0)


def test_training_and_vehicle_read_the_same_climb(hilly):
    vehicle = located_vehicle()
    trained_on = with_elevation(vehicle, elevation_field()).trips[0].channels
    vehicle_field = predict_trip(hilly, vehicle.trips[0], vehicle.name).trip.channels
    for name in CLIMB:
        assert vehicle_field[name] == pytest.approx(trained_on[name], abs=1e-5)


def test_a_snapshot_keeps_the_ground_driven_over(hilly):
    trip = located_rows()
    timing = timing_of(trip)
    names = list(trip.channels)
    rows = [
        (t, {n: float(trip.channels[n][place]) for n in names})
        for place, t in enumerate(trip.time_s.tolist())
    ]
    first, second = (EnergyPredictor(hilly, timing=timing) for _ in range(2))
    made = [prediction for row in rows[:333] for prediction in first.push(*row)]
    second.restore(first.snapshot())
    made += [prediction for row in rows[333:] for prediction in second.push(*row)] + second.finish()
    assert [prediction.energy_wh for prediction in made] == streamed(
        EnergyPredictor(hilly, timing=timing), trip
    )


PROGRAM = """
from pathlib import Path
def memory_mb(what):
    return int(Path("/proc/self/status").read_text().partition(what + ":")[2].split()[0]) / 1024
from fedwatt.edge.predictor import EnergyPredictor
predictor = EnergyPredictor(sys.argv[1])
made = 0
early_mb = 0.0
for second in range(3000):
    sample = {"speed_mps": second % 20 if second % 900 < 600 else 0.0, "ambient_c": 12.0}
    north = abs(second % 1000 - 500) / 50000
    sample |= {"latitude_deg": 42.28 + north, "longitude_deg": -83.74}
    made += len(predictor.push(float(second), sample))
    if second == 900:
        early_mb = memory_mb("VmRSS")
print(made, memory_mb("VmHWM"), memory_mb("VmRSS") - early_mb)
"""


def test_the_vehicles_process_is_small_and_does_not_grow(model):
    assert_small(model)


def test_nor_with_hills(hilly):
    assert_small(hilly)


def assert_small(model: EnergyModel) -> None:
    """The benchmark drives a whole day; `tracemalloc` counts bytes in test_predictor."""
    file = model.path
    done = subprocess.run(
        [sys.executable, "-c", ON_BOARD + PROGRAM, str(file)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    made, peak_mb, grown_mb = map(float, done.stdout.split())
    assert made > 2900
    assert peak_mb < 120
    # The allocator takes 0.75 MB more at some moment; a leak of 500 bytes a second would be 1 MB.
    assert grown_mb < 1
