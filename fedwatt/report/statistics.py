"""Curves, means, intervals and paired differences over seeds, and times of rounds.

Seeds of one run share the fleet and its split, and at a given seed all methods see the same initial
model, participants and batches. So methods are compared seed by seed, and an interval covers the
randomness of training on this fleet; it says nothing about another fleet or another split.

A method has one error: the RMSE of a vehicle's test windows with the model that the vehicle uses
after the run (`vehicle_model`), mean over vehicles, so that every vehicle counts the same.

A row of timing.parquet is one round of all seeds in one stack; here it is divided by their number.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from fedwatt.metrics import DIAGNOSTICS, amortised_diagnostics_fraction, diagnostics_fraction
from fedwatt.metrics import PARTS as ROUND_PARTS
from fedwatt.report.load import Columns, RunTables, where
from fedwatt.report.style import name_of

FloatArray = NDArray[np.float64]


@dataclass(frozen=True)
class Curves:
    """One method's curves. Seeds that diverged are kept apart and count in no statistic."""

    rounds: FloatArray
    """[T], the rounds in which something was recorded."""
    values: FloatArray
    """[seeds, T] of the seeds that stayed finite."""
    seeds: tuple[int, ...]
    lost: Mapping[int, tuple[FloatArray, FloatArray]]
    """Diverged seed → its rounds and values up to then."""

    @property
    def mean(self) -> FloatArray:
        """Mean over seeds, [T]."""
        return np.asarray(self.values.mean(axis=0), dtype=np.float64)


def diverged(run: RunTables, method: str) -> dict[int, int]:
    """Return the round in which each diverged seed did."""
    rows = where(run.rounds, method=method, diverged=True)
    rounds: dict[int, int] = {}
    for seed, at in zip(rows["seed"].tolist(), rows["round"].tolist(), strict=True):
        rounds[seed] = min(at, rounds.get(seed, at))
    return rounds


def by_seed(rows: Columns) -> dict[int, Columns]:
    """Map each seed to its rows of a table, in the order in which seeds appear."""
    return {seed: where(rows, seed=seed) for seed in dict.fromkeys(rows["seed"].tolist())}


def finite_seeds(
    run: RunTables, table: Columns, method: str, **values: object
) -> dict[int, Columns]:
    """Map each seed of a method that stayed finite to its rows of a table that have `values`."""
    bad = diverged(run, method)
    seeds = by_seed(where(table, method=method, **values))
    return {seed: rows for seed, rows in seeds.items() if seed not in bad}


def curves(run: RunTables, method: str, column: str) -> Curves:
    """Return the curves of a column of rounds.parquet, without the rounds in which it was not
    recorded.
    """
    seeds = by_seed(where(run.rounds, method=method))
    recorded = {seed: recorded_values(rows, column) for seed, rows in seeds.items()}
    bad = diverged(run, method)
    good = {seed: pair for seed, pair in recorded.items() if seed not in bad}
    lost = {seed: pair for seed, pair in recorded.items() if seed in bad}
    # A curve that stops early (or has a gap) takes part only where every seed has a value.
    common = sorted(set.intersection(*(set(r.tolist()) for r, _ in good.values())) if good else [])
    at = np.array(common, dtype=np.float64)
    values = [v[np.isin(r, at)] for r, v in good.values()]
    return Curves(at, np.array(values).reshape(len(good), len(at)), tuple(good), lost)


def rounds_of(run: RunTables) -> dict[str, int]:
    """Return the last round of every method that has a finished seed."""
    by_method = {method: curves(run, method, "test_rmse").rounds for method in run.methods}
    return {method: int(rounds[-1]) for method, rounds in by_method.items() if rounds.size}


def unequal_rounds(run: RunTables) -> str:
    """Return a sentence if methods were trained for different numbers of rounds, else ""."""
    rounds = rounds_of(run)
    if len(set(rounds.values())) < 2:
        return ""
    each = ", ".join(f"{name_of(method)} {last}" for method, last in rounds.items())
    return (
        f"The methods were trained for different numbers of rounds: {each}. A difference may come "
        "from that alone."
    )


def difference(run: RunTables, method: str) -> Curves:
    """Return a method's test error minus the reference's in the rounds and seeds that both
    finished.
    """
    compared, base = (curves(run, label, "test_rmse") for label in (method, run.reference))
    seeds = tuple(seed for seed in compared.seeds if seed in base.seeds)
    at = np.intersect1d(compared.rounds, base.rounds)

    def pick(side: Curves) -> FloatArray:
        rows = [side.seeds.index(seed) for seed in seeds]
        return side.values[rows][:, np.isin(side.rounds, at)]

    return Curves(at, pick(compared) - pick(base), seeds, {})


