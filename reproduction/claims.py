"""The paper's seven claims, the rules by which they are judged, and what the records say.

`judges` applies `RULES`: a verdict is a function of the records alone.

A claim whose cells have not run, or ran at a scale that is there to see that everything runs, is
not testable.
"""

from dataclasses import dataclass
from typing import Final

from fedwatt.report.style import name_of
from reproduction.cell import Cell
from reproduction.judges import (
    GRACEFUL,
    JUDGES,
    LAST_DIGITS_WH,
    LOW_OVERHEAD,
    NOT_TESTABLE,
    SAME,
    SUPPORTED,
    MissingCell,
)
from reproduction.record import Record
from reproduction.study import View
from reproduction.tables import facts_line

NUMBERS: Final = ("None", "One", "Two", "Three", "Four", "Five", "Six", "Seven")
ASSERTIONS: Final = {
    "C1": "Roughness-controlled pull reduces client drift and steadies aggregation.",
    "C2": "Fractional-order steps converge more stably or faster than integer-order ones.",
    "C3": "The overhead is low: element-wise preconditioning, and a probe that is amortised.",
    "C4": "The method reduces to RI-FedAvg, FO-FedAvg and FedAvg.",
    "C5": "The spectral gate helps under low participation and with noisy clients.",
    "C6": "On BEV telemetry FO-RI-FedAvg is consistently more accurate.",
    "C7": "It scales to 50 to 200 clients with graceful degradation.",
}


RULES: Final = {
    "C1": "RI-FedAvg's mean drift D_mean(200) and, where at least two vehicles take part, its "
    "dispersion D_cv(200) are both lower than FedAvg's at every C of 0.1, 0.2, 0.3 and 0.5, at the "
    "paper's settings; and where churn was run, tuned FO-RI-FedAvg's D_cv(200) is lower than tuned "
    "FedAvg's under symmetric churn of 0.20, severe net loss and severe net gain.",
    "C2": "FO-FedAvg needs fewer rounds to come within 10 % of the lower of the two final errors, "
    "or its error fluctuates less over the last third of rounds, and its final error is not "
    "higher. This holds against FedAvg at the same learning rate, between both methods tuned, and "
    "against FedAvg with steps of FO-FedAvg's mean length.",
    "C3": "The 95 % interval of FO-RI-FedAvg's client-side time over FedAvg's ends at most "
    f"{100 * LOW_OVERHEAD:.0f} % above it, on every engine.",
    "C4": "FO-RI-FedAvg with α = 1, with λ = 0 and with both is RI-FedAvg, FO-FedAvg and FedAvg: "
    f"to {LAST_DIGITS_WH:g} Wh in every round between records of one kind of CPU; to "
    f"{100 * SAME:.0f} % of the final error on a GPU or between kinds of machines, which round "
    "sums differently.",
    "C5": "With the spectral gate the final error is lower at C = 0.1, with noisy clients, and "
    "with both.",
    "C6": "The final error of tuned FO-RI-FedAvg is lower than that of every other tuned method, "
    "with passenger cars, trucks and buses.",
    "C7": f"Tuned FO-RI-FedAvg's error at K = 50, 100 and 175 is at most {100 * GRACEFUL:.0f} % "
    "above its own at K = 10, and no seed diverges.",
}


@dataclass(frozen=True)
class Verdict:
    """The verdict of the records on a claim, on one dataset."""

    claim: str
    assertion: str
    outcome: str
    dataset: str
    number: str
    """The one that stands beside the verdict on the page."""
    sentences: tuple[str, ...]
    facts: str


def headline_verdicts(view: View) -> list[Verdict]:
    """Return one verdict per claim: on the first dataset in the place of VED, C7's on the fleet."""
    headlines: dict[str, Verdict] = {}
    for verdict in verdicts(view):
        headlines.setdefault(verdict.claim, verdict)
    return list(headlines.values())


def headline(view: View) -> str:
    """Return the sentence that counts the supported claims."""
    outcomes = {verdict.claim: verdict.outcome for verdict in headline_verdicts(view)}
    supported = [claim for claim, outcome in outcomes.items() if outcome == SUPPORTED]
    verb = "is" if len(supported) == 1 else "are"
    listed = f" ({' and '.join(supported)})" if supported else ""
    return (
        f"{NUMBERS[len(supported)]} of the paper's {NUMBERS[len(ASSERTIONS)].lower()} claims "
        f"{verb} supported{listed}."
    )


def verdicts(view: View) -> list[Verdict]:
    """Return a verdict for each claim on each dataset in the place of VED or eVED."""
    results = []
    for claim, judge in JUDGES.items():
        everywhere = (*view.setting.ved, *view.setting.eved)
        datasets = (view.setting.fleet,) if claim == "C7" else everywhere
        for dataset in datasets:
            records: list[Record | None] = []

            def get(cell: Cell, records: list[Record | None] = records) -> Record:
                record = view.get(cell)
                if record is None:
                    raise MissingCell(cell)
                records.append(record)
                return record

            try:
                outcome, number, sentences = judge(view, dataset, get)
            except MissingCell as missing:
                outcome = NOT_TESTABLE
                number = "not run"
                sentences = (_missing(missing.cell),)
            if view.setting.scale.name == "smoke" and outcome != NOT_TESTABLE:
                word = f"By these numbers it would read: {outcome}."
                reason = "Six rounds and two seeds only show that everything runs."
                outcome, sentences = NOT_TESTABLE, (reason, word, *sentences)
            results.append(
                Verdict(
                    claim,
                    ASSERTIONS[claim],
                    outcome,
                    dataset,
                    number,
                    tuple(sentences),
                    facts_line(records),
                )
            )
    return results


def _missing(cell: Cell) -> str:
    parts = [f"{name} = {value:g}" for name, value in cell.settings]
    parts += [cell.follow] if cell.follow else []
    parts += ["for its time"] if cell.purpose == "time" else []
    parts += [f"K = {cell.vehicles}"] if cell.vehicles else []
    parts += [f"C = {cell.participation:g}"] if cell.participation != 0.3 else []
    how = f" ({', '.join(parts)})" if parts else ""
    return f"Cells that it needs have not run, {name_of(cell.method)}{how} first of all."
