import numpy as np
import pytest

from fedwatt.journeys.in_trip import (
    SHARES,
    USUAL,
    Moments,
    UnderWay,
    corrected,
    driven,
    moments,
    narrower_intervals,
)
from fedwatt.journeys.route_intervals import interval

METRES = np.arange(1, 501) * 20.0  # 10 km
FORECAST_WH = 0.15 * METRES
SECONDS = METRES / 10
ERRORS_WH = np.linspace(-98.0, 98.0, 99)  # 2 Wh from level to level
NARROWER = np.array([0.9, 0.8, 0.6, 0.4])


def drive(auxiliary_w, share, correction=(1.0, 0.0, 0.0)):
    """A drive at 10 m/s that takes its forecast and some auxiliary power besides."""
    at = np.arange(1, 1001) * 10.0
    spent = 0.15 * at + auxiliary_w * np.arange(1, 1001) / 3600
    speed = np.full(1000, 10.0)
    going = UnderWay(METRES, FORECAST_WH, SECONDS, correction, ERRORS_WH, NARROWER)
    return driven(going, at, spent, speed, share)


def test_a_heater_that_no_channel_shows_is_learned_after_some_minutes():
    going = drive(1500.0, 0.5)
    true = 0.15 * 10_000 + 1500 * 1000 / 3600
    untold = going.measured_wh + going.forecast_left_wh
    assert untold < going.total_wh < true
    # 1.5 kW are far more than usual, so the filter does not believe all of it.
    assert true - going.total_wh < 0.65 * (true - untold)


def test_a_trip_as_forecast_is_left_alone():
    assert drive(0.0, 0.5).total_wh == pytest.approx(1500, rel=0.01)


def test_speed_in_hand_lowers_the_rest():
    slow, fast = (UnderWay(METRES, FORECAST_WH, SECONDS, (0.0, -0.2, 0.0)) for _ in range(2))
    slow.step(100.0, 10.0, 15.0, 0.0)
    fast.step(100.0, 10.0, 15.0, 20.0)
    assert slow.left_wh - fast.left_wh == pytest.approx(0.2 * 400)


def test_what_is_not_known_or_goes_backward_teaches_nothing():
    going = UnderWay(METRES, FORECAST_WH, SECONDS, (1.0, 0.0, 0.0))
    going.step(1000.0, 100.0, float("nan"), 10.0)
    assert going.measured_wh == 0
    going.step(1000.0, 100.0, 150.0, 0.0)
    going.step(400.0, 160.0, 160.0, 0.0)  # turned back
    assert going.forecast_left_wh == pytest.approx(0.15 * 9600)
    going.step(650.0, 185.0, 197.5, 0.0)
    assert going.left_wh == pytest.approx(0.15 * 9350, rel=0.02)


def test_nothing_is_left_at_the_end():
    assert drive(1000.0, 1.0).left_wh == 0


def test_the_fleets_correction_comes_from_sums():
    rng = np.random.default_rng(0)
    x = np.column_stack([rng.normal(0, 100, 400), rng.uniform(0, 400, 400), np.ones(400)])
    true = np.array([0.7, -0.2, 20.0])
    beyond = x @ true + rng.laplace(0, 5, 400)
    halves = [
        Moments(x[part], beyond[part], np.full(200, 500.0), np.full(200, 500.0))
        for part in (slice(200), slice(200, 400))
    ]
    found = np.array(USUAL)
    for _ in range(5):
        sums = [half.sums(found) for half in halves]
        found = corrected({name: sums[0][name] + sums[1][name] for name in sums[0]})
    np.testing.assert_allclose(found, true, rtol=0.1)


def test_no_moments_leave_the_usual_correction():
    nothing = {"matrix": np.zeros(9), "right": np.zeros(3)}
    np.testing.assert_array_equal(corrected(nothing), USUAL)


@pytest.mark.parametrize(("share", "left"), [(0.0, 1.0), (0.25, 0.8), (0.5, 0.6), (1.0, 0.0)])
def test_bars_narrow_along_the_way_and_are_gone_at_the_end(share, left):
    going = drive(0.0, share) if share else UnderWay(METRES, FORECAST_WH, SECONDS, (1, 0, 0),
                                                     ERRORS_WH, NARROWER)  # fmt: skip
    low, high = interval(going.total_levels_wh, 0.9)
    # Levels of 5 and 95 % are 45 levels from the middle; the first second past the share counts.
    assert low == pytest.approx(going.total_wh - 90 * left, abs=0.5)
    assert high == pytest.approx(going.total_wh + 90 * left, abs=0.5)


def test_the_fleet_counts_how_much_narrower_bars_become():
    # Forecasts that are off by ±20 Wh of 100, and by half of that once half of the way is driven.
    class At:
        def __init__(self, total, share):
            self.energy_wh = np.array([100.0])
            off = (total - 100) * (0.5 if share >= 0.5 else 1.0)
            self.measured_wh = total - 50 - off
            self.forecast_left_wh = 50.0
            self.states_left_wh = self.speed_mps = 0.0

    trips = [(At(total, share), total) for total in (80.0, 120.0) * 50 for share in SHARES]
    counted = moments(trips).counts(np.zeros(3), 0.0)
    # Two vehicles add up; errors lie in bins of 1/80.
    narrower = narrower_intervals({"counts": 2 * counted["counts"]})
    np.testing.assert_allclose(narrower, [1, 1, 0.5, 0.5], atol=0.05)
    # Nobody knows less than before, and where there are no trips nothing is known to be narrower.
    assert narrower_intervals({"counts": counted["counts"][::-1]}).max() <= 1


def test_without_trips_bars_stay_as_they_were():
    nobody = moments([]).counts(np.zeros(3), 1.0)
    assert not nobody["counts"].any()
    np.testing.assert_array_equal(narrower_intervals(nobody), np.ones(4))
