"""The plain answer at the top of a report: what federating gains, which method, and is it noise?"""

from dataclasses import dataclass, replace

import numpy as np

from fedwatt.report.curves import diverged, rounds_of
from fedwatt.report.facts import unequal_rounds
from fedwatt.report.load import Predicted, Run, where
from fedwatt.report.on_board import ON_BOARD_MEANS, on_board_errors
from fedwatt.report.references import federating, gain_headline, gain_sentence
from fedwatt.report.statistics import Comparison, Estimate, compare, estimate, final
from fedwatt.report.style import name_of
from fedwatt.report.table import amount, shown

CAVEAT = (
    "This compares the settings below, on this fleet and this split. A method that takes smaller "
    "steps can win at a rate that is too large for the other: 'fedwatt tune' finds each its own "
    "best rate."
)
MATTERS = 2.0
"""Per cent of error below which a headline names no winner: half or twice a rate makes as much."""
UNEQUAL_STEPS = 0.1
"""Share by which the drift of a first round must differ for steps to count as unequal."""


@dataclass(frozen=True)
class Answer:
    """A headline and the sentences that back it."""

    headline: str
    sentences: tuple[str, ...]
    comparison: Comparison | None = None
    """The comparison that it is about, if there is one."""
    caveat: str = ""
    """What the comparison does not show."""


def answer(run: Run) -> Answer:
    """Say what federating gains over each vehicle alone, where it is known, and which method."""
    methods, found = _methods(run), federating(run)
    if found is None:
        return methods
    sentences = (gain_sentence(found, run.target), f"{methods.headline}.", *methods.sentences)
    return replace(methods, headline=gain_headline(found), sentences=sentences)


def _methods(run: Run) -> Answer:
    """Say which method is better on this fleet and by how much, or that one cannot tell."""
    finals = {method: estimate(final(run, method, "test_rmse")) for method in run.methods}
    finished = {method: own for method, own in finals.items() if own.seeds}
    if not finished:
        advice = "A lower rate is the first thing to try."
        return Answer("Every method diverged", (*_lost(run), advice))
    unequal = unequal_rounds(run)
    rest = ((unequal,) if unequal else ()) + _on_board(run) + _lost(run)
    if not run.same_data:
        reason = (
            "Their data or splits differ, so a difference in error may come from the fleet rather "
            "than the method. The numbers stand side by side below."
        )
        return Answer("These runs saw different data and cannot be ranked", (reason, *rest))
    if len(run.methods) == 1:
        return _alone(run, finals[run.methods[0]], rest)
    comparisons = compare(run)
    if not comparisons:
        return _no_common_seed(run, finished, rest)
    best, fewer = _best(comparisons)
    sentences = (*_sentences(best, finals, len(comparisons), run.target), *fewer, *rest)
    return Answer(_headline(best, rounds_of(run)) + _one_rate(run, best), sentences, best, CAVEAT)


def _best(comparisons: list[Comparison]) -> tuple[Comparison, tuple[str, ...]]:
    """The comparison that the headline is about, and a sentence on methods with fewer seeds."""
    # The lowest of a few seeds is more often luck: methods with the most seeds come first.
    most = max(one.difference.seeds for one in comparisons)
    fewer = [one for one in comparisons if one.difference.seeds < most]
    best = min((one for one in comparisons if one not in fewer), key=lambda o: o.difference.mean)
    if not fewer:
        return best, ()
    counts = _listed([f"{name_of(one.method)} ({one.difference.seeds})" for one in fewer])
    return best, (
        f"Not considered for the headline, with fewer than {most} paired seeds: {counts}. The "
        "tables have all methods.",
    )


def _alone(run: Run, own: Estimate, rest: tuple[str, ...]) -> Answer:
    level = amount(run.target, own.mean)
    headline = f"{name_of(run.methods[0])} ends at {level} RMSE per window"
    seeds = "One seed."
    if own.copies:
        seeds = f"All {own.seeds} seeds gave the same training."
    elif own.seeds > 1:
        spread = amount(run.target, own.std, 2)
        seeds = f"Mean of {own.seeds} seeds. Their standard deviation is {spread}."
    return Answer(headline, (seeds, "There is no other method in this run.", *rest))


