"""Equal in what? Errors after equal rounds, equal bytes and equal client compute.

SCAFFOLD sends its control variates along, twice the bytes of the others; what a round costs a
vehicle was measured with the methods in turns (`results/method_costs.json`). With half the rounds
for the same bytes, a method is judged by its error at that round.
"""

import json
from functools import cache
from pathlib import Path
from typing import Final

from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import Column, Table
from reproduction.main_results import main_cells, plain, tuned
from reproduction.paired import Paired, detectable, holm, paired
from reproduction.record import Record
from reproduction.show import DETECTABLE, facts_line, p_text, value
from reproduction.study import Block, Findings, Study, View

COSTS: Final = Path(__file__).resolve().parents[1] / "results" / "method_costs.json"
BYTES: Final = {"scaffold": 2.0}
"""Times FedAvg's bytes a round, up and down; 1 for the others."""
BUDGETS: Final = ("rounds", "bytes", "client compute")


@cache
def _times_fedavg() -> dict[str, float]:
    seconds = json.loads(COSTS.read_text(encoding="utf-8"))["seconds_a_round"]
    return {method: own / seconds["fedavg"] for method, own in seconds.items()}


def rounds_within(method: str, budget: str, rounds: int) -> int:
    """Rounds that a method has for what FedAvg spends in `rounds`.

    >>> rounds_within("scaffold", "bytes", 300), rounds_within("fo-fedavg", "bytes", 300)
    (150, 300)
    """
    ratio = {
        "rounds": 1.0,
        "bytes": BYTES.get(method, 1.0),
        "client compute": max(1.0, _times_fedavg().get(method, 1.0)),
    }[budget]
    return int(rounds / ratio)


def record_of(view: View, dataset: str, method: str) -> Record | None:
    """The method tuned, or at the paper's settings where that has not run."""
    found = view.get(tuned(view.setting.scale, dataset, method))
    return found or view.get(plain(dataset, method))


def spent(view: View, record: Record | None, method: str, budget: str) -> dict[int, float]:
    """Test RMSE of each finite seed of a record when the method's budget is spent."""
    if record is None:
        return {}
    return record.at("test_rmse", rounds_within(method, budget, view.setting.scale.rounds))


def within(view: View, dataset: str, method: str, budget: str) -> dict[int, float]:
    """The same of the record that the table shows."""
    return spent(view, record_of(view, dataset, method), method, budget)


def against_fedavg(view: View, dataset: str, method: str, budget: str) -> Paired:
    """A method minus FedAvg at an equal budget: both tuned, or both at the paper's settings."""
    both = (method, "fedavg")
    records = [view.get(tuned(view.setting.scale, dataset, m)) for m in both]
    if None in records:
        records = [view.get(plain(dataset, m)) for m in both]
    errors = (spent(view, r, m, budget) for r, m in zip(records, both, strict=True))
    return paired(*errors, *(r.diverged if r else {} for r in records))


def show_budgets(view: View) -> Findings:
    """A table for each dataset."""
    blocks = []
    for _, dataset in view.setting.places:
        others = [m for m in view.setting.methods if m != "fedavg"]
        tests = {(m, b): against_fedavg(view, dataset, m, b) for m in others for b in BUDGETS}
        ps = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
        rows: list[tuple[Entry, ...]] = []
        columns = [Column("Method")]
        for budget in BUDGETS:
            columns += [
                Column(f"Equal {budget}", "Wh", 2),
                Column("rounds", "", 0),
                Column("minus FedAvg", "Wh", 2),
                Column("p, Holm"),
                Column("Detectable", "Wh", 2),
            ]
        for method in view.setting.methods:
            record = record_of(view, dataset, method)
            row: list[Entry] = [name_of(method)]
            for budget in BUDGETS:
                count = rounds_within(method, budget, view.setting.scale.rounds)
                row += [value(record, within(view, dataset, method, budget)), str(count)]
                if method == "fedavg":
                    row += ["reference", "–", "–"]
                elif tests[method, budget].decided:
                    row += [tests[method, budget].losses(name_of(method), "FedAvg"), "–", "–"]
                else:
                    own = tests[method, budget].difference
                    row += [own, p_text(ps[method, budget]), detectable(own)]
            rows.append(tuple(row))
        table = Table(
            f"budgets-{dataset}",
            f"Methods at equal rounds, bytes and client compute on {dataset}",
            tuple(columns),
            tuple(rows),
            "Tuned, or at rate 0.05 where that has not run; a difference is of two tuned or of two "
            "at rate 0.05. Bytes: SCAFFOLD sends twice as many. Compute: seconds of a vehicle's "
            "round on one core, methods in turns, without probes, which C3 has. " + DETECTABLE,
        )
        records = [record_of(view, dataset, m) for m in view.setting.methods]
        blocks.append(Block(table, facts_line(records)))
    return Findings(tuple(blocks))


BUDGET = Study(
    "budgets",
    "Equal rounds, equal bytes, equal client compute",
    main_cells,
    show_budgets,
    claims=("C6",),
)
