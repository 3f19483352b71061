"""Vehicles made from physics: the built-in town and electrified traces."""

from fedwatt.synthetic.fleet import synthetic_fleet, synthetic_vehicles

__all__ = ["synthetic_fleet", "synthetic_vehicles"]
