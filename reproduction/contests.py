"""The paper's methods against FedAvg on fair terms, under every condition that was objected.

In a contest each method runs at the paper's rate, at its own best one and at FedAvg's best one; and
FedAvg runs at the rate at which its steps are as long as FO-FedAvg's. A rate is chosen on
validation trips, under the conditions of the contest and with seeds that are used for nothing else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedwatt.report.style import name_of
from reproduction.cell import OURS, Cell
from reproduction.main_results import how_tuned
from reproduction.show import Line, comparison
from reproduction.study import Findings, Setting, Study, View

RIVALS = (*OURS, "scaffold")
BASE = "FedAvg, tuned"
OWN = "FO-RI-FedAvg, tuned"
PAPER = ("FO-RI-FedAvg, rate 0.05", "FedAvg, rate 0.05")
MATCHED = "FedAvg at FO's mean step"
SKEWS = ("mild", "moderate", "severe", "dirichlet:0.3")
WORK: Mapping[str, Mapping[str, Any]] = {
    "E = 2": {"epochs": 2},
    "E = 5": {"epochs": 5},
    "C = 0.1": {"participation": 0.1},
    "C = 0.5": {"participation": 0.5},
}
"""Beside E = 1 and C = 0.3."""


@dataclass(frozen=True)
class Contest:
    """A condition, and the cells that run under it, FedAvg's at its own rate first."""

    name: str
    title: str
    cells: Mapping[str, Cell]

    @property
    def short(self) -> str:
        """Return its condition in a word or two, the last one of the title.

        >>> Contest("skew-mild-ved", "Trips of ved dealt to ten clients, mild", {}).short
        'mild'
        """
        return self.title.rpartition(", ")[2]


def contest(
    setting: Setting,
    name: str,
    title: str,
    base: Cell,
    methods: Sequence[str] = RIVALS,
    *,
    brief: bool = False,
) -> Contest:
    """Return the cells of a contest under the conditions of `base`.

    A brief one leaves out controls and rates that are not a method's own.
    """
    natural = base.partition == "natural" and not base.stride and base.noisy == 0
    how = how_tuned(setting.scale, base.dataset) if natural else "own rate"
    chosen = setting.among(methods)
    cells = {BASE: replace(base, method="fedavg", follow=how)}
    for method in chosen:
        cell = replace(base, method=method)
        called = name_of(method)
        full = how_tuned(setting.scale, base.dataset, method) if natural else "own rate"
        cells[f"{called}, tuned"] = replace(cell, follow=full)
        if not brief or method in ("fedavg", "fo-ri-fedavg"):
            cells[f"{called}, rate 0.05"] = cell
        if not brief and method != "fedavg":
            cells[f"{called}, FedAvg's rate"] = replace(cell, follow=f"{how}:fedavg")
    if not brief and "fo-fedavg" in chosen:
        cells[MATCHED] = replace(base, method="fedavg", follow="matched rate")
    return Contest(name, title, cells)


def _base(dataset: str, **conditions: Any) -> Cell:
    return Cell(dataset=dataset, method="fedavg", **conditions)


def stride_contests(setting: Setting) -> list[Contest]:
    """Return windows a second apart at E = 1 and C = 0.3."""
    dataset = setting.ved[0]
    rounds = setting.scale.stride_rounds
    seeds = setting.scale.few_seeds
    title = f"Windows a second apart on {dataset}, E = 1, C = 0.3, T = {rounds}"
    base = _base(dataset, stride=1, rounds=rounds, seeds=seeds)
    return [contest(setting, f"stride-{dataset}", title, base, OURS)]


def printed_contests(setting: Setting) -> list[Contest]:
    """Return the contests with all rounds and seeds, as printed; none if these are no more."""
    dataset = setting.ved[0]
    rounds = setting.scale.printed_rounds
    if rounds == setting.scale.stride_rounds:
        return []
    title = f"Windows a second apart on {dataset}, as printed, E = 1, C = 0.3, T = {rounds}"
    base = _base(dataset, stride=1, rounds=rounds)
    methods = ("fedavg", "fo-ri-fedavg")
    return [contest(setting, f"printed-{dataset}", title, base, methods, brief=True)]


