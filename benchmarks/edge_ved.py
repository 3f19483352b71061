"""The model in the vehicle on real VED: results/edge_ved.json and the tables of docs/edge.md.

    python benchmarks/edge_ved.py            measure (about ten minutes on one core), then write
    python benchmarks/edge_ved.py --machine  measure only latency and memory again
    python benchmarks/edge_ved.py --tables   write the tables of what was measured before

Trains one federated model, one of each vehicle alone and one of all windows pooled; exports them
for every vehicle; judges windows, whole trips and error bars on test trips; and feeds raw trips
sample by sample. The page shows nothing that is not in the file.
"""

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from edge_tables import write_tables

from fedwatt.bench.latency import bench_backbones, bench_model
from fedwatt.edge.export import TrainedModel, export
from fedwatt.edge.interval import Calibration, Outcome
from fedwatt.edge.predictor import EnergyPredictor
from fedwatt.edge.session import EnergyModel
from fedwatt.edge.trips import outcome, predict_trip
from fedwatt.federation import Federation, Training
from fedwatt.fleet import Client, DataSettings, Fleet, Vehicle, build_fleet, synthetic_vehicles
from fedwatt.fleet.client import split_of_trips
from fedwatt.fleet.imported import imported_vehicles
from fedwatt.models import Model, get_model
from fedwatt.randomness import generator
from fedwatt.runs.config import from_tables
from fedwatt.runs.files import write_text
from fedwatt.telemetry import import_ved
from fedwatt.telemetry.records import RawTrip
from fedwatt.telemetry.spill import Spill
from fedwatt.telemetry.stream import silent
from fedwatt.telemetry.trips import split_trips
from fedwatt.telemetry.ved import VedReader

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "edge_ved.json"
POWERTRAIN, MINIMUM_TRIPS = ("ev", "phev-electric"), 20
STRIDE, ROUNDS, RATE = 5, 20, 0.05
STREAMED = ("ved-11", "ved-371", "ved-457")
METHODS = ("fedavg", "fedprox", "scaffold", "fednova", "fedadam", "moon", "feddyn", "fedel")
METHODS += ("ri-fedavg", "fo-fedavg", "fo-ri-fedavg")
SPLITS = ("train", "validation", "test")


def ved_file() -> Path:
    """The electric and plug-in cars of VED, where they are at hand."""
    folder = Path(os.environ.get("FEDWATT_DATA", ROOT.parent / "shared" / "data"))
    file = folder / "ved" / "EV_PHEV.parquet"
    if not file.is_file():
        sys.exit(f"VED is not at hand: {file} does not exist. Set FEDWATT_DATA to its folder.")
    return file


def measure() -> dict[str, Any]:
    torch.set_num_threads(1)
    file = ved_file()
    vehicles = list(
        imported_vehicles(import_ved([file], powertrain=POWERTRAIN, minimum_trips=MINIMUM_TRIPS))
    )
    settings = DataSettings(stride=STRIDE)
    fleet = build_fleet(vehicles, settings, "VED")
    names = {vehicle.name: vehicle for vehicle in vehicles}
    mlp = get_model("mlp", window=60, features=len(fleet.features))
    federated = trained(fleet, mlp, rounds=ROUNDS)
    models = {"federated": dict.fromkeys(names, federated)}
    models["local-only"] = {
        client.name: trained(Fleet((client,), settings, client.name), mlp, rounds=ROUNDS)
        for client in fleet.clients
    }
    pooled = trained(Fleet((together(fleet),), settings, "pooled"), mlp, rounds=ROUNDS)
    models["pooled"] = dict.fromkeys(names, pooled)
    with TemporaryDirectory() as folder:
        file_of = Path(folder) / "model.onnx"
        judged = {
            kind: {
                name: judge(as_run(own[name], "mlp"), vehicle, file_of)
                for name, vehicle in names.items()
            }
            for kind, own in models.items()
        }
        return {
            "vehicles": len(vehicles),
            "rounds": ROUNDS,
            "stride": STRIDE,
            "judged": judged,
            "forms": forms(as_run(federated, "mlp"), names, file_of),
            "agreement": agreement(fleet, names, federated, file_of),
            "stream": stream(as_run(federated, "mlp"), names, file, file_of),
            "methods": methods(fleet),
            **machine(),
        }


def trained(fleet: Fleet, model: Model, *, rounds: int, method: str = "fedavg", **own: Any) -> Any:
    """Weights [D] of the round with the lowest validation error."""
    training = Training(rounds=rounds, participation=1.0, rate=RATE, **own)
    federation = Federation(fleet, model, training=training, seeds=(1,), device="cpu")
    return federation.train(method).state.best_weights[0][: model.layout.size]


def together(fleet: Fleet) -> Client:
    """All vehicles as one client; scaling stays each vehicle's own."""
    starts = np.cumsum([0, *(len(client.series) for client in fleet.clients)])
    placed = list(zip(fleet.clients, starts[:-1], strict=True))
    return Client(
        name="pooled",
        features=fleet.features,
        window=fleet.window,
        series=np.concatenate([client.series for client in fleet.clients]),
        ends={s: np.concatenate([c.ends[s] + start for c, start in placed]) for s in SPLITS},
        labels={s: np.concatenate([c.labels[s] for c in fleet.clients]) for s in SPLITS},
        label_center_wh=0.0,
        label_scale_wh=1.0,
        strata={},
        trips=dict.fromkeys(SPLITS, ()),
    )


