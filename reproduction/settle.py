"""Settings that are known only once other cells have run: tuning, and the matched controls."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from fedwatt.federation import Training
from fedwatt.methods import get
from fedwatt.methods.ranges import Range
from fedwatt.randomness import generator
from fedwatt.studies.ranges import ranges_of
from reproduction.cell import Cell
from reproduction.record import Record
from reproduction.scale import Scale

RATE = Training().rate
"""The paper's η₀."""


def prerequisites(cell: Cell, scale: Scale) -> tuple[Cell, ...]:
    """The cells that must have run before this one's settings are known."""
    if cell.follow == "tuned":
        return trials(cell, scale)
    plain = replace(cell, follow="", settings=())
    if cell.follow == "matched rate":
        return (replace(plain, method="fo-fedavg"),)
    if cell.follow == "matched pull":
        return (replace(plain, method="ri-fedavg"),)
    return ()


def settled(cell: Cell, before: Sequence[Record]) -> Cell:
    """The cell with the settings that its prerequisites' records lead to."""
    if cell.follow == "tuned":
        best = min(before, key=score)  # the earlier one of two
        return cell.with_settings(dict(best.cell.settings))
    if cell.follow == "matched rate":
        return cell.with_settings({"rate": four_digits(RATE * step_length(before[0]))})
    if cell.follow == "matched pull":
        return cell.with_settings({"mu": four_digits(mean_pull(before[0]))})
    return cell


def step_length(record: Record) -> float:
    """How long FO's steps after the first are beside plain ones; 1 where no round has a second."""
    return float((record.facts.get("step_scale") or {}).get("length", 1.0))


def four_digits(value: float) -> float:
    """Rounded to four digits, so that what pages print is exactly what was trained."""
    return float(f"{value:.4g}")


def score(record: Record) -> float:
    """Mean validation RMSE over seeds, Wh; infinite if a seed diverged."""
    found = list(record.final("validation_rmse").values())
    lost = record.diverged or not found or not all(map(isfinite, found))
    return inf if lost else float(np.mean(found))


def mean_pull(record: Record) -> float:
    """Mean proximal strength λ r(I_k) over all replies of a cell."""
    return float(np.nanmean(record.vehicles["pull"].astype(np.float64)))


def trials(cell: Cell, scale: Scale) -> tuple[Cell, ...]:
    """As many trials for every method: the paper's settings, then a Latin square of its ranges.

    A method is tuned once for each kind of data, on ten vehicles at C = 0.3.
    """
    base = Cell(
        dataset=cell.dataset,
        method=cell.method,
        purpose="trial",
        rounds=scale.tuning_rounds,
        seeds=scale.tuning_seeds,
    )
    ranges = ranges_of(get(cell.method))
    return (
        base,
        *(base.with_settings(v) for v in latin(cell.method, ranges, scale.trials - 1)),
    )


def latin(method: str, ranges: Mapping[str, Range], count: int) -> list[dict[str, float]]:
    """`count` settings in which every range is met once in each of `count` equal parts.

    The rates are the same for all methods, from low to high; the rest is dealt to them.

    >>> [round(s["rate"], 5) for s in latin("fedavg", {"rate": Range(1e-3, 1e-1)}, 2)]
    [0.00316, 0.03162]
    """
    columns = {}
    for name, own in ranges.items():
        places = (np.arange(count) + 0.5) / max(count, 1)
        if name != "rate":
            places = generator(0, "tuning", method, name).permutation(places)
        low, high = (np.log([own.low, own.high])) if own.log else (own.low, own.high)
        values = low + places * (high - low)
        columns[name] = [float(f"{v:.6g}") for v in (np.exp(values) if own.log else values)]
    return [{name: column[i] for name, column in columns.items()} for i in range(count)]
