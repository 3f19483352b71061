"""When a vehicle with few validation trips should trust its hills: rules on right and wrong ones.

    python -m benchmarks.hills_gate --ved FLEET --changchun FLEET --out FILE --workers 16

Trains a network with hills and its level model on the car of Changchun and on six vehicles of VED
alone, five splits each, once with the positions that were recorded and once with every trip's taken
from another trip. Records by fleet and split the test RMSE of both models, and by how many standard
errors hills save squared error on validation windows and what share of it they leave (null where no
climb is known: the vehicle gave its field up). Fleets are made by `fedwatt data import`. Needs
torch and numpy.
"""

import argparse
import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.final_model import ALONE
from benchmarks.terrain_cells import vehicles_of
from benchmarks.terrain_ved import shuffled
from fedwatt.elevation.learn import add_elevation, learn
from fedwatt.elevation.level import evidence
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.federation import Federation, Training
from fedwatt.federation.evaluate import predict
from fedwatt.models import get_model
from fedwatt.telemetry.store import read_fleet
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows import DataSettings, build_fleet


def predictions(fleet: Any, seed: int) -> tuple[FloatArray, FloatArray]:
    """Scaled predictions of validation and test windows by the last model."""
    model = get_model("mlp", window=60, features=len(fleet.features))
    training = Training(rounds=30, learning_rate=0.05, participation=1.0, evaluate_every=30)
    federation = Federation(fleet, model, training=training, seeds=(seed,), device="cpu")
    weights = federation.train("fedavg").state.weights[:, : model.layout.size]
    pool = federation.pool
    evaluated, tested = (
        predict(model, weights, pool, own)[0] for own in (pool.validation, pool.test)
    )
    return evaluated, tested


def work(name: str, ved: Path, changchun: Path, seed: int, wrong: bool) -> dict[str, Any]:
    """Test errors of both models and the evidence for hills."""
    torch.set_num_threads(1)
    stride = 10 if name == "changchun" else 5
    if name == "changchun":
        vehicles = list(read_fleet(changchun))
    else:
        vehicles = [one for one in vehicles_of(ved) if one.name == name]
    if wrong:
        vehicles = [shuffled(one, seed) for one in vehicles]
    found = {}
    for features in ("base, elevation", "base"):
        data = DataSettings(split_seed=seed, stride=stride, features=features)
        driven = vehicles
        if "elevation" in features:
            learned = learn(vehicles, ElevationSettings(minimum_vehicles=1), data)
            driven = list(add_elevation(vehicles, learned))
        fleet = build_fleet(driven, data, name)
        found[features] = (*predictions(fleet, seed), fleet.clients[0])
    hilly = found["base, elevation"]
    level = found["base"]
    client = hilly[2]
    true = client.energy_wh(client.labels["test"])
    errors = [
        round(float(np.sqrt(np.mean((client.energy_wh(own[1]) - true) ** 2))), 3)
        for own in (hilly, level)
    ]
    seen = evidence(hilly[0], level[0], client)
    sure, left = (round(x, 3) if np.isfinite(x) else None for x in (seen.sure, seen.left))
    trips = len(client.trips["validation"])
    return dict(hilly=errors[0], level=errors[1], sure=sure, far=left, validation_trips=trips)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    for name in ("ved", "changchun", "out"):
        options.add_argument(f"--{name}", type=Path, required=True)
    options.add_argument("--seeds", default="1,2,3,4,5")
    options.add_argument("--workers", type=int, default=1)
    chosen = options.parse_args()
    record: dict[str, Any] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.workers, mp_context=spawn) as pool:
        tasks = {
            pool.submit(work, name, chosen.ved, chosen.changchun, int(seed), wrong): (name, seed, w)
            for name in ("changchun", *ALONE)
            for seed in chosen.seeds.split(",")
            for w, wrong in (("recorded", False), ("shuffled", True))
        }
        for done in as_completed(tasks):
            name, seed, which = tasks[done]
            record.setdefault(f"{name}, {which}", {})[seed] = done.result()
            print(name, seed, which, done.result(), flush=True)
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(
                json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
