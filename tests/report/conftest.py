"""A run folder made of plain formulas: two methods, three seeds, one seed that diverges."""

import json
from math import nan
from pathlib import Path

import numpy as np
import pytest

from fedwatt.metrics import drift_dispersion, mean_drift, pearson, spearman
from fedwatt.randomness import generator
from fedwatt.runs.tables import read_table, write_table

ROUNDS = 30
SEEDS = (1, 2, 3)
VEHICLES = tuple(f"car-{k:02d}" for k in range(1, 21))
STRATA = (
    "speed: under 20 km/h",
    "speed: 20 to 60 km/h",
    "speed: over 60 km/h",
    "temperature: under 5 °C",
    "temperature: 5 to 20 °C",
    "temperature: over 20 °C",
)
FINAL_WH = {"fedavg": 53.0, "fo-ri-fedavg": 51.5}

CONFIG = """\
seeds = [1, 2, 3]
device = "cpu"

[fleet]
data = "synthetic"
vehicles = 20

[training]
rounds = 30
participation = 0.5
learning_rate = 0.05

[[method]]
name = "fedavg"

[[method]]
name = "fo-ri-fedavg"
learning_rate = 0.1
alpha = 0.8
"""


def test_rmse_wh(method: str, seed: int, round: int) -> float:
    """An error that falls from 100 Wh to about FINAL_WH, with the same wobble for all methods."""
    wobble = 0.8 * np.sin(0.9 * round + seed) + 0.5 * (seed - 2)
    ripple = 0.3 * np.cos(1.7 * round + 2 * seed * len(method))
    final = FINAL_WH.get(method, 52.0)
    return float(final + (100 - final) * np.exp(-round / 6) + wobble + ripple)


test_rmse_wh.__test__ = False  # a formula, not a test


