"""What a vehicle is, as far as its energy goes: mass, drag, drivetrain, cabin and pack."""

import math
from dataclasses import dataclass, fields

import numpy as np

from fedwatt.errors import check


@dataclass(frozen=True, kw_only=True)
class VehicleParameters:
    """One vehicle. Defaults are a compact car of about 2013 with a 24 kWh pack."""

    kind: str = "passenger"
    mass_kg: float = 1600.0  # with driver
    rotating_mass_factor: float = 1.05  # wheels and motor turn as well as move
    drag_area_m2: float = 0.65  # drag coefficient times frontal area
    rolling_coefficient: float = 0.0095  # at 20 °C
    drive_efficiency: float = 0.88  # pack to wheels
    regeneration_efficiency: float = 0.75  # wheels to pack
    regeneration_limit_w: float = 35_000.0  # at the wheels; friction brakes take the rest
    regeneration_fade_mps: float = 4.0  # below this speed friction brakes take over step by step
    auxiliary_w: float = 300.0  # lights, electronics, pumps
    comfort_c: float = 21.0  # what the cabin is kept at
    cabin_loss_w_per_k: float = 70.0  # heat lost (or gained) per degree to the outside
    cabin_warm_up_s: float = 240.0  # time constant of bringing a parked cabin to comfort
    heating_yield: float = 1.0  # heat per electricity: 1 is a resistor, above 2 a heat pump
    cooling_yield: float = 2.0
    heater_limit_w: float = 5000.0
    ac_limit_w: float = 3000.0
    pack_capacity_wh: float = 24_000.0
    pack_empty_v: float = 340.0  # open-circuit voltage at 0 % and 100 %
    pack_full_v: float = 395.0
    pack_resistance_ohm: float = 0.10

    def __post_init__(self) -> None:
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            if parameter.type is float and parameter.name != "comfort_c":
                check(self, parameter.name, math.isfinite(value) and value > 0, "positive")
        for name in ("drive_efficiency", "regeneration_efficiency"):
            check(self, name, getattr(self, name) <= 1, "in (0, 1]")
        check(self, "rotating_mass_factor", self.rotating_mass_factor >= 1, "at least 1")
        full = self.pack_full_v >= self.pack_empty_v
        check(self, "pack_full_v", full, f"at least pack_empty_v = {self.pack_empty_v}")


@dataclass(frozen=True)
class CarClass:
    """A size of car: typical values that single cars scatter around."""

    mass_kg: float
    drag_area_m2: float
    rolling_coefficient: float
    pack_capacity_wh: float
    regeneration_limit_w: float


CAR_CLASSES = {
    "small": CarClass(1250.0, 0.62, 0.0095, 20_000.0, 25_000.0),
    "compact": CarClass(1600.0, 0.66, 0.0095, 30_000.0, 35_000.0),
    "saloon": CarClass(1900.0, 0.56, 0.0090, 60_000.0, 60_000.0),
    "suv": CarClass(2250.0, 0.80, 0.0105, 75_000.0, 60_000.0),
}


def draw_car(rng: np.random.Generator) -> tuple[str, VehicleParameters]:
    """Class name and parameters of a passenger car."""
    name = str(rng.choice(list(CAR_CLASSES), p=(0.25, 0.35, 0.2, 0.2)))
    car = CAR_CLASSES[name]

    def vary(spread: float) -> float:
        return float(np.exp(spread * rng.normal()))

    return name, VehicleParameters(
        mass_kg=car.mass_kg * vary(0.05) + 80.0,
        drag_area_m2=car.drag_area_m2 * vary(0.06),
        rolling_coefficient=car.rolling_coefficient * vary(0.08),
        drive_efficiency=float(rng.uniform(0.84, 0.91)),
        regeneration_efficiency=float(rng.uniform(0.60, 0.82)),
        regeneration_limit_w=car.regeneration_limit_w * vary(0.1),
        regeneration_fade_mps=float(rng.uniform(2.5, 6.0)),
        auxiliary_w=float(rng.uniform(200, 500)),
        comfort_c=float(rng.uniform(19, 23)),
        cabin_loss_w_per_k=car.mass_kg / 1600 * 70 * vary(0.15),
        heating_yield=float(rng.choice([1.0, 2.2], p=(0.6, 0.4))),
        pack_capacity_wh=car.pack_capacity_wh,
        pack_resistance_ohm=0.10 * (24_000 / car.pack_capacity_wh) * vary(0.15),
    )
