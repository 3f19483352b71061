"""The model in the vehicle on real VED: results/edge_ved.json and the tables of docs/edge.md.

    python benchmarks/edge_ved.py                         measure everything, then write
    python benchmarks/edge_ved.py --resume                go on where a measurement was interrupted
    python benchmarks/edge_ved.py --parts latency,memory  measure only these again
    python benchmarks/edge_ved.py --tables                write the tables of what was measured

Trains federated models with and without hills, exports them for vehicles, compares their
predictions with PyTorch's, and feeds raw trips sample by sample.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from benchmarks.edge_agreement import agreement, stream
from benchmarks.latency import Subject, backbone_subjects, measure
from benchmarks.marked import write_blocks
from benchmarks.tables import table
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.export import TrainedModel, export
from fedwatt.elevation.elevation_map import ElevationMap
from fedwatt.elevation.learn import Learned, add_elevation, learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.federation import Federation, Training
from fedwatt.files import write_text
from fedwatt.models import get_model
from fedwatt.randomness import generator
from fedwatt.runs.config import from_tables
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.telemetry.readers import VED_CLEANING, import_ved
from fedwatt.windows import DataSettings, Fleet, build_fleet

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results" / "edge_ved.json"
UNFINISHED = RESULTS.with_suffix(".partial.json")
POWERTRAIN = ("ev", "phev-electric")
MINIMUM_TRIPS = 20
STRIDE = 5
ROUNDS = 20
RATE = 0.05
PAGE = ROOT / "docs" / "edge.md"
STREAMED = ("ved-11", "ved-371", "ved-457")
PLAIN = "base"
WITH_ELEVATION = "base, elevation"


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
        return learn(self.vehicles.values(), fixed, settings(WITH_ELEVATION))

    @cached_property
    def fleet(self) -> Fleet:
        """Return the fleet without elevation."""
        return build_fleet(self.vehicles.values(), settings(PLAIN), "VED")

    @cached_property
    def hilly(self) -> Fleet:
        """Return the fleet with learned elevation."""
        driven = add_elevation(self.vehicles.values(), self.learned)
        return build_fleet(driven, settings(WITH_ELEVATION), "VED")

    @cached_property
    def federated(self) -> torch.Tensor:
        """Train the shared model without elevation."""
        return trained(self.fleet)

    @cached_property
    def federated_elevation(self) -> torch.Tensor:
        """Train the shared model with elevation."""
        return trained(self.hilly)

    def field(self, name: str, features: str) -> ElevationMap | None:
        """Return the vehicle's map where the features need one."""
        return self.learned.maps[name] if features == WITH_ELEVATION else None

    def run(self, features: str, backbone: str = "mlp") -> TrainedModel:
        """Return the shared model as a run folder holds it."""
        weights = self.federated_elevation if features == WITH_ELEVATION else self.federated
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
def sizes(bench: Bench) -> dict[str, int]:
    """Return the size of the largest file of three vehicles, without and with elevation."""
    largest = {}
    for features, name in ((PLAIN, "plain"), (WITH_ELEVATION, "elevation")):
        files = []
        for vehicle in STREAMED:
            file = bench.folder / "model.onnx"
            field = bench.field(vehicle, features)
            export(bench.run(features), file, vehicle=bench.vehicles[vehicle], field=field)
            files.append(file.stat().st_size)
        largest[name] = max(files)
    return largest


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
    for features, kind in ((PLAIN, "stream"), (WITH_ELEVATION, "stream_hills")):
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
    columns = len(settings(WITH_ELEVATION).columns)
    model = get_model("mlp", window=60, features=columns)
    weights = model.initial(generator(0, "edge")).float()
    export(as_run(weights, WITH_ELEVATION), bench.folder / "subject.onnx")
    engines = {
        "PyTorch": lambda batch: model.predict(weights, torch.from_numpy(batch)),
        "onnxruntime": EnergyModel(bench.folder / "subject.onnx").energy,
    }
    subjects = [Subject("MLP with hills", engines)]
    return [asdict(timing) for timing in measure(subjects, features=columns)]


def memory(bench: Bench) -> dict[str, Any]:
    """Measure memory (MB) of a process that predicts a day: its peak, and its growth."""
    data = DataSettings(features=WITH_ELEVATION)
    vehicles = list(synthetic_vehicles(3, trips=20))
    fixed = ElevationSettings(minimum_vehicles=1, source="learn", choose_prior=False)
    learned = learn(vehicles, fixed, data)
    model = get_model("mlp", window=60, features=len(data.columns))
    run = as_run(model.initial(generator(0, "edge")).float(), WITH_ELEVATION)
    file = bench.folder / "model.onnx"
    run = replace(run, config=replace(run.config, data=data))
    export(run, file, vehicle=vehicles[0], field=learned.maps[vehicles[0].name])
    return day_of_driving(file)