def make_run(
    folder: Path,
    methods: tuple[str, ...] = ("fedavg", "fo-ri-fedavg"),
    diverges: dict[tuple[str, int], int] | None = None,
    flat: bool = False,
    seeds: tuple[int, ...] = SEEDS,
    data_hash: str = "d4f1",
    last_round: int = ROUNDS,
    vehicles_are: str = "car",
) -> Path:
    """A folder with every table; `diverges` maps (method, seed) to a round."""
    diverges = {} if diverges is None else diverges
    rounds = []
    clients = []
    vehicles = []
    timing = []
    for method in methods:
        rough = "ri" in method.split("-")
        for seed in seeds:
            last = diverges.get((method, seed), last_round)
            best = (0, np.inf, np.inf)
            for at in range(last + 1):
                end = (method, seed) in diverges and at == last
                participant_rows = _participants(method, seed, at, rough, flat) if at else []
                clients += participant_rows
                test = nan if end else test_rmse_wh(method, seed, at)
                if test < best[1]:
                    best = (at, test, test)
                rounds.append(
                    _round(method, seed, at, participant_rows, test, best, end, last_round)
                )
            participant_rows = _vehicles(method, seed, last_round, lost=(method, seed) in diverges)
            vehicles += [
                row | {"vehicle": row["vehicle"].replace("car", vehicles_are)}
                for row in participant_rows
            ]
        timing += [_timing(method, at, len(seeds), rough) for at in range(last_round + 1)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(CONFIG, encoding="utf-8")
    environment = {
        "versions": {"python": "3.11.7", "fedwatt": "0.1.0", "torch": "2.13.0"},
        "platform": "Linux",
        "device": "cpu",
        "threads": 2,
        "started": "2026-11-15T10:00:00+00:00",
        "finished": "2026-11-15T10:01:35+00:00",
        "seeds": list(seeds),
        "hashes": {"splits": "51a7", "partition": "9b0c", "data": data_hash},
        "fleet": {
            "source": "synthetic, seed 0",
            "vehicles": len(VEHICLES),
            "held_out": [],
            "features": ["speed", "acceleration", "ambient"],
            "windows": {"train": 120_000, "validation": 2_000, "test": 4_100},
            "labels": {"measured": 0, "simulated": len(VEHICLES)},
        },
    }
    (folder / "environment.json").write_text(json.dumps(environment), encoding="utf-8")
    for name, rows in {
        "rounds": rounds,
        "clients": clients,
        "vehicles": vehicles,
        "timing": timing,
    }.items():
        write_table(folder, name, rows)
    return folder


def add_personal(folder: Path, factor: float) -> None:
    """Give a run personalised models, with `factor` times the error of the final shared model."""
    rows = read_table(folder, "vehicles").to_pylist()
    rows += [
        row | {"model": "personalised", "rmse": factor * row["rmse"]}
        for row in rows
        if row["model"] == "final"
    ]
    write_table(folder, "vehicles", rows)


def _participants(method: str, seed: int, at: int, rough: bool, flat: bool) -> list[dict]:
    draw = generator(seed, "participants", at)
    names = sorted(draw.choice(VEHICLES, size=10, replace=False))
    index = np.where(draw.random(10) < 0.4, 0.0, 0.3 * draw.random(10))
    scale = 0.6 if method.startswith("fo") else 1.0
    drift = scale * (0.3 + 1.2 / np.sqrt(at)) * (0.7 + 0.6 * draw.random(10) + index)
    return [
        {
            "method": method,
            "seed": seed,
            "round": at,
            "vehicle": str(name),
            "windows": 6000,
            "steps": 94,
            "replied": True,
            "rejected": False,
            "drift": float(drift[k]),
            "roughness": (0.0 if flat else float(index[k])) if rough else nan,
            "pull": 0.05 if rough else nan,
            "kappa": nan,
            "probed": rough and at % 5 == 1,
        }
        for k, name in enumerate(names)
    ]


def _round(method, seed, at, participant_rows, test, best, end, last_round) -> dict:
    drifts = [row["drift"] for row in participant_rows]
    roughness = [row["roughness"] for row in participant_rows]
    return {
        "method": method,
        "seed": seed,
        "round": at,
        "available": 20,
        "participants": len(participant_rows),
        "replies": len(participant_rows),
        "lost": 0,
        "rejected": 0,
        "steps": 940 if participant_rows else 0,
        "learning_rate": 0.05 / np.sqrt(at) if at else nan,
        "drift_mean": mean_drift(drifts),
        "drift_cv": drift_dispersion(drifts),
        "roughness_mean": float(np.mean(roughness)) if participant_rows else nan,
        "pearson": pearson(roughness, drifts),
        "spearman": spearman(roughness, drifts),
        "evaluated": not end,
        "validation_rmse": test,
        "test_rmse": test,
        "test_mae": 0.7 * test,
        "test_mape": 3.1 * test,
        "test_wmape": 0.45 * test,
        "test_near_zero": 0.08,
        "test_rmse_macro": 0.95 * test,
        "test_rmse_weighted": 0.97 * test,
        "held_out_rmse": nan,
        "best_round": best[0],
        "best_validation_rmse": best[1],
        "best_test_rmse": best[2],
        "final_validation_rmse": test if at == last_round else nan,
        "final_test_rmse": test if at == last_round else nan,
        "diverged": end,
    }


def _vehicles(method: str, seed: int, last_round: int, lost: bool) -> list[dict]:
    rows = []
    final = test_rmse_wh(method, seed, last_round)
    for model in ("final", "best", "last"):
        for k, vehicle in enumerate(VEHICLES):
            # One vehicle in five is worse off with the other method.
            error_here = (
                final * (0.6 + 0.04 * k) * (1.05 if k % 5 == 0 and method != "fedavg" else 1)
            )
            for place, stratum in enumerate(("all", *STRATA)):
                rmse = error_here * (1 + 0.15 * ((place + 1) % 3 - 1)) if place else error_here
                rows.append(
                    {
                        "method": method,
                        "seed": seed,
                        "model": model,
                        "vehicle": vehicle,
                        "held_out": False,
                        "stratum": stratum,
                        "windows": 210 if not place else 70,
                        "rmse": nan if lost and model == "last" else rmse,
                        "mae": 0.7 * rmse,
                        "mape": 160.0,
                        "wmape": 24.0,
                        "near_zero": 0.08,
                    }
                )
    return rows


def _timing(method: str, at: int, seeds: int, rough: bool) -> dict:
    parts = {
        "training": 0.24 if at else 0.0,
        "preconditioner": 0.09 if at and method.startswith("fo") else 0.0,
        "probe": 0.15 if rough and at % 5 == 1 else 0.0,
        "spectral": 0.0,
        "aggregation": 0.006 if at else 0.0,
        "evaluation": 0.03,
    }
    return {"method": method, "round": at, "seeds": seeds, **parts, "total": sum(parts.values())}


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory) -> Path:
    """The run that most tests look at: FO-RI-FedAvg diverges in seed 2."""
    return make_run(tmp_path_factory.mktemp("runs") / "first", diverges={("fo-ri-fedavg", 2): 17})
