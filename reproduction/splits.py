"""Comparisons on several splits of the trips, so that the interval covers the trips as well.

A method's error on a split is its mean over seeds; methods are compared split by split.
"""

from collections.abc import Mapping
from math import nan

from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.contests import BASE, Contest, cells_of, split_contests
from reproduction.paired import Paired, detectable, holm, paired
from reproduction.record import Record
from reproduction.show import DETECTABLE, SAME, facts_line, first_places, p_text, value
from reproduction.study import Block, Findings, Study, View


def by_split(view: View, contests: list[Contest], name: str) -> tuple[dict[int, float], list[int]]:
    """Return the mean error of `name` per split, and the splits with a diverged seed."""
    errors = {}
    lost = []
    for entry in contests:
        cell = entry.cells.get(name)
        record = view.get(cell) if cell is not None else None
        if cell is None or record is None:
            continue
        # The first split has more seeds than the others; only those that all have count.
        finals = record.final("test_rmse")
        shared = [finals[seed] for seed in view.setting.scale.split_seeds if seed in finals]
        if record.diverged:
            lost.append(cell.split)
        elif shared:
            errors[cell.split] = sum(shared) / len(shared)
    return errors, lost


def over_splits(view: View, first: str, second: str) -> Paired:
    """Return one training minus another, split by split."""
    contests = split_contests(view.setting)
    (mine, lost), (theirs, their_lost) = (by_split(view, contests, n) for n in (first, second))
    return paired(mine, theirs, lost, their_lost)


def show_splits(view: View) -> Findings:
    """Return all trainings against tuned FedAvg over the splits."""
    contests = split_contests(view.setting)
    names = list(contests[0].cells)
    tests: Mapping[str, Paired] = {n: over_splits(view, n, BASE) for n in names if n != BASE}
    # Settings are the same on every split, so that trainings are the same if they are on one.
    places = first_places([view.get(contests[0].cells[name]) for name in names])
    first = {name: names[place] for name, place in zip(names, places, strict=True)}
    ran = {n: test.p for n, test in tests.items() if test.ran and first[n] == n}
    corrected = dict(zip(ran, holm(list(ran.values())), strict=True))
    rows: list[tuple[Entry, ...]] = []
    records: list[Record | None] = []
    for name in names:
        split_records = [view.get(entry.cells[name]) for entry in contests]
        records += split_records
        errors, _ = by_split(view, contests, name)
        done = f"{sum(r is not None for r in split_records)} of {len(contests)}"
        row: list[Entry] = [name, done, value(next((r for r in split_records if r), None), errors)]
        if name == BASE:
            row += ["reference", "–", "–"]
        elif first[name] == BASE:
            row += [SAME, "–", "–"]
        elif tests[name].decided:
            row += [tests[name].losses(name, BASE), "–", "–"]
        else:
            test = tests[name]
            effect = detectable(test.difference, len(ran))
            row += [test.difference, p_text(corrected.get(first[name], nan)), effect]
        rows.append(tuple(row))
    table = ReportTable(
        f"splits-{view.setting.ved[0]}",
        f"Final RMSE over up to {len(contests)} splits of the trips of {view.setting.ved[0]}",
        (
            TableColumn("Training"),
            TableColumn("Splits"),
            TableColumn("RMSE", "Wh", 2),
            TableColumn(f"Against {BASE}, same splits", "Wh", 2),
            TableColumn("p, Holm"),
            TableColumn("Detectable", "Wh", 2),
        ),
        tuple(rows),
        "Mean ± standard deviation over splits [95 % interval], each the mean of "
        f"{len(view.setting.scale.split_seeds)} seeds. {DETECTABLE} Hyperparameters were chosen on "
        "the validation trips of the first split.",
    )
    return Findings((Block(table, facts_line(records)),))


SPLITS = Study(
    "splits",
    "Several splits of the trips",
    lambda setting: cells_of(split_contests(setting)),
    show_splits,
    claims=("C6",),
)
