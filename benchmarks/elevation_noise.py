"""Measure what differential privacy costs the elevation map, by the size of the fleet.

    python -m benchmarks.elevation_noise

Vehicles drive straight trips through an invented town of 4 km, ten trips of 10 km each; their
residual energy is that of the true climbs, and noise. Every row is one map with noise of a given
multiplier on what is published (node counts, then two exchanges) and the ε that this costs each
vehicle, all its trips together. Fills results/elevation_noise.json; about five minutes of one core.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.learn import shared_map
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import Survey
from fedwatt.randomness import generator
from fedwatt.runs.source import elevation_budget

RESULTS = Path(__file__).resolve().parents[1] / "results" / "elevation_noise.json"
LATITUDE = 45.0
LONGITUDE = 8.0
DEGREE_M = 6_371_000 * np.pi / 180
GRID = Grid(cell_m=80.0)
SIDE_M = 4000.0
TRIPS = 10
SEGMENTS = 100
SEGMENT_M = 100.0
NOISE_WH = 8.0
WH_PER_M = 4.4
FLEETS = (300, 1000, 3000)
NOISE = (0.0, 0.5, 1.0, 2.0, 4.0)
AREA = (LATITUDE - 0.002, LATITUDE + 0.04, LONGITUDE - 0.002, LONGITUDE + 0.056)
COMMON: dict[str, Any] = {"refreshes": 1, "clip": 2.0, "most_nodes": 2000, "area": AREA}


def elevation_m(east_m: np.ndarray, north_m: np.ndarray) -> np.ndarray:
    """Return the invented town's elevation."""
    near = np.sin(east_m / 900) * np.cos(north_m / 1300)
    return np.asarray(40 * near + 150 * np.sin(north_m / 9000))


def driven(number: int) -> Survey:
    """Return the segments of one vehicle: straight trips in random directions."""
    rng = generator(0, "scale", str(number))
    heading = rng.uniform(0, 2 * np.pi, (TRIPS, 1))
    start = rng.uniform(0, SIDE_M, (2, TRIPS, 1))
    along = SEGMENT_M * np.arange(SEGMENTS + 1)
    # At the edge a vehicle turns back, as often as it has to.
    east = SIDE_M - np.abs((start[0] + along * np.cos(heading)) % (2 * SIDE_M) - SIDE_M)
    north = SIDE_M - np.abs((start[1] + along * np.sin(heading)) % (2 * SIDE_M) - SIDE_M)
    climb = np.diff(elevation_m(east, north), axis=1).ravel()
    latitude = LATITUDE + north.ravel() / DEGREE_M
    longitude = LONGITUDE + east.ravel() / (DEGREE_M * np.cos(np.radians(LATITUDE)))
    keys, weights = (p.reshape(TRIPS, SEGMENTS + 1, 4) for p in GRID.corners(latitude, longitude))
    both = np.concatenate([keys[:, 1:], keys[:, :-1]], axis=2).reshape(-1, 8)
    signed = np.concatenate([weights[:, 1:], -weights[:, :-1]], axis=2).reshape(-1, 8)
    energy = WH_PER_M * climb + NOISE_WH * rng.standard_normal(len(climb))
    is_known = np.ones(len(climb), bool)
    return Survey(np.zeros((len(climb), 0)), energy, both, signed, is_known, WH_PER_M)


def correlation(field: ElevationMap) -> float | None:
    """Return the correlation with the true elevations over all published nodes, if any is left."""
    if field.nodes < 30 or np.ptp(field.elevation_m) == 0:
        return None
    latitude, longitude = GRID.positions(field.keys)
    north = (latitude - LATITUDE) * DEGREE_M
    east = (longitude - LONGITUDE) * DEGREE_M * np.cos(np.radians(LATITUDE))
    return round(float(np.corrcoef(field.elevation_m, elevation_m(east, north))[0, 1]), 3)


def main() -> None:
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    done = {(row["vehicles"], row["noise_multiplier"]) for row in rows}
    for vehicles in FLEETS:
        due = [noise for noise in NOISE if (vehicles, noise) not in done]
        surveys = [driven(number) for number in range(vehicles if due else 0)]
        for noise in due:
            settings = ElevationSettings(noise_multiplier=noise, **COMMON)
            field = shared_map(surveys, GRID, settings)
            budget = elevation_budget(settings, population=vehicles)
            epsilon = None if budget is None else round(budget.epsilon(settings.releases), 2)
            row = {"vehicles": vehicles, "noise_multiplier": noise, "epsilon": epsilon}
            row |= {"nodes": field.nodes, "correlation": correlation(field)}
            rows.append(row)
            print(row, flush=True)
            record = {"settings": {**COMMON, "side_m": SIDE_M}, "rows": rows}
            RESULTS.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
