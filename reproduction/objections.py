"""What the paper's authors could object, and the experiment that settles each objection.

How comparisons decide an objection stands in `reproduction.objection`. Where even a tenth of
FedAvg's error would not have been found, the map of engagement judges nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite, nan

from fedwatt.report.style import name_of
from fedwatt.report.table import shown
from reproduction.advice import interval
from reproduction.budgets import against_fedavg
from reproduction.claims import Verdict
from reproduction.conditions import SIZES, size_grid
from reproduction.contests import (
    BASE,
    MATCHED,
    OWN,
    PAPER,
    Contest,
    causal_contests,
    dataset_contests,
    printed_contests,
    skew_contests,
    split_contests,
    stride_contests,
    work_contests,
)
from reproduction.convergence import against
from reproduction.engagement import REGIMES, controlled, differences, map_cells, reference
from reproduction.judges import drift_tests
from reproduction.main_results import own_trials, tuned
from reproduction.objection import (
    NOT_RUN,
    NOT_UPHELD,
    TOO_FEW,
    UPHELD,
    Compared,
    Comparisons,
    Objection,
    judged,
    told,
)
from reproduction.outcomes import higher_ones, level, lower_ones
from reproduction.overhead import engine_name
from reproduction.paired import detectable
from reproduction.record import Record
from reproduction.search_results import best_so_far, searched
from reproduction.settle import prerequisites
from reproduction.show import left_of, p_text
from reproduction.splits import over_splits
from reproduction.study import View
from reproduction.turns import overhead, turns_cell

COARSE = 0.1
"""Share of FedAvg's error that an experiment must be able to find to judge anything."""


def objections(view: View, verdicts: Sequence[Verdict]) -> list[Objection]:
    """All of them, in the order of the page."""
    rows = [row(view) for row in ROWS]
    rows.insert(5, _overhead(view, verdicts))
    return rows


def _between(own: Record, other: Record) -> Compared:
    """Final errors of a training minus another's; what tuning left of its method, if not all."""
    return Compared(against(own, other), left_of(own))


def _pairs(
    view: View, contests: Sequence[Contest], own: str, other: str, label: str
) -> dict[str, Compared]:
    """One training minus another in each contest in which both ran."""
    found = {}
    for one in contests:
        records = [view.get(one.cells[n]) if n in one.cells else None for n in (own, other)]
        if records[0] is not None and records[1] is not None:
            name = f"{label}, {one.short}" if len(contests) > 1 else label
            found[name] = _between(records[0], records[1])
    return found


def _lacking(view: View, contests: Sequence[Contest]) -> list[str]:
    """Contests of which the tuned pair has not run, in a sentence; none if all have."""
    names = [
        one.short
        for one in contests
        if any(n not in one.cells or view.get(one.cells[n]) is None for n in (OWN, BASE))
    ]
    return [f"Not run: {'; '.join(names)}"] if names else []


def _for_comparison(compared: Comparisons) -> list[str]:
    """Comparisons that are told and decide nothing."""
    return [f"For comparison, {name}: {told(own)}" for name, own in compared.items()]


