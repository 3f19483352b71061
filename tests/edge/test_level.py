"""The level model in a vehicle's file: which network predicts which window."""

import json
from dataclasses import replace

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

from fedwatt.cli import app
from fedwatt.edge.card import KEY
from fedwatt.edge.clock import Timing
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export, read_trained
from fedwatt.edge.page import model_facts
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.reading import route_trip
from fedwatt.edge.trips import estimate_range, level_share, predict_trip
from fedwatt.elevation.climb import climb_from, with_climb, with_elevation
from fedwatt.elevation.store import write_field
from fedwatt.errors import DataError, RunError, SettingError
from fedwatt.telemetry import Trip
from fedwatt.telemetry.cleaning.resample import resample
from fedwatt.telemetry.store import write_vehicle
from fedwatt.telemetry.trip import RawTrip
from fedwatt.windows import build_client
from fedwatt.windows.client import split_of_trips

from .test_elevation import as_known_then, elevation_field, located_vehicle, on_the_road
from .test_graph import BACKBONES, torch_energy
from .test_route import points
from .toys import a_vehicle, rendered, run_folder, trained, with_level, write_run

HILLS = "base, elevation"


def opened(run, folder, vehicle=None, **options) -> EnergyModel:
    """A run's model in the file that `fedwatt export` writes."""
    located = located_vehicle() if vehicle is None else vehicle
    folder.mkdir(exist_ok=True)
    field = None if run.config.data.features.find("elevation") < 0 else elevation_field()
    export(run, folder / "m.onnx", vehicle=located, field=field, **options)
    return EnergyModel(folder / "m.onnx")


@pytest.fixture(scope="module")
def three(tmp_path_factory) -> tuple[EnergyModel, EnergyModel, EnergyModel]:
    """Files for one vehicle: both networks, the one with hills alone, the level one alone."""
    run = with_level(trained(features=HILLS))
    folder = tmp_path_factory.mktemp("three")
    models = run, replace(run, level=None), run.level
    return tuple(opened(one, folder / str(place)) for place, one in enumerate(models))


@pytest.fixture(scope="module")
def misled(tmp_path_factory) -> tuple[EnergyModel, EnergyModel]:
    """Files for a vehicle in which hills are far off: both networks, the level one alone."""
    run = with_level(trained(features=HILLS), better="level")
    folder = tmp_path_factory.mktemp("misled")
    return opened(run, folder / "both"), opened(run.level, folder / "level")


def driven(seconds: int = 200, *, lost: range = range(0)) -> Trip:
    """10 m/s over known hills; no position in the seconds `lost`."""
    speed = np.full(seconds, 10.0)
    channels = {"speed_mps": speed, "ambient_c": np.full(seconds, 10.0)}
    channels |= {"ac_w": np.zeros(seconds), "heater_w": np.zeros(seconds)}
    where = on_the_road(speed, np.arange(seconds))
    for values in where.values():
        values[lost] = np.nan
    return Trip("driven", channels | where)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_both_networks_of_a_scaled_file_say_what_torch_says(backbone, tmp_path):
    run = with_level(trained(backbone, features=HILLS))
    vehicle = with_elevation(located_vehicle(), elevation_field())
    hilly, level = (build_client(vehicle, one.config.data) for one in (run, run.level))
    card = export(run, tmp_path / "m.onnx")
    assert card.level["borne_out"] is None and len(card.level["features"]) == 8
    model = EnergyModel(tmp_path / "m.onnx")
    ends = hilly.ends["test"]
    for known, client, own in ((True, hilly, run), (False, level, run.level)):
        wanted = torch_energy(own, client)
        got = model.energies(hilly.series, ends, np.full(len(ends), known))
        # float32 sums in two orders, as in test_graph
        assert (np.abs(got - wanted) <= 1e-5 * np.maximum(np.abs(wanted), 1.0)).all()