def as_run(weights: Any, backbone: str) -> TrainedModel:
    config = from_tables(
        {"seeds": [1], "data": {"stride": STRIDE}, "model": {"name": backbone}}
        | {"method": [{"name": "fedavg"}]}
    )
    layout = get_model(backbone, window=60, features=8).layout
    parts = {name: part.numpy() for name, part in layout.split(weights).items()}
    return TrainedModel(parts, config, "fedavg", 1)


def outcomes(model: EnergyModel, vehicle: Vehicle) -> list[tuple[float, Outcome]]:
    """Kilometres and outcome of every test trip."""
    splits = split_of_trips(vehicle, DataSettings(stride=STRIDE))
    return [
        (float(trip.channels["speed_mps"].sum()) / 1000, outcome(model, trip, vehicle.name))
        for trip in vehicle.trips
        if splits.get(trip.name) == "test"
    ]


def judge(run: TrainedModel, vehicle: Vehicle, file: Path) -> dict[str, Any]:
    """Window and trip errors and coverage of the 90 % intervals on test trips."""
    card = export(run, file, vehicle=vehicle)
    found = outcomes(EnergyModel(file), vehicle)
    bars = Calibration.from_json(card.calibration)
    inside, by_trip, widths, whole, trip_widths = [], [], [], [], []
    for _, o in found:
        low, high = bars.around(o.windows_wh, o.speed_mps)
        covered = (low <= o.measured_wh) & (o.measured_wh <= high)
        inside.append(covered)
        by_trip.append(covered.mean())
        widths.append((high - low).mean())
        low_trip, high_trip = bars.trip(o.trip_wh, o.seconds)
        whole.append(float(low_trip) <= o.trip_measured_wh <= float(high_trip))
        trip_widths.append(float(high_trip - low_trip))
    errors = np.concatenate([o.windows_wh - o.measured_wh for _, o in found])
    shares = [
        100 * abs(o.trip_wh - o.trip_measured_wh) / abs(o.trip_measured_wh)
        for km, o in found
        if km >= 2
    ]
    return {
        "test_trips": len(found),
        "test_windows": len(errors),
        "calibrated_on": card.calibration["source"],
        "calibration_trips": card.calibration["trips"],
        "rmse_wh": math.sqrt(float((errors**2).mean())),
        "windows_covered": float(np.concatenate(inside).mean()),
        "windows_covered_by_trip": float(np.mean(by_trip)),
        "window_width_wh": float(np.mean(widths)),
        "trips_covered": float(np.mean(whole)),
        "trip_width_wh": float(np.mean(trip_widths)),
        "trip_errors_percent": shares,
    }


def forms(run: TrainedModel, vehicles: dict[str, Vehicle], file: Path) -> dict[str, Any]:
    """Size of each form and what it adds to the RMSE, mean over vehicles and worst."""
    found = {}
    for form in ("float32", "float16", "int8"):
        losses = []
        for name in STREAMED:
            card = export(run, file, vehicle=vehicles[name], form=form)
            losses.append(card.loss_wh or 0.0)
        found[form] = {"bytes": file.stat().st_size, "loss_wh": losses}
    return found


def agreement(
    fleet: Fleet, vehicles: dict[str, Vehicle], federated: Any, file: Path
) -> dict[str, Any]:
    """Largest difference between PyTorch and ONNX over all test windows, relative.

    Relative to the prediction or, where that is smaller, to one standard deviation of the label.
    """
    found: dict[str, Any] = {}
    for backbone in ("mlp", "gru", "lstm"):
        model = get_model(backbone, window=60, features=len(fleet.features))
        weights = federated
        if backbone != "mlp":
            weights = trained(fleet, model, rounds=1, steps=20)
        run = as_run(weights, backbone)
        export(run, file)
        plain = EnergyModel(file, features=fleet.features)
        worst = {"scaled features": 0.0, "physical features": 0.0}
        windows = 0
        for client in fleet.clients:
            ends = client.ends["test"]
            reference = torch_predictions(model, weights, client)
            gap = np.abs(plain.energies(client.series, ends) - reference)
            relative = gap / np.maximum(np.abs(reference), 1.0)
            worst["scaled features"] = max(worst["scaled features"], float(relative.max()))
            vehicle = vehicles[client.name]
            export(run, file, vehicle=vehicle)
            own = EnergyModel(file)
            splits = split_of_trips(vehicle, fleet.settings)
            test = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
            stride = fleet.settings.evaluation_stride
            got = np.concatenate(
                [predict_trip(own, trip, vehicle.name).windows_wh[::stride] for trip in test]
            )
            wh = client.energy_wh(reference)
            relative = np.abs(got - wh) / np.maximum(np.abs(wh), client.label_scale_wh)
            worst["physical features"] = max(worst["physical features"], float(relative.max()))
            windows += len(ends)
        found[backbone] = {"windows": windows, "worst_relative": worst}
    return found


