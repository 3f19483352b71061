r"""Measure what federating gains over local-only vehicles on VED, with and without elevation.

    fedwatt data import ved VED --powertrain ev,phev-electric --out fleets/ved
    fedwatt data import ved VED --powertrain ev,phev-electric --dem srtm3_posts.csv \
        --out fleets/ved-srtm
    python -m benchmarks.local_baselines --fleet fleets/ved --srtm fleets/ved-srtm
    python -m benchmarks.local_baselines --record

The first two commands import the fleet without and with SRTM elevation. The third trains, and skips
splits that are there already. The last writes results/local_baselines.json, the tables of
docs/accuracy.md and of README.md. Every split divides the trips anew and has its own
seed.
"""

import argparse
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.marked import write_blocks
from fedwatt.evaluation.baselines import (
    Selected,
    joined,
    local_networks,
    lowest_validation_error,
    mean_baseline,
    ridge_baseline,
)
from fedwatt.federation.evaluate import error_rows
from fedwatt.report.statistics import Estimate, estimate
from fedwatt.runs.config import RunConfig, from_toml
from fedwatt.runs.run import Run
from fedwatt.runs.simulation import federation_for
from fedwatt.runs.source import learned_alone, open_fleet
from fedwatt.runs.tables import read_table

PAGE: Final = Path("docs/accuracy.md")
RESULTS: Final = Path("results/local_baselines.json")
SPLITS: Final = 5
CONFIG: Final = """
seeds = [{split}]
device = "cpu"
[fleet]
data = "{fleet}"
[data]
features = "{features}"
split_seed = {split}
[elevation]
source = "{source}"
minimum_vehicles = {vehicles}
[training]
rounds = 40
[personalisation]
enabled = true
[baselines]
enabled = false
[[method]]
name = "fedavg"
learning_rate = 0.02
"""
FEDERATED: Final = "federated, personalised"
LOCAL: Final = "local-only"
MODELS: Final = {
    "federated": (FEDERATED, "none", "–"),
    "local": (LOCAL, "none", "–"),
    "federated, k = 3": (FEDERATED, "learned", "3 vehicles (default)"),
    "federated, k = 1": (FEDERATED, "learned", "1 vehicle"),
    "local, own map": (LOCAL, "learned from own trips", "never"),
    "local, SRTM": (LOCAL, "SRTM", "–"),
    "local, own map or SRTM": (LOCAL, "own map or SRTM, by validation", "never"),
}
"""Model, elevation source and who must share a place before it is published, of each row."""
GAINS: Final = {
    "without elevation": ("federated", "local"),
    "over own map": ("federated, k = 3", "local, own map"),
    "over SRTM": ("federated, k = 3", "local, SRTM"),
    "over own map or SRTM": ("federated, k = 3", "local, own map or SRTM"),
    "over own map, 12 cars": ("federated, k = 3", "local, own map"),
    "over SRTM, 12 cars": ("federated, k = 3", "local, SRTM"),
}
"""Federated model and local-only model of each comparison."""
FEW_TRIPS: Final = ("ved-417", "ved-431", "ved-497", "ved-542")
"""Cars with fewer than 20 usable trips, which the comparisons of 12 cars leave out."""


def configuration(
    fleet: Path, split: int, *, features: str = "base, elevation", source: str = "auto", k: int = 3
) -> RunConfig:
    """Return the run of one split."""
    text = CONFIG.format(fleet=fleet, split=split, features=features, source=source, vehicles=k)
    return from_toml(text)


def federated_errors(folder: Path, fleet: Path, split: int) -> dict[str, dict[str, float]]:
    """Train the federated models of a split; return RMSE by model and vehicle."""
    errors = {}
    for k in (3, 1):
        out = folder / f"k{k}"
        if k == 1 and not out.exists():
            # The networks without elevation do not depend on k: they are trained once.
            shutil.copytree(folder / "k3" / "level", out / "level")
        Run(configuration(fleet, split, k=k), out=out, resume=True).execute()
        errors[f"federated, k = {k}"] = _personalised(out)
    return {"federated": _personalised(folder / "k3" / "level"), **errors}


