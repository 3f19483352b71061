"""Losses of the drivetrain, by hand."""

import numpy as np
import pytest

from fedwatt.synthetic.vehicle import Drivetrain

MAP = Drivetrain(conversion_loss=0.1, peak_force_n=1000.0, copper_w=800.0, iron_w=300.0)


def loss(wheel_w, speed_mps):
    return float(MAP.loss_w(np.array([wheel_w]), np.array([speed_mps]))[0])


def test_the_three_losses():
    # 5 kW at 10 m/s is half of peak force: 500 + 800/4 + 300 · (1/3)^1.5 = 57.735
    assert loss(5000.0, 10.0) == pytest.approx(757.735, abs=1e-3)


def test_braking_loses_as_much_as_driving():
    assert loss(-5000.0, 10.0) == loss(5000.0, 10.0)


def test_coasting_still_turns_the_motor_and_standing_does_not():
    assert loss(0.0, 30.0) == pytest.approx(300.0)
    assert loss(0.0, 0.0) == 0.0


def test_force_is_bounded_at_a_crawl():
    # 100 W at 2 mm/s would be 50 kN: copper is counted at peak force, once.
    assert loss(100.0, 0.002) == pytest.approx(10 + 800, abs=0.1)


def test_the_map_is_best_in_the_middle():
    leaf = Drivetrain()
    force = np.array([300.0, 2000.0, 6000.0])
    speed = np.full(3, 10.0)
    light, middle, full = leaf.efficiency(force, speed)
    assert 0.8 < full < middle
    assert 0.8 < light < middle < 0.95
    crawl = leaf.efficiency(np.array([3000.0]), np.array([0.5]))[0]
    assert crawl < 0.5
