"""Validation error of FedAvg and the paper's methods at every learning rate tried.

These are the trials from which each method's own rate is chosen, and some at rates beyond them,
which show whether the range ends too early. FO's steps are shorter than plain ones, so that its
best rate is higher; what it gains is what the best of its rates has over the best of FedAvg's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fedwatt.report.style import name_of
from fedwatt.report.table import shown
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

Errors = Mapping[float, Mapping[int, float]]
"""Rate → validation RMSE of each seed; empty where it has not run, or diverged."""


def conditions(setting: Setting) -> dict[str, tuple[str, Cell]]:
    """Name → title and FedAvg's cell of every condition under which rates alone are tuned."""
    contests = (
        *stride_contests(setting),
        *work_contests(setting),
        *skew_contests(setting),
        *dataset_contests(setting),
    )
    return {
        entry.name: (entry.title, entry.cells[BASE])
        for entry in contests
        if entry.cells[BASE].follow == "own rate"
    }


def chosen_from(setting: Setting, base: Cell, method: str) -> Sequence[Cell]:
    """Return the trials under a condition from which a method's rate is chosen."""
    return rate_grid(replace(base, method=method), setting.scale)


def tried(setting: Setting, base: Cell, method: str) -> dict[float, Cell]:
    """Return rate → trial, from the lowest rate to the highest, those beyond the range included."""
    grid = chosen_from(setting, base, method)
    beyond = [
        grid[0].with_settings({"learning_rate": learning_rate})
        for learning_rate in setting.scale.beyond
    ]
    trials = {float(dict(c.settings).get("learning_rate", RATE)): c for c in (*grid, *beyond)}
    return dict(sorted(trials.items()))


def rate_cells(setting: Setting) -> list[Cell]:
    """Return all trials that rates are chosen from."""
    return [
        cell
        for _, base in conditions(setting).values()
        for method in setting.among(OURS)
        for cell in chosen_from(setting, base, method)
    ]


def show_rates(view: View) -> Findings:
    """Show a table and a figure per condition, and name best rates that are an end."""
    blocks = []
    pictures = []
    ends = list[str]()
    for name, (title, base) in conditions(view.setting).items():
        records: dict[str, dict[float, Record | None]] = {
            method: {
                learning_rate: view.get(c)
                for learning_rate, c in tried(view.setting, base, method).items()
            }
            for method in view.setting.among(OURS)
        }
        rates = [r for r in next(iter(records.values())) if any(o[r] for o in records.values())]
        if not rates:
            continue
        shown_records = {
            m: [by_rate[learning_rate] for learning_rate in rates] for m, by_rate in records.items()
        }
        values = {
            m: [r.final("validation_rmse") if r else {} for r in by_rate]
            for m, by_rate in shown_records.items()
        }
        for method, by_rate in values.items():
            end = at_end(dict(zip(rates, by_rate, strict=True)), view.setting.scale.beyond)
            ends += [f"{name_of(method)}, {title}: {end}"] if end else []
        headline = f"Validation RMSE by rate. {title}"
        note = "Trips and seeds of tuning, which no other table has."
        columns = [f"η₀ = {learning_rate:g}" for learning_rate in rates]
        blocks.append(
            matrix(f"rates-{name}", headline, columns, shown_records, values, unit="Wh", note=note)
        )
        ticks = [f"{learning_rate:g}" for learning_rate in rates]
        pictures.append(
            Picture(
                f"rates-{name}",
                headline,
                sweep(ticks, values, "Validation RMSE, Wh per window", "learning rate η₀"),
                "Trips and seeds of tuning. Each method is compared at the lowest point of its "
                "own line, rates beyond the range left out.",
                facts_line([record for by_rate in shown_records.values() for record in by_rate]),
            )
        )
    return Findings(tuple(blocks), tuple(pictures), _remarks(ends))


def at_end(errors: Errors, beyond: Sequence[float]) -> str:
    """Return which end of the range has the lowest error, if one has, and what lies beyond it.

    >>> at_end({0.01: {1: 3.0}, 0.03: {1: 2.0}, 0.1: {1: 2.5}}, [])
    ''
    >>> at_end({0.01: {1: 3.0}, 0.03: {1: 2.0}, 0.1: {1: 2.5}}, [0.1])
    'the highest (0.1: 0.50 Wh more)'
    """
    means = {
        learning_rate: sum(by_seed.values()) / len(by_seed)
        for learning_rate, by_seed in errors.items()
        if by_seed
    }
    inside = [learning_rate for learning_rate in means if learning_rate not in beyond]
    best = min(inside, key=lambda learning_rate: means[learning_rate], default=None)
    if best is None or best not in (inside[0], inside[-1]):
        return ""
    if best == inside[0]:
        return "the lowest"
    past = [
        f"{learning_rate:g}: {shown(abs(means[learning_rate] - means[best]), 2)} Wh "
        + ("more" if means[learning_rate] > means[best] else "less")
        for learning_rate in means
        if learning_rate in beyond and learning_rate > best
    ]
    return "the highest" + (f" ({', '.join(past)})" if past else "")


def _remarks(ends: Sequence[str]) -> tuple[str, ...]:
    if not ends:
        return ()
    note = "Where the best rate is an end of those chosen from, a better one may lie beyond: "
    return (note + "; ".join(ends) + ".",)


RATES = Study(
    "rates",
    "The rate: validation error at every rate tried",
    rate_cells,
    show_rates,
    claims=("C2", "C6"),
)
