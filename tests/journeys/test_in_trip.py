import numpy as np
import pytest

from fedwatt.journeys.in_trip import UnderWay
from fedwatt.journeys.route_intervals import interval

METRES = np.arange(1, 501) * 20.0  # 10 km
FORECAST_WH = 0.15 * METRES
SECONDS = METRES / 10
ERRORS_WH = np.linspace(-98.0, 98.0, 99)  # 2 Wh from level to level


def start():
    return UnderWay(METRES, FORECAST_WH, SECONDS, ERRORS_WH)


def drive(auxiliary_w, share):
    """A drive at 10 m/s that takes its forecast and some auxiliary power besides."""
    going = start()
    for second in range(20, round(1000 * share) + 1, 20):  # a block of 200 m in 20 s
        spent = 0.15 * 10 * second + auxiliary_w * second / 3600
        going.step(10.0 * second, float(second), spent, 10.0)
    return going


def test_a_heater_that_no_channel_shows_is_learned_after_some_minutes():
    going = drive(1500.0, 0.5)
    true = 0.15 * 10_000 + 1500 * 1000 / 3600
    untold = going.measured_wh + going.forecast_left_wh
    assert untold < going.total_wh < true
    # 1.5 kW are far more than usual, so the filter does not believe all of it.
    assert true - going.total_wh < 0.75 * (true - untold)


def test_a_trip_as_forecast_is_left_alone():
    # The kinetic energy of the start, 25 Wh, looks as if the first block had taken less.
    assert drive(0.0, 0.5).total_wh == pytest.approx(1500, rel=0.01)


def test_speed_in_hand_lowers_the_rest():
    slow = start()
    fast = start()
    slow.step(100.0, 10.0, 15.0, 0.0)
    fast.step(100.0, 10.0, 15.0, 20.0)
    assert slow.left_wh - fast.left_wh == pytest.approx(0.18 * 400)


def test_what_is_not_known_or_goes_backward_teaches_nothing():
    going = start()
    going.step(1000.0, 100.0, float("nan"), 10.0)
    assert going.measured_wh == 0
    going.step(1000.0, 100.0, 150.0, 0.0)
    going.step(400.0, 160.0, 160.0, 0.0)  # turned back
    assert going.forecast_left_wh == pytest.approx(0.15 * 9600)
    going.step(650.0, 185.0, 197.5, 0.0)
    assert going.left_wh == pytest.approx(0.15 * 9350 + 16.5, rel=0.02)


def test_nothing_is_left_at_the_end():
    assert drive(1000.0, 1.0).left_wh == 0


@pytest.mark.parametrize(("share", "left"), [(0.0, 1.0), (0.1, 0.9), (0.5, 0.6), (1.0, 0.0)])
def test_bars_narrow_along_the_way_and_are_gone_at_the_end(share, left):
    going = drive(0.0, share)
    low, high = interval(going.total_levels_wh, 0.9)
    # Levels of 5 and 95 % are 45 levels from the middle.
    assert low == pytest.approx(going.total_wh - 90 * left)
    assert high == pytest.approx(going.total_wh + 90 * left)
