"""What the rate does: validation error of FedAvg and the paper's methods at every rate tried.

These are the trials from which each method's own rate is chosen. FO's steps are shorter than plain
ones, so that its best rate is higher; what it gains is what the best of its rates has over the best
of FedAvg's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedwatt.report.style import name_of
from reproduction.cell import OURS, Cell
from reproduction.contests import (
    BASE,
    dataset_contests,
    skew_contests,
    stride_contests,
    work_contests,
)
from reproduction.draw import sweep
from reproduction.record import Record
from reproduction.settle import RATE, rate_grid
from reproduction.show import facts_line, matrix
from reproduction.study import Findings, Picture, Setting, Study, View


def conditions(setting: Setting) -> dict[str, tuple[str, Cell]]:
    """Name → title and FedAvg's cell of every condition under which rates alone are tuned."""
    contests = (
        *stride_contests(setting),
        *work_contests(setting),
        *skew_contests(setting),
        *dataset_contests(setting),
    )
    return {
        one.name: (one.title, one.cells[BASE])
        for one in contests
        if one.cells[BASE].follow == "own rate"
    }


def tried(setting: Setting, base: Cell) -> dict[str, list[Cell]]:
    """Method → its trials under a condition, from the lowest rate to the highest."""
    return {
        method: sorted(rate_grid(replace(base, method=method), setting.scale), key=rate_of)
        for method in setting.among(OURS)
    }


def rate_of(cell: Cell) -> float:
    """η₀ of a cell."""
    return float(dict(cell.settings).get("rate", RATE))


def rate_cells(setting: Setting) -> list[Cell]:
    """All trials."""
    return [
        cell
        for _, base in conditions(setting).values()
        for cells in tried(setting, base).values()
        for cell in cells
    ]


def show_rates(view: View) -> Findings:
    """A table and a figure for each condition that was tried, and whose best rate is an end."""
    blocks, pictures, ends = [], [], list[str]()
    for name, (title, base) in conditions(view.setting).items():
        cells = tried(view.setting, base)
        records: dict[str, list[Record | None]] = {
            method: [view.get(cell) for cell in own] for method, own in cells.items()
        }
        if not any(record for own in records.values() for record in own):
            continue
        values = {
            method: [r.final("validation_rmse") if r else {} for r in own]
            for method, own in records.items()
        }
        ends += [
            f"{name_of(m)}, {title}: {end}" for m, own in values.items() if (end := at_end(own))
        ]
        rates = [f"{rate_of(cell):g}" for cell in next(iter(cells.values()))]
        facts = facts_line([record for own in records.values() for record in own])
        blocks.append(
            matrix(
                f"rates-{name}",
                f"Validation RMSE by rate. {title}",
                [f"η₀ = {rate}" for rate in rates],
                records,
                values,
                unit="Wh",
                note="Trips and seeds of tuning, which no other table has.",
            )
        )
        pictures.append(
            Picture(
                f"rates-{name}",
                f"Validation RMSE by rate. {title}",
                sweep(rates, values, "Validation RMSE, Wh per window", "rate η₀"),
                "Trips and seeds of tuning. Each method is compared at the lowest point of its "
                "own line.",
                facts,
            )
        )
    note = "The best rate is an end of those tried, so that a better one may lie beyond. "
    return Findings(tuple(blocks), tuple(pictures), (note + "; ".join(ends) + ".",) if ends else ())


def at_end(values: Sequence[Mapping[int, float]]) -> str:
    """Which end of the rates has the lowest error, if one has; empty also where one has not run.

    >>> at_end([{1: 3.0}, {1: 2.0}, {1: 2.5}]), at_end([{1: 3.0}, {1: 2.0}, {1: 1.5}])
    ('', 'the highest')
    """
    if not all(values):
        return ""
    means = [sum(own.values()) / len(own) for own in values]
    place = means.index(min(means))
    return {0: "the lowest", len(means) - 1: "the highest"}.get(place, "")


RATES = Study(
    "rates",
    "The rate: validation error at every rate tried",
    rate_cells,
    show_rates,
    claims=("C2", "C6"),
)
