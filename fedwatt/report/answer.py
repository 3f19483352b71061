"""The headline of a report and the sentences behind it: what each part gains, and which method."""

from dataclasses import dataclass

import numpy as np

from fedwatt.report.baselines import (
    ELEVATION_STAGE,
    PERSONALISED_STAGE,
    SHARED_STAGE,
    best_validated,
    federating,
    gain_headline,
    gain_sentence,
    method_stages,
)
from fedwatt.report.load import Predicted, RunTables, where
from fedwatt.report.statistics import (
    Comparison,
    Estimate,
    compare,
    diverged,
    final_error,
    rounds_of,
    unequal_rounds,
)
from fedwatt.report.style import name_of
from fedwatt.report.table import amount, cell_text

CAVEAT = (
    "This compares the settings below, on this fleet and this split. A method that takes smaller "
    "steps can win at a learning rate that is too large for the other: 'fedwatt tune' finds the "
    "best learning rate of each method."
)
MATTERS = 2.0
"""Per cent of error below which a headline names no winner: half or twice a learning rate makes as
much."""
PARTS = {ELEVATION_STAGE: "elevation", PERSONALISED_STAGE: "personalisation"}
"""Stage of a method → the part of the model that it adds."""
UNEQUAL_STEPS = 0.1
"""Share by which the drift of a first round must differ for steps to count as unequal."""


@dataclass(frozen=True)
class Answer:
    """A headline and the sentences that support it."""

    headline: str
    sentences: tuple[str, ...]
    comparison: Comparison | None = None
    """The comparison that the headline is about, if there is one."""
    caveat: str = ""
    """What the comparison does not show."""
    details: tuple[str, ...] = ()
    """Further sentences, for those who want to know how sure the answer is."""


def answer(run: RunTables) -> Answer:
    """Say what elevation, personalisation and federating gain, and which method is better."""
    errors = {method: final_error(run, method) for method in run.methods}
    finished = {method: error for method, error in errors.items() if error.seeds}
    if not finished:
        advice = "A lower learning rate is the first thing to try."
        return Answer("Every method diverged", (*_lost(run), advice))
    unequal = unequal_rounds(run)
    details = ((unequal,) if unequal else ()) + _lost(run)
    if not run.same_data:
        reason = (
            "Their data or splits differ, so a difference in error may come from the fleet rather "
            "than the method. The numbers stand side by side below."
        )
        headline = "These runs saw different data and cannot be ranked"
        return Answer(headline, (reason,), details=details)
    parts_clause, parts = _parts(run)
    method_clause, method_sentences, comparison = _methods(run, errors, finished)
    clauses = [clause for clause in (parts_clause, method_clause) if clause]
    if not comparison and parts_clause:
        clauses = clauses[:1]
    headline = "; ".join(clauses)
    return Answer(
        headline,
        (*parts, *method_sentences[:1]),
        comparison,
        CAVEAT if comparison else "",
        (*method_sentences[1:], *details),
    )


def _parts(run: RunTables) -> tuple[str, tuple[str, ...]]:
    """Return a clause and sentences on what personalisation and federating gain."""
    method = best_validated(run)
    gain = federating(run)
    clause = gain_headline(gain) if gain else ""
    sentences = (gain_sentence(gain, run.target),) if gain else ()
    if method is None or (gain and gain.federated > gain.constant):
        return clause, sentences
    # Only the first method is trained without elevation, too.
    stages = method_stages(run, run.methods[0]) | method_stages(run, method)
    parts = [name for stage, name in PARTS.items() if stage in stages]
    if SHARED_STAGE not in stages or not parts:
        return clause, sentences
    first = stages[SHARED_STAGE]
    last = stages[PERSONALISED_STAGE if PERSONALISED_STAGE in stages else ELEVATION_STAGE]
    verb = "lower" if last < first else "raise"
    ends = f"{cell_text(first, run.target.digits())} to {amount(run.target, last)}"
    plural = "" if len(parts) > 1 else "s"
    clause = f"{' and '.join(parts).capitalize()} {verb}{plural} the error from {ends}"
    steps = [
        f"{name_of(run.methods[0])}'s shared model has an error of {amount(run.target, first)}"
    ]
    if ELEVATION_STAGE in stages:
        steps.append(f"with learned elevation {amount(run.target, stages[ELEVATION_STAGE])}")
    if PERSONALISED_STAGE in stages:
        steps.append(f"fine-tuned in each vehicle {amount(run.target, last)}")
    story = f"{', '.join(steps)} (RMSE per window, mean over vehicles)."
    return clause, (story, *sentences)


def _methods(
    run: RunTables, errors: dict[str, Estimate], finished: dict[str, Estimate]
) -> tuple[str, list[str], Comparison | None]:
    """Return a clause and sentences on which method is better, and the comparison behind them."""
    if len(run.methods) == 1:
        return _single(run, errors[run.methods[0]])
    comparisons = compare(run)
    if not comparisons:
        return _no_common_seed(run, finished)
    best, fewer = _best(comparisons)
    sentences = [*_sentences(best, errors, len(comparisons), run.target), *fewer]
    return _method_clause(best, rounds_of(run)) + _one_rate(run, best), sentences, best


