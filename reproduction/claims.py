"""The paper's seven claims, and what the records say about each.

The rules stand in `judges`: a difference counts if its paired test, Holm-corrected over the
comparisons of the claim, is below 5 %, and a side that diverged has lost. Those of C2, C4, C5 and
C7 were revised when records were already there: C2 and C5 to ask for more, C4 for how a GPU rounds.

A claim whose cells have not run, or ran at a scale that is there to see that everything runs, is
not testable.
"""

from dataclasses import dataclass
from typing import Final

from fedwatt.report.style import name_of
from reproduction.cell import Cell
from reproduction.judges import JUDGES, NOT_TESTABLE, MissingCell
from reproduction.record import Record
from reproduction.show import facts_line
from reproduction.study import View

ASSERTIONS: Final = {
    "C1": "Roughness-controlled pull reduces client drift and steadies aggregation.",
    "C2": "Fractional-order steps converge more stably or faster than integer-order ones.",
    "C3": "The overhead is low: element-wise preconditioning, and a probe that is amortised.",
    "C4": "The method reduces to RI-FedAvg, FO-FedAvg and FedAvg.",
    "C5": "The spectral gate helps under low participation and with noisy clients.",
    "C6": "On BEV telemetry FO-RI-FedAvg is consistently more accurate.",
    "C7": "It scales to 50 to 200 clients with graceful degradation.",
}


@dataclass(frozen=True)
class Verdict:
    """What the records say about a claim on one dataset."""

    claim: str
    assertion: str
    outcome: str
    dataset: str
    sentences: tuple[str, ...]
    facts: str


def verdicts(view: View) -> list[Verdict]:
    """A verdict for each claim on each dataset in the place of VED."""
    found = []
    for claim, judge in JUDGES.items():
        datasets = (view.setting.fleet,) if claim == "C7" else view.setting.ved
        for dataset in datasets:
            records: list[Record | None] = []

            def get(cell: Cell, records: list[Record | None] = records) -> Record:
                record = view.get(cell)
                if record is None:
                    raise MissingCell(cell)
                records.append(record)
                return record

            try:
                outcome, sentences = judge(view, dataset, get)
            except MissingCell as missing:
                outcome, sentences = NOT_TESTABLE, (_missing(missing.cell),)
            if view.setting.scale.name == "smoke" and outcome != NOT_TESTABLE:
                word = f"By these numbers it would read: {outcome}."
                reason = "Six rounds and two seeds only show that everything runs."
                outcome, sentences = NOT_TESTABLE, (reason, word, *sentences)
            found.append(
                Verdict(
                    claim,
                    ASSERTIONS[claim],
                    outcome,
                    dataset,
                    tuple(sentences),
                    facts_line(records),
                )
            )
    return found


def _missing(cell: Cell | None) -> str:
    if cell is None:
        return "A method that it needs was not asked for."
    parts = [f"{name} = {value:g}" for name, value in cell.settings]
    parts += [cell.follow] if cell.follow else []
    parts += ["for its time"] if cell.purpose == "time" else []
    parts += [f"K = {cell.vehicles}"] if cell.vehicles != 10 else []
    parts += [f"C = {cell.participation:g}"] if cell.participation != 0.3 else []
    how = f" ({', '.join(parts)})" if parts else ""
    return f"Cells that it needs have not run, {name_of(cell.method)}{how} first of all."
