"""Road load, worked out by hand.

The vehicle: 1000 kg, rolling coefficient 0.01, drag area 0.6 m². At 20 °C rolling resistance is
0.01 · 1000 · 9.81 = 98.1 N and air density 101325 / (287.05 · 293.15) = 1.20411 kg/m³.
"""

from dataclasses import fields

import numpy as np
import pytest

from fedwatt.errors import SettingError
from fedwatt.randomness import generator
from fedwatt.synthetic.battery import SHIPPED
from fedwatt.synthetic.vehicle import (
    CLASSES,
    Drivetrain,
    VehicleClass,
    VehicleParameters,
    air_density,
    draw_vehicle,
    traction_power_w,
    wheel_power_w,
)

CAR = VehicleParameters(
    mass_kg=1000.0,
    rotating_mass_factor=1.1,
    drag_area_m2=0.6,
    rolling_coefficient=0.01,
    # A fifth is lost either way, whatever the load.
    drivetrain=Drivetrain(conversion_loss=0.2, copper_w=0.0, iron_w=0.0),
    regeneration_share=0.5,
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
    up = wheels(10.0, grade=0.05)
    level = wheels(10.0)
    down = wheels(10.0, grade=-0.05)
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
    assert traction(8000.0) == pytest.approx(9600)


def test_braking_regenerates_with_a_minus_sign():
    # Half of the braking reaches the motor, and a fifth of that is lost: 0.5 · 0.8 · 8000 W.
    assert traction(-8000.0) == pytest.approx(-3200)


def test_regeneration_is_limited():
    # Half of 40 kW is more than the 10 kW that the motor may take; 0.8 of these reach the pack.
    assert traction(-40_000.0) == pytest.approx(-8000)


def test_regeneration_fades_at_walking_pace():
    # At 1 m/s a fifth of the motor's share is left: 0.5 · 0.2 · 0.8 · 2000 W.
    assert traction(-2000.0, speed=1.0) == pytest.approx(-160)


def test_a_cold_pack_takes_less_charge():
    # At -10 °C the limit is half: 1 - 20/40. Below about -14 °C it stays at 40 %.
    assert traction(-40_000.0, ambient=-10.0) == pytest.approx(-4000)
    assert traction(-40_000.0, ambient=-40.0) == pytest.approx(-3200)


@pytest.mark.parametrize("kind", CLASSES)
def test_drawn_vehicles_scatter_around_their_class(kind):
    drawn = [draw_vehicle(kind, generator(0, "test", number)) for number in range(200)]
    assert {name for name, _ in drawn} == set(CLASSES[kind])
    for name, vehicle in drawn:
        typical = CLASSES[kind][name]
        assert vehicle.mass_kg == pytest.approx(typical.mass_kg + 80, rel=0.2)
        assert vehicle.drag_area_m2 == pytest.approx(typical.drag_area_m2, rel=0.3)
        assert 0.84 <= vehicle.pack.capacity_wh / typical.pack_wh <= 1


def test_the_table_of_classes_has_the_columns_of_a_class():
    for table in SHIPPED["classes"].values():
        assert list(table) == ["names", *(column.name for column in fields(VehicleClass))]


def test_classes_of_a_kind_share_it_among_them():
    for classes in CLASSES.values():
        assert sum(each.often for each in classes.values()) == pytest.approx(1)


def test_an_unknown_kind_is_refused():
    with pytest.raises(SettingError, match="Did you mean 'truck'"):
        draw_vehicle("truk", generator(0, "test"))
