"""Federated networks of the journeys benchmark: trained once for each split, kept in a folder.

    python benchmarks/journeys_networks.py --fleet FLEET --out FOLDER --workers 16

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`. Each seed
is another split of trips. Vehicles are aligned by their own lags, learn the hills together, train
FedAvg and fine-tune the best-validated model. Three networks: of energy, with a second draw of its
initial weights and batches, and of what the vehicle's own ridge leaves ("residual"). FOLDER then
holds the personal weights [vehicles, D], which `journeys_ved.py` reads, as seed-1-energy.npz and
so on.
Needs torch, numpy, scipy and pyarrow.
"""

import argparse
import multiprocessing
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.terrain_cells import vehicles_of
from fedwatt.elevation.learn import give_terrain, learn
from fedwatt.elevation.settings import TerrainSettings
from fedwatt.evaluation import Personal
from fedwatt.evaluation.finetune import personal_models
from fedwatt.federation import Federation, Training
from fedwatt.journeys.ridge import LOCAL, moments, solve, window_features
from fedwatt.models import get_model
from fedwatt.telemetry import Vehicle
from fedwatt.windows import DataSettings, Fleet, build_fleet
from fedwatt.windows.client import prepared as aligned

FEATURES = "base, physics, terrain, journey"
FIELD = TerrainSettings(minimum_vehicles=1, private=False)
TRAINING = Training(rounds=60, rate=0.1, participation=1.0, evaluate_every=5)
PERSONAL = Personal(enabled=True, rates=(0.003, 0.01, 0.03), steps=(300, 1000, 3000))
KINDS = ("energy", "second", "residual")


def settings(seed: int, features: str = FEATURES) -> DataSettings:
    """Data settings of a split."""
    return DataSettings(
        features=features, split_seed=seed, stride=5, evaluation_stride=5, align=True
    )


def prepared(folder: Path, seed: int, field: TerrainSettings = FIELD) -> tuple[Vehicle, ...]:
    """The vehicles of a split, aligned and with climb from the field that they learned."""
    data = settings(seed)
    vehicles = tuple(aligned(one, data) for one in vehicles_of(folder))
    return tuple(give_terrain(vehicles, learn(vehicles, field, data)))


def residual_fleet(fleet: Fleet) -> Fleet:
    """The fleet with labels less what each vehicle's own ridge says."""
    clients = []
    for client in fleet.clients:
        beta = solve(moments(client), LOCAL)
        labels = {
            split: (own - window_features(client, split) @ beta).astype(np.float32)
            for split, own in client.labels.items()
        }
        clients.append(replace(client, labels=labels))
    return replace(fleet, clients=tuple(clients))


def trained(fleet: Fleet, seed: int) -> np.ndarray:
    """Personal weights [vehicles, D] of one federated network."""
    network = get_model("mlp", window=fleet.window, features=len(fleet.features))
    federation = Federation(fleet, network, training=TRAINING, seeds=(seed,), device="cpu")
    best = federation.train("fedavg").state.best_weights
    found = personal_models(federation, best, PERSONAL, range(len(fleet.clients)))
    return np.stack([one.weights.numpy() for one in found])


def work(folder: Path, out: Path, seed: int, kind: str) -> str:
    """Train one kind of network on one split, unless it has been."""
    torch.set_num_threads(1)
    file, began = out / f"seed-{seed}-{kind}.npz", time.monotonic()
    if file.exists():
        return f"{file} is there"
    fleet = build_fleet(prepared(folder, seed), settings(seed), "VED")
    if kind == "residual":
        fleet = residual_fleet(fleet)
    weights = trained(fleet, seed + 100 * (kind == "second"))
    out.mkdir(parents=True, exist_ok=True)
    np.savez(file, weights=weights)
    return f"{file} after {time.monotonic() - began:.0f} s"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fleet", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seeds", default="1,2,3,4,5")
    options.add_argument("--workers", type=int, default=1)
    chosen = options.parse_args()
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.workers, mp_context=spawn) as pool:
        tasks = [
            pool.submit(work, chosen.fleet, chosen.out, int(seed), kind)
            for seed in chosen.seeds.split(",")
            for kind in KINDS
        ]
        for done in as_completed(tasks):
            print(done.result(), flush=True)


if __name__ == "__main__":
    main()
