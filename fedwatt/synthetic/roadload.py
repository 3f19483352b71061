"""Longitudinal road load: from motion to electric power between pack and wheels.

The force on a moving vehicle is rolling resistance, air drag, the slope and inertia; power at the
wheels is force times speed. The drivetrain loses some in each direction, and braking gives back
only what the regeneration limits let through.
"""

import numpy as np

from fedwatt.synthetic.arrays import FloatArray
from fedwatt.synthetic.parameters import VehicleParameters

GRAVITY_MPS2 = 9.81
AIR_PRESSURE_PA = 101_325.0
AIR_GAS_CONSTANT = 287.05  # J/(kg K), dry air
ROLLING_PER_C = 0.005  # rolling resistance rises by this share per degree below 20 °C
# a cold pack takes less charge
REGENERATION_FULL_C = 10.0
REGENERATION_LEAST = 0.4


def air_density(ambient_c: FloatArray) -> FloatArray:
    """Density of dry air at sea-level pressure, kg/m³.

    >>> float(air_density(np.array(20.0)).round(3))
    1.204
    """
    return AIR_PRESSURE_PA / (AIR_GAS_CONSTANT * (273.15 + ambient_c))


def wheel_power_w(
    vehicle: VehicleParameters,
    speed_mps: FloatArray,
    acceleration_mps2: FloatArray,
    grade: FloatArray,
    ambient_c: FloatArray,
    payload_kg: FloatArray | float = 0.0,
) -> FloatArray:
    """Power at the wheels [seconds], + = drives the vehicle, - = brakes it."""
    mass_kg = vehicle.mass_kg + payload_kg
    slope_cos = 1 / np.sqrt(1 + grade**2)
    stiffness = np.maximum(1 + ROLLING_PER_C * (20.0 - ambient_c), 0.5)
    rolling_n = vehicle.rolling_coefficient * stiffness * mass_kg * GRAVITY_MPS2 * slope_cos
    drag_n = 0.5 * air_density(ambient_c) * vehicle.drag_area_m2 * speed_mps**2
    slope_n = mass_kg * GRAVITY_MPS2 * grade * slope_cos
    inertia_n = vehicle.rotating_mass_factor * mass_kg * acceleration_mps2
    return (rolling_n + drag_n + slope_n + inertia_n) * speed_mps


def traction_power_w(
    vehicle: VehicleParameters, wheel_w: FloatArray, speed_mps: FloatArray, ambient_c: FloatArray
) -> FloatArray:
    """Electric power of the drivetrain [seconds], + = drawn from the pack, - = regenerated.

    Regeneration fades in with speed, is limited in power, and the limit shrinks in the cold.
    """
    fade = np.minimum(speed_mps / vehicle.regeneration_fade_mps, 1.0)
    cold = np.clip(1 - (REGENERATION_FULL_C - ambient_c) / 40.0, REGENERATION_LEAST, 1.0)
    braking_w = vehicle.regeneration_share * fade * np.minimum(wheel_w, 0.0)
    recovered_w = np.maximum(braking_w, -vehicle.regeneration_limit_w * cold)
    motor_w = np.maximum(wheel_w, 0.0) + recovered_w
    return motor_w + vehicle.drivetrain.loss_w(motor_w, speed_mps)
