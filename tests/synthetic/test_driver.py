"""Speed profiles: within limits and comfort, stopping where they must, and consistent in time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedwatt.randomness import generator
from fedwatt.synthetic.driver import Effort, draw_style, drive
from fedwatt.synthetic.routes import STEP_M, itinerary, trace
from fedwatt.synthetic.town import town


@pytest.fixture(scope="module")
def journey():
    """Path, style and motion of one vehicle's thirty trips."""
    _, paths = itinerary(town(0), 0, "car", 30)
    path = trace(town(0), paths)
    style = draw_style(generator(0, "driver", "car"))
    return path, style, drive(path, style, generator(0, "driving", "car"))


def test_run_up_by_hand():
    # From rest to 10 m/s at a constant 2 m/s² takes 100 / 4 = 25 m; fading it takes half as much
    # again when the fade speed is 10 m/s: (100 + 10000 / 200) / 4 = 37.5 m.
    assert Effort(2.0, 1e9).run_up(np.array(10.0)) == pytest.approx(25.0)
    assert Effort(2.0, 10.0).run_up(np.array(10.0)) == pytest.approx(37.5)


@given(st.floats(0, 60), st.floats(0.5, 4), st.floats(5, 50))
def test_reached_speed_undoes_the_run_up(speed, from_rest, fade):
    effort = Effort(from_rest, fade)
    assert effort.reached_mps(effort.run_up(np.array(speed))) == pytest.approx(speed, abs=1e-6)


def test_trips_start_and_end_standing(journey):
    path, _, motion = journey
    first = np.flatnonzero(motion.second == 0)
    last = np.append(first[1:], len(motion.second)) - 1
    assert len(first) == 30
    assert (motion.speed_mps[first] == 0).all()
    assert motion.speed_mps[last] == pytest.approx(np.zeros(30), abs=1e-9)
    assert motion.distance_m[first] == pytest.approx(path.trip_bounds[:-1] * STEP_M)
    assert motion.distance_m[last] == pytest.approx(path.trip_bounds[1:] * STEP_M)


def test_way_and_speed_agree(journey):
    _, _, motion = journey
    assert (motion.moved_m >= -1e-9).all()
    inside = motion.second > 0
    before = np.roll(motion.speed_mps, 1)
    assert (motion.speed_mps - before)[inside] == pytest.approx(motion.gained_mps[inside])
    # The way made in a second is its mean speed; speed bends within a second by at most this.
    mean = (motion.speed_mps + before) / 2
    assert np.abs(motion.moved_m - mean)[inside].max() < 1.2
    assert motion.moved_m.sum() == pytest.approx(mean[inside].sum(), rel=0.01)


def test_accelerations_stay_comfortable(journey):
    _, style, motion = journey
    # The driver's own acceleration at standstill, on the most eager of legs (1.3).
    assert motion.gained_mps.max() <= 1.3 * style.accelerating_mps2 + 1e-9
    assert motion.gained_mps.min() >= -1.3 * style.braking_mps2 - 1e-9
    assert motion.gained_mps.max() > 1.0
    assert motion.gained_mps.min() < -1.0


def test_limits_are_kept_about_as_people_do(journey):
    path, _, motion = journey
    limit = path.limit_mps[(motion.distance_m / STEP_M).astype(int)]
    assert np.quantile(motion.speed_mps / limit, 0.99) < 1.3
    assert (motion.speed_mps > limit * 1.5).mean() < 0.01


def test_vehicles_stop_in_between(journey):
    _, _, motion = journey
    standing = motion.speed_mps < 0.1
    assert 0.05 < standing.mean() < 0.5
