"""Power of driving, heating and cooling, and charging between trips.

The force on a moving vehicle is rolling resistance, air drag, the slope and inertia; power at the
wheels is force times speed. The drivetrain loses some in each direction, and braking gives back
only what the regeneration limits let through.

A parked cabin has the temperature of the air around it (the sun adds some). Bringing it to comfort
takes power that decays with the cabin's time constant; holding it there takes the heat lost to the
outside. Both are in closed form in the time since the trip began.
"""

import numpy as np
from numpy.random import Generator

from fedwatt.synthetic.battery import Drives, Pack
from fedwatt.synthetic.vehicle import VehicleParameters
from fedwatt.telemetry.trip import FloatArray, IntArray

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


RECHARGE_BELOW_SOC = 0.4
LEAST_SOC = 0.1
CHARGED_TO_SOC = (0.8, 0.95)
# Heat inside the pack and its lower voltage under load cost a little more charge than energy says.
MARGIN = 1.06


def charge_between_trips(
    pack: Pack, trip: IntArray, demand_w: FloatArray, rng: Generator
) -> Drives:
    """Return the starts of trips, and the state of charge of those that follow a charge.

    `trip` [seconds] counts from 0. Decided on the energy asked for, before any battery is solved.
    """
    first = np.flatnonzero(np.diff(trip, prepend=-1))
    used = MARGIN * np.add.reduceat(demand_w, first) / 3600 / pack.capacity_wh
    start_soc = np.full(len(first), np.nan)
    now = 0.0
    for number, share in enumerate(used):
        if now < RECHARGE_BELOW_SOC or now - share < LEAST_SOC:
            now = start_soc[number] = float(rng.uniform(*CHARGED_TO_SOC))
        now -= share
    return Drives(first, start_soc)
