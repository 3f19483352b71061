"""`fedwatt adapt` on vehicles of VED that a run left out: results/adapt.json, docs/adapt.md.

    python -m benchmarks.edge_adapt --fleet FLEET --runs RUNS
    python -m benchmarks.edge_adapt          writes the table of what was measured

The first trains where RUNS has no runs yet, measures and writes. FLEET is made by
`fedwatt data import ved PATH --powertrain ev,phev-electric`. One run has all vehicles, whose
personalised models are the members', and one is without each vehicle of `LEFT_OUT`. Of the vehicle
left out, 0, 1, 5 and 20 trips are drawn `DRAWS` times from the trips that the member trains and
validates with, and last it has all of these; all models predict the trips that test the member.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.marked import write_blocks
from benchmarks.tables import table
from fedwatt.edge.adapt import adapt
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export_run import export_run
from fedwatt.edge.trips import predict_trip
from fedwatt.files import write_text
from fedwatt.randomness import generator
from fedwatt.runs.config import from_tables
from fedwatt.runs.defaults import stored_recipe
from fedwatt.runs.model_file import read_model_config
from fedwatt.runs.run import Run
from fedwatt.telemetry import Trip
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.splits import window_ends, window_sums

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "adapt.json"
PAGE = ROOT / "docs" / "adapt.md"
LEFT_OUT = ("ved-10", "ved-371", "ved-455", "ved-457", "ved-492", "ved-561")
TRIPS = (0, 1, 5, 20)
ALL = "all"
DRAWS = 4
LEAST_M = 2000.0
MEMBER = "member"


def trained_run(fleet: Path, runs: Path, name: str, left_out: Sequence[str]) -> Path:
    """Return the run of the default recipe without some vehicles, trained if it is not there."""
    run = runs / name
    if (run / "environment.json").exists():
        return run
    folder = runs / f"fleet-{name}"
    shutil.copytree(fleet, folder, ignore=lambda _, names: set(names) & set(left_out))
    tables = {"fleet": {"data": str(folder)}, "seeds": [1], "baselines": {"enabled": False}}
    Run(from_tables(stored_recipe(folder).applied(tables)), out=run).execute()
    return run


def measured(model: Path, vehicle: str, trips: Sequence[Trip]) -> dict[str, float]:
    """Return the errors of a model file on trips."""
    opened = EnergyModel(model)
    errors = []
    trip_errors = []
    for trip in trips:
        prediction = predict_trip(opened, trip, vehicle)
        length = opened.card.window
        ends = window_ends(trip.seconds, length=length)
        true_wh = window_sums(trip.channels["energy_wh"], ends, length=length)
        errors.append(prediction.windows_wh - true_wh)
        if prediction.kilometres * 1000 >= LEAST_M:
            energy_wh = float(trip.channels["energy_wh"].sum())
            trip_errors.append(abs(prediction.total_wh / energy_wh - 1))
    return {
        "rmse_wh": float(np.sqrt((np.concatenate(errors) ** 2).mean())),
        "trip_error": float(np.median(trip_errors)),
    }


def vehicle_rows(
    run: Path, member_run: Path, folder: Path, scratch: Path
) -> dict[str, list[dict[str, float]]]:
    """Return what each number of trips gives one vehicle, a row for each draw."""
    vehicle = read_vehicle(folder)
    split_of = split_of_trips(vehicle, read_model_config(member_run).data)
    tested = [trip for trip in vehicle.trips if split_of.get(trip.name) == "test"]
    learnable = [trip for trip in vehicle.trips if split_of.get(trip.name, "test") != "test"]
    recordings = sorted({trip.recording for trip in learnable})
    file = scratch / "model.onnx"
    export_run(member_run, file, model="personalised", vehicle=folder)
    rows = {MEMBER: [measured(file, vehicle.name, tested)]}
    for trips in (*TRIPS, len(recordings)):
        name = ALL if trips == len(recordings) else str(trips)
        rows[name] = []
        for draw in range(DRAWS if 0 < trips < len(recordings) else 1):
            drawn = generator(draw, "adapt", vehicle.name).permutation(recordings)[:trips]
            few = tuple(trip for trip in learnable if trip.recording in set(drawn.tolist()))
            adaptation = adapt(run, file, vehicle=replace(vehicle, trips=few))
            rows[name].append(measured(file, vehicle.name, tested))
            print(vehicle.name, name, draw, rows[name][-1], adaptation.chosen, flush=True)
    return rows


def tables(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the Markdown of each block of the page."""
    rows = []
    for trips, mean in record["mean"].items():
        windows = f"{mean['rmse_wh']:.1f}|{mean['rmse_of_member']:.2f}"
        rows.append(f"{trips}|{windows}|{mean['trip_error']:.1%}|{mean['trip_of_member']:.2f}")
    header = "trips|window RMSE, Wh|of a member's|median trip error|of a member's"
    return {"learned": table(header, rows)}


def summary(vehicles: Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]) -> dict[str, Any]:
    """Return means over draws, then over vehicles."""
    mean: dict[str, dict[str, float]] = {}
    for trips in (*map(str, TRIPS), ALL, MEMBER):
        cells = [
            {name: float(np.mean([row[name] for row in rows[trips]])) for name in rows[trips][0]}
            for rows in vehicles.values()
        ]
        mean[trips] = {
            name: round(float(np.mean([cell[name] for cell in cells])), 4) for name in cells[0]
        }
    for cell in mean.values():
        cell["rmse_of_member"] = round(cell["rmse_wh"] / mean[MEMBER]["rmse_wh"], 3)
        cell["trip_of_member"] = round(cell["trip_error"] / mean[MEMBER]["trip_error"], 3)
    return mean


def left_out(fleet: Path, runs: Path) -> dict[str, Any]:
    """Return what adapting gives the vehicles of a fleet that were left out."""
    member_run = trained_run(fleet, runs, "all", ())
    vehicles: dict[str, Any] = {}
    for name in LEFT_OUT:
        run = trained_run(fleet, runs, f"without-{name}", (name,))
        with TemporaryDirectory() as scratch:
            vehicles[name] = vehicle_rows(run, member_run, fleet / name, Path(scratch))
    return {"mean": summary(vehicles), "vehicles": vehicles}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fleet", type=Path, help="measure with this fleet")
    parser.add_argument("--runs", type=Path, help="folder of the runs")
    options = parser.parse_args()
    if options.fleet:
        record = {"trips": TRIPS, "draws": DRAWS, **left_out(options.fleet, options.runs)}
        write_text(RESULTS, json.dumps(record, indent=1) + "\n")
    write_blocks(PAGE, tables(json.loads(RESULTS.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
