"""Equal in what? Errors after equal rounds, equal bytes and equal client compute.

What a round of a method costs stands in `reproduction.round_cost`. With half the rounds for the
same bytes, a method is judged by its error at that round. A single evaluation wobbles by more than
methods differ, so an error is the mean of the last evaluations up to a round, on both sides.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import Column, Table
from reproduction.main_results import main_cells, plain, tuned
from reproduction.paired import Paired, detectable, holm, paired
from reproduction.record import Record
from reproduction.round_cost import round_cost
from reproduction.show import DETECTABLE, MISSING, facts_line, p_text, value
from reproduction.study import Block, Findings, Study, View

LAST: Final = 5
"""Evaluations whose mean is the error at a round."""
BUDGETS: Final = ("rounds", "bytes", "client compute")


def rounds_within(record: Record, budget: str, view: View) -> int:
    """The evaluated round nearest to where a training has spent what FedAvg spends in all."""
    scale = view.setting.scale
    cost = round_cost(record, scale)
    paid = {"rounds": 1.0, "bytes": cost.bytes, "client compute": cost.compute}[budget]
    return max(1, round(scale.rounds / paid / scale.evaluate_every)) * scale.evaluate_every


def budgets_of(record: Record, view: View) -> dict[str, int]:
    """Budget → rounds; budgets that leave the same rounds are one, named after all of them.

    A comparison that is made once must not count twice when p-values are corrected.
    """
    rounds = {budget: rounds_within(record, budget, view) for budget in BUDGETS}
    return {
        " and ".join(b for b in BUDGETS if rounds[b] == count): count
        for count in dict.fromkeys(rounds.values())
    }


def record_of(view: View, dataset: str, method: str) -> Record | None:
    """The method tuned, or at the paper's settings where that has not run."""
    found = view.get(tuned(view.setting.scale, dataset, method))
    return found or view.get(plain(dataset, method))


def pair_of(view: View, dataset: str, method: str) -> tuple[Record, Record] | None:
    """A method and FedAvg: both tuned, or else both at the paper's settings."""
    both = (method, "fedavg")
    for cells in (
        [tuned(view.setting.scale, dataset, m) for m in both],
        [plain(dataset, m) for m in both],
    ):
        own, base = (view.get(cell) for cell in cells)
        if own is not None and base is not None:
            return own, base
    return None


def against_fedavg(view: View, dataset: str, method: str) -> dict[str, Paired]:
    """A method minus FedAvg at each budget that differs; empty where they have not run."""
    pair = pair_of(view, dataset, method)
    if pair is None:
        return {}
    own, base = pair
    everything = base.at("test_rmse", None, LAST)
    return {
        name: paired(own.at("test_rmse", count, LAST), everything, own.diverged, base.diverged)
        for name, count in budgets_of(own, view).items()
    }


def show_budgets(view: View) -> Findings:
    """A table for each dataset."""
    blocks = []
    for _, dataset in view.setting.places:
        others = [m for m in view.setting.methods if m != "fedavg"]
        tests = {
            (m, name): test
            for m in others
            for name, test in against_fedavg(view, dataset, m).items()
        }
        ps = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
        rows = [
            row
            for method in view.setting.methods
            for row in _rows(view, dataset, method, tests, ps)
        ]
        table = Table(
            f"budgets-{dataset}",
            f"Methods at equal rounds, bytes and client compute on {dataset}",
            (
                Column("Method"),
                Column("equal"),
                Column("rounds", "", 0),
                Column("RMSE", "Wh", 2),
                Column("minus FedAvg", "Wh", 2),
                Column("p, Holm"),
                Column("Detectable", "Wh", 2),
            ),
            tuple(rows),
            f"RMSE: the mean of the last {LAST} evaluations up to that round, of FedAvg up to the "
            "last one. Tuned, or at rate 0.05 where that has not run; a difference is of two tuned "
            "or of two at rate 0.05. Bytes: the numbers that a method declares to send and "
            "receive. Compute: seconds of a vehicle's steps on one core, methods in turns, and of "
            "the probes that its rounds have. A row for each budget that leaves other rounds. "
            + DETECTABLE,
        )
        records = [record_of(view, dataset, m) for m in view.setting.methods]
        blocks.append(Block(table, facts_line(records)))
    return Findings(tuple(blocks))


def _rows(
    view: View,
    dataset: str,
    method: str,
    tests: Mapping[tuple[str, str], Paired],
    ps: Mapping[tuple[str, str], float],
) -> Sequence[tuple[Entry, ...]]:
    """A row for each budget of a method; a single one where it has not run, and of FedAvg."""
    record, rows = record_of(view, dataset, method), []
    if record is None:
        return [(name_of(method), *[MISSING] * 6)]
    if method == "fedavg":
        everything = value(record, record.at("test_rmse", None, LAST))
        first = (name_of(method), "–", str(view.setting.scale.rounds))
        return [(*first, everything, "reference", "–", "–")]
    for name, count in budgets_of(record, view).items():
        row: list[Entry] = [name_of(method), name, str(count)]
        row.append(value(record, record.at("test_rmse", count, LAST)))
        test = tests.get((method, name))
        if test is None:
            row += ["–", "–", "–"]
        elif test.decided:
            row += [test.losses(name_of(method), "FedAvg"), "–", "–"]
        else:
            row += [
                test.difference,
                p_text(ps[method, name]),
                detectable(test.difference, len(tests)),
            ]
        rows.append(tuple(row))
    return rows


BUDGET = Study(
    "budgets",
    "Equal rounds, equal bytes, equal client compute",
    main_cells,
    show_budgets,
    claims=("C6",),
)
