"""Parameters of a vehicle's energy model: mass, drag, drivetrain, cabin and pack."""

import math
from dataclasses import dataclass, field, fields

from fedwatt.errors import check
from fedwatt.synthetic.battery import Pack
from fedwatt.synthetic.drivetrain import Drivetrain


@dataclass(frozen=True, kw_only=True)
class VehicleParameters:
    """One vehicle. Defaults are the Nissan Leaf of 2013, of which VED has three (see `LEAF_2013`).

    Mass and drag follow its data sheet (1.5 t, drag coefficient 0.28 on 2.3 m²); losses, rolling
    resistance and auxiliaries are usual values for its class, not fitted to any drive.
    """

    kind: str = "passenger"
    mass_kg: float = 1600.0  # with driver
    rotating_mass_factor: float = 1.05  # wheels and motor turn as well as move
    drag_area_m2: float = 0.65  # drag coefficient times frontal area
    rolling_coefficient: float = 0.0095  # at 20 °C
    drivetrain: Drivetrain = field(default_factory=Drivetrain)
    regeneration_share: float = 0.9  # of braking that reaches the motor; friction takes the rest
    regeneration_limit_w: float = 35_000.0  # at the wheels; friction brakes take the rest
    regeneration_fade_mps: float = 4.0  # below this speed friction brakes take over step by step
    auxiliary_w: float = 300.0  # lights, electronics, pumps
    comfort_c: float = 21.0  # what the cabin is kept at
    cabin_gain_w: float = 250.0  # sun and passengers warm the cabin
    cabin_loss_w_per_k: float = 70.0  # heat lost (or gained) per degree to the outside
    cabin_warm_up_s: float = 240.0  # time constant of bringing a parked cabin to comfort
    heating_yield: float = 1.0  # heat per electricity: 1 is a resistor, above 2 a heat pump
    cooling_yield: float = 2.0
    heater_limit_w: float = 5000.0
    ac_limit_w: float = 3000.0
    pack: Pack = field(default_factory=Pack)

    def __post_init__(self) -> None:
        for parameter in fields(self):
            value = getattr(self, parameter.name)
            if parameter.type is float and parameter.name != "comfort_c":
                check(self, parameter.name, math.isfinite(value) and value > 0, "positive")
        check(self, "regeneration_share", self.regeneration_share <= 1, "in (0, 1]")
        check(self, "rotating_mass_factor", self.rotating_mass_factor >= 1, "at least 1")


LEAF_2013 = VehicleParameters()