def work_contests(setting: Setting) -> list[Contest]:
    """Return windows a second apart with more epochs, fewer and more participants."""
    dataset = setting.ved[0]
    scale = setting.scale
    return [
        contest(
            setting,
            f"work-{place}-{dataset}",
            f"Windows a second apart on {dataset} (T = {scale.work_rounds}), {name}",
            _base(dataset, stride=1, rounds=scale.work_rounds, seeds=scale.few_seeds, **conditions),
            OURS,
            brief=True,
        )
        for place, (name, conditions) in enumerate(WORK.items(), start=1)
    ]


def skew_contests(setting: Setting, skews: Sequence[str] = SKEWS) -> list[Contest]:
    """Return trips dealt to ten clients."""
    dataset = setting.ved[0]
    return [
        contest(
            setting,
            f"skew-{skew.replace(':', '-')}-{dataset}",
            f"Trips of {dataset} dealt to ten clients, {skew}",
            _base(dataset, partition=skew, seeds=setting.scale.few_seeds),
            OURS,
            brief=True,
        )
        for skew in skews
    ]


def dataset_contests(setting: Setting) -> list[Contest]:
    """Return every dataset as it is."""
    return [
        contest(setting, f"fair-{dataset}", f"{dataset} as it is", _base(dataset))
        for _, dataset in setting.places
    ]


def split_contests(setting: Setting) -> list[Contest]:
    """Return the same over several splits of the trips; a list of one contest for each split."""
    dataset = setting.ved[0]
    scale = setting.scale
    return [
        contest(
            setting,
            f"split-{split}-{dataset}",
            f"{dataset}, split {split}",
            _base(dataset, split=split, seeds=scale.split_seeds if split else ()),
            setting.methods,
            brief=True,
        )
        for split in scale.splits
    ]


def causal_contests(setting: Setting) -> list[Contest]:
    """Return the first dataset without a look at the two seconds after a window."""
    dataset = setting.ved[0]
    base = _base(dataset, causal=True, seeds=setting.scale.few_seeds)
    title = f"{dataset}, acceleration from a window's own seconds"
    return [
        contest(setting, f"causal-{dataset}", title, base, ("fedavg", "fo-ri-fedavg"), brief=True)
    ]


def cells_of(contests: Sequence[Contest]) -> list[Cell]:
    """Return all cells of some contests."""
    return [cell for entry in contests for cell in entry.cells.values()]


def show_contests(view: View, contests: Sequence[Contest]) -> Findings:
    """Return a table for each contest, all against FedAvg at its own rate."""
    note = (
        "Tuned: best on validation trips and other seeds, under these very conditions{}; "
        "FedAvg's rate: the one so chosen for FedAvg."
    )
    brief = f", after {view.setting.scale.stride_rounds} rounds at most"
    return Findings(
        tuple(
            comparison(
                entry.name,
                entry.title,
                [Line(name, "", view.get(cell)) for name, cell in entry.cells.items()],
                "test_rmse",
                first="Training",
                note=note.format(brief if entry.cells[BASE].stride else ""),
            )
            for entry in contests
        )
    )


FAIR = Study(
    "fair",
    "Each method at the paper's rate, at its own and at FedAvg's",
    lambda setting: cells_of(dataset_contests(setting)),
    lambda view: show_contests(view, dataset_contests(view.setting)),
    claims=("C2", "C6"),
)
STRIDE = Study(
    "stride",
    "Windows a second apart, as printed",
    lambda setting: cells_of((*stride_contests(setting), *printed_contests(setting))),
    lambda view: show_contests(
        view, (*stride_contests(view.setting), *printed_contests(view.setting))
    ),
    claims=("C2", "C6"),
)
WORKLOAD = Study(
    "workload",
    "Windows a second apart with more epochs, fewer and more participants",
    lambda setting: cells_of(work_contests(setting)),
    lambda view: show_contests(view, work_contests(view.setting)),
    claims=("C2", "C6"),
)
CAUSAL = Study(
    "causal",
    "Acceleration that sees nothing past a window",
    lambda setting: cells_of(causal_contests(setting)),
    lambda view: show_contests(view, causal_contests(view.setting)),
    claims=("C6",),
)
SKEW = Study(
    "skew",
    "Regime skew: mild, moderate, severe, and Dirichlet 0.3",
    lambda setting: cells_of(skew_contests(setting)),
    lambda view: show_contests(view, skew_contests(view.setting)),
    claims=("C6",),
)
