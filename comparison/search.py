"""The trials of a candidate: its defaults, then a Latin hypercube of the ranges its rules declare.

Where the best of them has the highest rate, higher ones are tried: a range must not decide.
"""

from collections.abc import Sequence
from math import inf
from typing import Any

import numpy as np

from comparison.candidates import Candidate
from comparison.plan import Plan
from fedwatt.federation import Training
from fedwatt.randomness import generator


def trials(candidate: Candidate, count: int) -> list[dict[str, Any]]:
    """`count` settings, the defaults first.

    Each range is cut into as many equal parts as there are trials besides, and every part is met
    once; rates are the same for all candidates.

    >>> [round(t["learning_rate"], 4) for t in trials(Candidate("fedavg"), 3)]
    [0.05, 0.0032, 0.0316]
    """
    drawn = count - 1
    columns = {}
    for name, span in candidate.ranges.items():
        places = (np.arange(drawn) + 0.5) / max(drawn, 1)
        if name != "learning_rate":
            # The keys of the draws are those of the committed records.
            key = name.replace("learning_rate", "rate")
            places = generator(0, "tournament", candidate.name, key).permutation(places)
        low, high = np.log([span.low, span.high]) if span.log else (span.low, span.high)
        values = low + places * (high - low)
        columns[name] = [float(f"{v:.4g}") for v in (np.exp(values) if span.log else values)]
    default = {"learning_rate": Training().learning_rate}
    return [default, *({name: span[i] for name, span in columns.items()} for i in range(drawn))]


def best_of(tried: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the trial with the lowest score; the first one where all diverged."""
    return min(tried, key=lambda trial: trial["score"] if trial["score"] is not None else inf)


def further(tried: Sequence[dict[str, Any]], plan: Plan) -> list[dict[str, Any]]:
    """Return settings of the best trial at higher rates, if it has the highest and they are not
    used up.

    >>> plan = Plan(trials=2, further=2)
    >>> scores = ((0.01, 3.0), (0.02, 2.0))
    >>> rates = [{"settings": {"learning_rate": r}, "score": s} for r, s in scores]
    >>> [trial["learning_rate"] for trial in further(rates, plan)]
    [0.04, 0.08]
    >>> further([*rates, {"settings": {"learning_rate": 0.04}, "score": 2.5}], plan)
    []
    """
    if len(tried) >= plan.trials + 2 * plan.further:
        return []
    best = best_of(tried)
    rates = sorted({trial["settings"]["learning_rate"] for trial in tried})
    learning_rate = best["settings"]["learning_rate"]
    if best["score"] is None or len(rates) < 2 or learning_rate < rates[-1]:
        return []
    apart = rates[-1] / rates[-2]
    return [
        best["settings"] | {"learning_rate": float(f"{learning_rate * apart**n:.4g}")}
        for n in range(1, plan.further + 1)
    ]
