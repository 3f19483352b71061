"""The model in the vehicle on real VED: results/edge_ved.json and the tables of docs/edge.md.

    python benchmarks/edge_ved.py                         measure everything, then write
    python benchmarks/edge_ved.py --resume                go on where a measurement was interrupted
    python benchmarks/edge_ved.py --parts latency,memory  measure only these again
    python benchmarks/edge_ved.py --tables                write the tables of what was measured

Trains federated models with and without hills, one of each vehicle alone and one of all windows
pooled; exports them for every vehicle; evaluates windows, whole trips and error bars on test trips;
and feeds raw trips sample by sample. The page shows nothing that is not in the file.
"""

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from benchmarks.edge_agreement import agreement
from benchmarks.edge_day import day_of_driving
from benchmarks.edge_stream import stream
from benchmarks.edge_tables import write_tables
from benchmarks.latency import Subject, backbone_subjects, measure, method_subjects
from fedwatt.edge.calibration import PredictionIntervals
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import TrainedModel, export
from fedwatt.edge.trips import outcome, predict_trip
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import Learned, add_elevation, learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.evaluation.finetune import Personalisation, personalised_models
from fedwatt.federation import Federation, Training
from fedwatt.files import write_text
from fedwatt.models import get_model
from fedwatt.randomness import generator
from fedwatt.runs.config import from_tables
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.windows import Client, DataSettings, Fleet, build_fleet
from fedwatt.windows.client import split_of_trips

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "edge_ved.json"
UNFINISHED = RESULTS.with_suffix(".partial.json")
POWERTRAIN = ("ev", "phev-electric")
MINIMUM_TRIPS = 20
STRIDE = 5
ROUNDS = 20
RATE = 0.05
STREAMED = ("ved-11", "ved-371", "ved-457")
SPLITS = ("train", "validation", "test")
PLAIN = "base"
HILLS = "base, elevation"
Weights = dict[str, torch.Tensor]


def ved_file() -> Path:
    """Return the file of VED's electric and plug-in cars; exit if it is missing."""
    folder = Path(os.environ.get("FEDWATT_DATA", ROOT.parent / "shared" / "data"))
    file = folder / "ved" / "EV_PHEV.parquet"
    if not file.is_file():
        sys.exit(f"VED is not at hand: {file} does not exist. Set FEDWATT_DATA to its folder.")
    return file


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:6.0f} s  {text}", flush=True)


BEGAN = time.monotonic()


@dataclass
class Bench:
    """Vehicles, fleets and models, each made when a part first needs it."""

    folder: Path

    @cached_property
    def vehicles(self) -> dict[str, Vehicle]:
        """Import VED's vehicles."""
        say("importing VED")
        cleaning = replace(VED_CLEANING, minimum_trips=MINIMUM_TRIPS)
        imported = import_ved([ved_file()], powertrain=POWERTRAIN, cleaning=cleaning)
        return {vehicle.name: vehicle for vehicle in imported}

    @cached_property
    def learned(self) -> Learned:
        """Learn the elevation maps."""
        say("learning the hills")
        fixed = ElevationSettings(source="learn", choose_prior=False)
        return learn(self.vehicles.values(), fixed, settings(HILLS))

    @cached_property
    def fleet(self) -> Fleet:
        """Return the fleet without elevation."""
        return build_fleet(self.vehicles.values(), settings(PLAIN), "VED")

    @cached_property
    def hilly(self) -> Fleet:
        """Return the fleet with learned elevation."""
        driven = add_elevation(self.vehicles.values(), self.learned)
        return build_fleet(driven, settings(HILLS), "VED")

    @cached_property
    def federated(self) -> torch.Tensor:
        """Train the shared model without elevation."""
        return trained(self.fleet)

    @cached_property
    def federated_elevation(self) -> torch.Tensor:
        """Train the shared model with elevation."""
        return trained(self.hilly)

    @cached_property
    def tuned(self) -> Weights:
        """Fine-tune the shared model without elevation in each vehicle."""
        return fine_tuned(self.fleet, self.federated)

    def field(self, name: str, features: str) -> ElevationMap | None:
        """Return the vehicle's map where the features need one."""
        return self.learned.maps[name] if features == HILLS else None

    def run(self, features: str, backbone: str = "mlp") -> TrainedModel:
        """Return the shared model as a run folder holds it."""
        weights = self.federated_elevation if features == HILLS else self.federated
        return as_run(weights, features, backbone)


