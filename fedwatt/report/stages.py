"""The error of a run stage by stage: baselines, shared model, personalisation.

All stages are on one scale: the RMSE of a vehicle's test windows, mean over vehicles and seeds.
"""

from dataclasses import dataclass

import numpy as np

from fedwatt.report.baselines import baseline_rmse, best_alone
from fedwatt.report.load import Run
from fedwatt.report.statistics import (
    PERSONALISED,
    estimate,
    final_model,
    model_errors,
    vehicle_model,
)

SHARED_STAGE = "shared model"
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
    names = (SHARED_STAGE, PERSONALISED_STAGE)
    errors = {
        name: {method: own[name] for method, own in by_method.items() if name in own}
        for name in names
    }
    return [Stage(name, by_method) for name, by_method in errors.items() if by_method]


def method_stages(run: Run, method: str) -> dict[str, float]:
    """Map each stage of a method to its error; the last is that of the final model."""
    errors = {SHARED_STAGE: model_errors(run, method, final_model(run, method))}
    if vehicle_model(run, method) == PERSONALISED:
        errors[PERSONALISED_STAGE] = model_errors(run, method, PERSONALISED)
    return {
        stage: estimate(list(by_seed.values())).mean for stage, by_seed in errors.items() if by_seed
    }
