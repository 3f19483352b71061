"""A vehicle's file where climb is unknown: what it predicts, and with which intervals."""

import numpy as np
import pytest

from fedwatt.edge.clock import Timing
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import export
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.trips import predict_trip, unknown_share
from fedwatt.elevation.climb import climb_from, unlocated, with_climb
from fedwatt.telemetry import Trip
from fedwatt.telemetry.cleaning.resample import resample
from fedwatt.telemetry.trip import RawTrip
from fedwatt.windows.client import split_of_trips

from .test_elevation import as_known_then, elevation_field, located_vehicle, on_the_road
from .test_route import straight
from .toys import rendered, trained


def exported(folder, vehicle=None) -> EnergyModel:
    folder.mkdir(exist_ok=True)
    run = trained(features="base, elevation")
    located = located_vehicle() if vehicle is None else vehicle
    export(run, folder / "m.onnx", vehicle=located, field=elevation_field())
    return EnergyModel(folder / "m.onnx")


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> EnergyModel:
    return exported(tmp_path_factory.mktemp("model"))


def driven(seconds: int = 200, *, lost: range = range(0)) -> Trip:
    """10 m/s over mapped ground; no position in the seconds `lost`."""
    speed = np.full(seconds, 10.0)
    channels = {"speed_mps": speed, "ambient_c": np.full(seconds, 10.0)}
    channels |= {"ac_w": np.zeros(seconds), "heater_w": np.zeros(seconds)}
    where = on_the_road(speed, np.arange(seconds))
    for values in where.values():
        values[lost] = np.nan
    return Trip("driven", channels | where)


def streamed(model: EnergyModel, trip: Trip) -> list:
    predictor = EnergyPredictor(model, timing=Timing(position_hold_s=1.5))
    predictions = []
    for second in range(trip.seconds):
        sample = {name: float(values[second]) for name, values in trip.channels.items()}
        predictions += predictor.push(float(second), sample)
    return predictions + predictor.finish()


def test_without_positions_no_climb_is_known(model):
    prediction = predict_trip(model, unlocated(driven()), "car")
    assert not prediction.climb_known.any()
    assert prediction.trip.channels["climb_m"].sum() == 0
    assert np.isfinite(prediction.windows_wh).all()
    assert predict_trip(model, driven(), "car").climb_known.all()


def test_the_network_sees_whether_climb_is_known(model):
    """A level road that is known and one that is unknown are different inputs."""
    flat = Trip("flat", driven().channels | {"grade": np.zeros(200)})
    for name in ("latitude_deg", "longitude_deg"):
        flat.channels.pop(name)
    prediction = predict_trip(model, flat, "car")
    unknown = predict_trip(model, unlocated(flat), "car")
    assert prediction.climb_known.all() and not unknown.climb_known.any()
    assert np.abs(prediction.windows_wh - unknown.windows_wh).min() > 0


def test_positions_lost_in_the_midst_of_a_trip(model):
    prediction = predict_trip(model, driven(lost=range(100, 200)), "car")
    # The window that ends at second e has known seconds e - 59 to 99: 30 or more until e = 129.
    assert prediction.climb_known.tolist() == [True] * (129 - 58) + [False] * (199 - 129)


def test_a_stream_knows_climb_as_positions_come_and_go(model):
    trip = driven(300, lost=range(100, 230))
    predictions = streamed(model, trip)
    # Row i of the seconds is the sample at i + 1 s, so the last known row is 98: enough of a window
    # until row 128. The position leaps to where it is at 230 s, row 229; three rows more are not
    # trusted, so the gap is over in row 233, and windows have four seconds of hindsight.
    assert [p.climb_known for p in predictions] == [e <= 128 or e >= 229 for e in range(59, 299)]
    batch = Trip("t", resample(RawTrip("t", np.arange(300.0), trip.channels)))
    energies = [p.energy_wh for p in predictions]
    assert energies == pytest.approx(as_known_then(model, batch), rel=1e-6)
    # With hindsight the gap is a road between two known heights, and is known.
    prediction = predict_trip(model, batch, "car")
    assert prediction.climb_known.all()
    assert energies[-60:] == pytest.approx(prediction.windows_wh[-60:], rel=1e-6)


def test_a_gap_of_more_than_ten_minutes_stays_unknown(model):
    predictions = streamed(model, driven(900, lost=range(100, 750)))
    # As above; but row 98 is forgotten when the gap is over in row 753, so climb is known from
    # there on, and enough of a window has passed 29 rows later.
    assert [p.climb_known for p in predictions] == [e <= 128 or e >= 782 for e in range(59, 899)]


