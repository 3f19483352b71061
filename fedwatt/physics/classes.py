"""Sizes of passenger cars, delivery trucks and buses, and single vehicles drawn around them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedwatt.errors import SettingError, unknown
from fedwatt.physics.battery import sized_pack
from fedwatt.physics.cell import LEAF_CELL, NMC_CELL
from fedwatt.physics.drivetrain import Drivetrain
from fedwatt.physics.parameters import VehicleParameters

DRIVER_KG = 80.0
OLD_PACK_WH = 30_000.0  # packs up to this size are of the older chemistry


@dataclass(frozen=True)
class VehicleClass:
    """Typical values that single vehicles scatter around; `often` is its share of its kind."""

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


_NAMES = {
    "passenger": ("small", "compact", "saloon", "suv"),
    "truck": ("delivery van", "delivery truck"),
    "bus": ("midi bus", "city bus"),
}
# One row a quantity, one column a class in the order of `_NAMES`.
# fmt: off
_TYPICAL: Mapping[str, tuple[Any, ...]] = {
    "often":                (  0.25,    0.35,     0.2,     0.2,     0.4,     0.6,     0.3,     0.7),
    "mass_kg":              (  1250,    1520,    1850,    2200,    2500,    4700,    8200,  12_800),
    "drag_area_m2":         (  0.62,    0.66,    0.56,     0.8,    1.75,     3.9,     4.2,     5.2),
    "rolling_coefficient":  (0.0095,  0.0095,   0.009,  0.0105,   0.009,  0.0075,  0.0075,  0.0075),
    "motor_w":              (60_000,  80_000, 180_000, 200_000, 100_000, 135_000, 160_000, 250_000),
    "peak_force_n":         (  5000,    6400,    9000,  11_000,  10_500,  22_000,  32_000,  48_000),
    "regeneration_limit_w": (25_000,  35_000,  60_000,  60_000,  50_000,  80_000, 110_000, 170_000),
    "auxiliary_least_w":    (   200,     200,     250,     250,     350,     700,    1800,    2500),
    "auxiliary_most_w":     (   450,     500,     550,     600,     700,    1400,    3000,    4500),
    "cabin_gain_w":         (   250,     250,     250,     250,     250,     250,    1500,    2500),
    "cabin_loss_w_per_k":   (    55,      70,      80,      95,      75,      85,     300,     430),
    "heater_limit_w":       (  5000,    5000,    6000,    6000,    5000,    6000,  18_000,  26_000),
    "ac_limit_w":           (  3000,    3000,    3500,    3500,    3000,    3500,  12_000,  20_000),
    "pack_wh":              (20_000,  30_000,  60_000,  75_000,  68_000, 100_000, 200_000, 320_000),
    "cells_in_series":      (    96,      96,      96,     108,      96,     108,     180,     180),
}
# fmt: on
_columns = (
    VehicleClass(**dict(zip(_TYPICAL, column, strict=True)))
    for column in zip(*_TYPICAL.values(), strict=True)
)
CLASSES: Mapping[str, Mapping[str, VehicleClass]] = {
    kind: {name: next(_columns) for name in names} for kind, names in _NAMES.items()
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
