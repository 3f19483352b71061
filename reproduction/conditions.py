"""The paper's methods against FedAvg on fair terms, under every condition that was objected.

Under a condition each method runs at the paper's learning rate, at its own best one and at FedAvg's
best one; and FedAvg runs at the learning rate at which its steps are as long as FO-FedAvg's. A
learning rate is chosen on validation trips, under the same condition and with seeds that are used
for nothing else. `studies.toml` lists the conditions; several splits of the trips are added here.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from fedwatt.report.style import name_of
from reproduction.cell import METHODS, OURS, Cell
from reproduction.grids import TABLE, changes_of
from reproduction.main_results import how_tuned
from reproduction.study import Findings, Setting, Study, View
from reproduction.tables import Line, Trainings, comparison, trainings_study

BASE = "FedAvg, tuned"
MATCHED = "FedAvg at FO's mean step"
CONDITIONS: Final[dict[str, dict[str, Any]]] = {e["name"]: e for e in TABLE["conditions"]}


def condition(
    setting: Setting, name: str, title: str, base: Cell, methods: Sequence[str], *, brief: bool
) -> Trainings:
    """Return the cells of a condition, which `base` describes.

    A brief one leaves out controls and learning rates that are not a method's own.
    """
    natural = base.partition == "natural" and not base.stride and base.noisy == 0
    how = how_tuned(setting.scale, base.dataset) if natural else "own rate"
    cells = {BASE: replace(base, follow=how)}
    for method in methods:
        cell = replace(base, method=method)
        label = name_of(method)
        full = how_tuned(setting.scale, base.dataset, method) if natural else "own rate"
        cells[f"{label}, tuned"] = replace(cell, follow=full)
        if not brief or method in ("fedavg", "fo-ri-fedavg"):
            cells[f"{label}, rate 0.05"] = cell
        if not brief and method != "fedavg":
            cells[f"{label}, FedAvg's rate"] = replace(cell, follow=f"{how}:fedavg")
    if not brief:
        cells[MATCHED] = replace(base, follow="matched rate")
    brief_trials = f", after {setting.scale.stride_rounds} rounds at most" if base.stride else ""
    note = (
        f"Tuned: best on validation trips and other seeds, under these very conditions"
        f"{brief_trials}; FedAvg's rate: the one so chosen for FedAvg."
    )
    return Trainings(name, title, cells, note)


def conditions_of(name: str, setting: Setting) -> list[Trainings]:
    """Return the conditions of a study, on the first dataset or on all."""
    entry = CONDITIONS[name]
    datasets = [dataset for _, dataset in setting.places] if "places" in entry else setting.ved[:1]
    made = []
    for dataset in datasets:
        for table in entry["tables"]:
            options = entry | table
            changes = changes_of(table, setting)
            base = Cell(dataset=dataset, method="fedavg", **changes)
            made.append(
                condition(
                    setting,
                    f"{table['name']}-{dataset}",
                    table["title"].format(dataset=dataset, rounds=base.rounds),
                    base,
                    options.get("methods", OURS),
                    brief=options.get("brief", False),
                )
            )
    return made


def split_conditions(setting: Setting) -> list[Trainings]:
    """Return the first dataset on several splits of its trips, a condition for each split."""
    dataset = setting.ved[0]
    scale = setting.scale
    return [
        condition(
            setting,
            f"split-{split}-{dataset}",
            f"{dataset}, split {split}",
            Cell(
                dataset=dataset,
                method="fedavg",
                split=split,
                seeds=scale.split_seeds if split else (),
            ),
            METHODS,
            brief=True,
        )
        for split in scale.splits
    ]


STUDIES: Final = {
    name: trainings_study(name, entry["title"], partial(conditions_of, name), entry["claims"])
    for name, entry in CONDITIONS.items()
}


def split_line(view: View, name: str) -> Line:
    """Return the mean error of a training per split, and the splits with a diverged seed."""
    errors = {}
    diverged = []
    first = None
    for entry in split_conditions(view.setting):
        record = view.get(entry.cells[name])
        if record is None:
            continue
        first = first or record
        # The first split has more seeds than the others; only those that all have count.
        finals = record.final("test_rmse")
        shared = [finals[seed] for seed in view.setting.scale.split_seeds if seed in finals]
        if record.diverged:
            diverged.append(record.cell.split)
        elif shared:
            errors[record.cell.split] = sum(shared) / len(shared)
    return Line(name, "", first, errors, diverged)


def show_splits(view: View) -> Findings:
    """Return all trainings against tuned FedAvg over the splits."""
    conditions = split_conditions(view.setting)
    block = comparison(
        f"splits-{view.setting.ved[0]}",
        f"Final RMSE over up to {len(conditions)} splits of the trips of {view.setting.ved[0]}",
        [split_line(view, name) for name in conditions[0].cells],
        first="Training",
        over="splits",
        note="A split counts with the mean of "
        f"{len(view.setting.scale.split_seeds)} seeds. Hyperparameters were chosen on the "
        "validation trips of the first split.",
    )
    return Findings((block,))


SPLITS = Study(
    "splits",
    "Several splits of the trips",
    lambda setting: [c for entry in split_conditions(setting) for c in entry.cells.values()],
    show_splits,
    claims=("C6",),
)
