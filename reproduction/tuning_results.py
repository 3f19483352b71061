"""Tuning: validation error against the number of trials, and at every learning rate tried.

A method is compared at the best of its trials. Trials at learning rates beyond the range show
whether the range ends too early. FO's steps are shorter than plain ones, so that its best learning
rate is higher; its gain is the best of its learning rates against the best of FedAvg's.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import TableColumn, cell_text
from reproduction.cell import METHODS, OURS, Cell
from reproduction.conditions import BASE, conditions_of
from reproduction.figures import sweep
from reproduction.main_results import how_tuned, own_trials, tuned
from reproduction.record import Record
from reproduction.study import Findings, Picture, Setting, Study, View
from reproduction.tables import MISSING, line, matrix, table_block
from reproduction.tuning import CONTAINS, RATE, rate_grid, score, search


def trials_of(view: View, dataset: str, method: str) -> list[Record]:
    """Return the trials of a method that ran."""
    cells = search(Cell(dataset=dataset, method=method), view.setting.scale)
    return [record for cell in cells if (record := view.get(cell)) is not None]


def best_so_far(view: View, dataset: str, method: str) -> list[float]:
    """Return the lowest mean validation RMSE after each trial, Wh; ∞ while all diverged."""
    scores = [score(record) for record in trials_of(view, dataset, method)]
    return np.minimum.accumulate(scores).tolist() if scores else []


def searched(setting: Setting) -> list[str]:
    """Return datasets of the setting on which all hyperparameters are tuned."""
    return [d for _, d in setting.places if d in setting.scale.searched]


def fully_searched(setting: Setting, dataset: str) -> list[str]:
    """Return methods of which all hyperparameters are tuned on a dataset."""
    return [m for m in METHODS if how_tuned(setting.scale, dataset, m) == "tuned"]


def show_search(view: View) -> Findings:
    """Return the incumbent after each trial, of every method."""
    blocks = []
    pictures = []
    trials = view.setting.scale.trials
    looked_at = sorted({1, max(1, trials // 3), max(1, 2 * trials // 3), trials})
    for dataset in searched(view.setting):
        rows: list[tuple[Entry, ...]] = []
        curves = {}
        methods = fully_searched(view.setting, dataset)
        for method in methods:
            incumbents = best_so_far(view, dataset, method)
            complete = len(incumbents) == trials
            row: list[Entry] = [name_of(method)]
            for count in looked_at:
                finite = complete and isfinite(incumbents[count - 1])
                row.append(
                    incumbents[count - 1] if finite else ("diverged" if complete else MISSING)
                )
            rows.append(tuple(row))
            if complete:
                curves[method] = [{0: v} if v < inf else {} for v in incumbents]
        columns = [TableColumn("Method")]
        columns += [
            TableColumn("default" if n == 1 else f"best of {n}", "Wh", 2) for n in looked_at
        ]
        contained = "; ".join(
            f"{name_of(method_name)} those of {', '.join(map(name_of, contained_names))}"
            for method_name, contained_names in CONTAINS.items()
        )
        blocks.append(
            table_block(
                f"search-{dataset}",
                f"Validation RMSE against trials on {dataset}",
                columns,
                rows,
                "Mean over the seeds of the search. The first trial is the paper's settings. A "
                "method that is another one at certain settings has its trials as well: "
                f"{contained}. In all: {own_trials(view.setting.scale, dataset)}.",
                [r for m in methods for r in trials_of(view, dataset, m)],
            )
        )
        pictures.append(
            Picture(
                f"search-{dataset}",
                f"Best validation RMSE against trials, {dataset}",
                sweep(
                    [str(n) if n in looked_at else "" for n in range(1, trials + 1)],
                    curves,
                    "Best validation RMSE so far, Wh per window",
                    "trials",
                ),
                "Mean over the seeds of the search; the first trial is the paper's settings.",
                "",
            )
        )
    return Findings(tuple(blocks), tuple(pictures))


def search_cells(setting: Setting) -> list[Cell]:
    """Return every method tuned, wherever all hyperparameters are."""
    return [tuned(setting.scale, d, m) for d in searched(setting) for m in METHODS]


SEARCH = Study(
    "search",
    "Tuning: validation error against trials",
    search_cells,
    show_search,
    claims=("C6",),
)


Errors = Mapping[float, Mapping[int, float]]
"""Rate → validation RMSE of each seed; empty where it has not run, or diverged."""


def rate_conditions(setting: Setting) -> dict[str, tuple[str, Cell]]:
    """Return name → (title, FedAvg's cell) of conditions under which learning rates are tuned."""
    return {
        entry.name: (entry.title, entry.cells[BASE])
        for study in ("stride", "workload", "skew", "fair")
        for entry in conditions_of(study, setting)
        if entry.cells[BASE].follow == "own rate" and not entry.name.startswith("printed")
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
        for _, base in rate_conditions(setting).values()
        for method in OURS
        for cell in chosen_from(setting, base, method)
    ]


def show_rates(view: View) -> Findings:
    """Show a table and a figure per condition, and name best rates that are an end."""
    blocks = []
    pictures = []
    ends = list[str]()
    for name, (title, base) in rate_conditions(view.setting).items():
        trials = {method: tried(view.setting, base, method) for method in OURS}
        records = {m: {r: view.get(c) for r, c in cells.items()} for m, cells in trials.items()}
        rates = [r for r in records["fedavg"] if any(by_rate[r] for by_rate in records.values())]
        if not rates:
            continue
        lines = {
            method: [line(method, by_rate[rate], "validation_rmse") for rate in rates]
            for method, by_rate in records.items()
        }
        values = {method: [line.values for line in row] for method, row in lines.items()}
        for method, by_rate in values.items():
            end = at_end(dict(zip(rates, by_rate, strict=True)), view.setting.scale.beyond)
            ends += [f"{name_of(method)}, {title}: {end}"] if end else []
        block = matrix(
            f"rates-{name}",
            f"Validation RMSE by learning rate. {title}",
            [f"η₀ = {rate:g}" for rate in rates],
            lines,
            unit="Wh",
            note="Trips and seeds of tuning, which no other table has.",
        )
        blocks.append(block)
        ticks = [f"{rate:g}" for rate in rates]
        pictures.append(
            Picture(
                block.table.name,
                block.table.title,
                sweep(ticks, values, "Validation RMSE, Wh per window", "learning rate η₀"),
                "Trips and seeds of tuning. Each method is compared at the lowest point of its "
                "line, learning rates beyond the range left out.",
                block.facts,
            )
        )
    note = "Where the best rate is an end of those chosen from, a better one may lie beyond: "
    remarks = (f"{note}{'; '.join(ends)}.",) if ends else ()
    return Findings(tuple(blocks), tuple(pictures), remarks)


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
        f"{learning_rate:g}: {cell_text(abs(means[learning_rate] - means[best]), 2)} Wh "
        + ("more" if means[learning_rate] > means[best] else "less")
        for learning_rate in means
        if learning_rate in beyond and learning_rate > best
    ]
    return "the highest" + (f" ({', '.join(past)})" if past else "")


RATES = Study(
    "rates",
    "The rate: validation error at every rate tried",
    rate_cells,
    show_rates,
    claims=("C2", "C6"),
)
