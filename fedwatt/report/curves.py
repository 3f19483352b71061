"""A column of the round records as one curve for each seed of each method."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedwatt.report.load import Run, where

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


def diverged(run: Run, method: str) -> dict[int, int]:
    """Diverged seed → the round in which it did."""
    rows = where(run.rounds, method=method, diverged=True)
    found: dict[int, int] = {}
    for seed, at in zip(rows["seed"].tolist(), rows["round"].tolist(), strict=True):
        found[seed] = min(at, found.get(seed, at))
    return found


def curves(run: Run, method: str, column: str) -> Curves:
    """Return the curves of a column of rounds.parquet, without the rounds in which it was not
    recorded.
    """
    rows = where(run.rounds, method=method)
    bad = diverged(run, method)
    seeds = dict.fromkeys(rows["seed"].tolist())
    by_seed = {seed: known_values(rows, seed, column) for seed in seeds}
    good = {seed: pair for seed, pair in by_seed.items() if seed not in bad}
    lost = {seed: pair for seed, pair in by_seed.items() if seed in bad}
    # A curve that stops early (or has a gap) takes part only where every seed has a value.
    common = sorted(set.intersection(*(set(r.tolist()) for r, _ in good.values())) if good else [])
    at = np.array(common, dtype=np.float64)
    values = [v[np.isin(r, at)] for r, v in good.values()]
    return Curves(at, np.array(values).reshape(len(good), len(at)), tuple(good), lost)


def rounds_of(run: Run) -> dict[str, int]:
    """Return the last round of every method that has a finished seed."""
    found = {method: curves(run, method, "test_rmse").rounds for method in run.methods}
    return {method: int(rounds[-1]) for method, rounds in found.items() if rounds.size}


def difference(run: Run, method: str) -> Curves:
    """Return a method's test error minus the reference's in the rounds and seeds that both
    finished.
    """
    own, base = (curves(run, label, "test_rmse") for label in (method, run.reference))
    seeds = tuple(seed for seed in own.seeds if seed in base.seeds)
    at = np.intersect1d(own.rounds, base.rounds)

    def pick(side: Curves) -> FloatArray:
        rows = [side.seeds.index(seed) for seed in seeds]
        return side.values[rows][:, np.isin(side.rounds, at)]

    return Curves(at, pick(own) - pick(base), seeds, {})


def known_values(
    rows: Mapping[str, NDArray[Any]], seed: int, column: str
) -> tuple[FloatArray, FloatArray]:
    """Return rounds and values [T] of a seed's column, where something was recorded."""
    own = where(rows, seed=seed)
    order = np.argsort(own["round"], kind="stable")
    rounds = own["round"][order].astype(np.float64)
    values = own[column][order].astype(np.float64)
    known = np.isfinite(values)
    return rounds[known], values[known]
