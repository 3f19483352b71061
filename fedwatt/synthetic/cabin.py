"""Heating and cooling: electric power that keeps a cabin comfortable.

A parked cabin has the temperature of the air around it (the sun adds some). Bringing it to comfort
takes power that decays with the cabin's time constant; holding it there takes the heat lost to the
outside. Both are in closed form in the time since the trip began.
"""

import numpy as np

from fedwatt.synthetic.arrays import FloatArray
from fedwatt.synthetic.parameters import VehicleParameters

WARM_UP_BOOST = 1.8  # starting power as a multiple of the holding power, on top of it
HEAT_PUMP_FADES_C = 25.0  # degrees below 10 °C over which a heat pump becomes a resistor
OFF_BELOW_W = 80.0


def climate_power_w(
    vehicle: VehicleParameters, ambient_c: FloatArray, seconds: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Heater and air-conditioning power, each [seconds], `seconds` after the trip began."""
    settling = 1 + WARM_UP_BOOST * np.exp(-seconds / vehicle.cabin_warm_up_s)
    lost_w = vehicle.cabin_loss_w_per_k * (vehicle.comfort_c - ambient_c) - vehicle.cabin_gain_w
    warmth = np.clip(1 - (10.0 - ambient_c) / HEAT_PUMP_FADES_C, 0.0, 1.0)
    heating_yield = 1 + (vehicle.heating_yield - 1) * warmth
    heater_w = np.maximum(lost_w, 0) * settling / heating_yield
    ac_w = np.maximum(-lost_w, 0) * settling / vehicle.cooling_yield
    heater_w = np.where(heater_w > OFF_BELOW_W, np.minimum(heater_w, vehicle.heater_limit_w), 0.0)
    return heater_w, np.where(ac_w > OFF_BELOW_W, np.minimum(ac_w, vehicle.ac_limit_w), 0.0)
