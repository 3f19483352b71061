"""A vehicle's parameters, drawn around the classes of its kind, and the power that it takes.

The force on a moving vehicle is rolling resistance, air drag, the slope and inertia; power at the
wheels is force times speed. The drivetrain's losses are a map over speed and force: copper losses
grow with the square of torque, iron and windage losses with speed, and gears and inverter take a
share of the power either way. Efficiency is therefore poor at a crawl and under light load and best
in the middle. Braking pays the same losses once more and is limited in power.

A parked cabin has the temperature of the air around it (the sun adds some). Bringing it to comfort
takes power that decays with the cabin's time constant; holding it there takes the heat lost to the
outside. Both are in closed form in the time since the trip began.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from fedwatt.errors import SettingError, unknown
from fedwatt.synthetic.battery import LEAF_CELL, NMC_CELL, SHIPPED, Pack, sized_pack
from fedwatt.telemetry.trip import FloatArray

IRON_AT_MPS = 30.0
IRON_EXPONENT = 1.5  # between hysteresis (1) and eddy currents and windage (2 and more)
STANDING_MPS = 1e-3


@dataclass(frozen=True, kw_only=True)
class Drivetrain:
    """Motor, inverter and gear. Defaults are an 80 kW motor in a compact car."""

    conversion_loss: float = 0.04  # share of the power that gears and inverter lose
    peak_force_n: float = 6400.0  # at the wheels
    copper_w: float = 8000.0  # lost at peak force
    iron_w: float = 900.0  # lost at 30 m/s, whether or not the motor pulls

    def loss_w(self, wheel_w: FloatArray, speed_mps: FloatArray) -> FloatArray:
        """Return the power lost when `wheel_w` (+ drives, - brakes) passes at a speed; [...]."""
        moving = speed_mps > STANDING_MPS
        force_n = np.divide(wheel_w, speed_mps, out=np.zeros_like(wheel_w), where=moving)
        # A slow stop at the very end of a second would otherwise ask for an absurd force.
        load = np.minimum(np.abs(force_n) / self.peak_force_n, 1.0)
        iron_w = self.iron_w * (np.abs(speed_mps) / IRON_AT_MPS) ** IRON_EXPONENT
        lost_w = self.conversion_loss * np.abs(wheel_w) + self.copper_w * load**2 + iron_w
        return np.where(moving, lost_w, 0.0)

    def efficiency(self, force_n: FloatArray, speed_mps: FloatArray) -> FloatArray:
        """Return the share of the pack's power that reaches the wheels when driving, [...].

        >>> plain = Drivetrain(conversion_loss=0.25, copper_w=0.0, iron_w=0.0)
        >>> float(plain.efficiency(np.array(100.0), np.array(10.0)))
        0.8
        """
        wheel_w = force_n * speed_mps
        return wheel_w / (wheel_w + self.loss_w(wheel_w, speed_mps))


@dataclass(frozen=True, kw_only=True)
class VehicleParameters:
    """Parameters of a vehicle. Defaults are the Nissan Leaf of 2013, of which VED has three.

    Mass and drag follow its data sheet (1.5 t, drag coefficient 0.28 on 2.3 m²); losses, rolling
    resistance and auxiliaries are usual values for its class, not fitted to any drive.
    """

    mass_kg: float = 1600.0  # with driver
    rotating_mass_factor: float = 1.05  # wheels and motor turn as well as move
    drag_area_m2: float = 0.65  # drag coefficient times frontal area
    rolling_coefficient: float = 0.0095  # at 20 °C
    drivetrain: Drivetrain = field(default_factory=Drivetrain)
    regeneration_share: float = 0.9  # of braking that reaches the motor; friction takes the rest
    regeneration_limit_w: float = 35_000.0  # at the wheels; friction brakes take the rest
    regeneration_fade_mps: float = 4.0  # below this speed friction brakes take over step by step
    auxiliary_w: float = 300.0  # lights, electronics, pumps
    comfort_c: float = 21.0  # cabin temperature
    cabin_gain_w: float = 250.0  # sun and passengers warm the cabin
    cabin_loss_w_per_k: float = 70.0  # heat lost (or gained) per degree to the outside
    cabin_warm_up_s: float = 240.0  # time constant of bringing a parked cabin to comfort
    heating_yield: float = 1.0  # heat per electricity: 1 is a resistor, above 2 a heat pump
    cooling_yield: float = 2.0
    heater_limit_w: float = 5000.0
    ac_limit_w: float = 3000.0
    pack: Pack = field(default_factory=Pack)

    @property
    def facts(self) -> dict[str, str | float]:
        """Facts of a vehicle with these parameters."""
        mass_kg = round(self.mass_kg, 1)
        capacity_wh = round(self.pack.capacity_wh, 1)
        return {"powertrain": "ev", "mass_kg": mass_kg, "pack_capacity_wh": capacity_wh}


@dataclass(frozen=True, kw_only=True)
class Duty:
    """Driving style and load of a kind of vehicle, relative to a passenger car.

    `accelerating` and `braking` multiply a car driver's; a bus halts at the share `halts` of the
    stops that it passes, for `halt_s` on average.
    """

    top_mps: float = math.inf
    accelerating: float = 1.0
    braking: float = 1.0
    payload_kg: float  # mean over trips
    payload_shape: float  # of a gamma distribution: 1 is exponential, large is steady
    halts: float = 0.0
    halt_s: float = 0.0

    def draw_payload_kg(self, trips: int, rng: np.random.Generator) -> FloatArray:
        """Draw the load of each trip, [trips]."""
        return rng.gamma(self.payload_shape, self.payload_kg / self.payload_shape, trips)


# fmt: off
DUTIES: Mapping[str, Duty] = {
    "passenger": Duty(payload_kg=60.0, payload_shape=1.0),
    "truck": Duty(
        top_mps=90 / 3.6, accelerating=0.6, braking=0.75, payload_kg=900.0, payload_shape=4.0),
    # Passengers stand in a bus.
    "bus": Duty(
        top_mps=80 / 3.6, accelerating=0.55, braking=0.65, payload_kg=1400.0, payload_shape=3.0,
        halts=0.8, halt_s=16.0),
}
# fmt: on

DRIVER_KG = 80.0
OLD_PACK_WH = 30_000.0  # packs up to this size are of the older chemistry


@dataclass(frozen=True)
class VehicleClass:
    """Typical values of a class of vehicles; `often` is its share of its kind."""

    often: float
    mass_kg: float
    drag_area_m2: float
    rolling_coefficient: float
    motor_w: float
    peak_force_n: float
    regeneration_limit_w: float
    auxiliary_least_w: float
    auxiliary_most_w: float
    cabin_gain_w: float
    cabin_loss_w_per_k: float
    heater_limit_w: float
    ac_limit_w: float
    pack_wh: float
    cells_in_series: int


CLASSES: Mapping[str, Mapping[str, VehicleClass]] = {
    kind: {name: VehicleClass(*values) for name, *values in zip(*table.values(), strict=True)}
    for kind, table in SHIPPED["classes"].items()
}


def draw_vehicle(kind: str, rng: np.random.Generator) -> tuple[str, VehicleParameters]:
    """Draw a vehicle of a kind: the name of its class, and its parameters."""
    if kind not in CLASSES:
        raise SettingError(unknown("kind of vehicle", kind, CLASSES))
    classes = CLASSES[kind]
    name = str(rng.choice(list(classes), p=[each.often for each in classes.values()]))
    typical = classes[name]

    def vary(spread: float) -> float:
        return float(np.exp(spread * rng.normal()))

    mass_kg = typical.mass_kg * vary(0.05) + DRIVER_KG
    drag_area_m2 = typical.drag_area_m2 * vary(0.06)
    rolling_coefficient = typical.rolling_coefficient * vary(0.08)
    losses = vary(0.12)
    # A pack has lost up to a sixth of its capacity with age.
    health = float(rng.uniform(0.84, 1.0))
    return name, VehicleParameters(
        mass_kg=mass_kg,
        drag_area_m2=drag_area_m2,
        rolling_coefficient=rolling_coefficient,
        drivetrain=Drivetrain(
            conversion_loss=0.04 * losses,
            peak_force_n=typical.peak_force_n,
            copper_w=0.1 * typical.motor_w * losses,
            iron_w=(250.0 + 0.008 * typical.motor_w) * losses,
        ),
        regeneration_share=float(rng.uniform(0.75, 0.95)),
        regeneration_limit_w=typical.regeneration_limit_w * vary(0.1),
        regeneration_fade_mps=float(rng.uniform(2.5, 6.0)),
        auxiliary_w=float(rng.uniform(typical.auxiliary_least_w, typical.auxiliary_most_w)),
        comfort_c=float(rng.uniform(19, 23)),
        cabin_gain_w=typical.cabin_gain_w,
        cabin_loss_w_per_k=typical.cabin_loss_w_per_k * vary(0.15),
        heating_yield=float(rng.choice([1.0, 2.2], p=(0.6, 0.4))),
        heater_limit_w=typical.heater_limit_w,
        ac_limit_w=typical.ac_limit_w,
        pack=sized_pack(
            LEAF_CELL if typical.pack_wh <= OLD_PACK_WH else NMC_CELL,
            typical.cells_in_series,
            typical.pack_wh * health,
        ),
    )


GRAVITY_MPS2 = 9.81
AIR_PRESSURE_PA = 101_325.0
AIR_GAS_CONSTANT = 287.05  # J/(kg K), dry air
ROLLING_PER_C = 0.005  # rolling resistance rises by this share per degree below 20 °C
# a cold pack takes less charge
REGENERATION_FULL_C = 10.0
REGENERATION_LEAST = 0.4


def air_density(ambient_c: FloatArray) -> FloatArray:
    """Return the density of dry air at sea-level pressure, kg/m³.

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
    """Return the power at the wheels [seconds], + = drives the vehicle, - = brakes it."""
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
    """Return the drivetrain's electric power [seconds], + = from the pack, - = regenerated.

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
    """Return heater and air-conditioning power, [seconds] each, `seconds` after the trip began."""
    settling = 1 + WARM_UP_BOOST * np.exp(-seconds / vehicle.cabin_warm_up_s)
    lost_w = vehicle.cabin_loss_w_per_k * (vehicle.comfort_c - ambient_c) - vehicle.cabin_gain_w
    warmth = np.clip(1 - (10.0 - ambient_c) / HEAT_PUMP_FADES_C, 0.0, 1.0)
    heating_yield = 1 + (vehicle.heating_yield - 1) * warmth
    heater_w = np.maximum(lost_w, 0) * settling / heating_yield
    ac_w = np.maximum(-lost_w, 0) * settling / vehicle.cooling_yield
    heater_w = np.where(heater_w > OFF_BELOW_W, np.minimum(heater_w, vehicle.heater_limit_w), 0.0)
    return heater_w, np.where(ac_w > OFF_BELOW_W, np.minimum(ac_w, vehicle.ac_limit_w), 0.0)
