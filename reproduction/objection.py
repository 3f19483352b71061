"""An objection, and how its comparisons decide it.

It is upheld if FO-RI-FedAvg is lower in one of them: paired tests, Holm-corrected over the
comparisons of the objection, below 5 %. Otherwise it is not, and the smallest effect that would
have been found stands beside each comparison.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from fedwatt.report.table import shown
from reproduction.outcomes import higher_ones, lower_ones
from reproduction.paired import Paired, detectable

UPHELD = "**upheld**"
NOT_UPHELD = "not upheld"
NOT_RUN = "not run"
TOO_FEW = "too few seeds to judge"


@dataclass(frozen=True)
class Compared:
    """FO-RI-FedAvg minus another training, and what is to be known of it."""

    test: Paired
    note: str = ""


Comparisons = Mapping[str, Compared]


@dataclass(frozen=True)
class Objection:
    """An objection, the experiment, what came out and what follows from it."""

    objection: str
    experiment: str
    result: str
    verdict: str


def judged(objection: str, experiment: str, comparisons: Comparisons, *more: str) -> Objection:
    """A row whose verdict its comparisons decide; those that have not run are left out."""
    # A single value has no interval, so it decides nothing.
    ran = {name: own for name, own in comparisons.items() if own.test.ran}
    if not ran:
        return Objection(objection, experiment, "–", NOT_RUN)
    tests = {name: own.test for name, own in ran.items()}
    lower, higher = lower_ones(tests), higher_ones(tests)
    parts = [f"{name}: {told(own, comparisons=len(ran))}" for name, own in ran.items()]
    won = [name for name, holds in lower.items() if holds]
    lost = [name for name, holds in higher.items() if holds]
    verdict = f"{UPHELD}: lower in {'; '.join(won)}" if won else NOT_UPHELD
    verdict += f"; higher in {'; '.join(lost)}" if lost else ""
    result = ". ".join(["; ".join(parts), *more]) + "."
    return Objection(objection, experiment, result[0].upper() + result[1:], verdict)


def told(compared: Compared, unit: str = "Wh", comparisons: int = 1) -> str:
    """A comparison in words: who diverged, or the difference and what would have been found."""
    test, note = compared.test, f" ({compared.note})" if compared.note else ""
    if test.decided:
        return test.losses("the one", "the other") + note
    one, digits = test.difference, 2 if unit == "Wh" else 4
    if one.mean == one.std == 0:
        return "the same in every seed" + note
    text = shown(one.mean, digits)
    if one.seeds > 1 and not one.copies:
        text += f" [{shown(one.low, digits)}, {shown(one.high, digits)}]"
        text += f" {unit}".rstrip() + f" (detectable {shown(detectable(one, comparisons), digits)})"
    return text + note
