"""A small town whose vehicles drive every street alike: what it takes can be worked out."""

import numpy as np

from fedwatt.elevation.grid import Grid
from fedwatt.journeys.fleet_routes import VehicleRoutes, passes
from fedwatt.randomness import generator
from fedwatt.telemetry import Trip, Vehicle

DEGREE_M = 6_371_000 * np.pi / 180
GRID = Grid()


def street_trip(name, rng, *, kilometres=3.0, start_km=0.0, heater_w=500.0, noise=0.02):
    """North along one street, 10 m/s on its first 2 km and 20 m/s beyond; 150 Wh/km and a heater.

    One vehicle in three trips stands for 30 s at kilometre 1.
    """
    speed = []
    along = start_km * 1000
    while along < (start_km + kilometres) * 1000:
        fast = 20.0 if along >= 2000 else 10.0
        if abs(along - 1000) < 5 and rng.random() < 1 / 3:
            speed += [0.0] * 30
        speed.append(fast)
        along += fast
    speed = np.array(speed)
    at = start_km * 1000 + np.cumsum(speed)
    energy = 0.15 * speed + heater_w / 3600
    energy = energy * (1 + noise * rng.standard_normal())
    return Trip(
        name,
        {
            "speed_mps": speed,
            "latitude_deg": 42 + at / DEGREE_M,
            "longitude_deg": np.full(len(at), -83.0),
            "ambient_c": np.full(len(at), 20.0),
            "energy_wh": energy,
        },
    )


def a_vehicle(name, *, trips=12, **how):
    rng = generator(0, "street", name)
    lengths = rng.uniform(1.0, 6.0, trips)
    made = [street_trip(f"{n}", rng, kilometres=km, **how) for n, km in enumerate(lengths)]
    return Vehicle(name, tuple(made), facts={"mass_kg": 1600.0})


def vehicle_routes(vehicle):
    return VehicleRoutes(passes(vehicle.trips, GRID), None, 1600.0, GRID)


def routes_by_vehicle(vehicles=4, **how):
    return {f"car-{n}": vehicle_routes(a_vehicle(f"car-{n}", **how)) for n in range(vehicles)}
