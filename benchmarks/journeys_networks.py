"""Fleets and federated networks of the journeys benchmark, trained once per split.

    python -m benchmarks.journeys_networks --fleet FLEET --out FOLDER

FLEET is made by `fedwatt data import ved PATH --powertrain ev,phev-electric --out FLEET`. Each seed
is another split of trips. Vehicles find their time offset, learn elevations together, train FedAvg
and fine-tune the best-validated model. FOLDER then holds the personalised weights [vehicles, D],
which `journeys_ved.py` reads, as seed-0-share-3-climate.npz and so on: "share" is the number of
vehicles that must drive a place before its elevation is shared, and "no-climate" networks read
neither heater nor air conditioning, but the square of cold, as in fleets that report no heater.
seed-0-share-3-climate-without-ved-10.npz leaves a vehicle out of map and network (`--left-out`): it
reads the others' map, extends it by its own training trips, and fine-tunes the others' network. One
network takes about half a minute on one core.
Needs torch, numpy, scipy and pyarrow.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.ved_trips import NAMES, seed_list, vehicles_of
from fedwatt.elevation.learn import add_elevation, learn, survey_fleet
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.vehicle_map import vehicle_maps
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
SET_UPS = ((3, "climate"), (3, "no-climate"), (1, "climate"), (1, "no-climate"))
SEEDS = "0,1,2,3,4,5,6,7"
TRAINING = Training(rounds=60, learning_rate=0.1, participation=1.0, evaluate_every=5)
PERSONAL = Personalisation(enabled=True, rates=(0.003, 0.01, 0.03), steps=(300, 1000, 3000))


def settings(seed: int, inputs: str = "climate") -> DataSettings:
    """Return the data settings of a split."""
    names = feature_names(FEATURES)
    if inputs == "no-climate":
        names = (*(name for name in names if name not in CLIMATE), "cold_squared")
    recipe = ", ".join(names)
    return DataSettings(features=recipe, split_seed=seed, stride=5, evaluation_stride=5, align=True)


def elevated(folder: Path, seed: int, share: int, left_out: str = "") -> tuple[Vehicle, ...]:
    """Return the vehicles of a split, with climb from the elevations that they learned.

    The vehicle `left_out` contributes nothing to the shared map.
    """
    data = settings(seed)
    elevation = ElevationSettings(minimum_vehicles=share, private=share > 1)
    vehicles = tuple(prepared(vehicle, data) for vehicle in vehicles_of(folder))
    members = frozenset(vehicle.name for vehicle in vehicles if vehicle.name != left_out)
    learned = learn(vehicles, elevation, data, contributors=members)
    if left_out:
        alone = [vehicle for vehicle in vehicles if vehicle.name == left_out]
        surveys = survey_fleet(alone, None, elevation, data)
        extended = vehicle_maps(*surveys, learned.shared, elevation)
        learned = replace(learned, maps={**learned.maps, **extended})
    return tuple(add_elevation(vehicles, learned))


def fleet_of(
    vehicles: Sequence[Vehicle], seed: int, inputs: str = "climate", left_out: str = ""
) -> Fleet:
    """Return the windows of the vehicles; the one that is left out does not train."""
    fleet = build_fleet(vehicles, settings(seed, inputs), "VED")
    clients = (replace(client, held_out=client.name == left_out) for client in fleet.clients)
    return replace(fleet, clients=tuple(clients))


def trained(fleet: Fleet, seed: int) -> np.ndarray:
    """Return personalised weights [vehicles, D] of one federated network."""
    network = get_model("mlp", window=fleet.window, features=len(fleet.features))
    federation = Federation(fleet, network, training=TRAINING, seeds=(seed,), device="cpu")
    best = federation.train("fedavg").state.best_weights
    models = personalised_models(federation, best, PERSONAL, range(len(fleet.clients)))
    return np.stack([model.weights.numpy() for model in models])


def network_file(folder: Path, seed: int, share: int, inputs: str, left_out: str = "") -> Path:
    """Return the file of a network's weights."""
    without = f"-without-{left_out}" if left_out else ""
    return folder / f"seed-{seed}-share-{share}-{inputs}{without}.npz"


def network_weights(
    vehicles: Sequence[Vehicle], file: Path, seed: int, inputs: str, left_out: str = ""
) -> np.ndarray:
    """Return personalised weights [vehicles, D] from a file, trained first where it is missing."""
    if not file.exists():
        began = time.monotonic()
        np.savez(file, weights=trained(fleet_of(vehicles, seed, inputs, left_out), seed))
        print(f"{file} after {time.monotonic() - began:.0f} s", flush=True)
    weights: np.ndarray = np.load(file)["weights"]
    return weights


def main() -> None:
    """Train the networks that are missing."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--fleet", type=Path, required=True)
    options.add_argument("--out", type=Path, required=True)
    options.add_argument("--seeds", type=seed_list, default=SEEDS)
    options.add_argument("--left-out", type=seed_list, default="", help="leave each vehicle out")
    chosen = options.parse_args()
    torch.set_num_threads(1)
    chosen.out.mkdir(parents=True, exist_ok=True)
    tasks = [(seed, *set_up, "") for seed in chosen.seeds for set_up in SET_UPS]
    tasks += [(seed, *SET_UPS[0], name) for seed in chosen.left_out for name in NAMES]
    for seed, share, inputs, left_out in tasks:
        file = network_file(chosen.out, seed, share, inputs, left_out)
        if not file.exists():
            vehicles = elevated(chosen.fleet, seed, share, left_out)
            network_weights(vehicles, file, seed, inputs, left_out)


if __name__ == "__main__":
    main()