def settings(features: str) -> DataSettings:
    """Return the windows' settings with these features."""
    return DataSettings(stride=STRIDE, features=features)


def federation_of(fleet: Fleet, backbone: str = "mlp", **options: Any) -> Federation:
    """Return a federation of the fleet with the benchmark's training settings."""
    model = get_model(backbone, window=60, features=len(fleet.features))
    terms = {"rounds": ROUNDS, "participation": 1.0, "learning_rate": RATE} | options
    return Federation(fleet, model, training=Training(**terms), seeds=(1,), device="cpu")


def trained(fleet: Fleet, backbone: str = "mlp", **options: Any) -> torch.Tensor:
    """Weights [D] of the round with the lowest validation error."""
    say(f"training {backbone.upper()} of {fleet.source}, {len(fleet.features)} features")
    federation = federation_of(fleet, backbone, **options)
    size = federation.model.layout.size
    return federation.train("fedavg").state.best_weights[0][:size]


def fine_tuned(fleet: Fleet, weights: torch.Tensor) -> Weights:
    """Each vehicle's own model."""
    say(f"fine-tuning in each vehicle, {len(fleet.features)} features")
    everyone = range(len(fleet.clients))
    tuned = personalised_models(federation_of(fleet), weights[None], Personalisation(), everyone)
    return {fleet.clients[model.vehicle].name: model.weights for model in tuned}


def alone(fleet: Fleet) -> Weights:
    """Train a model in each vehicle by itself."""
    one_each = (Fleet((client,), fleet.settings, client.name) for client in fleet.clients)
    return {single.source: trained(single) for single in one_each}


