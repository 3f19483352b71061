"""Fleets and federated networks of the journeys benchmark, trained once per split.

    python -m benchmarks.journeys_networks --fleet FLEET --out FOLDER

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`. Each seed
is another split of trips. Vehicles find their time offset, learn elevations together, train FedAvg
and fine-tune the best-validated model. FOLDER then holds the personalised weights [vehicles, D],
which `journeys_ved.py` reads, as seed-0-share-3-climate.npz and so on: "share" is the number of
vehicles that must drive a place before its elevation is shared, and "no-climate" networks read
neither heater nor air conditioning. One network takes about half a minute on one core.
Needs torch, numpy, scipy and pyarrow.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.terrain_cells import vehicles_of
from fedwatt.elevation.learn import add_elevation, learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.evaluation import Personalisation
from fedwatt.evaluation.finetune import personalised_models
from fedwatt.federation import Federation, Training
from fedwatt.models import get_model
from fedwatt.telemetry import Vehicle
from fedwatt.windows import DataSettings, Fleet, build_fleet
from fedwatt.windows.client import prepared
from fedwatt.windows.features import feature_names

FEATURES = "base, physics, elevation, journey"
CLIMATE = ("ac", "heater")
SHARES = (3, 1)
INPUTS = ("climate", "no-climate")
SEEDS = "0,1,2,3,4,5,6,7"
TRAINING = Training(rounds=60, learning_rate=0.1, participation=1.0, evaluate_every=5)
PERSONAL = Personalisation(enabled=True, rates=(0.003, 0.01, 0.03), steps=(300, 1000, 3000))


def settings(seed: int, inputs: str = "climate") -> DataSettings:
    """Return the data settings of a split."""
    names = feature_names(FEATURES)
    if inputs == "no-climate":
        names = tuple(name for name in names if name not in CLIMATE)
    recipe = ", ".join(names)
    return DataSettings(features=recipe, split_seed=seed, stride=5, evaluation_stride=5, align=True)


def elevated(folder: Path, seed: int, share: int) -> tuple[Vehicle, ...]:
    """Return the vehicles of a split, with climb from the elevations that they learned."""
    data = settings(seed)
    elevation = ElevationSettings(minimum_vehicles=share, private=share > 1)
    vehicles = tuple(prepared(vehicle, data) for vehicle in vehicles_of(folder))
    return tuple(add_elevation(vehicles, learn(vehicles, elevation, data)))


def trained(fleet: Fleet, seed: int) -> np.ndarray:
    """Return personalised weights [vehicles, D] of one federated network."""
    network = get_model("mlp", window=fleet.window, features=len(fleet.features))
    federation = Federation(fleet, network, training=TRAINING, seeds=(seed,), device="cpu")
    best = federation.train("fedavg").state.best_weights
    models = personalised_models(federation, best, PERSONAL, range(len(fleet.clients)))
    return np.stack([model.weights.numpy() for model in models])


def network_file(folder: Path, seed: int, share: int, inputs: str) -> Path:
    """Return the file of a network's weights."""
    return folder / f"seed-{seed}-share-{share}-{inputs}.npz"


def main() -> None:
    """Train the networks that are missing."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fleet", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seeds", default=SEEDS)
    chosen = options.parse_args()
    torch.set_num_threads(1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    for share in SHARES:
        for seed in map(int, chosen.seeds.split(",")):
            for inputs in INPUTS:
                file = network_file(chosen.out, seed, share, inputs)
                if file.exists():
                    continue
                began = time.monotonic()
                vehicles = elevated(chosen.fleet, seed, share)
                fleet = build_fleet(vehicles, settings(seed, inputs), "VED")
                np.savez(file, weights=trained(fleet, seed))
                print(f"{file} after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
