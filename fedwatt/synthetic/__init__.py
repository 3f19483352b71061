"""Vehicles made from physics: the built-in town, electrified traces and Eclipse SUMO."""

from fedwatt.synthetic.fleet import synthetic_fleet, synthetic_vehicles

__all__ = ["synthetic_fleet", "synthetic_vehicles"]
