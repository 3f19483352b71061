"""Cabin climate, by hand."""

import numpy as np
import pytest

from fedwatt.synthetic.vehicle import VehicleParameters, climate_power_w

CAR = VehicleParameters(
    comfort_c=20.0, cabin_loss_w_per_k=100.0, heating_yield=1.0, cooling_yield=2.0
)
SETTLED = 1e9


def climate(ambient, seconds=SETTLED, car=CAR):
    heater, ac = climate_power_w(car, np.array([ambient]), np.array([seconds]))
    return float(heater[0]), float(ac[0])


def test_holding_power_in_the_cold_and_in_the_heat():
    # 0 °C: 100 · 20 - 250 = 1750 W of heat. 30 °C: (100 · 10 + 250) / 2 = 625 W.
    assert climate(0.0) == (1750.0, 0.0)
    assert climate(30.0) == (0.0, 625.0)


def test_mild_weather_needs_neither():
    assert climate(17.5) == (0.0, 0.0)


def test_a_cold_start_takes_more_and_settles():
    # 10 °C holds at 750 W; the boost of 1.8 decays with 240 s.
    assert climate(10.0, 0.0)[0] == pytest.approx(750 * 2.8)
    assert climate(10.0, 240.0)[0] == pytest.approx(750 * (1 + 1.8 / np.e))


def test_power_is_limited():
    assert climate(-30.0, 0.0)[0] == CAR.heater_limit_w
    assert climate(60.0, 0.0)[1] == CAR.ac_limit_w


def test_a_heat_pump_saves_most_when_it_is_mild():
    pump = VehicleParameters(comfort_c=20.0, cabin_loss_w_per_k=100.0, heating_yield=3.0)
    assert climate(10.0, car=pump)[0] == pytest.approx(750 / 3)
    # At -2.5 °C half of its advantage is left: yield 2 on 2250 - 250 = 2000 W.
    assert climate(-2.5, car=pump)[0] == pytest.approx(2000 / 2)
    assert climate(-20.0, car=pump) == climate(-20.0)
