"""Energy from first principles: road load, cabin climate, pack, and a synthetic fleet."""

from fedwatt.physics.parameters import VehicleParameters
from fedwatt.physics.synthetic import SyntheticVehicle, synthetic_vehicle
from fedwatt.physics.town import Town, town

__all__ = ["SyntheticVehicle", "Town", "VehicleParameters", "synthetic_vehicle", "town"]
