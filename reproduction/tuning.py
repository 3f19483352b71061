"""Settings that are known only once other cells have run: tuning, and the matched controls."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from math import inf, isfinite

import numpy as np

from fedwatt.federation import Training
from fedwatt.methods import get
from fedwatt.randomness import generator
from fedwatt.settings import Range
from fedwatt.tuning.tune import ranges_of
from reproduction.cell import Cell
from reproduction.record import Record
from reproduction.scale import Scale

RATE = Training().learning_rate
"""The paper's η₀."""


RATES = Range(1e-4, 3e-1)
"""η₀ of every method in a full search; the paper has 1e-4 to 1e-1."""
ALPHA_OFF = {"alpha": 1.0}
LAMBDA_OFF = {"lam": 0.0}
CONTAINS: Mapping[str, Mapping[str, Mapping[str, float]]] = {
    "fedprox": {"fedavg": {"mu": 0.0}},
    "moon": {"fedavg": {"contrast_weight": 0.0}},
    "ri-fedavg": {"fedavg": LAMBDA_OFF},
    "fo-fedavg": {"fedavg": ALPHA_OFF},
    "fo-ri-fedavg": {
        "fo-fedavg": LAMBDA_OFF,
        "ri-fedavg": ALPHA_OFF,
        "fedavg": ALPHA_OFF | LAMBDA_OFF,
    },
}
"""Method → methods that it is at certain settings. Their trials are trials of it as well, so that
its incumbent is at least as good as theirs on validation, whatever was drawn for itself."""


def reduced_to(cell: Cell) -> str:
    """Return the method that a cell's settings leave: its own, or one that it contains.

    >>> reduced_to(Cell(dataset="ved", method="fo-ri-fedavg", settings=(("lam", 0.0),)))
    'fo-fedavg'
    """
    settings = dict(cell.settings)
    left = {
        other: len(off)
        for other, off in CONTAINS.get(cell.method, {}).items()
        if all(settings.get(name) == value for name, value in off.items())
    }
    return max(left, key=lambda other: left[other], default=cell.method)


@cache
def prerequisites(cell: Cell, scale: Scale) -> tuple[Cell, ...]:
    """Return the cells that must have run before this one's settings are known."""
    how, _, other = cell.follow.partition(":")
    if how in ("tuned", "own rate"):
        make = search if how == "tuned" else rate_grid
        methods = (other,) if other else (cell.method, *CONTAINS.get(cell.method, ()))
        return tuple(trial for m in methods for trial in make(replace(cell, method=m), scale))
    plain = replace(cell, follow="", settings=())
    if how == "matched rate":
        return (replace(plain, method="fo-fedavg", follow=other),)
    if how == "matched pull":
        return (replace(plain, method="ri-fedavg"),)
    return ()


def settled(cell: Cell, before: Sequence[Record]) -> Cell:
    """Return the cell with the settings that its prerequisites' records lead to."""
    how, _, other = cell.follow.partition(":")
    if how in ("tuned", "own rate"):
        best = min(before, key=score)  # the earlier one of two
        chosen = dict(best.cell.settings)
        if other:
            return cell.with_settings({"learning_rate": chosen.get("learning_rate", RATE)})
        off = CONTAINS.get(cell.method, {}).get(best.cell.method, {})
        return cell.with_settings({**chosen, **off})
    if how == "matched rate":
        learning_rate = dict(before[0].cell.settings).get("learning_rate", RATE)
        return cell.with_settings(
            {"learning_rate": four_digits(learning_rate * step_length(before[0]))}
        )
    if how == "matched pull":
        return cell.with_settings({"mu": four_digits(mean_pull(before[0]))})
    return cell


def step_length(record: Record) -> float:
    """Return the length of FO's steps after the first over plain ones; 1 without a second."""
    return float((record.facts.get("step_scale") or {}).get("length", 1.0))


def four_digits(value: float) -> float:
    """Return rounded to four digits, so that what pages print is exactly what was trained."""
    return float(f"{value:.4g}")


def score(record: Record) -> float:
    """Return mean validation RMSE over seeds, Wh; infinite if a seed diverged."""
    errors = list(record.final("validation_rmse").values())
    lost = record.diverged or not errors or not all(map(isfinite, errors))
    return inf if lost else float(np.mean(errors))


def mean_pull(record: Record) -> float:
    """Return mean proximal strength λ r(I_k) over all replies of a cell."""
    return float(record.facts["pull"])


def search(cell: Cell, scale: Scale) -> tuple[Cell, ...]:
    """Return as many trials for every method: the paper's settings, then a Latin square.

    A method, and a baseline without federation, is tuned once for each dataset, on its vehicles as
    they are at C = 0.3.
    """
    base = Cell(
        dataset=cell.dataset,
        method=cell.method,
        work=cell.work,
        purpose="trial",
        rounds=scale.tuning_rounds,
        seeds=scale.tuning_seeds,
    )
    ranges = ranges_of(get(cell.method)) | {"learning_rate": RATES}
    trials = latin(ranges, scale.trials - 1)
    return (base, *(base.with_settings(settings) for settings in trials))


def rate_grid(cell: Cell, scale: Scale) -> tuple[Cell, ...]:
    """Return the paper's rate and those of the scale, under the conditions of the cell itself.

    Kinds of vehicles and sizes of fleets share the rates of ten passenger cars; windows a second
    apart have the rates of their shorter runs.
    """
    conditions = ("partition", "noisy", "stride", "epochs", "participation", "causal", "work")
    rounds = cell.rounds or scale.rate_rounds
    base = Cell(
        dataset=cell.dataset,
        method=cell.method,
        purpose="trial",
        seeds=scale.rate_seeds,
        rounds=min(rounds, scale.stride_rounds) if cell.stride else rounds,
        **{name: getattr(cell, name) for name in conditions},
    )
    return (
        base,
        *(base.with_settings({"learning_rate": learning_rate}) for learning_rate in scale.rates),
    )


def latin(ranges: Mapping[str, Range], count: int) -> list[dict[str, float]]:
    """Return `count` settings in which every range is met once in each of `count` equal parts.

    A hyperparameter's values, and their order, are the same for all methods that have it: nested
    methods see the same points.

    >>> sorted(round(s["learning_rate"], 5) for s in latin({"learning_rate": Range(1e-3, 1e-1)}, 2))
    [0.00316, 0.03162]
    """
    columns = {}
    for name, span in ranges.items():
        key = name.replace("learning_rate", "rate")  # as when the committed records were made
        places = generator(0, "tuning", key).permutation((np.arange(count) + 0.5) / max(count, 1))
        low, high = (np.log([span.low, span.high])) if span.log else (span.low, span.high)
        values = low + places * (high - low)
        columns[name] = [float(f"{v:.6g}") for v in (np.exp(values) if span.log else values)]
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]
