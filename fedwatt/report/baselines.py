"""Gain of federating over local-only models, and the error of a run stage by stage.

Vehicles are compared one by one, each by its RMSE (mean over seeds), and the interval is over
vehicles: it says whether vehicles such as these gain, not whether training repeats itself. All
stages are on one scale: the RMSE of a vehicle's test windows, mean over vehicles and seeds.
"""

from dataclasses import dataclass
from math import nan

import numpy as np

from fedwatt.evaluation import REFERENCES
from fedwatt.evaluation.baselines import LOCAL_ONLY, WITHOUT_ELEVATION
from fedwatt.report.load import Predicted, RunTables, where
from fedwatt.report.statistics import (
    PERSONALISED,
    Estimate,
    estimate,
    final,
    final_model,
    model_errors,
    vehicle_model,
    vehicle_rmse,
)
from fedwatt.report.style import name_of
from fedwatt.report.table import Cell, ReportTable, TableColumn, amount, cell_text


@dataclass(frozen=True)
class Gain:
    """A federated model beside the local-only model of the same vehicles."""

    method: str
    model: str
    """Its name in the table of vehicles."""
    reference: str
    federated: float
    """Mean RMSE over vehicles."""
    alone: float
    """The same of the local-only model."""
    saved: Estimate
    """RMSE of local-only minus federated, over vehicles: above zero federating is better."""
    better: int
    """Vehicles on which the federated model has the lower error."""
    constant: float = nan
    """RMSE of what predicts a vehicle's mean in all of its windows."""

    @property
    def name(self) -> str:
        """Return the federated model's name in a table."""
        kind = "personalised" if self.model == PERSONALISED else "shared model"
        return f"{name_of(self.method)}, {kind}"

    @property
    def percent(self) -> float:
        """Return what federating saves, as a percentage of the local-only error."""
        return 100 * self.saved.mean / self.alone


def baseline_rmse(run: RunTables) -> dict[str, dict[str, float]]:
    """Map baseline and vehicle to RMSE, mean over seeds; empty for a run without baselines."""
    by_name: dict[str, dict[str, float]] = {}
    table = run.origins[0].baselines
    if table is None or not run.same_data:
        return {}
    rows = where(table, stratum="all", held_out=False)
    for name in dict.fromkeys(rows["reference"]):
        of_baseline = where(rows, reference=name)
        for vehicle in dict.fromkeys(of_baseline["vehicle"]):
            rmse = where(of_baseline, vehicle=vehicle)["rmse"].astype(np.float64)
            by_name.setdefault(name, {})[vehicle] = float(rmse.mean())
    return by_name


def best_alone(baselines: dict[str, dict[str, float]]) -> str:
    """Return the local-only baseline: the one chosen on validation, else the lowest test error."""
    if LOCAL_ONLY in baselines:
        return LOCAL_ONLY
    alone = {name: rmse for name, rmse in baselines.items() if REFERENCES[name].alone}
    return min(alone, key=lambda name: float(np.mean(list(alone[name].values()))))


def gains(run: RunTables) -> list[Gain]:
    """Compare every method's shared and personalised models with the local-only model.

    The last one of a method is the model that vehicles use.
    """
    baselines = baseline_rmse(run)
    if not baselines:
        return []
    reference = best_alone(baselines)
    alone = baselines[reference]
    constant = baselines.get("mean", {})
    compared = []
    for method in run.methods:
        for model in dict.fromkeys((final_model(run, method), vehicle_model(run, method))):
            rmse = vehicle_rmse(run, method, model=model)
            shared = [vehicle for vehicle in rmse if vehicle in alone]
            saved = [alone[vehicle] - rmse[vehicle] for vehicle in shared]
            if shared:
                compared.append(
                    Gain(
                        method=method,
                        model=model,
                        reference=reference,
                        federated=float(np.mean([rmse[vehicle] for vehicle in shared])),
                        alone=float(np.mean([alone[vehicle] for vehicle in shared])),
                        saved=estimate(saved),
                        better=sum(change > 0 for change in saved),
                        constant=float(np.mean([constant.get(name, nan) for name in shared])),
                    )
                )
    return compared


def best_validated(run: RunTables) -> str | None:
    """Return the method whose shared model has the lowest validation error; None: all diverged."""
    validated = {method: _validation_rmse(run, method) for method in run.methods}
    finite = [method for method in run.methods if np.isfinite(validated[method])]
    return min(finite, key=validated.__getitem__) if finite else None


def federating(run: RunTables) -> Gain | None:
    """Return what the best-validated method gains over local-only models; None: not known."""
    best = best_validated(run)
    compared = [gain for gain in gains(run) if gain.method == best]
    return compared[-1] if compared else None


def _validation_rmse(run: RunTables, method: str) -> float:
    """Return the validation error of a method's final shared model."""
    errors = final(run, method, "final_validation_rmse")
    return estimate(errors or final(run, method, "validation_rmse")).mean


