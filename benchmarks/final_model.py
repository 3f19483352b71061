"""Which model of a training to keep: last, best-validated, or a mean of the last or best ones.

    python benchmarks/final_model.py --ved FLEET --changchun FLEET --out FILE --workers 16

Trains FedAvg on the 12 vehicles of VED, on six of them alone, on the car of Changchun and on the
embedded fleet, on five splits each, and records validation and test RMSE of every round's model, of
running means of models, and of the mean of the best-validated ones. Rules then say which model they
would have kept; FILE holds the test error of each, by fleet and split. Fleets are made by
`fedwatt data import`. Needs torch and numpy.
"""

import argparse
import json
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.terrain_cells import vehicles_of
from fedwatt.elevation.learn import add_elevation, learn
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.federation import Federation, Training
from fedwatt.federation.evaluate import predict
from fedwatt.federation.selection import keeps_mean
from fedwatt.models import get_model
from fedwatt.synthetic import synthetic_vehicles
from fedwatt.telemetry.store import read_fleet
from fedwatt.windows import DataSettings, Fleet, build_fleet

ALONE = ("ved-10", "ved-371", "ved-443", "ved-453", "ved-492", "ved-561")
MEANS = (5, 15)
BEST = (1, 3, 5, 10)
TOLERANCES = (0.0, 0.125, 0.25, 0.5, 1.0)


def fleet_of(name: str, ved: Path, changchun: Path, seed: int) -> Fleet:
    """A fleet of the study with its hills."""
    data = DataSettings(split_seed=seed, stride=5, features="base, elevation")
    if name == "embedded":
        vehicles = list(synthetic_vehicles(8, seed=1))
    elif name == "changchun":
        data = replace(data, stride=10)
        vehicles = list(read_fleet(changchun))
    else:
        vehicles = [one for one in vehicles_of(ved) if name in ("ved", one.name)]
    field = ElevationSettings(minimum_vehicles=1 if len(vehicles) < 3 else 3)
    return build_fleet(add_elevation(vehicles, learn(vehicles, field, data)), data, name)


def curves(name: str, ved: Path, changchun: Path, seed: int) -> dict[str, list[float]]:
    """Validation and test RMSE [rounds] of each round's model and of running means of them."""
    torch.set_num_threads(1)
    fleet = fleet_of(name, ved, changchun, seed)
    model = get_model("mlp", window=fleet.window, features=len(fleet.features))
    training = Training(rounds=40, learning_rate=0.05, participation=1.0 if name != "ved" else 0.5)
    federation = Federation(fleet, model, training=training, seeds=(seed,), device="cpu")
    recent: list[torch.Tensor] = []
    found: dict[str, list[float]] = {"trips": []}

    def add(kind: str, weights: torch.Tensor) -> None:
        pool = federation.pool
        for split, windows in (("validation", pool.validation), ("test", pool.test)):
            predicted = predict(model, weights[None, : model.layout.size], pool, windows)[0]
            errors = []
            for k, client in enumerate(fleet.clients):
                own = slice(windows.offsets[k], windows.offsets[k + 1])
                error = client.energy_wh(predicted[own]) - client.energy_wh(client.labels[split])
                errors.append(np.mean(error**2))
            found.setdefault(f"{kind} {split}", []).append(float(np.sqrt(np.mean(errors))))

    def on_round(state: object, record: object) -> None:
        weights = state.weights[0].clone()  # type: ignore[attr-defined]
        recent.append(weights)
        add("round", weights)
        for count in MEANS:
            add(f"mean {count}", torch.stack(recent[-count:]).mean(dim=0))

    federation.train("fedavg", on_round=on_round)
    order = np.argsort(found["round validation"], kind="stable")
    for count in BEST:
        chosen = torch.stack([recent[place] for place in order[:count]])
        add(f"best {count}", chosen.mean(dim=0))
        add(f"best {count} and last", torch.stack([*chosen, *recent[-count:]]).mean(dim=0))
    found["trips"] = [float(sum(len(client.trips["validation"]) for client in fleet.clients))]
    return found


def kept(found: dict[str, list[float]], kind: str, tolerance: float) -> float:
    """Test error of the latest model within tolerance/√trips of the lowest validation error."""
    validation = np.array(found[f"{kind} validation"])
    limit = validation.min() * (1 + tolerance / math.sqrt(found["trips"][0]))
    return found[f"{kind} test"][int(np.flatnonzero(validation <= limit)[-1])]


def kept_by_run(found: dict[str, list[float]]) -> tuple[float, float]:
    """Test error of the model that a run keeps, and how its mean validates beside the best one."""
    mean = found["best 1 and last validation"][0]
    best = found["best 1 validation"][0]
    (keeps,) = keeps_mean(torch.tensor([mean]), torch.tensor([best])).tolist()
    return found["best 1 and last test" if keeps else "best 1 test"][0], mean / best


def errors_by_rule(found: dict[str, list[float]]) -> dict[str, float]:
    """Test error of the model that each rule would have kept, and how the mean validates."""
    kinds = ("round", *(f"mean {count}" for count in MEANS))
    run, ratio = kept_by_run(found)
    last = {f"{kind}, last": found[f"{kind} test"][-1] for kind in kinds}
    last |= {f"mean of the {n} best": found[f"best {n} test"][0] for n in BEST}
    last |= {f"mean of the {n} best and last": found[f"best {n} and last test"][0] for n in BEST}
    last |= {"kept by a run": run, "validation of the mean over that of the best": ratio}
    return last | {
        f"{kind}, within {tolerance:g}/√trips": kept(found, kind, tolerance)
        for kind in kinds
        for tolerance in TOLERANCES
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    for name in ("ved", "changchun", "out"):
        options.add_argument(f"--{name}", type=Path, required=True)
    options.add_argument("--seeds", default="1,2,3,4,5")
    options.add_argument("--workers", type=int, default=1)
    chosen = options.parse_args()
    record: dict[str, dict[str, dict[str, float]]] = {}
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(chosen.workers, mp_context=spawn) as pool:
        tasks = {
            pool.submit(curves, name, chosen.ved, chosen.changchun, int(seed)): (name, seed)
            for name in ("ved", "changchun", "embedded", *ALONE)
            for seed in chosen.seeds.split(",")
        }
        for done in as_completed(tasks):
            name, seed = tasks[done]
            found = done.result()
            record.setdefault(name, {})[seed] = {
                rule: round(error, 3) for rule, error in errors_by_rule(found).items()
            } | {"validation trips": found["trips"][0]}
            print(name, seed, record[name][seed]["round, last"], flush=True)
            chosen.out.parent.mkdir(parents=True, exist_ok=True)
            chosen.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