def recorded_values(rows: Columns, column: str) -> tuple[FloatArray, FloatArray]:
    """Return rounds and values [T] of a column in a seed's rows, where something was recorded."""
    order = np.argsort(rows["round"], kind="stable")
    rounds = rows["round"][order].astype(np.float64)
    values = rows[column][order].astype(np.float64)
    finite = np.isfinite(values)
    return rounds[finite], values[finite]


SHARED = "final"
"""Name of the final shared model in the table of vehicles."""
PERSONALISED = "personalised"
"""Name of the models that vehicles fine-tuned."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds. Spread and interval are NaN with fewer than two seeds.

    The interval is NaN as well where all seeds have the same value (`copies`).
    """

    mean: float
    std: float
    """Sample standard deviation over seeds"""
    low: float
    high: float
    """Ends of the interval for the mean (Student's t)"""
    seeds: int

    @property
    def above_noise(self) -> bool:
        """Tell whether the interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def copies(self) -> bool:
        """Tell whether several seeds have the same value, because they trained identically."""
        return self.seeds > 1 and isnan(self.low)


def estimate(values: Sequence[float], *, comparisons: int = 1) -> Estimate:
    """Return the mean, spread and 95 % interval; with several comparisons, 95 % for all at once.

    >>> estimate([1.0, 2.0, 3.0])
    Estimate(mean=2.0, std=1.0, low=-0.48..., high=4.48..., seeds=3)
    """
    finite = np.asarray([value for value in values if np.isfinite(value)], dtype=np.float64)
    n = finite.size
    mean = float(finite.mean()) if n else nan
    if n < 2:
        return Estimate(mean, nan, nan, nan, n)
    std = float(finite.std(ddof=1))
    if mean and std <= 1e-12 * abs(mean):  # copies, but for their last digits
        return Estimate(mean, std, nan, nan, n)
    half = float(stdtrit(n - 1, 1 - 0.025 / comparisons)) * std / sqrt(n)
    return Estimate(mean, std, mean - half, mean + half, n)


def final(run: RunTables, method: str, column: str) -> list[float]:
    """Return a column's last recorded value for every seed that stayed finite."""
    return list(final_by_seed(run, method, column).values())


def final_by_seed(run: RunTables, method: str, column: str) -> dict[int, float]:
    """Map each finite seed to a column's last recorded value; seeds may stop at other rounds."""
    seeds = finite_seeds(run, run.rounds, method)
    recorded = {seed: recorded_values(rows, column)[1] for seed, rows in seeds.items()}
    return {seed: float(values[-1]) for seed, values in recorded.items() if values.size}


def vehicle_model(run: RunTables, method: str) -> str:
    """Return the model that vehicles use after the run, by its name in the table of vehicles."""
    models = where(run.vehicles, method=method)["model"]
    return PERSONALISED if PERSONALISED in models else final_model(run, method)


def final_model(run: RunTables, method: str) -> str:
    """Return the name of the final shared model; "best" where a run has no other."""
    return SHARED if SHARED in where(run.vehicles, method=method)["model"] else "best"


def final_errors(run: RunTables, method: str) -> dict[int, float]:
    """Map each finite seed to the error of a method: that of the model which vehicles use.

    Where single vehicles do not report their errors, it is the RMSE of all windows.
    """
    return (
        model_errors(run, method, vehicle_model(run, method))
        or final_by_seed(run, method, "final_test_rmse")
        or final_by_seed(run, method, "test_rmse")
    )


def final_error(run: RunTables, method: str) -> Estimate:
    """Return the error of a method over its seeds."""
    return estimate(list(final_errors(run, method).values()))


def model_errors(
    run: RunTables, method: str, model: str, *, column: str = "rmse", table: Columns | None = None
) -> dict[int, float]:
    """Map each finite seed to a model's error, mean over the vehicles that train.

    `table` may be another run's table of vehicles with the same methods.
    """
    every = run.vehicles if table is None else table
    seeds = finite_seeds(run, every, method, model=model, stratum="all", held_out=False)
    errors = {seed: rows[column].astype(np.float64) for seed, rows in seeds.items()}
    return {seed: float(np.nanmean(of)) for seed, of in errors.items() if np.isfinite(of).any()}


