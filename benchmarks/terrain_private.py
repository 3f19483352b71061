"""What differential privacy costs the field: invented hills under noise, by the size of the fleet.

    python benchmarks/terrain_private.py

Vehicles drive the invented plain of terrain_scale.py, here a town of 4 km, ten trips of 10 km each.
Every row is one field with noise of a given multiplier on what is published (node counts, then two
exchanges) and the ε that this costs each vehicle, all its trips together. Writes
results/terrain_private.json (what is there is kept); about five minutes of one core.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.terrain_scale import DEGREE_M, GRID, LATITUDE, LONGITUDE, driven, elevation_gain_m
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import shared_map
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.runs.source import elevation_budget

RESULTS = Path(__file__).resolve().parents[1] / "results" / "terrain_private.json"
SIDE_M = 4000.0
FLEETS = (300, 1000, 3000)
NOISE = (0.0, 0.5, 1.0, 2.0, 4.0)
AREA = (LATITUDE - 0.002, LATITUDE + 0.04, LONGITUDE - 0.002, LONGITUDE + 0.056)
COMMON: dict[str, Any] = {"refreshes": 1, "clip": 2.0, "most_nodes": 2000, "area": AREA}


def correlation(field: ElevationMap) -> float | None:
    """With the invented hills, over all published nodes; None where nothing is left of them."""
    if field.nodes < 30 or np.ptp(field.elevation_m) == 0:
        return None
    latitude, longitude = GRID.positions(field.keys)
    north = (latitude - LATITUDE) * DEGREE_M
    east = (longitude - LONGITUDE) * DEGREE_M * np.cos(np.radians(LATITUDE))
    return round(float(np.corrcoef(field.elevation_m, elevation_gain_m(east, north))[0, 1]), 3)


def main() -> None:
    rows = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    done = {(row["vehicles"], row["noise_multiplier"]) for row in rows}
    for vehicles in FLEETS:
        due = [noise for noise in NOISE if (vehicles, noise) not in done]
        surveys = [driven(number, SIDE_M)[0] for number in range(vehicles if due else 0)]
        for noise in due:
            settings = ElevationSettings(noise_multiplier=noise, **COMMON)
            field = shared_map(surveys, GRID, settings)
            budget = elevation_budget(settings, population=vehicles)
            epsilon = None if budget is None else round(budget.epsilon(settings.releases), 2)
            row = {"vehicles": vehicles, "noise_multiplier": noise, "epsilon": epsilon}
            row |= {"nodes": field.nodes, "correlation": correlation(field)}
            rows.append(row)
            print(row, flush=True)
            about = {**COMMON, "side_m": SIDE_M}
            RESULTS.write_text(json.dumps({"settings": about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