def torch_predictions(model: Model, weights: Any, client: Client) -> Any:
    ends = client.ends["test"]
    found = []
    with torch.inference_mode():
        for some in np.array_split(ends, max(1, len(ends) // 512)):
            rows = some[:, None] + np.arange(1 - client.window, 1)
            found.append(model.predict(weights, torch.from_numpy(client.series[rows])).numpy())
    return np.concatenate(found).astype(float)


def raw_trips(file: Path, numbers: list[str]) -> dict[str, dict[str, RawTrip]]:
    """Rows of every trip as VED has them, in schema units, uncleaned."""
    reader = VedReader([file], POWERTRAIN, unlabelled=False)
    found = {}
    with TemporaryDirectory() as folder:
        spill = Spill(Path(folder), reader.columns)
        reader.read(spill, silent)
        for number in numbers:
            trips, _ = split_trips(spill.take(number), reader.columns, str)
            found[f"ved-{number}"] = {trip.name: trip for trip in trips}
    return found


def stream(
    run: TrainedModel, vehicles: dict[str, Vehicle], file: Path, model_file: Path
) -> dict[str, Any]:
    """Raw test trips sample by sample against the batch pipeline, in Wh."""
    raw = raw_trips(file, [name.partition("-")[2] for name in STREAMED])
    found = {}
    for name in STREAMED:
        vehicle = vehicles[name]
        export(run, model_file, vehicle=vehicle)
        model = EnergyModel(model_file)
        splits = split_of_trips(vehicle, DataSettings(stride=STRIDE))
        trips = windows = 0
        worst = 0.0
        for trip in vehicle.trips:
            if splits.get(trip.name) != "test":
                continue
            source = re.match(r"\d+", trip.name)
            assert source is not None
            parts = streamed(EnergyPredictor(model), raw[name][source[0]])
            wanted = predict_trip(model, trip, name).windows_wh
            gaps = [np.abs(part - wanted).max() for part in parts if len(part) == len(wanted)]
            worst = max(worst, float(min(gaps, default=math.inf)))
            trips += 1
            windows += len(wanted)
        found[name] = {"trips": trips, "windows": windows, "worst_wh": worst}
    return found


def streamed(predictor: EnergyPredictor, trip: RawTrip) -> list[Any]:
    """Window energies of each part that the stream makes of a raw trip."""
    channels = [name for name in predictor.channels if name in trip.channels]
    columns = [trip.channels[name].tolist() for name in channels]
    made = []
    for time_s, *values in zip(trip.time_s.tolist(), *columns, strict=True):
        made += predictor.push(time_s, dict(zip(channels, values, strict=True)))
    made += predictor.finish()
    parts: list[list[float]] = []
    for prediction in made:
        if prediction.second == predictor.model.card.window:
            parts.append([])
        parts[-1].append(prediction.energy_wh)
    return [np.array(part) for part in parts]


def methods(fleet: Fleet) -> list[dict[str, Any]]:
    """Latency of every method's MLP after two rounds: the same graph with other numbers in it."""
    model = get_model("mlp", window=60, features=len(fleet.features))
    found = []
    for method in METHODS:
        weights = trained(fleet, model, rounds=2, method=method, steps=5)
        found += bench_model(method, model, weights, windows=10_000, repeats=3)
    return [asdict(one) for one in found]


MEMORY = """
import sys
from pathlib import Path
from fedwatt.edge.predictor import EnergyPredictor
predictor = EnergyPredictor(sys.argv[1])
made = 0
for second in range(3600):
    sample = {"speed_mps": second % 20, "ambient_c": 12.0, "ac_w": 0.0, "heater_w": 300.0}
    made += len(predictor.push(float(second), sample))
assert made > 3500 and not {"torch", "polars", "pyarrow", "scipy"} & set(sys.modules)
status = Path("/proc/self/status").read_text()
print(int(status.partition("VmHWM:")[2].split()[0]) / 1024)
"""


def machine() -> dict[str, Any]:
    """Latency of the backbones, and peak memory (MB) of a process that predicts an hour."""
    latency = [asdict(found) for found in bench_backbones(repeats=5)]
    model = get_model("mlp", window=60, features=8)
    run = as_run(model.initial(generator(0, "edge")).float(), "mlp")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        export(run, file, vehicle=next(synthetic_vehicles(1, trips=20)))
        done = subprocess.run(
            [sys.executable, "-c", MEMORY, str(file)], capture_output=True, text=True, check=True
        )
    return {"latency": latency, "memory_mb": float(done.stdout)}


if __name__ == "__main__":
    if "--machine" in sys.argv:
        before = json.loads(RESULTS.read_text(encoding="utf-8"))
        write_text(RESULTS, json.dumps(before | machine(), indent=1) + "\n")
    elif "--tables" not in sys.argv:
        write_text(RESULTS, json.dumps(measure(), indent=1) + "\n")
    write_tables(json.loads(RESULTS.read_text(encoding="utf-8")))
