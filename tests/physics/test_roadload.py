"""Road load, worked out by hand.

The vehicle: 1000 kg, rolling coefficient 0.01, drag area 0.6 m². At 20 °C rolling resistance is
0.01 · 1000 · 9.81 = 98.1 N and air density 101325 / (287.05 · 293.15) = 1.20411 kg/m³.
"""

import numpy as np
import pytest

from fedwatt.errors import SettingError
from fedwatt.physics.parameters import CAR_CLASSES, VehicleParameters, draw_car
from fedwatt.physics.roadload import air_density, traction_power_w, wheel_power_w
from fedwatt.randomness import generator

CAR = VehicleParameters(
    mass_kg=1000.0,
    rotating_mass_factor=1.1,
    drag_area_m2=0.6,
    rolling_coefficient=0.01,
    drive_efficiency=0.8,
    regeneration_efficiency=0.5,
    regeneration_limit_w=10_000.0,
    regeneration_fade_mps=5.0,
)


def wheels(speed, acceleration=0.0, grade=0.0, ambient=20.0, payload=0.0):
    arrays = (np.array([value]) for value in (speed, acceleration, grade, ambient))
    return float(wheel_power_w(CAR, *arrays, payload_kg=payload)[0])


def traction(wheel_w, speed=20.0, ambient=20.0):
    arrays = (np.array([value]) for value in (wheel_w, speed, ambient))
    return float(traction_power_w(CAR, *arrays)[0])


def test_constant_speed_on_the_level():
    # drag 0.5 · 1.20411 · 0.6 · 20² = 144.49 N; (98.1 + 144.49) · 20 = 4851.9 W
    assert wheels(20.0) == pytest.approx(4851.9, abs=0.1)


def test_standing_takes_no_power():
    assert wheels(0.0) == 0.0
    assert traction(0.0, speed=0.0) == 0.0


def test_a_climb_lifts_the_weight_and_a_descent_gives_it_back():
    # sin of a 5 % slope is 0.0499376: 1000 · 9.81 · 0.0499376 = 489.89 N, at 10 m/s 4898.9 W
    up, level, down = wheels(10.0, grade=0.05), wheels(10.0), wheels(10.0, grade=-0.05)
    assert (up - down) / 2 == pytest.approx(4898.9, abs=0.1)
    # Rolling resistance shrinks with the cosine, 0.99875: 98.1 · 10 · 0.00125 = 1.2 W less.
    assert (up + down) / 2 - level == pytest.approx(-1.2, abs=0.05)


def test_acceleration_also_spins_the_wheels():
    # 1.1 · 1000 · 2 = 2200 N, at 10 m/s 22 kW either way
    assert wheels(10.0, 2.0) - wheels(10.0) == pytest.approx(22_000)
    assert wheels(10.0, -2.0) - wheels(10.0) == pytest.approx(-22_000)


def test_payload_adds_to_rolling_slope_and_inertia():
    # 100 kg more: 110 · 2 + 9.81 = 229.81 N, at 10 m/s
    assert wheels(10.0, 2.0, payload=100.0) - wheels(10.0, 2.0) == pytest.approx(2298.1)


def test_cold_air_is_denser_and_cold_tyres_stiffer():
    assert air_density(np.array(-10.0)) / air_density(np.array(20.0)) == pytest.approx(
        293.15 / 263.15
    )
    # At 10 °C rolling resistance is 5 % up: 98.1 · 1.05; drag at 1 m/s is 0.4 N and hardly matters.
    assert wheels(1.0, ambient=10.0) == pytest.approx(98.1 * 1.05 + 0.374, abs=0.01)


def test_driving_draws_more_than_reaches_the_wheels():
    assert traction(8000.0) == pytest.approx(10_000)


def test_braking_regenerates_with_a_minus_sign():
    assert traction(-8000.0) == pytest.approx(-4000)


def test_regeneration_is_limited():
    # Friction brakes take what exceeds 10 kW; half of 10 kW reaches the pack.
    assert traction(-20_000.0) == pytest.approx(-5000)


def test_regeneration_fades_at_walking_pace():
    # At 1 m/s a fifth of the braking power is regenerated: 0.5 · 0.2 · 2000 W.
    assert traction(-2000.0, speed=1.0) == pytest.approx(-200)


def test_a_cold_pack_takes_less_charge():
    # At -10 °C the limit is half: 1 - 20/40. Below about -14 °C it stays at 40 %.
    assert traction(-20_000.0, ambient=-10.0) == pytest.approx(-2500)
    assert traction(-20_000.0, ambient=-40.0) == pytest.approx(-2000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"mass_kg": 0.0},
        {"mass_kg": float("nan")},
        {"drive_efficiency": 1.1},
        {"rotating_mass_factor": 0.9},
        {"pack_full_v": 300.0},
    ],
    ids=str,
)
def test_impossible_vehicles_are_refused(wrong):
    with pytest.raises(SettingError):
        VehicleParameters(**wrong)


def test_drawn_cars_scatter_around_their_class():
    cars = [draw_car(generator(0, "test", number)) for number in range(200)]
    assert {name for name, _ in cars} == set(CAR_CLASSES)
    masses = np.array([car.mass_kg for _, car in cars])
    assert 1000 < masses.min() < masses.max() < 2900
    for name, car in cars:
        assert car.drag_area_m2 == pytest.approx(CAR_CLASSES[name].drag_area_m2, rel=0.3)
