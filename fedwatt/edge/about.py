"""The readable part of a model card: training data in coarse numbers, errors, privacy.

Nothing in it names a vehicle, a file or a place: counts, sums of two digits, shares of windows and
errors over the fleet. What the run folder does not hold (a real fleet keeps most of it on board) is
left out, and the card says that it is not known.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedwatt.errors import RunError
from fedwatt.report.load import RunTables, load_run, where
from fedwatt.report.statistics import estimate, final_model, vehicle_rmse

FLEET = ("vehicles", "windows", "labels", "kinds", "coverage")
"""Of what environment.json says of a fleet, that which names nobody."""


def about_run(run: Path, method: str, model: str, licence: str) -> dict[str, Any]:
    """Return the part of a card that a run folder knows; `model` as in `fedwatt export`."""
    try:
        loaded = load_run(run)
    except RunError:  # on board, where only the model was copied
        return {"licence": licence}
    environment = loaded.origins[0].environment
    name = final_model(loaded, method) if model == "final" else model
    spent = environment.get("privacy", {}).get(method, {})
    return {
        "trained_on": about_fleet(environment.get("fleet", {})),
        "errors": _errors(loaded, method, name),
        "privacy": {
            "epsilon": _largest(where(loaded.rounds, method=method).get("epsilon")),
            "delta": spent.get("delta"),
            "epsilon_server": spent.get("epsilon_server"),
        },
        "licence": licence,
    }


def about_fleet(described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the description of a fleet without names and sources."""
    held_out = {"held_out": len(described.get("held_out", ()))}
    return {name: described[name] for name in FLEET if name in described} | held_out


def _errors(run: RunTables, method: str, model: str) -> dict[str, Any]:
    """RMSE of windows: mean over vehicles with its 95 % interval, and by driving regime."""
    error = estimate(list(vehicle_rmse(run, method, model=model).values()))
    if not error.seeds:
        return {}
    rows = where(run.vehicles, method=method, model=model, held_out=False)
    regimes = {}
    for stratum in dict.fromkeys(rows["stratum"]):
        stratum_rows = where(rows, stratum=stratum)
        windows = stratum_rows["windows"].astype(float)
        if stratum != "all" and windows.sum():
            squared = sum(n * e**2 for n, e in zip(windows, stratum_rows["rmse"], strict=True) if n)
            rmse = round(math.sqrt(squared / windows.sum()), 1)
            regimes[str(stratum)] = {"windows": int(windows.sum()), "rmse": rmse}
    has_interval = error.seeds > 2 and not error.copies
    interval = [round(max(error.low, 0.0), 2), round(error.high, 2)] if has_interval else None
    return {
        "unit": run.unit,
        "rmse": round(error.mean, 2),
        "interval": interval,
        "vehicles": error.seeds,
        "regimes": regimes,
    }


def _largest(values: Any) -> float | None:
    """Return the largest number; None without any, and for a budget without an end."""
    finite = [float(v) for v in ([] if values is None else values) if math.isfinite(v)]
    return max(finite) if finite else None
