"""How far the field goes: a million nodes of 10,000 vehicles, and one vehicle's year of driving.

    python benchmarks/terrain_scale.py

Vehicles drive straight stretches over an invented plain of hills 82 km wide; their residuals are
the true climbs and noise. Writes results/terrain_scale.json.
Times are of one core at work; other processes do not count.
"""

import json
import resource
import time
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.elevation.grid import Grid
from fedwatt.elevation.normal_equations import NOTHING, Contribution, add, contribution, solve_map
from fedwatt.elevation.survey import Residual, Survey, residual, surveys
from fedwatt.randomness import generator
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.windows import DataSettings

RESULTS = Path(__file__).resolve().parents[1] / "results" / "terrain_scale.json"
GRID = Grid(cell_m=80.0)
VEHICLES = 10_000
SIDE_M = 82_000.0
TRIPS = 10
SEGMENTS = 100
SEGMENT_M = 100.0
DEGREE_M = 6_371_000 * np.pi / 180
LATITUDE = 45.0
LONGITUDE = 8.0
NOISE_WH = 8.0
WH_PER_M = 4.4
PENDING_PAIRS = 32_000_000  # that wait before they are merged: half a gigabyte


def elevation_gain_m(east_m: np.ndarray, north_m: np.ndarray) -> np.ndarray:
    near = np.sin(east_m / 900) * np.cos(north_m / 1300)
    return np.asarray(40 * near + 150 * np.sin(north_m / 9000))


def degrees(east_m: np.ndarray, north_m: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    shrink = np.cos(np.radians(LATITUDE))
    return LATITUDE + north_m / DEGREE_M, LONGITUDE + east_m / (DEGREE_M * shrink)


def driven(number: int, side_m: float = SIDE_M) -> tuple[Survey, Residual]:
    """Segments of one vehicle: straight trips in random directions on a square plain."""
    rng = generator(0, "scale", str(number))
    heading = rng.uniform(0, 2 * np.pi, (TRIPS, 1))
    start = rng.uniform(0, side_m, (2, TRIPS, 1))
    along = SEGMENT_M * np.arange(SEGMENTS + 1)
    # At the edge a vehicle turns back, as often as it has to.
    east = side_m - np.abs((start[0] + along * np.cos(heading)) % (2 * side_m) - side_m)
    north = side_m - np.abs((start[1] + along * np.sin(heading)) % (2 * side_m) - side_m)
    climb = np.diff(elevation_gain_m(east, north), axis=1).ravel()
    latitude, longitude = degrees(east.ravel(), north.ravel())
    keys, weights = (p.reshape(TRIPS, SEGMENTS + 1, 4) for p in GRID.corners(latitude, longitude))
    both = np.concatenate([keys[:, 1:], keys[:, :-1]], axis=2).reshape(-1, 8)
    signed = np.concatenate([weights[:, 1:], -weights[:, :-1]], axis=2).reshape(-1, 8)
    energy = WH_PER_M * climb + NOISE_WH * rng.standard_normal(len(climb))
    one = Survey(np.zeros((len(climb), 0)), energy, both, signed, np.ones(len(climb), bool), 4.4)
    return one, Residual(energy, np.full(len(climb), WH_PER_M), NOISE_WH)


def add_all(messages: Iterable[Contribution]) -> Contribution:
    """The sum of messages as they come in, with about `PENDING_PAIRS` of their pairs in memory.

    Merging into the sum costs as much as the sum is long, so it is done seldom: after so many
    waiting pairs, or as many as the sum already has if these are more.
    """
    total = NOTHING
    held = 0
    waiting: list[Contribution] = []
    for message in messages:
        waiting.append(message)
        held += len(message.value)
        if held >= max(PENDING_PAIRS, len(total.value)):
            total, waiting, held = add([total, *waiting]), [], 0
    return add([total, *waiting])


def million_nodes() -> dict[str, Any]:
    """Adding and solving, without the vehicles' own work."""
    driving = 0.0

    def messages() -> Iterator[Contribution]:
        nonlocal driving
        for number in range(VEHICLES):
            began = time.process_time()
            sent = contribution(*driven(number))
            driving += time.process_time() - began
            yield sent

    began = time.process_time()
    sums = add_all(messages())
    adding = time.process_time() - began - driving
    began = time.process_time()
    field = solve_map(GRID, sums, prior_grade=0.03)
    solving = time.process_time() - began
    latitude, longitude = GRID.positions(field.keys)
    north = (latitude - LATITUDE) * DEGREE_M
    east = (longitude - LONGITUDE) * DEGREE_M * np.cos(np.radians(LATITUDE))
    often = field.passes >= 5
    found = np.corrcoef(field.elevation_m[often], elevation_gain_m(east, north)[often])[0, 1]
    return {
        "vehicles": VEHICLES,
        "nodes": field.nodes,
        "pairs": len(sums.value),
        "adding_s": round(adding, 1),
        "solving_s": round(solving, 1),
        "adding_and_solving_s": round(adding + solving, 1),
        "correlation_with_truth": round(float(found), 4),
        "peak_memory_gb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
    }


def a_year() -> dict[str, Any]:
    """Surveying and summing 15,000 km: 700 trips of 30 minutes among 40 routes."""
    rng = generator(0, "a year")
    routes = []
    for _ in range(40):
        turns = np.cumsum(rng.normal(0, 0.02, 1800))
        speed = 12 + 6 * np.sin(np.arange(1800) / 40 + rng.uniform(0, 6))
        routes.append((np.cumsum(speed * np.cos(turns)), np.cumsum(speed * np.sin(turns)), speed))
    trips = []
    for number in range(700):
        east, north, speed = routes[rng.integers(len(routes))]
        rise = np.diff(elevation_gain_m(east, north), prepend=elevation_gain_m(east[:1], north[:1]))
        latitude, longitude = degrees(east, north)
        energy = 0.2 * speed + WH_PER_M * rise + rng.standard_normal(len(speed))
        channels = {"speed_mps": speed, "energy_wh": energy}
        channels |= {"latitude_deg": latitude, "longitude_deg": longitude}
        trips.append(Trip(f"trip-{number}", channels))
    vehicle = Vehicle("year", tuple(trips))
    data = DataSettings(features="speed", split=(0.998, 0.001, 0.001))
    began = time.process_time()
    one = surveys(vehicle, GRID, [8], data, "train")[8]
    message = contribution(one, residual(one))
    size = sum(getattr(message, part.name).nbytes for part in fields(message))
    return {
        "hours": round(sum(t.seconds for t in trips) / 3600),
        "kilometres": round(sum(t.channels["speed_mps"].sum() for t in trips) / 1000),
        "seconds": round(time.process_time() - began, 2),
        "message_mb": round(size / 1e6, 2),
    }


def main() -> None:
    results = {"a year of one vehicle": a_year(), "a million nodes": million_nodes()}
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
