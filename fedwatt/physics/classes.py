"""Sizes of passenger cars, delivery trucks and buses, and single vehicles drawn around them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedwatt.errors import SettingError, unknown
from fedwatt.physics.battery import sized_pack
from fedwatt.physics.cell import LEAF_CELL, NMC_CELL
from fedwatt.physics.drivetrain import Drivetrain
from fedwatt.physics.parameters import VehicleParameters

DRIVER_KG = 80.0
OLD_PACK_WH = 30_000.0  # packs up to this size are of the older chemistry


@dataclass(frozen=True, kw_only=True)
class VehicleClass:
    """Typical values that single vehicles scatter around; `often` is its share of its kind."""

    often: float
    mass_kg: float
    drag_area_m2: float
    rolling_coefficient: float
    motor_w: float
    peak_force_n: float
    regeneration_limit_w: float
    auxiliary_w: tuple[float, float]
    cabin_gain_w: float
    cabin_loss_w_per_k: float
    climate_limit_w: tuple[float, float]  # heater, air conditioning
    pack_wh: float
    cells_in_series: int = 96


CLASSES: Mapping[str, Mapping[str, VehicleClass]] = {
    "passenger": {
        "small": VehicleClass(
            often=0.25,
            mass_kg=1250.0,
            drag_area_m2=0.62,
            rolling_coefficient=0.0095,
            motor_w=60_000.0,
            peak_force_n=5000.0,
            regeneration_limit_w=25_000.0,
            auxiliary_w=(200.0, 450.0),
            cabin_gain_w=250.0,
            cabin_loss_w_per_k=55.0,
            climate_limit_w=(5000.0, 3000.0),
            pack_wh=20_000.0,
        ),
        "compact": VehicleClass(
            often=0.35,
            mass_kg=1520.0,
            drag_area_m2=0.66,
            rolling_coefficient=0.0095,
            motor_w=80_000.0,
            peak_force_n=6400.0,
            regeneration_limit_w=35_000.0,
            auxiliary_w=(200.0, 500.0),
            cabin_gain_w=250.0,
            cabin_loss_w_per_k=70.0,
            climate_limit_w=(5000.0, 3000.0),
            pack_wh=30_000.0,
        ),
        "saloon": VehicleClass(
            often=0.2,
            mass_kg=1850.0,
            drag_area_m2=0.56,
            rolling_coefficient=0.0090,
            motor_w=180_000.0,
            peak_force_n=9000.0,
            regeneration_limit_w=60_000.0,
            auxiliary_w=(250.0, 550.0),
            cabin_gain_w=250.0,
            cabin_loss_w_per_k=80.0,
            climate_limit_w=(6000.0, 3500.0),
            pack_wh=60_000.0,
        ),
        "suv": VehicleClass(
            often=0.2,
            mass_kg=2200.0,
            drag_area_m2=0.80,
            rolling_coefficient=0.0105,
            motor_w=200_000.0,
            peak_force_n=11_000.0,
            regeneration_limit_w=60_000.0,
            auxiliary_w=(250.0, 600.0),
            cabin_gain_w=250.0,
            cabin_loss_w_per_k=95.0,
            climate_limit_w=(6000.0, 3500.0),
            pack_wh=75_000.0,
            cells_in_series=108,
        ),
    },
    "truck": {
        "delivery van": VehicleClass(
            often=0.4,
            mass_kg=2500.0,
            drag_area_m2=1.75,
            rolling_coefficient=0.0090,
            motor_w=100_000.0,
            peak_force_n=10_500.0,
            regeneration_limit_w=50_000.0,
            auxiliary_w=(350.0, 700.0),
            cabin_gain_w=250.0,
            cabin_loss_w_per_k=75.0,
            climate_limit_w=(5000.0, 3000.0),
            pack_wh=68_000.0,
        ),
        "delivery truck": VehicleClass(
            often=0.6,
            mass_kg=4700.0,
            drag_area_m2=3.9,
            rolling_coefficient=0.0075,
            motor_w=135_000.0,
            peak_force_n=22_000.0,
            regeneration_limit_w=80_000.0,
            auxiliary_w=(700.0, 1400.0),
            cabin_gain_w=250.0,
            cabin_loss_w_per_k=85.0,
            climate_limit_w=(6000.0, 3500.0),
            pack_wh=100_000.0,
            cells_in_series=108,
        ),
    },
    "bus": {
        "midi bus": VehicleClass(
            often=0.3,
            mass_kg=8200.0,
            drag_area_m2=4.2,
            rolling_coefficient=0.0075,
            motor_w=160_000.0,
            peak_force_n=32_000.0,
            regeneration_limit_w=110_000.0,
            auxiliary_w=(1800.0, 3000.0),
            cabin_gain_w=1500.0,
            cabin_loss_w_per_k=300.0,
            climate_limit_w=(18_000.0, 12_000.0),
            pack_wh=200_000.0,
            cells_in_series=180,
        ),
        "city bus": VehicleClass(
            often=0.7,
            mass_kg=12_800.0,
            drag_area_m2=5.2,
            rolling_coefficient=0.0075,
            motor_w=250_000.0,
            peak_force_n=48_000.0,
            regeneration_limit_w=170_000.0,
            auxiliary_w=(2500.0, 4500.0),
            cabin_gain_w=2500.0,
            cabin_loss_w_per_k=430.0,
            climate_limit_w=(26_000.0, 20_000.0),
            pack_wh=320_000.0,
            cells_in_series=180,
        ),
    },
}


def draw_vehicle(kind: str, rng: np.random.Generator) -> tuple[str, VehicleParameters]:
    """Name of the class and parameters of one vehicle of a kind."""
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
    heater_limit_w, ac_limit_w = typical.climate_limit_w
    losses = vary(0.12)
    # A pack has lost up to a sixth of its capacity with age.
    health = float(rng.uniform(0.84, 1.0))
    return name, VehicleParameters(
        kind=kind,
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
        auxiliary_w=float(rng.uniform(*typical.auxiliary_w)),
        comfort_c=float(rng.uniform(19, 23)),
        cabin_gain_w=typical.cabin_gain_w,
        cabin_loss_w_per_k=typical.cabin_loss_w_per_k * vary(0.15),
        heating_yield=float(rng.choice([1.0, 2.2], p=(0.6, 0.4))),
        heater_limit_w=heater_limit_w,
        ac_limit_w=ac_limit_w,
        pack=sized_pack(
            LEAF_CELL if typical.pack_wh <= OLD_PACK_WH else NMC_CELL,
            typical.cells_in_series,
            typical.pack_wh * health,
        ),
    )