@dataclass(frozen=True)
class Comparison:
    """A method against the reference method, by the errors of their final models.

    Final is after each method's last round, also where they had different numbers of rounds.
    """

    method: str
    reference: str
    difference: Estimate
    """Method minus reference, seed by seed: below zero the method is better."""
    percent: float
    """Mean difference as a percentage of the reference's error on the same seeds."""
    better: int
    """Vehicles on which the method's error is lower."""
    vehicles: int
    """All vehicles that train."""


def compare(run: RunTables) -> list[Comparison]:
    """Compare every other method with the reference, if they share data and a finished seed."""
    if not run.same_data:
        return []
    reference = run.reference
    methods = [method for method in run.methods if method != reference]
    base = final_errors(run, reference)
    base_model = vehicle_model(run, reference)
    comparisons = []
    for method in methods:
        errors = final_errors(run, method)
        seeds = [seed for seed in errors if seed in base]
        if not seeds:
            continue
        change = estimate([errors[seed] - base[seed] for seed in seeds], comparisons=len(methods))
        level = float(np.mean([base[seed] for seed in seeds]))
        by_vehicle = vehicle_rmse(run, method, seeds, vehicle_model(run, method))
        of_baseline = vehicle_rmse(run, reference, seeds, base_model)
        shared = [vehicle for vehicle in by_vehicle if vehicle in of_baseline]
        better = sum(by_vehicle[vehicle] < of_baseline[vehicle] for vehicle in shared)
        comparisons.append(
            Comparison(method, reference, change, 100 * change.mean / level, better, len(shared))
        )
    return comparisons


def vehicle_rmse(
    run: RunTables, method: str, seeds: Sequence[int] | None = None, model: str = "last"
) -> dict[str, float]:
    """Map each vehicle that trains to its RMSE, mean over seeds (default: all finite ones)."""
    finite = finite_seeds(run, run.vehicles, method, model=model, stratum="all", held_out=False)
    by_vehicle: dict[str, list[float]] = {}
    for seed, rows in finite.items():
        for vehicle, rmse in zip(rows["vehicle"], rows["rmse"], strict=True):
            if (seeds is None or seed in seeds) and np.isfinite(rmse):
                by_vehicle.setdefault(vehicle, []).append(float(rmse))
    return {vehicle: float(np.mean(values)) for vehicle, values in by_vehicle.items()}


def pooled_rmse(run: RunTables, method: str, model: str) -> dict[str, list[float]]:
    """Map "all" and each stratum to the RMSE of all its windows, for each finite seed."""
    by_stratum: dict[str, list[float]] = {}
    for rows in finite_seeds(run, run.vehicles, method, model=model, held_out=False).values():
        for stratum in dict.fromkeys(rows["stratum"]):
            part = where(rows, stratum=stratum)
            windows = part["windows"].astype(np.float64)
            if windows.sum():
                # A vehicle without windows in the stratum has no RMSE: 0 × NaN must not spread.
                squared = np.where(windows > 0, windows * part["rmse"] ** 2, 0.0).sum()
                by_stratum.setdefault(stratum, []).append(sqrt(squared / windows.sum()))
    return by_stratum


def stratum_rmse(run: RunTables, method: str) -> dict[str, list[float]]:
    """Map each stratum to the final model's RMSE of all its windows, for each finite seed."""
    pooled = pooled_rmse(run, method, vehicle_model(run, method))
    return {stratum: values for stratum, values in pooled.items() if stratum != "all"}


PARTS = (*ROUND_PARTS, "evaluation")


def round_times(run: RunTables, method: str) -> list[dict[str, float]]:
    """Return seconds of each trained round by part, for one seed. Round 0 trains nothing."""
    rows = where(run.timing, method=method)
    trained = [i for i, at in enumerate(rows["round"]) if at > 0]
    return [{part: float(rows[part][i] / rows["seeds"][i]) for part in PARTS} for i in trained]


def mean_seconds(run: RunTables, method: str) -> dict[str, float]:
    """Return the mean seconds of a round and seed by part; empty if nothing was timed."""
    rounds = round_times(run, method)
    return {part: float(np.mean([seconds[part] for seconds in rounds])) for part in PARTS if rounds}


def diagnostics(run: RunTables, method: str) -> tuple[float, float]:
    """Return R_diag in rounds with diagnostics (instantaneous) and over all rounds (amortised)."""
    rounds = round_times(run, method)
    instantaneous = [
        diagnostics_fraction(seconds)
        for seconds in rounds
        if any(seconds[part] > 0 for part in DIAGNOSTICS)
    ]
    return (
        float(np.mean(instantaneous)) if instantaneous else 0.0,
        amortised_diagnostics_fraction(rounds),
    )
