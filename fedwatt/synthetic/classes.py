"""Sizes of passenger cars, delivery trucks and buses, and single vehicles drawn around them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedwatt.errors import SettingError, unknown
from fedwatt.synthetic.battery import sized_pack
from fedwatt.synthetic.cell import LEAF_CELL, NMC_CELL, SHIPPED
from fedwatt.synthetic.drivetrain import Drivetrain
from fedwatt.synthetic.parameters import VehicleParameters

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


def _classes(table: dict[str, list[Any]]) -> dict[str, VehicleClass]:
    """Return the classes of a kind by name, from a table with a column for each."""
    rows = {quantity: row for quantity, row in table.items() if quantity != "names"}
    return {
        name: VehicleClass(**{quantity: row[place] for quantity, row in rows.items()})
        for place, name in enumerate(table["names"])
    }


CLASSES: Mapping[str, Mapping[str, VehicleClass]] = {
    kind: _classes(table) for kind, table in SHIPPED["classes"].items()
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