def together(fleet: Fleet) -> Fleet:
    """All vehicles as one client; scaling stays each vehicle's own."""
    starts = np.cumsum([0, *(len(client.series) for client in fleet.clients)])
    placed = list(zip(fleet.clients, starts[:-1], strict=True))
    pooled = Client(
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
    return Fleet((pooled,), fleet.settings, "pooled")


def as_run(weights: torch.Tensor, features: str, backbone: str = "mlp") -> TrainedModel:
    """Return weights as the trained model of a run."""
    data = {"stride": STRIDE, "features": features}
    config = from_tables(
        {"seeds": [1], "data": data, "model": {"name": backbone}, "method": [{"name": "fedavg"}]}
    )
    model = get_model(backbone, window=60, features=len(config.data.columns))
    parts = {name: part.numpy() for name, part in model.layout.split(weights).items()}
    return TrainedModel(parts, config, "fedavg", 1)


# ------------------------------------------------------------------------------ parts
def evaluated(bench: Bench) -> dict[str, Any]:
    """Every kind of model on the test trips of every vehicle."""
    names = list(bench.vehicles)
    fleet = bench.fleet
    hilly = bench.hilly
    federated = dict.fromkeys(names, bench.federated)
    kinds: dict[str, tuple[str, Callable[[], Weights]]] = {
        "federated": (PLAIN, lambda: federated),
        "local-only": (PLAIN, lambda: alone(fleet)),
        "pooled": (PLAIN, lambda: dict.fromkeys(names, trained(together(fleet)))),
        "federated, fine-tuned": (PLAIN, lambda: bench.tuned),
        "federated, hills": (HILLS, lambda: dict.fromkeys(names, bench.federated_elevation)),
        "federated, hills, fine-tuned": (
            HILLS,
            lambda: fine_tuned(hilly, bench.federated_elevation),
        ),
    }
    by_vehicle: dict[str, dict[str, Any]] = {}
    for kind, (features, make) in kinds.items():
        weights = make()
        say(f"judging: {kind}")
        by_vehicle[kind] = {}
        for name in names:
            run = as_run(weights[name], features)
            by_vehicle[kind][name] = evaluate(bench, run, name, features)
    return by_vehicle


def evaluate(bench: Bench, run: TrainedModel, name: str, features: str) -> dict[str, Any]:
    """Window and trip errors and coverage of the 90 % intervals on test trips."""
    vehicle = bench.vehicles[name]
    file = bench.folder / "model.onnx"
    card = export(run, file, vehicle=vehicle, field=bench.field(name, features))
    model = EnergyModel(file)
    splits = split_of_trips(vehicle, settings(features))
    test = [trip for trip in vehicle.trips if splits.get(trip.name) == "test"]
    outcomes = [
        (trip.channels["speed_mps"].sum() / 1000, outcome(model, trip, name)) for trip in test
    ]
    trips = [predict_trip(model, trip, name) for trip in test]
    hills = [predicted.climb_known for predicted in trips if predicted.climb_known is not None]
    bars = PredictionIntervals.of(card)
    inside = []
    widths = []
    per_trip = []
    trip_widths = []
    for (_, o), predicted in zip(outcomes, trips, strict=True):
        low, high = bars.around(o.windows_wh, o.speed_mps, predicted.climb_known)
        inside.append((low <= o.measured_wh) & (o.measured_wh <= high))
        widths.append((high - low).mean())
        low_trip = float(predicted.low_wh[-1])
        high_trip = float(predicted.high_wh[-1])
        per_trip.append(low_trip <= o.trip_measured_wh <= high_trip)
        trip_widths.append(high_trip - low_trip)
    errors = np.concatenate([o.windows_wh - o.measured_wh for _, o in outcomes])
    shares = [
        100 * abs(o.trip_wh - o.trip_measured_wh) / abs(o.trip_measured_wh)
        for km, o in outcomes
        if km >= 2
    ]
    return {
        "test_trips": len(outcomes),
        "test_windows": len(errors),
        "calibrated_on": card.calibration["source"],
        "calibration_trips": card.calibration["trips"],
        "file_bytes": file.stat().st_size,
        "rmse_wh": math.sqrt(float((errors**2).mean())),
        "windows_covered": float(np.concatenate(inside).mean()),
        "window_width_wh": float(np.mean(widths)),
        "trips_covered": float(np.mean(per_trip)),
        "trip_width_wh": float(np.mean(trip_widths)),
        "trip_errors_percent": shares,
        "by_elevation": float(np.mean(np.concatenate(hills))) if hills else None,
    }


def forms(bench: Bench) -> dict[str, Any]:
    """Size of each form and what it adds to the RMSE of three vehicles, without and with hills."""
    by_form: dict[str, Any] = {}
    for features, end in ((PLAIN, ""), (HILLS, "_hills")):
        for form in ("float32", "float16", "int8"):
            sizes = []
            losses = []
            for name in STREAMED:
                vehicle = bench.vehicles[name]
                file = bench.folder / "model.onnx"
                field = bench.field(name, features)
                card = export(bench.run(features), file, vehicle=vehicle, form=form, field=field)
                losses.append(card.loss_wh or 0.0)
                sizes.append(file.stat().st_size)
            by_form.setdefault(form, {})
            by_form[form] |= {f"bytes{end}": max(sizes), f"loss_wh{end}": losses}
    return by_form


def agree(bench: Bench) -> dict[str, Any]:
    """PyTorch against ONNX for trained models of every backbone."""
    recurrent = {"rounds": 4, "steps": 40, "evaluate_every": 4}
    differences = {}
    for backbone in ("mlp", "gru", "lstm"):
        weights = bench.federated
        if backbone != "mlp":
            weights = trained(bench.fleet, backbone, **recurrent)
        say(f"comparing {backbone.upper()} in PyTorch and onnxruntime")
        run = as_run(weights, PLAIN, backbone)
        differences[backbone] = agreement(run, weights, bench.fleet, bench.vehicles, bench.folder)
    return differences


def streams(bench: Bench) -> dict[str, Any]:
    """Raw test trips sample by sample, with and without hills."""
    by_model: dict[str, Any] = {}
    for features, kind in ((PLAIN, "stream"), (HILLS, "stream_hills")):
        file = bench.folder / "model.onnx"
        models = {}
        for name in STREAMED:
            vehicle = bench.vehicles[name]
            field = bench.field(name, features)
            export(bench.run(features), file, vehicle=vehicle, field=field)
            models[name] = EnergyModel(file)
        say(f"streaming raw trips, features: {features}")
        vehicles = {name: bench.vehicles[name] for name in STREAMED}
        by_model[kind] = stream(ved_file(), POWERTRAIN, models, vehicles, settings(features))
    return by_model


def latency(bench: Bench) -> list[dict[str, Any]]:
    """Measure every backbone in both engines."""
    return [asdict(timing) for timing in measure(backbone_subjects(), longest_s=10.0)]


def latency_hills(bench: Bench) -> list[dict[str, Any]]:
    """Measure the MLP with elevation."""
    columns = len(settings(HILLS).columns)
    model = get_model("mlp", window=60, features=columns)
    weights = model.initial(generator(0, "edge")).float()
    export(as_run(weights, HILLS), bench.folder / "subject.onnx")
    engines = {
        "PyTorch": lambda batch: model.predict(weights, torch.from_numpy(batch)),
        "onnxruntime": EnergyModel(bench.folder / "subject.onnx").energy,
    }
    subjects = [Subject("MLP with hills", engines)]
    return [asdict(timing) for timing in measure(subjects, features=columns)]


def methods(bench: Bench) -> list[dict[str, Any]]:
    """Measure the MLP of every method: the same graph with other numbers in it."""
    return [asdict(timing) for timing in measure(method_subjects())]


def memory(bench: Bench) -> dict[str, Any]:
    """Measure memory (MB) of a process that predicts a day: its peak, and its growth."""
    data = DataSettings(features=HILLS)
    vehicles = list(synthetic_vehicles(3, trips=20))
    fixed = ElevationSettings(minimum_vehicles=1, source="learn", choose_prior=False)
    learned = learn(vehicles, fixed, data)
    model = get_model("mlp", window=60, features=len(data.columns))
    run = as_run(model.initial(generator(0, "edge")).float(), HILLS)
    file = bench.folder / "model.onnx"
    run = replace(run, config=replace(run.config, data=data))
    export(run, file, vehicle=vehicles[0], field=learned.maps[vehicles[0].name])
    return day_of_driving(file)


PARTS: dict[str, Callable[[Bench], Any]] = {
    "evaluated": evaluated,
    "forms": forms,
    "agreement": agree,
    "streams": streams,
    "latency": latency,
    "latency_hills": latency_hills,
    "methods": methods,
    "memory": memory,
}


def measure_parts(parts: list[str], record: dict[str, Any], keep: Path) -> dict[str, Any]:
    """`found` with these parts measured; `keep` holds it after each of them."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        bench = Bench(Path(folder))
        for part in parts:
            say(f"== {part}")
            record = record | {part: PARTS[part](bench)}
            write_text(keep, json.dumps(record, indent=1) + "\n")
    return record


def main() -> None:
    """Measure the chosen parts and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.parts:
        before = json.loads(RESULTS.read_text(encoding="utf-8"))
        measure_parts(options.parts.split(","), before, RESULTS)
    elif not options.tables:
        record = {"rounds": ROUNDS, "stride": STRIDE, "learning_rate": RATE}
        if options.resume and UNFINISHED.exists():
            record = json.loads(UNFINISHED.read_text(encoding="utf-8"))
        measure_parts([part for part in PARTS if part not in record], record, UNFINISHED)
        UNFINISHED.replace(RESULTS)
    write_tables(json.loads(RESULTS.read_text(encoding="utf-8")))
    say("done")


if __name__ == "__main__":
    main()