def _no_common_seed(run: Run, finished: dict[str, Estimate], rest: tuple[str, ...]) -> Answer:
    if run.reference not in finished:
        names = _listed([name_of(method) for method in finished])
        headline = f"{name_of(run.reference)} diverged in every seed; {names} did not"
    elif len(finished) == 1:
        headline = f"Only {name_of(run.reference)} finished a seed that can be compared"
    else:
        headline = f"No other method finished a seed that {name_of(run.reference)} finished"
    target = run.target
    levels = _listed([f"{name_of(m)} {amount(target, own.mean)}" for m, own in finished.items()])
    return Answer(headline, (f"Final test RMSE per window: {levels}.", *rest))


def _headline(one: Comparison, rounds: dict[str, int]) -> str:
    method, reference = name_of(one.method), name_of(one.reference)
    if rounds[one.method] != rounds[one.reference]:
        method += f" after {rounds[one.method]} rounds"
        reference += f" after {rounds[one.reference]}"
    if not one.difference.above_noise or abs(one.percent) < MATTERS:
        return f"No clear difference between {method} and {reference} on this fleet"
    word = "lower" if one.difference.mean < 0 else "higher"
    return f"{method} has {shown(abs(one.percent))} % {word} error than {reference} on this fleet"


def _one_rate(run: Run, one: Comparison) -> str:
    """The end of a headline on methods that share a rate and do not take steps of the same length.

    At a seed, the first round begins with the same model, vehicles and batches in all methods, so
    what differs there is how far the same gradients go.
    """
    rates = run.rates
    if rates.get(one.method) is None or rates.get(one.method) != rates.get(one.reference):
        return ""
    first = [
        float(np.nanmean(drift))
        for method in (one.method, one.reference)
        if len(drift := where(run.rounds, method=method, round=1)["drift_mean"])
    ]
    if len(first) < 2 or not abs(first[0] / first[1] - 1) > UNEQUAL_STEPS:
        return ""
    return (
        f", but at one rate for both its steps are {first[0] / first[1]:.2g} times as long: "
        "this is no fair comparison"
    )


def _sentences(
    one: Comparison, finals: dict[str, Estimate], comparisons: int, target: Predicted
) -> list[str]:
    method, reference = name_of(one.method), name_of(one.reference)
    change, own, base = one.difference, finals[one.method], finals[one.reference]
    word = "below" if change.mean < 0 else "above"
    found = [
        f"After the last round, {method} has a test RMSE of {amount(target, own.mean)} per window"
        f"{_over(own, base)}, {reference} {amount(target, base.mean)}{_over(base, own)}. At equal "
        f"seeds {method} is {amount(target, abs(change.mean), 2)} ({shown(abs(one.percent))} %) "
        f"{word} {reference}."
    ]
    if change.seeds < 2:
        found.append("One seed cannot tell a difference from noise: run with three or more.")
    elif change.copies:
        found.append(
            f"All {change.seeds} paired seeds gave the same training, which shows no noise between "
            "seeds, so there is no interval. A network that is made for each seed, or a "
            "participation below 1, lets them differ."
        )
    else:
        several = f", adjusted for {comparisons} comparisons" if comparisons > 1 else ""
        verdict = "includes zero, so this is within the noise between seeds"
        if change.above_noise:
            verdict = "leaves zero out, so this is more than the noise between seeds"
            if abs(one.percent) < MATTERS:
                verdict += f", but under {MATTERS:g} %, which half or twice a rate makes as well"
        low, high = (("+" if end > 0 else "") for end in (change.low, change.high))
        low += shown(change.low, target.digits(2))
        high += amount(target, change.high, 2)
        found.append(
            f"The 95 % interval of the difference over {change.seeds} paired seeds{several}, "
            f"{low} to {high}, {verdict}."
        )
    found.append(f"{method} has the lower error on {one.better} of {one.vehicles} vehicles.")
    return found


def _over(own: Estimate, other: Estimate) -> str:
    """The number of seeds, where it is not that of the other."""
    if own.seeds == other.seeds:
        return ""
    return f" ({own.seeds} seeds)" if own.seeds > 1 else " (one seed)"


def _on_board(run: Run) -> tuple[str, ...]:
    """What vehicles get where they do not use the final network for all windows."""
    found = on_board_errors(run)
    return (f"{ON_BOARD_MEANS} Test RMSE then: {_listed(found)}.",) if found else ()


def _lost(run: Run) -> tuple[str, ...]:
    found = []
    for method in run.methods:
        if when := sorted(diverged(run, method).items()):
            cases = _listed([f"seed {seed} at round {at}" for seed, at in when])
            found.append(f"{name_of(method)} diverged: {cases}. Diverged seeds are in no mean.")
    return tuple(found)


def _listed(items: list[str]) -> str:
    """Items as a list in a sentence.

    >>> _listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)
