"""The error of a run stage by stage: baselines, shared model, elevation, personalisation.

All stages are on one scale: the RMSE of a vehicle's test windows, mean over vehicles and seeds.
"""

from dataclasses import dataclass
from math import isclose, isfinite

import numpy as np

from fedwatt.report.baselines import baseline_rmse, best_alone
from fedwatt.report.curves import diverged
from fedwatt.report.load import Columns, Run, where
from fedwatt.report.statistics import (
    PERSONALISED,
    estimate,
    final_model,
    model_errors,
    vehicle_model,
)

SHARED_STAGE = "shared model"
ELEVATION_STAGE = "with elevation"
PERSONALISED_STAGE = "with personalisation"


@dataclass(frozen=True)
class Stage:
    """One step from the simplest baseline to the model that vehicles use."""

    name: str
    errors: dict[str, float]
    """Method → error; a baseline belongs to no method and has the key ""."""


def baseline_stages(run: Run) -> list[Stage]:
    """Return the vehicle's mean and the local-only model; empty for a run without baselines."""
    baselines = baseline_rmse(run)
    if not baselines:
        return []
    names = {"mean of the vehicle": "mean", "local-only model": best_alone(baselines)}
    return [
        Stage(title, {"": float(np.mean(list(baselines[name].values())))})
        for title, name in names.items()
        if name in baselines
    ]


def federated_stages(run: Run) -> list[Stage]:
    """Return the stages that federated models of the run went through, the final one last."""
    by_method = {method: method_stages(run, method) for method in run.methods}
    names = (SHARED_STAGE, ELEVATION_STAGE, PERSONALISED_STAGE)
    errors = {
        name: {method: own[name] for method, own in by_method.items() if name in own}
        for name in names
    }
    return [Stage(name, by_method) for name, by_method in errors.items() if by_method]


def method_stages(run: Run, method: str) -> dict[str, float]:
    """Map each stage of a method to its error; the last is that of the final model."""
    shared = final_model(run, method)
    level = table_without_elevation(run, method)
    errors = {}
    if level is not None:
        errors[SHARED_STAGE] = model_errors(run, method, shared, table=level)
    errors[SHARED_STAGE if level is None else ELEVATION_STAGE] = model_errors(run, method, shared)
    if vehicle_model(run, method) == PERSONALISED:
        errors[PERSONALISED_STAGE] = model_errors(run, method, PERSONALISED)
    return {
        stage: estimate(list(by_seed.values())).mean for stage, by_seed in errors.items() if by_seed
    }


def table_without_elevation(run: Run, method: str) -> Columns | None:
    """Return the errors of the same models trained without elevation, if there are any."""
    tables = [o.level for o in run.origins if method in o.methods and o.level is not None]
    return tables[0] if tables else None


def vehicles_with_elevation(run: Run, method: str) -> tuple[list[int], int]:
    """Count for each finite seed the vehicles that use elevation in a test window, and all.

    The others use the model without elevation alone: elevation does not lower their validation
    error, or climb is known in none of their test windows.
    """
    level = table_without_elevation(run, method)
    if level is None:
        return [], 0
    rows = {
        "method": method,
        "model": vehicle_model(run, method),
        "stratum": "all",
        "held_out": False,
    }
    used = _rmse_by_case(where(run.vehicles, **rows))
    without = _rmse_by_case(where(level, **rows))
    bad = diverged(run, method)
    counts: dict[int, int] = {}
    cases = [
        case for case in used if case in without and case[0] not in bad and isfinite(used[case])
    ]
    for seed, vehicle in cases:
        # The model without elevation has the same error in both tables, but for rounding.
        differs = not isclose(used[seed, vehicle], without[seed, vehicle], rel_tol=1e-6)
        counts[seed] = counts.get(seed, 0) + differs
    return list(counts.values()), len({vehicle for _, vehicle in cases})


def _rmse_by_case(rows: Columns) -> dict[tuple[int, str], float]:
    """Map seed and vehicle to RMSE."""
    columns = (rows[name].tolist() for name in ("seed", "vehicle", "rmse"))
    return {(seed, vehicle): rmse for seed, vehicle, rmse in zip(*columns, strict=True)}