SECONDS = 86_400
DAY = """
import sys
from pathlib import Path
from fedwatt.edge.predictor import EnergyPredictor
def memory_mb(what):
    return int(Path("/proc/self/status").read_text().partition(what + ":")[2].split()[0]) / 1024
predictor = EnergyPredictor(sys.argv[1])
made = 0
for second in range(int(sys.argv[2])):
    sample = {"speed_mps": second % 20 if second % 900 < 600 else 0.0, "ambient_c": 12.0}
    sample |= {"latitude_deg": 42.28 + abs(second % 1000 - 500) / 5e4, "longitude_deg": -83.74}
    made += len(predictor.push(float(second), sample))
    if second == 3600:
        early_mb = memory_mb("VmRSS")
assert made > 86_000 and not {"torch", "polars", "pyarrow", "scipy"} & set(sys.modules)
print(memory_mb("VmHWM"), memory_mb("VmRSS") - early_mb)
"""


def day_of_driving(model: Path) -> dict[str, Any]:
    """Peak memory (MB) of a process that predicts a day, and its growth after the first hour."""
    command = [sys.executable, "-c", DAY, str(model), str(SECONDS)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    peak, grown = map(float, done.stdout.split())
    return {"peak_mb": peak, "grown_mb": grown, "seconds": SECONDS}


PARTS: dict[str, Callable[[Bench], Any]] = {
    "sizes": sizes,
    "agreement": agree,
    "streams": streams,
    "latency": latency,
    "latency_hills": latency_hills,
    "memory": memory,
}


# ------------------------------------------------------------------------------ page
def tables(record: dict[str, Any]) -> dict[str, str]:
    """Return the Markdown of each block, by its name on the page."""
    return {
        "agreement": agreement_words(record["agreement"]),
        "size": f"The file of a VED vehicle is {record['sizes']['plain'] / 1000:.0f} kB, with "
        f"elevation {record['sizes']['elevation'] / 1000:.0f} kB.",
        "stream": stream_words(record["streams"]),
        "latency": latency_table([*record["latency"], *record["latency_hills"]]),
        "memory": "Peak memory of the process, model with elevation, one day of driving "
        f"({record['memory']['seconds']:,} samples): {record['memory']['peak_mb']:.0f} MB, "
        f"{record['memory']['grown_mb']:.1f} MB more than after the first hour.",
    }


def agreement_words(record: dict[str, Any]) -> str:
    """Return the largest difference between PyTorch and onnxruntime as a sentence."""
    worst = max(max(row["worst_relative"].values()) for row in record.values())
    names = ", ".join(name.upper() for name in record)
    windows = max(row["windows"] for row in record.values())
    return (
        f"Over {windows:,} VED test windows, predictions of onnxruntime and PyTorch ({names}) "
        f"differ by at most {worst:.0e} of the prediction or of the label's standard deviation, "
        "whichever is larger."
    )


def stream_words(record: dict[str, dict[str, Any]]) -> str:
    """Return how far a stream of rows differs from the batch pipeline, as sentences."""
    plain = record["stream"].values()
    climbing = record["stream_hills"].values()
    worst = max(row["worst_wh"] for row in plain)
    agreement = f"within {worst:.1g} Wh of" if worst else "equal to"
    settled = min(row["settled"] / row["windows"] for row in climbing)
    added = max(row["rmse_stream_wh"] - row["rmse_batch_wh"] for row in climbing)
    return (
        f"Raw VED test trips of {len(plain)} vehicles "
        f"({sum(row['windows'] for row in plain):,} windows), fed row by row, give predictions "
        f"{agreement} those of the batch pipeline. With elevation the same holds for at least "
        f"{settled:.1%} of each vehicle's windows; the others end where the elevation is not known "
        f"yet, which adds at most {added:.2f} Wh to the RMSE."
    )


NAMES = {
    "mlp": "MLP",
    "gru": "GRU",
    "lstm": "LSTM",
    "MLP with hills": "MLP, elevation",
}


def latency_table(rows: Sequence[dict[str, Any]]) -> str:
    """Return one line per model: batch 1 and 32 in both engines."""
    by: dict[str, dict[tuple[str, int], dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(row["model"], {})[row["engine"], row["batch"]] = row
    lines = []
    for model, cells in by.items():
        order = [cells[engine, batch] for batch in (1, 32) for engine in ("PyTorch", "onnxruntime")]
        times = "|".join(f"{cell['median_us']:.1f} ({cell['p95_us']:.1f})" for cell in order)
        lines.append(f"{NAMES[model]}|{times}")
    head = "model|batch 1, PyTorch|batch 1, onnxruntime|batch 32, PyTorch|batch 32, onnxruntime"
    return table(head, lines)


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
    write_blocks(PAGE, tables(json.loads(RESULTS.read_text(encoding="utf-8"))))
    say("done")


if __name__ == "__main__":
    main()
