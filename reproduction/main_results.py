"""Main results: errors of every method, at the paper's settings and tuned, and seed by seed."""

from collections.abc import Mapping

from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import TableColumn
from reproduction.cell import METHODS, Cell
from reproduction.figures import sweep
from reproduction.record import Record
from reproduction.scale import Scale
from reproduction.study import (
    Block,
    Findings,
    Picture,
    Setting,
    Study,
    View,
)
from reproduction.tables import comparison, line, printed_text, table_block, theirs, value
from reproduction.tuning import rate_grid, search

ByMethod = Mapping[str, Record | None]
COMPARED = ("fedavg", "fo-ri-fedavg")


def plain(dataset: str, method: str) -> Cell:
    """Return a method at the paper's own settings, rate 0.05 for all."""
    return Cell(dataset=dataset, method=method)


def how_tuned(scale: Scale, dataset: str, method: str = "fedavg") -> str:
    """Return whether all hyperparameters of a method are tuned on a dataset, or its rate."""
    full = dataset in scale.searched and method not in scale.unsearched
    return "tuned" if full else "own rate"


def tuned(scale: Scale, dataset: str, method: str) -> Cell:
    """Return a method at the settings that its trials, and those of what it contains, chose."""
    return Cell(dataset=dataset, method=method, follow=how_tuned(scale, dataset, method))


def own_trials(scale: Scale, dataset: str) -> str:
    """Return in words how many trials each method has on a dataset."""
    count: dict[int, list[str]] = {}
    for method in METHODS:
        make = search if how_tuned(scale, dataset, method) == "tuned" else rate_grid
        trials = len(make(Cell(dataset=dataset, method=method), scale))
        count.setdefault(trials, []).append(name_of(method))
    ordered = sorted(count.items(), reverse=True)
    (most, first), *fewer = ordered
    if not fewer:
        return f"{most} trials a method"
    return "; ".join(
        [f"{most} own trials of {', '.join(first)}"]
        + [
            f"{trials} rates of {', '.join(names)}, with one seed over {scale.rate_rounds} rounds"
            for trials, names in fewer
        ]
    )


def main_cells(setting: Setting) -> list[Cell]:
    """Return every method on every dataset, as the paper sets it and tuned."""
    made = []
    for _, dataset in setting.places:
        made += [plain(dataset, method) for method in METHODS]
        made += [tuned(setting.scale, dataset, method) for method in METHODS]
    return made


def plain_cells(setting: Setting) -> list[Cell]:
    """Return every method as the paper sets it."""
    return [plain(dataset, m) for _, dataset in setting.places for m in METHODS]


def show_main(view: View) -> Findings:
    """Return errors of all methods, twice: with the paper's settings and tuned."""
    blocks = []
    for place, dataset in view.setting.places:
        for how, slug in (("the paper's settings", "paper"), (_tuned_how(view, dataset), "tuned")):
            records = by_method(view, dataset)
            if slug == "tuned":
                records = {m: view.get(tuned(view.setting.scale, dataset, m)) for m in METHODS}
            for column, word in (("test_rmse", "RMSE"), ("test_mae", "MAE")):
                blocks.append(
                    comparison(
                        f"main-{dataset}-{slug}-{word.lower()}",
                        f"{word} on {dataset}, {how}",
                        [line(name_of(m), r, column, m) for m, r in records.items()],
                        heading=word,
                        printed_column=("main", f"{place} {word}"),
                    )
                )
            name = f"main-{dataset}-{slug}-mape"
            title = f"Percentage errors on {dataset}, {how}"
            blocks.append(_percentages(name, title, place, records))
    return Findings(tuple(blocks), remarks=tuple(_chosen(view)))


def _tuned_how(view: View, dataset: str) -> str:
    """Return what is tuned on a dataset, as titles have it."""
    full = how_tuned(view.setting.scale, dataset) == "tuned"
    return "tuned" if full else "each at its own best rate"


def _percentages(name: str, title: str, place: str, records: ByMethod) -> Block:
    """Return MAPE beside the printed one, and wMAPE, which windows near zero do not rule."""
    rows: list[tuple[Entry, ...]] = []
    for method, record in records.items():
        row: list[Entry] = [name_of(method), printed_text(theirs("main", method, f"{place} MAPE"))]
        for column in ("test_mape", "test_wmape"):
            row.append(value(record, record.final(column) if record else {}))
        rows.append(tuple(row))
    columns = (
        TableColumn("Method"),
        TableColumn("MAPE, printed", "%"),
        TableColumn("MAPE", "%", 1),
        TableColumn("wMAPE", "%", 1),
    )
    note = (
        "MAPE divides by |Y| + 1 Wh, so that windows of idling and coasting rule it; the paper "
        "does not give its ε_Y. wMAPE = Σ|e| / Σ|Y| has none."
    )
    return table_block(name, title, columns, rows, note, list(records.values()))


def _chosen(view: View) -> list[str]:
    """Return what tuning chose, in a sentence for each dataset."""
    rows = []
    for _, dataset in view.setting.places:
        parts = []
        for method in METHODS:
            record = view.get(tuned(view.setting.scale, dataset, method))
            if record is not None:
                settings = dict(record.cell.settings) or {"learning_rate": 0.05}
                listed = ", ".join(f"{name} {number:.3g}" for name, number in settings.items())
                parts.append(f"{name_of(method)}: {listed}")
        if parts:
            how = own_trials(view.setting.scale, dataset)
            rows.append(f"Tuning on {dataset} ({how}), by validation RMSE: {'; '.join(parts)}.")
    return rows


def by_method(view: View, dataset: str) -> ByMethod:
    """Return every method's record at the paper's settings."""
    return {method: view.get(plain(dataset, method)) for method in METHODS}


def show_seeds(view: View) -> Findings:
    """Return final RMSE of each seed."""
    blocks = []
    pictures = []
    seeds = view.setting.scale.seeds
    names = [f"seed {seed}" for seed in seeds]
    columns = [TableColumn("Method"), *(TableColumn(name, "Wh", 2) for name in names)]
    for _, dataset in view.setting.places:
        records = {method: view.get(plain(dataset, method)) for method in COMPARED}
        finals = {m: record.final("test_rmse") if record else {} for m, record in records.items()}
        rows: list[tuple[Entry, ...]] = [
            (name_of(method), *(errors.get(seed, "–") for seed in seeds))
            for method, errors in finals.items()
        ]
        block = table_block(
            f"seeds-{dataset}",
            f"Final RMSE by seed on {dataset}",
            columns,
            rows,
            "At equal seeds both methods see the same initial model, participants and batches.",
            list(records.values()),
        )
        blocks.append(block)
        values = {
            method: [{seed: errors[seed]} if seed in errors else {} for seed in seeds]
            for method, errors in finals.items()
        }
        pictures.append(
            Picture(
                block.table.name,
                f"Final RMSE by seed, {dataset}",
                sweep(names, values, f"Final test RMSE, Wh per window, {dataset}", "seed"),
                "One mark a seed; lines only lead the eye.",
                block.facts,
            )
        )
    return Findings(tuple(blocks), tuple(pictures))


MAIN = Study(
    "main",
    "Main results on BEV energy modelling",
    main_cells,
    show_main,
    printed=("main",),
    claims=("C2", "C6"),
)
SEEDS = Study(
    "seeds",
    "Seed-wise stability of the final RMSE",
    lambda setting: [plain(d, m) for _, d in setting.places for m in COMPARED],
    show_seeds,
    claims=("C6",),
)
