"""Vehicles that drive over hills everyone can compute."""

from dataclasses import replace

import numpy as np

from fedwatt.elevation.survey import surveys
from fedwatt.randomness import generator
from fedwatt.synthetic.town import CENTRE_LATITUDE_DEG, CENTRE_LONGITUDE_DEG, draw_landscape
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows.client import split_of_trips

WH_PER_M = 1600 * 9.81 / 3600
DEGREE_M = 6_371_000 * np.pi / 180


def hill_m(east_m, north_m):
    """Waves of 30 m between valleys 3 km apart."""
    return 15 * np.sin(2 * np.pi * east_m / 3000) + 15 * np.cos(2 * np.pi * north_m / 3000)


class Hills:
    """The ground of the toys as a terrain model."""

    def elevation_m(self, latitude_deg, longitude_deg):
        east_m = (longitude_deg + 83) * DEGREE_M * np.cos(np.radians(42))
        return 100 + hill_m(east_m, (latitude_deg - 42) * DEGREE_M)


class TownGround:
    """The ground of the built-in town as a terrain model, `steeper` times as steep."""

    def __init__(self, steeper=1.0):
        self.steeper = steeper

    def elevation_m(self, latitude_deg, longitude_deg):
        north_m = (latitude_deg - CENTRE_LATITUDE_DEG) * DEGREE_M
        shrink = np.cos(np.radians(CENTRE_LATITUDE_DEG))
        east_m = (longitude_deg - CENTRE_LONGITUDE_DEG) * DEGREE_M * shrink
        return self.steeper * draw_landscape(0).elevation_m(east_m, north_m)


def trip(
    name: str,
    rng,
    *,
    seconds: int = 400,
    latitude: float = 42.0,
    longitude: float = -83.0,
    noise_wh: float = 0.5,
) -> Trip:
    """A drive along one street of a lattice of 400 m, at 8 to 16 m/s."""
    speed = 12 + 4 * np.sin(np.arange(seconds) / 20 + rng.uniform(0, 6))
    along = np.cumsum(speed) - speed[0]
    street = 400.0 * rng.integers(0, 8)
    eastward = rng.random() < 0.5
    forward = rng.random() < 0.5
    along = along if forward else 5000 - along
    east = along
    north = np.full(seconds, street)
    if not eastward:
        east, north = north, east
    rise = np.diff(hill_m(east, north), prepend=hill_m(east, north)[0])
    energy = 0.2 * speed + WH_PER_M * rise + noise_wh * rng.standard_normal(seconds)
    return Trip(
        name,
        {
            "speed_mps": speed,
            "latitude_deg": latitude + north / DEGREE_M,
            "longitude_deg": longitude + east / (DEGREE_M * np.cos(np.radians(latitude))),
            "energy_wh": energy,
        },
    )


def vehicle(name: str, *, trips: int = 12, **place) -> Vehicle:
    rng = generator(0, "toy hills", name)
    made = tuple(trip(f"t{i}", rng, **place) for i in range(trips))
    return Vehicle(name, made, facts={"mass_kg": 1600.0})


def fleet(vehicles: int = 6, **how) -> list[Vehicle]:
    return [vehicle(f"car-{i}", **how) for i in range(vehicles)]


def without_positions(vehicle: Vehicle) -> Vehicle:
    """The vehicle before it had a receiver."""
    return replace(
        vehicle,
        trips=tuple(
            Trip(trip.name, {n: v for n, v in trip.channels.items() if not n.endswith("_deg")})
            for trip in vehicle.trips
        ),
    )


def survey(vehicle, grid, segment_s, data, split="train"):
    """Segments of the vehicle's trips of a split, `segment_s` long."""
    split_of = split_of_trips(vehicle, data)
    return surveys(vehicle, grid, [segment_s], split_of, split)[segment_s]