@pytest.mark.parametrize("reduction", [{}, {"components": 3}, {"selected": 4}])
@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_vehicles_file_chooses_between_what_torch_says(backbone, reduction, tmp_path):
    run = with_level(trained(backbone, features=HILLS, **reduction))
    vehicle = located_vehicle()
    # The receiver fails in the second half of every trip.
    for trip in vehicle.trips:
        trip.channels["latitude_deg"][trip.seconds // 2 :] = np.nan
    model = opened(run, tmp_path, vehicle)
    ground = with_elevation(vehicle, elevation_field())
    hilly, level = (build_client(ground, one.config.data) for one in (run, run.level))
    known = hilly.climb_known["test"]
    assert 0.2 < known.mean() < 0.8 and model.card.level["borne_out"]
    both = (
        hilly.energy_wh(torch_energy(run, hilly)),
        level.energy_wh(torch_energy(run.level, level)),
    )
    splits = split_of_trips(vehicle, run.config.data)
    test = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
    found = [predict_trip(model, trip, vehicle.name) for trip in test]
    assert np.array_equal(np.concatenate([one.hills[::10] for one in found]), known)
    got = np.concatenate([one.windows_wh[::10] for one in found])
    wanted = np.where(known, *both)
    gap = np.abs(got - wanted) / np.maximum(np.abs(wanted), hilly.label_scale_wh)
    # Components are float64 products in another order before the cast to float32.
    assert gap.max() <= (1e-4 if reduction else 1e-5)


def test_without_positions_a_vehicle_has_exactly_the_level_runs_predictions(three):
    both, _, level = three
    silent = Trip("t", {k: v for k, v in driven().channels.items() if "deg" not in k})
    found = predict_trip(both, silent, "car")
    assert not found.hills.any()
    assert np.array_equal(found.windows_wh, predict_trip(level, silent, "car").windows_wh)


@pytest.mark.parametrize("backbone", BACKBONES)
def test_a_vehicle_that_never_had_positions_has_the_level_runs_file(backbone, tmp_path):
    """Energies and error bars of every trip are those of an export of RUN/level."""
    run = with_level(trained(backbone, features=HILLS))
    vehicle = a_vehicle()
    both = opened(run, tmp_path / "both", vehicle)
    level = opened(run.level, tmp_path / "level", vehicle)
    bars = level.card.calibration
    about = {"features": list(level.card.features), "borne_out": False, "windows": 0}
    assert both.card.level == about | {"calibration": bars} and both.card.calibration == bars
    for trip in vehicle.trips:
        one, other = (predict_trip(model, trip, vehicle.name) for model in (both, level))
        for name in ("windows_wh", "predicted_wh", "low_wh", "high_wh"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_positions_lost_in_the_midst_of_a_trip_switch_window_by_window(three):
    both, hills, level = three
    trip = driven(lost=range(100, 200))
    # The window that ends at second e has known seconds e - 59 to 99: 30 or more until e = 129.
    by_elevation = [True] * (129 - 58) + [False] * (199 - 129)
    found = predict_trip(both, trip, "car")
    assert found.hills.tolist() == by_elevation
    one, other = (predict_trip(model, trip, "car").windows_wh for model in (hills, level))
    assert np.array_equal(found.windows_wh, np.where(by_elevation, one, other))
    # The networks are not alike, or nothing would be tested here.
    assert np.abs(one - other).min() > 50


def test_a_stream_switches_as_positions_come_and_go(three):
    raw = RawTrip("t", np.arange(300.0), driven(300, lost=range(100, 230)).channels)
    predictor = EnergyPredictor(three[0], timing=Timing(position_hold_s=1.5))
    made = []
    for second in range(300):
        sample = {name: float(values[second]) for name, values in raw.channels.items()}
        made += predictor.push(float(second), sample)
    made += predictor.finish()
    # Row i of the seconds is the sample at i + 1 s, so the last known row is 98: enough of a window
    # until row 128. The position leaps to where it is at 230 s, row 229; three rows more are not
    # trusted, so the gap is over in row 233, and windows have four seconds of hindsight.
    hills = [found.hills for found in made]
    assert hills == [end <= 128 or end >= 229 for end in range(59, 299)]
    batch = Trip("t", resample(raw, 1.0))
    energies = [found.energy_wh for found in made]
    assert energies == pytest.approx(as_known_then(three[0], batch), rel=1e-6)
    # With hindsight the gap is a road between two known heights, and is known.
    found = predict_trip(three[0], batch, "car")
    assert found.hills.all()
    assert energies[-60:] == pytest.approx(found.windows_wh[-60:], rel=1e-6)


def test_a_gap_of_more_than_ten_minutes_stays_unknown(three):
    predictor = EnergyPredictor(three[0], timing=Timing(position_hold_s=1.5))
    channels = driven(900, lost=range(100, 750)).channels
    made = []
    for second in range(900):
        sample = {name: float(values[second]) for name, values in channels.items()}
        made += predictor.push(float(second), sample)
    made += predictor.finish()
    # As above; but nobody remembers row 98 when the gap is over in row 753, so climb is known from
    # there on, and enough of a window has passed 29 rows later.
    assert [found.hills for found in made] == [e <= 128 or e >= 782 for e in range(59, 899)]


def test_a_late_first_fix_is_not_known_ground(three):
    """An import lets the first fix reach back to the beginning; the wheels say otherwise."""
    trip = driven(300, lost=range(150))
    batch = Trip("t", resample(RawTrip("t", np.arange(300.0), trip.channels), 1.0))
    assert not predict_trip(three[0], batch, "car").hills[: 150 - 59].any()


def test_error_bars_do_not_know_the_test_trips(tmp_path):
    run = with_level(trained(features=HILLS))
    vehicle = located_vehicle()
    splits = split_of_trips(vehicle, run.config.data)
    bars = [opened(run, tmp_path / "one", vehicle).card]
    for trip in vehicle.trips:
        if splits.get(trip.name) == "test":
            trip.channels["energy_wh"][:] = 1e4
    bars.append(opened(run, tmp_path / "two", vehicle).card)
    assert bars[0].calibration == bars[1].calibration
    assert bars[0].level == bars[1].level


def test_empty_positions_leave_climb_to_whatever_else_tells_it():
    nowhere = {"latitude_deg": np.full(3, np.nan), "longitude_deg": np.full(3, np.nan)}
    trip = Trip("t", {"speed_mps": np.ones(3), "grade": np.full(3, 0.5), **nowhere})
    assert climb_from(trip, "field") == "grade"
    assert with_climb(trip, "field", None).channels["climb_m"].tolist() == [0.5] * 3


def test_hills_that_are_not_borne_out_are_never_used(three, misled):
    both, level = misled
    assert three[0].card.level["borne_out"] and not both.card.level["borne_out"]
    assert both.card.level["windows"] == three[0].card.level["windows"] == 50
    found = predict_trip(both, driven(), "car")
    assert not found.hills.any() and found.trip.channels["climb_known"].all()
    assert np.array_equal(found.windows_wh, predict_trip(level, driven(), "car").windows_wh)
    # The graph itself refuses, whatever it is told of climb.
    windows = np.random.default_rng(0).uniform(0, 10, (4, 60, 10))
    told = [both.energy(windows, np.full(4, known)) for known in (True, False)]
    assert np.array_equal(*told)


def test_error_bars_are_those_of_what_is_predicted(three, misled):
    # Every climb of the vehicle is known, so hills are used for all of its windows, or for none.
    assert three[0].card.calibration == three[1].card.calibration
    assert misled[0].card.calibration == misled[1].card.calibration
    assert three[0].card.calibration != three[2].card.calibration


def test_where_positions_are_lost_error_bars_are_the_level_models(three):
    both, hills, level = three
    assert both.card.level["calibration"] == level.card.calibration
    raw = driven(lost=range(100, 200))
    made = {model: [] for model in three}
    for model, own in made.items():
        predictor = EnergyPredictor(model, timing=Timing(position_hold_s=1.5))
        for second in range(200):
            sample = {name: float(values[second]) for name, values in raw.channels.items()}
            own += predictor.push(float(second), sample)
        own += predictor.finish()
    for found, one, other in zip(made[both], made[hills], made[level], strict=True):
        wanted = one if found.hills else other
        assert (found.low_wh, found.high_wh) == (wanted.low_wh, wanted.high_wh)
    # Half of a whole trip's interval lies between the two models', by the time of each.
    halves = []
    for model in three:
        found = predict_trip(model, raw, "car")
        halves.append(float(found.high_wh[-1] - found.low_wh[-1]) / 2)
    share = level_share(predict_trip(both, raw, "car").hills, 200, 60)[-1]
    # Seconds 0 to 70 are in windows with hills alone and 130 to 199 in the level model's alone; the
    # 59 between have 1 to 59 of 60 windows of the latter, half of them on average.
    assert share == pytest.approx((70 + 59 / 2) / 200, abs=1e-12)
    assert halves[0] == pytest.approx((1 - share) * halves[1] + share * halves[2], rel=1e-9)


def test_what_counts_as_known():
    speed = {"speed_mps": np.full(3, 10.0)}

    def known(**channels) -> list[float]:
        trip = Trip("t", speed | {name: np.array(v, float) for name, v in channels.items()})
        return with_climb(trip, "field", None).channels["climb_known"].tolist()

    assert known() == [0, 0, 0]
    assert known(grade=[0.01, np.nan, 0]) == [1, 0, 1]
    assert known(elevation_m=[5, 5.1, np.nan]) == [1, 1, 0]
    assert known(climb_m=[1, np.nan, 0], descent_m=[0, 0, np.nan]) == [1, 0, 0]
    assert known(climb_m=[1, 1, 0], descent_m=[0, 0, 0], climb_known=[1, 0, 1]) == [1, 0, 1]
    given = {"climb_m": np.array([1.0, np.nan, 2.0]), "descent_m": np.zeros(3)}
    made = with_climb(Trip("t", speed | given), "field", None)
    assert made.channels["climb_m"].tolist() == [1, 0, 2]


def test_a_route_beyond_the_known_ground_is_the_level_models(three):
    # 1 km over the field's hills, then 3 km where it ends, at 10 m/s.
    way = points(
        [2000, 3000, 6000], [10, 10, 10], ambient_c=[5] * 3, ac_w=[0] * 3, heater_w=[0] * 3
    )
    found = predict_trip(three[0], route_trip("out", way), "")
    first = int(np.argmin(found.hills))
    assert found.hills[:first].all() and not found.hills[first:].any()
    known = found.trip.channels["climb_known"]
    # The first window by the level model is the first with 29 known seconds or fewer.
    assert known[first : first + 60].sum() == 29 and known[first - 1 : first + 59].sum() == 30
    assert estimate_range(found, 0.5, 20_000).arrival == 0.5 - found.total_wh / 20_000


def test_smaller_forms_hold_both_networks(tmp_path):
    """The level model's weights are evaluated here; the others are in the file."""
    run = with_level(trained(features=HILLS), better="level")
    made = {
        form: opened(run, tmp_path / form, form=form) for form in ("float32", "float16", "int8")
    }
    sizes = [model.path.stat().st_size for model in made.values()]
    losses = [abs(model.card.loss_wh) for model in made.values()]
    assert sizes[0] > sizes[1] > sizes[2] and losses[0] == 0
    # As of one network in test_graph: the level model is all that is used here.
    assert 0 < losses[1] < 0.1 and losses[2] < 3
    assert not any(model.card.level["borne_out"] for model in made.values())


def test_the_caller_has_to_say_whether_climb_is_known(three):
    windows = np.zeros((2, 60, 10))
    for known in (None, np.ones(3, dtype=bool)):
        with pytest.raises(DataError, match="each of the 2 windows whether its climb is known"):
            three[0].energy(windows, known)


def test_a_file_of_the_format_before_is_refused_in_one_sentence(three, tmp_path):
    model = onnx.load(three[1].path)
    (card,) = (prop for prop in model.metadata_props if prop.key == KEY)
    about = json.loads(card.value)
    del about["level"]
    card.value = json.dumps(about | {"format": 1})
    onnx.save(model, tmp_path / "old.onnx")
    said = r"old\.onnx was written by another version of fedwatt \(another format\)\. Export it ag"
    with pytest.raises(DataError, match=said):
        EnergyModel(tmp_path / "old.onnx")


def test_features_of_a_vehicles_own_choice_need_the_vehicle(tmp_path):
    with pytest.raises(SettingError, match=r"cannot hold both\. Give a vehicle's folder"):
        export(with_level(trained(features=HILLS, components=3)), tmp_path / "m.onnx")


def test_a_run_brings_its_level_model_along(tmp_path):
    run = with_level(trained(features=HILLS))
    found = read_trained(write_run(tmp_path / "run", run))
    assert found.level is not None and found.level.config == run.level.config
    assert all(np.array_equal(found.level.weights[n], p) for n, p in run.level.weights.items())
    # An old run, and a copy of part of one, would be exported as something they are not.
    write_run(tmp_path / "old", replace(run, level=None))
    with pytest.raises(RunError, match=r"has no folder 'level'.* train it again"):
        read_trained(tmp_path / "old")
    alone = read_trained(run_folder(tmp_path / "alone", features=HILLS))
    assert alone.level is None and not alone.config.elevation.model_without_elevation


def test_the_page_says_how_many_windows_are_the_level_models(three, misled):
    found = predict_trip(three[0], driven(lost=range(100, 200)), "car")
    page = rendered(found, three[0].card)
    # 71 of 141 windows, worked out above.
    assert "With hills" in page and "70 of 141 windows by the level model" in page
    assert "predicts windows whose climb is not known" in model_facts(three[0].card)["Hills"]
    assert "not borne out in the vehicle" in model_facts(misled[0].card)["Hills"]
    assert "level model" not in rendered(predict_trip(three[1], driven(), "car"), three[1].card)


def test_both_networks_from_the_command_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "run", with_level(trained(features=HILLS)))
    write_run(tmp_path / "wrong", with_level(trained(features=HILLS), better="level"))
    write_vehicle(tmp_path / "car", located_vehicle())
    write_vehicle(tmp_path / "silent", a_vehicle())
    write_field(tmp_path / "hills.parquet", elevation_field())
    columns = driven(lost=range(100, 200)).channels
    rows = zip(*(values.tolist() for values in columns.values()), strict=True)
    text = "\n".join(",".join(map(str, row)) for row in [tuple(columns), *rows])
    (tmp_path / "trip.csv").write_text(text.replace("nan", ""))
    (tmp_path / "plan.csv").write_text("speed_mps,ambient_c\n" + "10,5\n" * 90)

    def says(*words: str) -> str:
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == 0, done.output
        return " ".join(done.output.split())

    def exported(run: str, vehicle: str) -> str:
        words = ("export", run, "--out", "m.onnx", "--vehicle", vehicle)
        return says(*words, "--elevation-map", "hills.parquet")

    said = says("export", "run", "--out", "plain.onnx")
    assert "It also has a network without elevation" in said
    assert "Elevation lowers the validation error (" in exported("run", "car")
    said = says("predict", "m.onnx", "trip.csv", "--html", "trip.html")
    assert "windows predicted with hills │ 71 of 141" in said
    assert "the level model predicts it." in says("predict", "m.onnx", "plan.csv")
    assert "Elevation does not lower the validation error (50 windows" in exported("wrong", "car")
    assert "the level model predicts it all" in says("predict", "m.onnx", "trip.csv")
    assert "Elevation does not lower the validation error (0 windows" in exported("run", "silent")
