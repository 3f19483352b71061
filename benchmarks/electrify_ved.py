"""VED's hybrid and petrol cars, driven as electric cars, trucks and buses.

    python benchmarks/electrify_ved.py PATH/TO/HEV_ICE_speed.parquet

Imports the speed traces once, electrifies them as each kind of vehicle, and writes what came of it
to results/electrified_ved.json: clients, trips, consumption and the time it took. All aggregates.
"""

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedwatt.synthetic.electrify import electrified_vehicle
from fedwatt.synthetic.vehicle import DUTIES
from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.windows.client import DataSettings, split_of_trips

REPOSITORY = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, help="speed traces in VED's columns")
    arguments = parser.parse_args()
    began = time.perf_counter()
    unlabelled = replace(VED_CLEANING, unlabelled=True)
    recordings = list(
        import_ved([arguments.traces], powertrain=("hev", "ice"), cleaning=unlabelled)
    )
    results: dict[str, Any] = {
        "data": "VED, hybrid and petrol cars with at least 10 usable trips",
        "import_seconds": round(time.perf_counter() - began, 1),
    }
    settings = DataSettings()
    splits: dict[str, list[Any]] = {}
    for kind in DUTIES:
        began = time.perf_counter()
        vehicles = [electrified_vehicle(recording, kind=kind) for recording in recordings]
        seconds = time.perf_counter() - began
        km = np.array([sum(t.channels["speed_mps"].sum() for t in v.trips) for v in vehicles]) / 1e3
        wh = np.array([sum(t.channels["energy_wh"].sum() for t in v.trips) for v in vehicles])
        recorded_km = sum(trip.metres for r in recordings for trip in r.trips) / 1000
        splits[kind] = [split_of_trips(vehicle, settings) for vehicle in vehicles]
        results[kind] = {
            "vehicles": len(vehicles),
            "trips": sum(len(vehicle.trips) for vehicle in vehicles),
            "hours": round(sum(t.seconds for v in vehicles for t in v.trips) / 3600),
            "share_of_recorded_distance": round(float(km.sum() / recorded_km), 3),
            "wh_per_km_quantiles_5_50_95": np.quantile(wh / km, (0.05, 0.5, 0.95))
            .round(1)
            .tolist(),
            "seconds": round(seconds, 1),
        }
    results["same_split_for_every_kind"] = all(
        split == splits["passenger"] for split in splits.values()
    )
    out = REPOSITORY / "results" / "electrified_ved.json"
    out.parent.mkdir(exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
