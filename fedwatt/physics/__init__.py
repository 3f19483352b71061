"""Energy from first principles: road load, drivetrain, cabin and pack; fleets made from them."""

from fedwatt.physics.battery import Pack, PackTrace, supply
from fedwatt.physics.calibrate import calibrated, trip_energy_wh
from fedwatt.physics.cell import Cell
from fedwatt.physics.classes import CLASSES, draw_vehicle
from fedwatt.physics.parameters import LEAF_2013, VehicleParameters
from fedwatt.physics.synthetic import SyntheticVehicle, synthetic_vehicle
from fedwatt.physics.town import Town, town

__all__ = [
    "CLASSES",
    "LEAF_2013",
    "Cell",
    "Pack",
    "PackTrace",
    "SyntheticVehicle",
    "Town",
    "VehicleParameters",
    "calibrated",
    "draw_vehicle",
    "supply",
    "synthetic_vehicle",
    "town",
    "trip_energy_wh",
]
