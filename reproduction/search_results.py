"""Results of the search for hyperparameters, by number of trials."""

from math import inf, isfinite

import numpy as np

from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.cell import Cell
from reproduction.draw import sweep
from reproduction.main_results import how_tuned, own_trials, tuned
from reproduction.record import Record
from reproduction.settle import CONTAINS, score, search
from reproduction.show import MISSING, facts_line
from reproduction.study import Block, Findings, Picture, Setting, Study, View


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
    return [m for m in setting.methods if how_tuned(setting.scale, dataset, m) == "tuned"]


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
            record = view.get(tuned(view.setting.scale, dataset, method))
            settings = dict(record.cell.settings) if record else {}
            row.append(", ".join(f"{n} {v:.3g}" for n, v in settings.items()) or "–")
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
            Block(
                ReportTable(
                    f"search-{dataset}",
                    f"Validation RMSE against trials on {dataset}",
                    (*columns, TableColumn("chosen")),
                    tuple(rows),
                    "Mean over the seeds of the search. The first trial is the paper's settings. A "
                    "method that is another one at certain settings has its trials as well: "
                    f"{contained}. In all: "
                    f"{own_trials(view.setting.scale, dataset, view.setting.methods)}.",
                ),
                facts_line([r for m in methods for r in trials_of(view, dataset, m)]),
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
    return [tuned(setting.scale, d, m) for d in searched(setting) for m in setting.methods]


SEARCH = Study(
    "search",
    "Tuning: validation error against trials",
    search_cells,
    show_search,
    claims=("C6",),
)
