"""Measure accuracy under differential privacy, on the built-in synthetic fleet and on a larger one.

    python -m benchmarks.privacy            measure, then write the table of docs/methods.md
    python -m benchmarks.privacy --table    write the table of what was measured before

FedAvg with clipped updates and noise beside plain FedAvg, with Poisson sampling (q = 0.3), 40
rounds, three seeds, every fifth training window. The noise on the mean has the norm z·c·√D/(q·K),
so a fleet of 200 vehicles with short histories stands beside the built-in fleet of 20. Their test
windows differ as well: compare within one fleet.

Writes results/privacy.json: test RMSE of the final models in Wh per window, mean and standard
deviation over seeds, with the ε spent; `null` where a seed diverged. Takes a few minutes.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from benchmarks.marked import write_blocks
from fedwatt.federation import Federation, Training
from fedwatt.methods import Method, get
from fedwatt.models import get_model
from fedwatt.privacy import budget
from fedwatt.synthetic import synthetic_fleet
from fedwatt.windows import DataSettings, Fleet

REPOSITORY = Path(__file__).resolve().parents[1]
RESULTS = REPOSITORY / "results" / "privacy.json"
ROUNDS = 40
SEEDS = (1, 2, 3)
PARTICIPATION = 0.3
SETTINGS = ((0.0, 0.1), (0.3, 0.1), (1.0, 0.1), (1.0, 0.03), (4.0, 0.03))
"""(z, c): clipping alone first, then more and more noise."""


def measure(fleet: Fleet, method: Method) -> dict[str, object]:
    """Train one method; return its error over seeds and its privacy budget."""
    model = get_model("mlp", window=fleet.window, features=len(fleet.features))
    training = Training(
        rounds=ROUNDS, participation=PARTICIPATION, sampling="poisson", evaluate_every=ROUNDS
    )
    federation = Federation(fleet, model, training=training, seeds=SEEDS, device="cpu")
    history = federation.train(method).history
    rmse = list(history.last("test_rmse").values())
    lost = any(history.last("diverged").values())
    spent = budget(method, participation=PARTICIPATION, population=len(fleet.clients))
    epsilon = None if spent is None or not spent.noise_multiplier else spent.epsilon(ROUNDS)
    return {
        "test_rmse_wh": None if lost else round(mean(rmse), 2),
        "std_wh": None if lost else round(stdev(rmse), 2),
        "epsilon": None if epsilon is None else round(epsilon, 3),
        "delta": None if spent is None else spent.delta,
    }


def study(fleet: Fleet) -> dict[str, object]:
    """Measure FedAvg and all noise settings on one fleet with one network."""
    methods = {"FedAvg": get("fedavg")}
    for z, c in SETTINGS:
        methods[f"z = {z:g}, c = {c:g}"] = get("fedavg@private", noise_multiplier=z, clip_norm=c)
    adaptive = {"noise_multiplier": 1.0, "clip_norm": 0.1, "clipping": "adaptive"}
    methods["z = 1, adaptive c"] = get("fedavg@private", **adaptive)
    rows = {}
    for name, method in methods.items():
        rows[name] = measure(fleet, method)
        print(f"{len(fleet.clients)} vehicles, {name}: {rows[name]}")
    return {
        "vehicles": len(fleet.clients),
        "training_windows": fleet.windows("train"),
        "methods": rows,
    }


def table(record: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the table: one row per method, both fleets."""
    fleets = record["fleets"]
    heads = [f"ε | {fleet['vehicles']} vehicles" for fleet in fleets]
    yield f"| | {' | '.join(heads)} |"
    yield "|---|" + "--:|--:|" * len(fleets)
    for name in fleets[0]["methods"]:
        cells = [
            cell
            for fleet in fleets
            for cell in (epsilon(name, fleet["methods"]), error(fleet["methods"][name]))
        ]
        yield f"| {name.replace('adaptive c', 'adaptive c from 0.1')} | {' | '.join(cells)} |"


def epsilon(name: str, methods: dict[str, Any]) -> str:
    """Return ε of a method as text; ∞ without noise."""
    if name == "FedAvg":
        return "–"
    spent = methods[name]["epsilon"]
    return "∞" if spent is None else f"{spent:.{max(0, 2 - (spent >= 10) - (spent >= 100))}f}"


def error(row: dict[str, Any]) -> str:
    """Return a cell: mean and standard deviation over seeds."""
    if row["test_rmse_wh"] is None:
        return "a seed diverged"
    return f"{row['test_rmse_wh']:.2f} ± {row['std_wh']:.2f}"


def measured() -> dict[str, Any]:
    """Return the record of both studies."""
    data = DataSettings(stride=5)
    small = synthetic_fleet(vehicles=20, settings=data)
    large = synthetic_fleet(vehicles=200, settings=data, trips=6)
    return {
        "rounds": ROUNDS,
        "seeds": list(SEEDS),
        "participation": PARTICIPATION,
        "fleets": [study(small), study(large)],
    }


def main() -> None:
    """Measure, unless `--table` is given, and write the table."""
    if "--table" not in sys.argv[1:]:
        RESULTS.write_text(json.dumps(measured(), indent=2) + "\n", encoding="utf-8")
    record = json.loads(RESULTS.read_text(encoding="utf-8"))
    write_blocks(REPOSITORY / "docs" / "methods.md", {"private": "\n".join(table(record))})


if __name__ == "__main__":
    main()