def _tuning(view: View) -> Objection:
    scale, (dataset, *_) = view.setting.scale, searched(view.setting) or view.setting.ved
    records = [view.get(tuned(scale, dataset, m)) for m in ("fo-ri-fedavg", "fedavg")]
    tests: dict[str, Compared] = {}
    if records[0] is not None and records[1] is not None:
        tests["FO-RI minus FedAvg, both tuned"] = _between(records[0], records[1])
    more = []
    for method in view.setting.among(("fedavg", "fo-fedavg", "fo-ri-fedavg")):
        found = best_so_far(view, dataset, method)
        if len(found) == scale.trials:
            late = found[len(found) // 2 - 1] - found[-1]
            more.append(
                f"The second half of {name_of(method)}'s trials lowered its validation error by "
                f"{shown(late, 2)} Wh, to {shown(found[-1], 2)} Wh"
            )
    return judged(
        "FO-RI-FedAvg was mistuned.",
        f"On {dataset}, at rates of 0.0001 to 0.3, over {scale.tuning_rounds} rounds and "
        f"{len(scale.tuning_seeds)} seeds that are used for nothing else, "
        f"{own_trials(scale, dataset, view.setting.methods)}. FO-RI has the trials of the methods "
        "that it contains as well, "
        f"{len(prerequisites(tuned(scale, dataset, 'fo-ri-fedavg'), scale))} in all.",
        tests,
        *more,
    )


def _stride(view: View) -> Objection:
    one, more = stride_contests(view.setting), work_contests(view.setting)
    printed, long = printed_contests(view.setting), f"T = {view.setting.scale.printed_rounds}"
    brief = f"T = {view.setting.scale.stride_rounds}"
    tests = {
        **_pairs(view, printed, OWN, BASE, f"FO-RI minus FedAvg, both tuned, {long}"),
        **_pairs(view, one, OWN, BASE, f"both tuned, {brief}"),
        **_pairs(view, more, OWN, BASE, "both tuned"),
    }
    matched = ("FO-FedAvg, rate 0.05", MATCHED, "FO at 0.05 minus FedAvg at its mean step")
    shown_too = {
        **_pairs(view, printed, *PAPER, f"at rate 0.05, {long}"),
        **_pairs(view, one, *PAPER, f"at rate 0.05, {brief}"),
        **_pairs(view, one, *matched),
    }
    return judged(
        "Windows five seconds apart shorten local training.",
        "Windows a second apart, with all rounds and seeds where both are tuned; with fewer rounds "
        "and seeds also at rate 0.05, E of 2 and 5, C of 0.1 and 0.5.",
        tests,
        *_for_comparison(shown_too),
        *_lacking(view, (*printed, *one, *more)),
    )


def _skew(view: View) -> Objection:
    contests = skew_contests(view.setting)
    return judged(
        "The paper's heterogeneity was left out.",
        "Trips dealt to ten clients: mild, moderate and severe regime skew and Dirichlet 0.3; each "
        "method at its best rate under each.",
        _pairs(view, contests, OWN, BASE, "both tuned"),
        *_for_comparison(_pairs(view, contests, *PAPER, "at rate 0.05")),
        *_lacking(view, contests),
    )


def _enriched(view: View) -> Objection:
    contests = [c for c in dataset_contests(view.setting) if _dataset(c) in view.setting.eved]
    row = judged(
        "eVED is absent, and its features might favour the method.",
        "eVED's data are not available. `ved-enriched` has VED's own trips with elevation from a "
        "terrain model, as eVED does, but no speed limits; `synthetic-enriched` has these, "
        "simulated.",
        _pairs(view, contests, OWN, BASE, "FO-RI minus FedAvg, both tuned"),
        *_lacking(view, contests),
    )
    if row.verdict == NOT_UPHELD:
        return replace(row, verdict=f"{NOT_UPHELD} on the two stand-ins; open on eVED itself")
    return row


def _dataset(one: Contest) -> str:
    return next(iter(one.cells.values())).dataset


def _engagement(view: View) -> Objection:
    found = differences(view)
    if not found:
        return Objection(ENGAGES, MAP, "–", NOT_RUN)
    better, worse = [p for p in found if p.lower], [p for p in found if p.higher]
    lost = [p for p in found if p.test.own_lost]
    effects = [detectable(p.test.difference, len(found)) for p in found]
    effects = sorted(effect for effect in effects if isfinite(effect))
    median = effects[len(effects) // 2] if effects else nan
    bases = [r for regime in REGIMES if (r := view.get(reference(view.setting, regime)))]
    coarse = median > COARSE * min(map(level, bases))
    parts = [
        f"Of {len(found)} points {len(better)} are significantly lower than FedAvg at its best "
        f"rate, {len(worse)} higher{f', {len(lost)} of them by diverging' if lost else ''}; the "
        f"median detectable effect is {shown(median, 2)} Wh"
    ]
    finite = [p for p in found if not p.test.decided]
    for word, pick in (("lowest", min), ("highest", max)) if finite else ():
        one = pick(finite, key=lambda p: p.test.difference.mean)
        test = controlled(view, one.regime)
        parts.append(
            f"The {word}: {name_of(one.method)}, {one.change}, {one.regime}, "
            f"{interval(one.test)}, corrected p {p_text(one.p)}"
            + (f"; FedAvg at FO's mean step there: {interval(test)}" if test is not None else "")
        )
    points = sum(len(map_cells(view.setting, regime)) for regime in REGIMES)
    if len(found) < points:
        parts.append(f"Not run: {points - len(found)} of {points} points")
    flat = _flat(view)
    if flat is not None:
        parts.append(f"At ℓ = 0.01, {100 * flat:.0f} % of roughness indices are below 0.001")
    verdict = f"{UPHELD} at {len(better)} points" if better else TOO_FEW if coarse else NOT_UPHELD
    return Objection(ENGAGES, MAP, ". ".join(parts) + ".", verdict)


ENGAGES = "The probe never engaged; other settings would show its effect."
MAP = (
    "λ of 0.1, 1 and 10 times ℓ of 0.01 and 1 of RI and FO-RI, α of 0.8 and 0.5 of FO, on "
    "vehicles as they are, under severe skew and with noisy clients."
)


def _flat(view: View) -> float | None:
    cell = map_cells(view.setting, "vehicles as they are").get(("ri-fedavg", "λ = 0.1, ℓ = 0.01"))
    record = view.get(cell) if cell is not None else None
    return None if record is None else float(record.facts["flat"])


def _overhead(view: View, verdicts: Sequence[Verdict]) -> Objection:
    own = [v for v in verdicts if v.claim == "C3" and v.outcome != "not testable here"]
    parts = []
    for verdict in own:
        record = view.get(turns_cell(verdict.dataset))
        assert record is not None  # C3 was judged by it
        turns = record.facts["turns"]
        for engine in turns["engines"]:
            middle, low, high = (100 * x for x in overhead(turns, engine, "fo-ri-fedavg"))
            parts.append(
                f"{verdict.dataset}, {engine_name(record, engine)}: {middle:+.1f} % "
                f"[{low:+.1f}, {high:+.1f}]"
            )
    words = sorted({v.outcome for v in own})
    return Objection(
        "The overhead was measured unfairly.",
        "Methods in turns, medians, global probe rounds, on the plain loop and on our engine; "
        "FO-RI's client-side time over FedAvg's.",
        ". ".join(parts) + "." if parts else "–",
        f"C3 is {' and '.join(words)}" if own else NOT_RUN,
    )


def _splits(view: View) -> Objection:
    name = "FO-RI minus FedAvg, both tuned on the first split, over splits"
    others = [c for c in dataset_contests(view.setting) if _dataset(c) in view.setting.ved[1:]]
    at_paper = Compared(over_splits(view, *PAPER))
    first = view.get(split_contests(view.setting)[0].cells[OWN])
    return judged(
        "One fleet and one split of its trips.",
        f"{len(view.setting.scale.splits)} splits of {view.setting.ved[0]}, paired by split; and "
        "another fleet.",
        {
            name: Compared(over_splits(view, OWN, BASE), left_of(first) if first else ""),
            **_pairs(view, others, OWN, BASE, "both tuned on another fleet"),
        },
        *_for_comparison(
            {"at rate 0.05 over splits": at_paper} if at_paper.test.difference.seeds else {}
        ),
        *_lacking(view, others),
    )


def _shares(view: View) -> Objection:
    found = {
        f"{dataset}, {name}": test
        for dataset in (*view.setting.ved, *view.setting.eved)
        for name, test in drift_tests(view, dataset).items()
    }
    objection = "C1 was tested at C = 0.3 only."
    experiment = (
        "RI-FedAvg's drift and its dispersion minus FedAvg's at C of 0.1, 0.2, 0.3 and 0.5; the "
        "study `drift-shares` has them all."
    )
    if not any(not name.endswith("C = 0.3") for name in found):
        return Objection(objection, experiment, "–", f"{NOT_RUN} at any other C")
    won = [name for name, holds in lower_ones(found).items() if holds]
    lost = [name for name, holds in higher_ones(found).items() if holds]
    parts = [f"Of {len(found)} comparisons {len(won)} are lower and {len(lost)} higher"]
    for word in ("D_mean", "D_cv"):
        own = {n: t for n, t in found.items() if word in n and not t.decided}
        low = min(own, key=lambda name: own[name].difference.mean, default="")
        if low:
            parts.append(f"The lowest of {word}: {low}, {told(Compared(own[low]), '', len(found))}")
    verdict = f"{UPHELD}: lower in {'; '.join(won)}" if won else NOT_UPHELD
    return Objection(objection, experiment, ". ".join(parts) + ".", verdict)


def _bytes(view: View) -> Objection:
    own, scaffold = (
        {
            f"{name_of(method)}, equal {budget}": Compared(test)
            for budget, test in against_fedavg(view, view.setting.ved[0], method).items()
        }
        for method in ("fo-ri-fedavg", "scaffold")
    )
    return judged(
        "Rounds are not bytes, and not a vehicle's time.",
        "Methods minus FedAvg, tuned where that ran, at equal rounds, equal bytes (as the methods "
        "declare them) and equal client compute, probes included.",
        own,
        *_for_comparison(scaffold),
    )


def _sizes(view: View) -> Objection:
    grid = size_grid(view.setting, view.setting.fleet)
    tests: dict[str, Compared] = {}
    for place, size in enumerate(SIZES):
        own, base = (
            view.get(grid[m][place]) if m in grid else None for m in ("fo-ri-fedavg", "fedavg")
        )
        if own is not None and base is not None:
            tests[f"K = {size}"] = _between(own, base)
    return judged(
        "C7 rests on synthetic cars.",
        f"FO-RI minus FedAvg, tuned, on {view.setting.fleet}: real driving of up to 175 cars, "
        "simulated energy.",
        tests,
    )


def _causal(view: View) -> Objection:
    return judged(
        "Acceleration sees two seconds past a window.",
        "Both methods with acceleration from the window's own seconds.",
        _pairs(view, causal_contests(view.setting), OWN, BASE, "FO-RI minus FedAvg, both tuned"),
    )


ROWS: Sequence[Callable[[View], Objection]] = (
    _tuning,
    _stride,
    _skew,
    _enriched,
    _engagement,
    _splits,
    _shares,
    _bytes,
    _sizes,
    _causal,
)