def _personalised(run: Path) -> dict[str, float]:
    """Return the RMSE of a run's personalised models by vehicle."""
    rows = read_table(run, "vehicles").to_pylist()
    return {
        row["vehicle"]: row["rmse"]
        for row in rows
        if row["model"] == "personalised" and row["stratum"] == "all"
    }


def local_errors(fleet: Path, srtm: Path, split: int) -> dict[str, dict[str, float]]:
    """Train the local-only models of a split; return RMSE by model and vehicle."""
    learned = configuration(fleet, split)
    on_srtm = configuration(srtm, split, source="measured")
    level = configuration(fleet, split, features="base")
    fleets = {
        "level": open_fleet(level),
        "own map": open_fleet(learned, learned_alone(learned)),
        "SRTM": open_fleet(on_srtm),
    }
    models: dict[str, list[Selected]] = {}
    for name, opened in fleets.items():
        config = replace(level, data=opened.settings)
        federation = federation_for(config, config.methods[0], opened)
        vehicles = list(range(len(opened.clients)))
        share = config.training.participation
        models[name] = [
            joined([ridge_baseline([client]) for client in opened.clients]),
            local_networks([federation], vehicles, share, config.personalisation),
        ]
        print(split, name, flush=True)
    windows = federation.pool.test
    clients = fleets["level"].clients
    models["level"].append(joined([mean_baseline(client) for client in clients]))
    for opened in fleets.values():
        for client, reference in zip(opened.clients, clients, strict=True):
            assert np.array_equal(client.labels["test"], reference.labels["test"]), client.name
    choices = {
        "local": ("level",),
        "local, own map": ("level", "own map"),
        "local, SRTM": ("level", "SRTM"),
        "local, own map or SRTM": tuple(fleets),
    }
    errors = {}
    for name, kinds in choices.items():
        candidates = [model for kind in kinds for model in models[kind]]
        best = lowest_validation_error(candidates, windows.offsets)
        rows = error_rows(clients, windows, (split,), best.test)
        errors[name] = {row["vehicle"]: row["rmse"] for row in rows if row["stratum"] == "all"}
    return errors