def gain_headline(gain: Gain) -> str:
    """Return the gain of federating in one clause; or that no model has learned anything."""
    if gain.federated > gain.constant:
        return "Nothing learned: each vehicle's mean has a lower error than its model"
    if not gain.saved.above_noise:
        return "No significant gain over local-only models"
    word = "lower" if gain.saved.mean > 0 else "higher"
    return f"Federating gives {cell_text(abs(gain.percent))} % {word} error than local-only models"


def gain_sentence(gain: Gain, target: Predicted) -> str:
    """Return the gain of federating with its numbers."""
    word = "saves"
    low = gain.saved.low
    high = gain.saved.high
    if gain.saved.mean < 0:
        word = "costs"
        low = -gain.saved.high
        high = -gain.saved.low
    interval = "one vehicle has no interval"
    if gain.saved.copies:
        interval = "the same for every vehicle"
    elif gain.saved.seeds > 1:
        ends = f"{cell_text(low, target.digits())} to {amount(target, high)}"
        interval = f"95 % interval {ends} over {gain.saved.seeds} vehicles"
    chosen = REFERENCES[gain.reference].title
    if gain.reference == LOCAL_ONLY:
        chosen = "ridge or network, by validation"
    clear = "" if gain.saved.above_noise else ", no significant gain"
    return (
        f"The best model that each vehicle trains by itself ({chosen}) has "
        f"{amount(target, gain.alone)}: federating {word} "
        f"{amount(target, abs(gain.saved.mean))} ({interval}{clear}; better on {gain.better} of "
        f"{gain.saved.seeds} vehicles)."
    )


def baselines_table(run: RunTables) -> ReportTable:
    """Return every baseline and every federated model by its mean error over vehicles."""
    baselines = baseline_rmse(run)
    rows: list[tuple[Cell, ...]] = []
    best = best_alone(baselines) if baselines else ""
    for name, rmse in baselines.items():
        level = float(np.mean(list(rmse.values())))
        base = baselines[best]
        shared = [vehicle for vehicle in rmse if vehicle in base]
        saved = estimate([base[v] - rmse[v] for v in shared]) if name != best else nan
        better: Cell = sum(rmse[v] < base[v] for v in shared) if name != best else "–"
        rows.append((REFERENCES[name].title, level, saved, better))
    rows += [(gain.name, gain.federated, gain.saved, gain.better) for gain in gains(run)]
    count = len(baselines[best]) if baselines else 0
    alone = REFERENCES[best].title if baselines else ""
    return ReportTable(
        "baselines",
        "Federated models and baselines",
        (
            TableColumn("Model"),
            TableColumn("RMSE", run.unit, run.target.digits()),
            TableColumn("Saved against local-only", run.unit, run.target.digits(2)),
            TableColumn(f"Better vehicles, of {count}"),
        ),
        tuple(rows),
        "RMSE of a vehicle's test windows, mean over vehicles and seeds. Saved is against "
        f"{alone}: mean ± standard deviation over vehicles [95 % interval of the mean], above zero "
        "is better. Local-only networks begin like the federated ones and take as many steps; "
        "learning rate and stopping point are those of the lowest error on the vehicle's "
        "validation windows." + _about_elevation(run),
    )


def _about_elevation(run: RunTables) -> str:
    if not any(origin.environment.get("elevation") for origin in run.origins):
        return ""
    return (
        " A local-only vehicle has the elevation map that it learns from its own training trips, "
        "or none if that validates better."
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


def baseline_stages(run: RunTables) -> list[Stage]:
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


def federated_stages(run: RunTables) -> list[Stage]:
    """Return the stages that federated models of the run went through, the final one last."""
    by_method = {method: method_stages(run, method) for method in run.methods}
    names = (SHARED_STAGE, ELEVATION_STAGE, PERSONALISED_STAGE)
    errors = {
        name: {method: stages[name] for method, stages in by_method.items() if name in stages}
        for name in names
    }
    return [Stage(name, by_method) for name, by_method in errors.items() if by_method]


def method_stages(run: RunTables, method: str) -> dict[str, float]:
    """Map each stage of a method to its error; the last is that of the final model.

    Only the first method of a run is trained without elevation, too.
    """
    level = baseline_rmse(run).get(WITHOUT_ELEVATION, {})
    by_seed = {ELEVATION_STAGE if level else SHARED_STAGE: final_model(run, method)}
    if vehicle_model(run, method) == PERSONALISED:
        by_seed[PERSONALISED_STAGE] = PERSONALISED
    stages = {SHARED_STAGE: float(np.mean(list(level.values())))} if level else {}
    if method != run.methods[0]:
        stages = {}
    for stage, model in by_seed.items():
        errors = model_errors(run, method, model)
        if errors:
            stages[stage] = estimate(list(errors.values())).mean
    return stages