def _best(comparisons: list[Comparison]) -> tuple[Comparison, tuple[str, ...]]:
    """Return the comparison of the headline, and a sentence on methods with fewer seeds."""
    # The lowest of a few seeds is more often luck: methods with the most seeds come first.
    most = max(comparison.difference.seeds for comparison in comparisons)
    fewer = [comparison for comparison in comparisons if comparison.difference.seeds < most]
    candidates = [comparison for comparison in comparisons if comparison not in fewer]
    best = min(candidates, key=lambda comparison: comparison.difference.mean)
    if not fewer:
        return best, ()
    counts = listed([f"{name_of(c.method)} ({c.difference.seeds})" for c in fewer])
    return best, (
        f"Not considered for the headline, with fewer than {most} paired seeds: {counts}. The "
        "tables have all methods.",
    )


def _single(run: RunTables, error: Estimate) -> tuple[str, list[str], None]:
    clause = (
        f"{name_of(run.methods[0])} has an error of {amount(run.target, error.mean)} per window"
    )
    seeds = "One seed."
    if error.copies:
        seeds = f"All {error.seeds} seeds gave the same training."
    elif error.seeds > 1:
        spread = amount(run.target, error.std, 2)
        seeds = f"Mean of {error.seeds} seeds; their standard deviation is {spread}."
    return clause, [f"{seeds} There is no other method in this run."], None


def _no_common_seed(run: RunTables, finished: dict[str, Estimate]) -> tuple[str, list[str], None]:
    if run.reference not in finished:
        names = listed([name_of(method) for method in finished])
        clause = f"{name_of(run.reference)} diverged in every seed; {names} did not"
    elif len(finished) == 1:
        clause = f"Only {name_of(run.reference)} finished a seed that can be compared"
    else:
        clause = f"No other method finished a seed that {name_of(run.reference)} finished"
    levels = listed(
        [f"{name_of(m)} {amount(run.target, error.mean)}" for m, error in finished.items()]
    )
    return clause, [f"Error per window: {levels}."], None


def _method_clause(comparison: Comparison, rounds: dict[str, int]) -> str:
    method = name_of(comparison.method)
    reference = name_of(comparison.reference)
    if rounds[comparison.method] != rounds[comparison.reference]:
        method += f" after {rounds[comparison.method]} rounds"
        reference += f" after {rounds[comparison.reference]}"
    if not comparison.difference.above_noise or abs(comparison.percent) < MATTERS:
        return f"{reference} and {method} tie"
    word = "lower" if comparison.difference.mean < 0 else "higher"
    return f"{method} has {cell_text(abs(comparison.percent))} % {word} error than {reference}"


def _one_rate(run: RunTables, comparison: Comparison) -> str:
    """Return a warning on methods that share a learning rate and take steps of unequal length.

    At a seed, the first round begins with the same model, vehicles and batches in all methods, so
    the drift there shows how far the same gradients go.
    """
    rates = run.rates
    methods = (comparison.method, comparison.reference)
    if rates.get(methods[0]) is None or rates.get(methods[0]) != rates.get(methods[1]):
        return ""
    first = [
        float(np.nanmean(drift))
        for method in methods
        if len(drift := where(run.rounds, method=method, round=1)["drift_mean"])
    ]
    if len(first) < 2 or not abs(first[0] / first[1] - 1) > UNEQUAL_STEPS:
        return ""
    return (
        f", but at one learning rate for both its steps are {first[0] / first[1]:.2g} times as "
        "long: this is no fair comparison"
    )


def _sentences(
    comparison: Comparison, errors: dict[str, Estimate], comparisons: int, target: Predicted
) -> list[str]:
    method = name_of(comparison.method)
    reference = name_of(comparison.reference)
    change = comparison.difference
    error = errors[comparison.method]
    base = errors[comparison.reference]
    word = "below" if change.mean < 0 else "above"
    size = f"{amount(target, abs(change.mean), 2)} ({cell_text(abs(comparison.percent))} %)"
    if change.seeds < 2:
        verdict = "one seed cannot tell a difference from noise: run with three or more"
    elif change.copies:
        verdict = (
            f"all {change.seeds} paired seeds gave the same training, so there is no interval; a "
            "network made for each seed, or a participation below 1, lets them differ"
        )
    else:
        several = f", adjusted for {comparisons} comparisons" if comparisons > 1 else ""
        verdict = "no significant difference"
        if change.above_noise:
            verdict = "a significant difference"
            if abs(comparison.percent) < MATTERS:
                verdict += f", but under {MATTERS:g} %, which half or twice a learning rate makes"
        low, high = (("+" if end > 0 else "") for end in (change.low, change.high))
        low += cell_text(change.low, target.digits(2))
        high += amount(target, change.high, 2)
        verdict = (
            f"95 % interval {low} to {high} over {change.seeds} paired seeds{several}: {verdict}"
        )
    return [
        f"{method} has {amount(target, error.mean)}{_over(error, base)}, {reference} "
        f"{amount(target, base.mean)}{_over(base, error)}: {size} {word} {reference} at equal "
        f"seeds ({verdict}).",
        f"{method} has the lower error on {comparison.better} of {comparison.vehicles} vehicles.",
    ]


def _over(error: Estimate, other: Estimate) -> str:
    """Return the number of seeds, where the other method has another."""
    if error.seeds == other.seeds:
        return ""
    return f" ({error.seeds} seeds)" if error.seeds > 1 else " (one seed)"


def _lost(run: RunTables) -> tuple[str, ...]:
    sentences = []
    for method in run.methods:
        if when := sorted(diverged(run, method).items()):
            cases = listed([f"seed {seed} at round {at}" for seed, at in when])
            sentences.append(f"{name_of(method)} diverged: {cases}. Diverged seeds are in no mean.")
    return tuple(sentences)


def listed(items: list[str]) -> str:
    """Return items as a list in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    return " and ".join(part for part in (", ".join(items[:-1]), items[-1]) if part)