def gain(
    records: Sequence[Mapping[str, Any]],
    federated: str,
    local: str,
    *,
    without: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what federating saves, over vehicles (mean of splits) and over splits.

    >>> made = [{"f": {"a": 1.0, "b": 2.0}, "l": {"a": 2.0, "b": 5.0}},
    ...         {"f": {"a": 1.0, "b": 2.0}, "l": {"a": 3.0, "b": 4.0}}]
    >>> saved = gain(made, "f", "l")
    >>> saved["over vehicles"]["mean"], saved["over splits"]["mean"], saved["better"]
    (2.0, 2.0, 2)
    """
    vehicles = sorted(set(records[0][federated]) - set(without))
    saved = np.array(
        [[split[local][name] - split[federated][name] for name in vehicles] for split in records]
    )
    return {
        "federated": float(np.mean([[split[federated][v] for v in vehicles] for split in records])),
        "local": float(np.mean([[split[local][v] for v in vehicles] for split in records])),
        "over vehicles": vars(estimate(saved.mean(axis=0).tolist())),
        "over splits": vars(estimate(saved.mean(axis=1).tolist())),
        "median": float(np.median(saved.mean(axis=0))),
        "better": int((saved.mean(axis=0) > 0).sum()),
        "vehicles": len(vehicles),
        "splits": len(records),
    }


def recorded(folder: Path) -> dict[str, Any]:
    """Return mean errors and gains from the records of all splits."""
    files = sorted(folder.glob("split-*.json"))
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files]
    return {
        "rmse": {name: _rmse(records, name) for name in MODELS},
        "gains": {
            name: gain(records, *pair, without=FEW_TRIPS if "12 cars" in name else ())
            for name, pair in GAINS.items()
        },
    }


def _rmse(records: Sequence[Mapping[str, Any]], model: str) -> dict[str, Any]:
    by_split = [float(np.mean(list(split[model].values()))) for split in records]
    return vars(estimate(by_split))


def tables(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the block of docs/accuracy.md: a table of errors and one of gains."""
    lines = [
        "| model | elevation source | published from | RMSE, Wh per minute |",
        "|---|---|---|--:|",
    ]
    for name, (model, elevation, published) in MODELS.items():
        mean = Estimate(**record["rmse"][name])
        error = f"{mean.mean:.1f} [{_signed(mean.low, 1)}, {_signed(mean.high, 1)}]"
        lines.append(f"| {model} | {elevation} | {published} | {error} |")
    lines += [
        "",
        "| gain of federating, Wh per minute | mean | 95 % over vehicles | 95 % over splits | "
        "median vehicle | better vehicles |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, saved in record["gains"].items():
        vehicles = saved["over vehicles"]
        splits = saved["over splits"]
        lines.append(
            f"| {name} | {_signed(vehicles['mean'], 2)} | {_interval(vehicles, 2)} | "
            f"{_interval(splits, 2)} | {_signed(saved['median'], 2)} | "
            f"{saved['better']} of {saved['vehicles']} |"
        )
    splits = next(iter(record["gains"].values()))["splits"]
    lines += ["", f"{splits} splits, one seed each."]
    return {"gain of federating": "\n".join(lines)}


def _signed(value: float, digits: int) -> str:
    return f"{value:.{digits}f}".replace("-", "\N{MINUS SIGN}")


def _interval(bounds: Mapping[str, float], digits: int) -> str:
    return f"{_signed(bounds['low'], digits)} to {_signed(bounds['high'], digits)}"


ELEVATION_SOURCES: Final = {
    "over own map": "its own map",
    "over SRTM": "NASA's survey",
    "over own map or SRTM": "the better of these",
    "without elevation": "none, alone or federated",
}
"""Comparison → the elevation that a car has when it trains alone."""


def gain_table(record: Mapping[str, Any]) -> str:
    """Return README's table of the gain of federating."""
    gains = record["gains"]
    vehicles = gains["over own map"]["vehicles"]
    heading = f"alone | federated | saved [95 %, {vehicles} cars]"
    lines = [f"| elevation of a car that trains alone | {heading} |", "|---|--:|--:|---|"]
    for name, source in ELEVATION_SOURCES.items():
        gain = gains[name]
        saved = gain["over vehicles"]
        interval = f"{_signed(saved['low'], 1)}, {_signed(saved['high'], 1)}"
        lines.append(
            f"| {source} | {gain['local']:.1f} Wh | {gain['federated']:.1f} Wh | "
            f"{_signed(saved['mean'], 1)} Wh [{interval}] |"
        )
    return "\n".join(lines)


def main() -> None:
    """Train the splits that are missing, or record and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--fleet", type=Path, default=Path("fleets/ved"))
    parser.add_argument("--srtm", type=Path, default=Path("fleets/ved-srtm"))
    parser.add_argument("--runs", type=Path, default=Path("runs/local-baselines"))
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.record:
        record = recorded(options.runs)
        options.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        write_blocks(PAGE, tables(record))
        write_blocks(Path("README.md"), {"what federating gains": gain_table(record)})
        return
    options.runs.mkdir(parents=True, exist_ok=True)
    for split in range(SPLITS):
        file = options.runs / f"split-{split}.json"
        if not file.exists():
            errors = local_errors(options.fleet, options.srtm, split)
            errors |= federated_errors(options.runs / f"split-{split}", options.fleet, split)
            file.write_text(json.dumps(errors, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
