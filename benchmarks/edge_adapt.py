"""`fedwatt adapt` on vehicles of VED that a run left out: results/adapt.json, docs/adapt.md.

    python -m benchmarks.edge_adapt --fleet FLEET --runs RUNS
    python -m benchmarks.edge_adapt          writes the table of what was measured

The first trains where RUNS has no runs yet, measures and writes. FLEET is made by
`fedwatt data import ved PATH --powertrain ev,phev-electric`. One run has all vehicles, whose
personalised models are the members', and one is without each vehicle of `LEFT_OUT`. Of the vehicle
left out, 0, 1, 5 and 20 trips are drawn `DRAWS` times from the trips that the member trains and
validates with, and last it has all of these; all models predict the trips that test the member.
Beside these stand a member that has only the 20 trips of the first draw, in a run of its own, and
the vehicle that was left out with the elevation map of the member that has all trips.
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
from fedwatt.edge.calibration import PredictionIntervals
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export_run import export_run
from fedwatt.edge.trips import predict_trip
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.files import write_text
from fedwatt.randomness import generator
from fedwatt.runs.config import from_tables
from fedwatt.runs.defaults import stored_recipe
from fedwatt.runs.model_file import read_model_config
from fedwatt.runs.run import Run
from fedwatt.telemetry import Trip, Vehicle
from fedwatt.telemetry.store import read_vehicle, write_vehicle
from fedwatt.windows.client import split_of_trips
from fedwatt.windows.splits import window_ends, window_means, window_sums

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "results" / "adapt.json"
PAGE = ROOT / "docs" / "adapt.md"
LEFT_OUT = ("ved-10", "ved-371", "ved-455", "ved-457", "ved-492", "ved-561")
MOST = 20
TRIPS = (0, 1, 5, MOST)
ALL = "all"
DRAWS = 4
LEAST_M = 2000.0
MEMBER = "member"
FIRST_DRAW = f"{MOST}, first draw"
MEMBER_OF_FEW = "member with these"
WITH_MAP = f"{MOST}, member's map"
ROWS = (*map(str, TRIPS), ALL, MEMBER, WITH_MAP, FIRST_DRAW, MEMBER_OF_FEW)
COVERED = ("windows_covered", "trips_covered")
Cell = dict[str, float]


def trained_run(
    fleet: Path, runs: Path, name: str, left_out: Sequence[str], few: Vehicle | None = None
) -> Path:
    """Return the run of the default recipe without some vehicles, trained if it is not there.

    A vehicle of `few` trips takes part with these.
    """
    run = runs / name
    if (run / "environment.json").exists():
        return run
    folder = runs / f"fleet-{name}"
    without = {*left_out, *([] if few is None else [few.name])}
    shutil.copytree(fleet, folder, ignore=lambda _, names: set(names) & without)
    if few is not None:
        write_vehicle(folder / few.name, few)
    tables = {"fleet": {"data": str(folder)}, "seeds": [1], "baselines": {"enabled": False}}
    Run(from_tables(stored_recipe(folder).applied(tables)), out=run).execute()
    return run


def measured(
    file: Path, vehicle: str, trips: Sequence[Trip], field: ElevationMap | None = None
) -> dict[str, float]:
    """Return the errors of a model file on trips and the shares that its 90 % intervals cover.

    With a `field` climb is read from that map, not from the file's.
    """
    model = EnergyModel(file)
    if field is not None:
        model.field = field
    intervals = PredictionIntervals.of(model.card)
    length = model.card.window
    errors = []
    covered = []
    trip_errors = []
    trips_covered = []
    for trip in trips:
        prediction = predict_trip(model, trip, vehicle)
        ends = window_ends(trip.seconds, length=length)
        true_wh = window_sums(trip.channels["energy_wh"], ends, length=length)
        errors.append(prediction.windows_wh - true_wh)
        speed_mps = window_means(prediction.trip.channels["speed_mps"], ends, length=length)
        low_wh, high_wh = intervals.around(
            prediction.windows_wh, speed_mps, prediction.climb_known, prediction.cold
        )
        covered.append((low_wh <= true_wh) & (true_wh <= high_wh))
        if prediction.kilometres * 1000 >= LEAST_M:
            energy_wh = float(trip.channels["energy_wh"].sum())
            trip_errors.append(abs(prediction.total_wh / energy_wh - 1))
            low, high = prediction.interval_wh or (np.inf, -np.inf)
            trips_covered.append(low <= energy_wh <= high)
    return {
        "rmse_wh": float(np.sqrt((np.concatenate(errors) ** 2).mean())),
        "trip_error": float(np.median(trip_errors)),
        "windows_covered": float(np.concatenate(covered).mean()),
        "trips_covered": float(np.mean(trips_covered)),
    }


def vehicle_rows(fleet: Path, runs: Path, name: str, scratch: Path) -> dict[str, list[Cell]]:
    """Return what each number of trips gives one vehicle, a row for each draw."""
    member_run = trained_run(fleet, runs, "all", ())
    run = trained_run(fleet, runs, f"without-{name}", (name,))
    vehicle = read_vehicle(fleet / name)
    split_of = split_of_trips(vehicle, read_model_config(member_run).data)
    tested = [trip for trip in vehicle.trips if split_of.get(trip.name) == "test"]
    learnable = [trip for trip in vehicle.trips if split_of.get(trip.name, "test") != "test"]
    recordings = sorted({trip.recording for trip in learnable})

    def drawn(trips: int, draw: int) -> Vehicle:
        chosen = generator(draw, "adapt", name).permutation(recordings)[:trips].tolist()
        return replace(vehicle, trips=tuple(t for t in learnable if t.recording in chosen))

    member = scratch / "member.onnx"
    export_run(member_run, member, model="personalised", vehicle=fleet / name)
    rows: dict[str, list[Cell]] = {}
    file = scratch / "model.onnx"
    for trips in (*TRIPS, len(recordings)):
        label = ALL if trips == len(recordings) else str(trips)
        rows[label] = []
        for draw in range(DRAWS if 0 < trips < len(recordings) else 1):
            adaptation = adapt(run, file, vehicle=drawn(trips, draw))
            rows[label].append(measured(file, name, tested))
            print(name, label, draw, rows[label][-1], adaptation.chosen, flush=True)
            if trips == MOST:
                with_map = measured(file, name, tested, EnergyModel(member).field)
                rows.setdefault(WITH_MAP, []).append(with_map)
    few_run = trained_run(fleet, runs, f"few-{name}", (), drawn(MOST, 0))
    export_run(few_run, file, model="personalised", vehicle=runs / f"fleet-few-{name}" / name)
    rows[FIRST_DRAW] = rows[str(MOST)][:1]
    rows[MEMBER_OF_FEW] = [measured(file, name, tested)]
    rows[MEMBER] = [measured(member, name, tested)]
    return rows


def tables(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the Markdown of each block of the page."""
    rows = []
    for trips, mean in record["mean"].items():
        windows = f"{mean['rmse_wh']:.1f}|{mean['rmse_of_member']:.2f}"
        errors = f"{windows}|{mean['trip_error']:.1%}|{mean['trip_of_member']:.2f}"
        shares = [f"{mean[name]:.0%} ({mean[f'least_{name}']:.0%})" for name in COVERED]
        rows.append("|".join([trips, errors, *shares]))
    header = "trips|window RMSE, Wh|of a member's|median trip error|of a member's"
    return {"learned": table(f"{header}|windows covered (least)|trips covered (least)", rows)}


