"""Conformal factors by hand, and coverage where trips differ and windows overlap."""

import math

import numpy as np
import pytest

from fedwatt.edge.calibration import (
    Calibration,
    CalibrationTrip,
    PredictionIntervals,
    calibrate,
    clustered_quantile,
    conformal_quantile,
    fit_scale,
    independent_scores,
)
from fedwatt.errors import DataError
from fedwatt.settings import from_table


def test_the_conformal_quantile_is_the_corrected_rank():
    scores = np.arange(1.0, 11.0)
    # ⌈11 · 0.9⌉ = 10, the largest of ten; nine scores still do, eight do not.
    assert conformal_quantile(scores, 0.9) == 10.0
    assert conformal_quantile(scores[:9], 0.9) == 9.0
    assert conformal_quantile(scores[:8], 0.9) == math.inf


def test_a_long_trip_counts_no_more_than_a_short_one():
    # Half of the weight lies on the one score 1, however many windows the other trip has.
    short = np.array([1.0])
    long = np.full(999, 5.0)
    assert clustered_quantile([short, long], 0.3) == 1.0


def test_trips_that_are_wholly_in_or_out_are_worth_their_number():
    apart = [np.full(600, float(i)) for i in range(10)]
    assert independent_scores(apart, threshold=8.5, level=0.9) == pytest.approx(10)
    assert clustered_quantile(apart, 0.9) == 9.0
    draw = np.random.default_rng(0)
    alike = [draw.uniform(size=600) for _ in range(10)]
    # 6,000 windows are 100 minutes, and no more than that.
    assert independent_scores(alike, threshold=0.9, level=0.9) == pytest.approx(100)
    assert clustered_quantile(alike, 0.9) == pytest.approx(0.909, abs=0.01)


def test_scales_are_never_negative():
    size = np.linspace(1, 5, 50)
    scale, floor = fit_scale(np.stack([np.ones(50), size], axis=1), 5 - size / 2)
    assert min(scale) >= 0 and floor > 0


def trip(draw, seconds=400, level=50.0, bias=0.0) -> CalibrationTrip:
    """Errors that overlap as windows do, larger at speed, and a bias of the trip's own."""
    power = draw.normal(0, level / 60, seconds)
    speed = np.full(seconds - 59, draw.uniform(5, 25))
    offset = draw.normal(0, bias)
    error = (np.convolve(power, np.ones(60), "valid") + offset) * speed / 10
    truth = np.full(len(error), 150.0)
    total = float(power.sum() + offset * seconds / 60)
    return CalibrationTrip(truth + error, truth, speed, 1000 + total, 1000.0, seconds)


@pytest.mark.parametrize("bias", [0.0, 4.0, 30.0])
def test_new_trips_are_covered_as_often_as_promised(bias):
    draw = np.random.default_rng(1)
    inside = []
    complete = []
    for _ in range(60):
        lengths = draw.integers(130, 900, 60)
        trips = [trip(draw, int(seconds), bias=bias) for seconds in lengths]
        bars = calibrate(trips[:30], trips[30:50])
        for trip_errors in trips[50:]:
            low, high = bars.around(trip_errors.windows_wh, trip_errors.speed_mps)
            inside.append(
                np.mean((low <= trip_errors.measured_wh) & (trip_errors.measured_wh <= high))
            )
            low, high = bars.trip(trip_errors.trip_wh, trip_errors.seconds)
            complete.append(low <= trip_errors.trip_measured_wh <= high)
    # 20 validation trips: exact conformal coverage is 19/21 = 0.905; 600 trips, ±0.025.
    assert np.mean(complete) == pytest.approx(0.905, abs=0.025)
    assert np.mean(inside) == pytest.approx(0.90, abs=0.03)


def test_few_validation_trips_are_helped_out_by_training_trips():
    draw = np.random.default_rng(2)
    trips = [trip(draw) for _ in range(20)]
    bars = calibrate(trips[:15], trips[15:18])
    assert bars.source == "validation and training trips" and bars.trips == 18
    assert math.isfinite(bars.trip_factor) and math.isfinite(bars.window_factor)
    with pytest.raises(DataError, match="need at least 9 trips; the vehicle has 5"):
        calibrate(trips[:3], trips[3:5])
    with pytest.raises(DataError, match="a training trip and a validation trip"):
        calibrate(trips, [])


def test_a_calibration_survives_json_and_none_is_nan():
    draw = np.random.default_rng(3)
    trips = [trip(draw) for _ in range(30)]
    bars = calibrate(trips[:15], trips[15:], speed_column=2)
    assert from_table(Calibration, bars.to_json(), "card") == bars
    none = Calibration()
    assert none.to_json() == {}
    assert np.isnan(none.trip(100.0, 60)[0])
    # The speed of a window is the mean of its column.
    windows = np.zeros((1, 60, 4))
    windows[:, :, 2] = 10.0
    from_windows = PredictionIntervals(bars, bars).windows(np.array([100.0]), windows)
    assert from_windows[1] == bars.around(np.array([100.0]), np.array([10.0]))[1]