def test_a_late_first_fix_is_not_known_ground(model):
    """An import lets the first fix reach back to the beginning; the wheels say otherwise."""
    trip = driven(300, lost=range(150))
    batch = Trip("t", resample(RawTrip("t", np.arange(300.0), trip.channels)))
    assert not predict_trip(model, batch, "car").climb_known[: 150 - 59].any()


def test_windows_without_known_climb_have_intervals_of_their_own(model):
    usual = model.card.calibration
    without = model.card.without_elevation
    assert without["trips"] == usual["trips"] and without != usual
    raw = driven(lost=range(100, 200))

    def numbers(trip: Trip) -> np.ndarray:
        return np.array([(p.energy_wh, p.low_wh, p.high_wh) for p in streamed(model, trip)])

    # From second 159 on a window holds no known second.
    assert np.array_equal(numbers(raw)[-40:], numbers(unlocated(raw))[-40:])
    share = unknown_share(predict_trip(model, raw, "car").climb_known, 200, 60)[-1]
    # Seconds 0 to 70 are in windows with known climb alone and 130 to 199 in others alone; the 59
    # between have 1 to 59 of 60 windows of the latter, half of them on average.
    assert share == pytest.approx((70 + 59 / 2) / 200, abs=1e-12)


def test_intervals_do_not_know_the_test_trips(tmp_path):
    vehicle = located_vehicle()
    splits = split_of_trips(vehicle, trained(features="base, elevation").config.data)
    first = exported(tmp_path / "one", vehicle).card
    for trip in vehicle.trips:
        if splits.get(trip.name) == "test":
            trip.channels["energy_wh"][:] = 1e4
    second = exported(tmp_path / "two", vehicle).card
    assert first.calibration == second.calibration
    assert first.without_elevation == second.without_elevation


def test_empty_positions_leave_climb_to_whatever_else_tells_it():
    nowhere = {"latitude_deg": np.full(3, np.nan), "longitude_deg": np.full(3, np.nan)}
    trip = Trip("t", {"speed_mps": np.ones(3), "grade": np.full(3, 0.5), **nowhere})
    assert climb_from(trip, "field") == "grade"
    assert with_climb(trip, "field", None).channels["climb_m"].tolist() == [0.5] * 3


def test_unlocated_keeps_a_grade_that_a_feature_needs():
    names = ("speed_mps", "grade", "elevation_m", "climb_m")
    trip = Trip("t", {name: np.ones(3) for name in names})
    assert set(unlocated(trip).channels) == {"speed_mps"}
    assert set(unlocated(trip, ("grade", "climb_m")).channels) == {"speed_mps", "grade"}


def test_what_counts_as_known():
    speed = {"speed_mps": np.full(3, 10.0)}

    def known_energies(**channels) -> list[float]:
        trip = Trip("t", speed | {name: np.array(v, float) for name, v in channels.items()})
        return with_climb(trip, "field", None).channels["climb_known"].tolist()

    assert known_energies() == [0, 0, 0]
    assert known_energies(grade=[0.01, np.nan, 0]) == [1, 0, 1]
    assert known_energies(elevation_m=[5, 5.1, np.nan]) == [1, 1, 0]
    assert known_energies(climb_m=[1, np.nan, 0], descent_m=[0, 0, np.nan]) == [1, 0, 0]
    assert known_energies(climb_m=[1, 1, 0], descent_m=[0, 0, 0], climb_known=[1, 0, 1]) == [
        1,
        0,
        1,
    ]


def test_a_route_beyond_the_known_ground(model):
    # 1 km over the map's ground, then 3 km where it ends, at 10 m/s.
    prediction = predict_trip(model, straight("out", np.arange(2010.0, 6001.0, 10.0), 10.0), "")
    first = int(np.argmin(prediction.climb_known))
    assert prediction.climb_known[:first].all() and not prediction.climb_known[first:].any()
    channels = prediction.trip.channels["climb_known"]
    # The first unknown window is the first with 29 known seconds or fewer.
    assert channels[first : first + 60].sum() == 29 and channels[first - 1 : first + 59].sum() == 30


def test_the_page_says_how_many_windows_have_unknown_climb(model):
    prediction = predict_trip(model, driven(lost=range(100, 200)), "car")
    page = rendered(prediction, model.card)
    # 71 of 141 windows, worked out above.
    assert "Climb known" in page and "unknown in 70 of 141 windows" in page