def summary(vehicles: Mapping[str, Mapping[str, Sequence[Cell]]]) -> dict[str, Cell]:
    """Return means over draws, then over vehicles, and the least coverage of a vehicle."""
    mean: dict[str, Cell] = {}
    for trips in ROWS:
        cells = [
            {name: float(np.mean([row[name] for row in rows[trips]])) for name in rows[trips][0]}
            for rows in vehicles.values()
        ]
        mean[trips] = {
            name: round(float(np.mean([cell[name] for cell in cells])), 4) for name in cells[0]
        }
        for name in COVERED:
            mean[trips][f"least_{name}"] = round(min(cell[name] for cell in cells), 4)
    for cell in mean.values():
        cell["rmse_of_member"] = round(cell["rmse_wh"] / mean[MEMBER]["rmse_wh"], 3)
        cell["trip_of_member"] = round(cell["trip_error"] / mean[MEMBER]["trip_error"], 3)
    return mean


def left_out(fleet: Path, runs: Path) -> dict[str, Any]:
    """Return what adapting gives the vehicles of a fleet that were left out."""
    vehicles: dict[str, Any] = {}
    for name in LEFT_OUT:
        with TemporaryDirectory() as scratch:
            vehicles[name] = vehicle_rows(fleet, runs, name, Path(scratch))
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
