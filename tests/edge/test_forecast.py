"""The output of `fedwatt predict` for a trip, in numbers worked out by hand."""

from dataclasses import replace

import numpy as np
import pytest

from fedwatt.edge.card import ModelCard
from fedwatt.edge.trips import Forecast, TripPrediction, charge_over_time, estimate_range, forecast
from fedwatt.errors import SettingError
from fedwatt.telemetry import Trip

CARD = ModelCard(
    features=("speed",),
    units=("m/s",),
    window=60,
    interval_s=1.0,
    method="fedavg",
    run_hash="",
    library="",
    backbone="mlp",
    vehicle="car",
    trips={"training": ["7"]},
)


def drive(*, bars: bool = True, measured_wh: float | None = 800.0) -> Forecast:
    """100 s at 36 km/h, so 1 km, with 1,000 Wh predicted, ± 100 Wh at its end."""
    trip = Trip("7", {"speed_mps": np.full(100, 10.0), "energy_wh": np.full(100, 8.0)})
    each = np.full(100, 10.0)
    half = 100.0 if bars else np.nan
    measured = None if measured_wh is None else np.full(100, measured_wh / 100)
    total = np.cumsum(each)
    trip_prediction = TripPrediction(
        trip, each[:41], each, measured, total - half, total + half, 0.9
    )
    return Forecast(trip, "car", CARD, trip_prediction, None, None)


def test_the_rows_of_a_recorded_trip():
    assert drive().rows() == [
        ("distance", "1.00 km"),
        ("duration", "1.7 min"),
        ("predicted energy", "1,000 Wh"),
        ("90 % interval", "900 to 1,100 Wh"),
        ("measured energy", "800 Wh"),
        ("error", "+25.0 %"),
    ]


def test_without_error_bars_there_is_no_interval_and_without_energy_no_error():
    assert dict(drive(bars=False, measured_wh=0.0).rows()[2:]) == {
        "predicted energy": "1,000 Wh",
        "measured energy": "0 Wh",
    }


def test_the_rows_of_a_charge():
    plan = drive(measured_wh=None)
    # 50 % of 4 kWh are 2,000 Wh for 1,000 Wh/km; 1,000 ± 100 Wh are 25 ± 2.5 % of 4 kWh.
    reach = estimate_range(plan.prediction, 0.5, 4000.0)
    assert replace(plan, reach=reach).rows()[4:] == [
        ("SoC on arrival", "25.0 %"),
        ("90 % interval", "22.5 to 27.5 %"),
        ("range at departure", "2 km"),
        ("range on arrival", "1 km"),
    ]


def test_what_braking_frees_on_a_full_pack_is_lost():
    # 1,000 Wh down a hill and 1,000 up again, from a full pack of 4 kWh: a quarter is gone.
    each = np.repeat([-20.0, 20.0], 50)
    total = np.cumsum(each)
    plan = replace(drive().prediction, predicted_wh=each, low_wh=total, high_wh=total + 400)
    range_estimate = estimate_range(plan, 1.0, 4000.0)
    assert (range_estimate.arrival, range_estimate.arrival_high) == pytest.approx((0.75, 0.75))
    # The high end begins with 400 Wh, so 600 Wh of it come down the hill on a full pack.
    assert range_estimate.arrival_low == pytest.approx(0.75)
    charge = charge_over_time(plan, 1.0, 4000.0)
    assert (charge.max(), charge[-1]) == pytest.approx((1.0, 0.75))
    assert estimate_range(plan, 0.1, 4000.0).arrival == pytest.approx(0.1)
    assert estimate_range(plan, 0.9, 2000.0).short_wh == 0.0


def test_the_remarks():
    reference = drive()
    assert [line.split(":")[0] for line in reference.remarks()] == ["7 is a training trip of car"]
    assert replace(reference, trip=Trip("8", reference.trip.channels)).remarks() == []
    short = replace(reference, vehicle="", reach=estimate_range(reference.prediction, 0.1, 4000.0))
    assert short.remarks() == ["The battery does not reach the end: 600 Wh are missing."]
    assert replace(reference, vehicle="van").remarks() == [
        "The model has the scaling of car, not of van."
    ]


def test_the_remarks_say_what_is_not_there_and_why():
    driven = replace(drive(), card=replace(CARD, trips={}))
    assert driven.remarks() == []
    of_charge = replace(driven, trip=Trip("7", {"speed_mps": np.full(100, 10.0)}))
    assert of_charge.remarks() == [
        "Measured energy is what the state of charge lost, times the capacity of the vehicle."
    ]
    bare = replace(driven, prediction=drive(bars=False, measured_wh=None).prediction)
    assert [remark.partition(":")[0] for remark in bare.remarks()] == [
        "The trip has no measured energy",
        "The model has no prediction interval",
    ]


def test_the_remark_on_unknown_climb():
    card = replace(CARD, elevation={"source": "field"}, trips={})
    remark = "It has no positions, elevation or grade: its climb is unknown."
    assert replace(drive(), card=card).remarks() == [remark]


def test_a_charge_without_a_capacity_and_a_capacity_without_a_charge_are_refused(model, tmp_path):
    with pytest.raises(SettingError, match="does not know its vehicle's: give --capacity in kWh"):
        forecast(model.path, tmp_path / "trip.csv", soc=0.5)
    with pytest.raises(SettingError, match="give --soc, such as 62%"):
        forecast(model.path, tmp_path / "trip.csv", capacity_wh=16_000.0)


def test_a_temperature_that_training_did_not_have_is_remarked_on():
    about = {"trained_on": {"coverage": {"ambient_c": [-5, 25]}}}
    driven = replace(drive(), card=replace(CARD, about=about, trips={}))
    for ambient_c, remarks in ((-5.0, 0), (25.0, 0), (-5.5, 1), (32.0, 1)):
        channels = {**driven.trip.channels, "ambient_c": np.full(100, ambient_c)}
        assert len(replace(driven, trip=Trip("7", channels)).remarks()) == remarks
