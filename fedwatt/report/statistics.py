"""Means, intervals and paired differences over seeds.

Seeds of one run share the fleet and its split, and at a given seed all methods see the same initial
model, participants and batches. So methods are compared seed by seed, and an interval covers the
randomness of training on this fleet; it says nothing about another fleet or another split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, nan, sqrt

import numpy as np
from scipy.special import stdtrit

from fedwatt.report.curves import diverged, known_values
from fedwatt.report.load import Run, where


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds. Spread and interval are NaN with fewer than two.

    So is the interval of `copies`, of which one says as much as all of them.
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
        """Does the interval leave zero out?"""
        return self.low > 0 or self.high < 0

    @property
    def copies(self) -> bool:
        """Are several values the same, and not 0, as where seeds gave one and the same training?"""
        return self.seeds > 1 and isnan(self.low)


def estimate(values: Sequence[float], *, comparisons: int = 1) -> Estimate:
    """Mean, spread and 95 % interval; with several comparisons, 95 % for all of them at once.

    >>> estimate([1.0, 2.0, 3.0])
    Estimate(mean=2.0, std=1.0, low=-0.48..., high=4.48..., seeds=3)
    """
    known = np.asarray([value for value in values if np.isfinite(value)], dtype=np.float64)
    n = known.size
    mean = float(known.mean()) if n else nan
    if n < 2:
        return Estimate(mean, nan, nan, nan, n)
    std = float(known.std(ddof=1))
    if mean and std <= 1e-12 * abs(mean):  # copies, but for their last digits
        return Estimate(mean, std, nan, nan, n)
    half = float(stdtrit(n - 1, 1 - 0.025 / comparisons)) * std / sqrt(n)
    return Estimate(mean, std, mean - half, mean + half, n)


def final(run: Run, method: str, column: str) -> list[float]:
    """A column's last recorded value, for every seed that stayed finite."""
    return list(final_by_seed(run, method, column).values())


def final_by_seed(run: Run, method: str, column: str) -> dict[int, float]:
    """Seed that stayed finite → a column's last recorded value; seeds may stop at other rounds."""
    rows, bad = where(run.rounds, method=method), diverged(run, method)
    seeds = (seed for seed in dict.fromkeys(rows["seed"].tolist()) if seed not in bad)
    found = {seed: known_values(rows, seed, column)[1] for seed in seeds}
    return {seed: float(values[-1]) for seed, values in found.items() if values.size}


@dataclass(frozen=True)
class Comparison:
    """A method against the reference, by final test RMSE in Wh per window.

    Final is after each one's own last round, also where they had different numbers of rounds.
    """

    method: str
    reference: str
    difference: Estimate
    """Method minus reference, seed by seed: below zero the method is better."""
    percent: float
    """Mean difference as a percentage of the reference's RMSE on the same seeds."""
    better: int
    """Vehicles on which the method's error is lower."""
    vehicles: int
    """All vehicles that train."""


def compare(run: Run) -> list[Comparison]:
    """Every other method against the reference, if they have data and a finished seed in common."""
    if not run.same_data:
        return []
    reference = run.reference
    others = [method for method in run.methods if method != reference]
    base = final_by_seed(run, reference, "test_rmse")
    found = []
    for method in others:
        ends = final_by_seed(run, method, "test_rmse")
        seeds = [seed for seed in ends if seed in base]
        if not seeds:
            continue
        change = estimate([ends[seed] - base[seed] for seed in seeds], comparisons=len(others))
        level = float(np.mean([base[seed] for seed in seeds]))
        own = vehicle_rmse(run, method, seeds)
        other = vehicle_rmse(run, reference, seeds)
        shared = [vehicle for vehicle in own if vehicle in other]
        better = sum(own[vehicle] < other[vehicle] for vehicle in shared)
        found.append(
            Comparison(method, reference, change, 100 * change.mean / level, better, len(shared))
        )
    return found


def vehicle_rmse(
    run: Run, method: str, seeds: Sequence[int] | None = None, model: str = "last"
) -> dict[str, float]:
    """RMSE of each vehicle that trains, mean over seeds; by default all that stayed finite."""
    rows = where(run.vehicles, method=method, model=model, stratum="all", held_out=False)
    bad = diverged(run, method)
    found: dict[str, list[float]] = {}
    for vehicle, seed, rmse in zip(rows["vehicle"], rows["seed"], rows["rmse"], strict=True):
        if (seed in seeds if seeds is not None else seed not in bad) and np.isfinite(rmse):
            found.setdefault(vehicle, []).append(float(rmse))
    return {vehicle: float(np.mean(values)) for vehicle, values in found.items()}


def kept_model(run: Run, method: str) -> str:
    """The name of the model that vehicles use; runs of earlier versions kept their best one."""
    return "kept" if "kept" in where(run.vehicles, method=method)["model"] else "best"


def pooled_rmse(run: Run, method: str, model: str = "last") -> dict[str, list[float]]:
    """Pooled RMSE of all windows ("all") and each stratum, for each seed that stayed finite."""
    rows = where(run.vehicles, method=method, model=model, held_out=False)
    bad = diverged(run, method)
    seeds = [seed for seed in dict.fromkeys(rows["seed"].tolist()) if seed not in bad]
    found: dict[str, list[float]] = {}
    for stratum in dict.fromkeys(rows["stratum"]):
        for seed in seeds:
            own = where(rows, stratum=stratum, seed=seed)
            windows = own["windows"].astype(np.float64)
            if windows.sum():
                # A vehicle without windows in the stratum has no RMSE: 0 × NaN must not spread.
                squared = np.where(windows > 0, windows * own["rmse"] ** 2, 0.0).sum()
                found.setdefault(stratum, []).append(sqrt(squared / windows.sum()))
    return found


def stratum_rmse(run: Run, method: str) -> dict[str, list[float]]:
    """Pooled RMSE of each stratum, one value for each seed that stayed finite."""
    pooled = pooled_rmse(run, method)
    return {stratum: values for stratum, values in pooled.items() if stratum != "all"}


def personal_rmse(run: Run, method: str) -> list[float]:
    """Pooled RMSE of the vehicles' own models, for each seed; empty where there are none."""
    return pooled_rmse(run, method, "personal").get("all", [])
