"""The rule of each claim of the paper, as a function of the records.

A comparison over seeds is lost by the side that diverged; otherwise it counts if its paired test,
Holm-corrected over the comparisons of the claim, is below 5 %.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import Final

import numpy as np

from fedwatt.report.statistics import estimate
from fedwatt.report.style import name_of
from fedwatt.report.table import cell_text
from reproduction.cell import METHODS, Cell
from reproduction.controls import control_cells_of, stress_cells_of
from reproduction.coupling import carrier, coupling_values
from reproduction.curves import (
    against,
    convergence,
    divergence,
    level,
    level_text,
    rounds_to_stability,
    update_variance,
)
from reproduction.data import PRINTED_AS
from reproduction.grids import GRIDS, KINDS, SHARES, SIZES, grid_of, variant
from reproduction.main_results import own_trials, plain, tuned
from reproduction.overhead import contender_name, engine_name, load_note
from reproduction.paired import Paired, detectable, gap_text, higher_ones, lower_ones, paired
from reproduction.paper import Entry as PrintedEntry
from reproduction.record import FLAT, REACH, Record, same_kind
from reproduction.study import View
from reproduction.tables import left_of, theirs
from reproduction.timing import CONTENDERS, overhead, turns_cell
from reproduction.tuning import mean_pull, step_length

SUPPORTED: Final = "supported"
NOT_SUPPORTED: Final = "not supported"
NOT_TESTABLE: Final = "not testable here"
LOW_OVERHEAD: Final = 0.10
"""What counts as low: the paper's own table says 4 to 5 %."""
GRACEFUL: Final = 0.25
"""By how much the error may grow with the fleet; the paper's estimate doubles it."""
LAST_DIGITS_WH: Final = 1e-3
SAME: Final = 0.01
"""Share of the error within which two trainings of one mathematics must end on a GPU, where stacks
of other widths add in another order and 300 rounds make what they please of the last digits."""

Get = Callable[[Cell], Record]
Evaluated = tuple[str, str, tuple[str, ...]]
"""Verdict, the number that stands beside it on the page, and sentences with all numbers."""


class MissingCell(Exception):
    """A claim needs a cell that has not run."""

    def __init__(self, cell: Cell) -> None:
        super().__init__(cell)
        self.cell = cell


def drift_gap(view: View, column: str, first: Record, second: Record) -> Paired:
    """Return the drift of one training around t = 200 minus another's."""
    at = view.setting.scale.at(200)
    return paired(
        first.around(column, at, REACH),
        second.around(column, at, REACH),
        first.diverged,
        second.diverged,
    )


def drift_tests(view: View, dataset: str, get: Get) -> dict[str, Paired]:
    """Return RI-FedAvg's drift and its dispersion minus FedAvg's, at every C.

    Among fewer than two participants drift has no dispersion.
    """
    tests = {}
    for share in SHARES:
        ri = get(replace(plain(dataset, "ri-fedavg"), participation=share))
        base = get(replace(plain(dataset, "fedavg"), participation=share))
        alone = max(int(r.rounds["participants"].max(initial=0)) for r in (ri, base)) < 2
        for name, column in (("D_mean", "drift_mean"), ("D_cv", "drift_cv")):
            if not (alone and name == "D_cv"):
                tests[f"{name}, C = {share:g}"] = drift_gap(view, column, ri, base)
    return tests


def churn_tests(view: View, dataset: str) -> dict[str, Paired]:
    """Return tuned FO-RI-FedAvg's dispersion of drift minus tuned FedAvg's under severe churn."""
    grid = grid_of("churn-drift", view.setting, dataset)
    tests = {}
    for position, column in enumerate(GRIDS["churn-drift"]["columns"]):
        regime = column["name"]
        ours = view.get(grid["fo-ri-fedavg"][position])
        base = view.get(grid["fedavg"][position])
        if regime != "0" and ours is not None and base is not None:
            tests[f"D_cv, churn {regime}"] = drift_gap(view, "drift_cv", ours, base)
    return tests


def kind_tests(view: View, dataset: str, get: Get) -> dict[str, Paired]:
    """Return tuned FO-RI-FedAvg's error minus every other method's with trucks and buses.

    They belong to the first dataset in the place of VED, whose trips the simulated ones drive.
    """
    if dataset != view.setting.ved[0]:
        return {}
    grid = grid_of("vehicle-types", view.setting, view.setting.fleet)
    return {
        f"{name_of(method)}, {kind}": against(get(grid["fo-ri-fedavg"][place]), get(cells[place]))
        for place, kind in enumerate(KINDS)
        for method, cells in grid.items()
        if kind != "passenger" and method != "fo-ri-fedavg"
    }


def _drift(view: View, dataset: str, get: Get) -> Evaluated:
    shares = drift_tests(view, dataset, get)
    churn = churn_tests(view, dataset)
    wins = lower_ones(shares | churn)
    alone = [f"{c:g}" for c in SHARES if f"D_cv, C = {c:g}" not in shares]
    sentences = [
        "RI-FedAvg minus FedAvg at t = 200: "
        + "; ".join(
            f"{name} {gap_text(test, 'RI-FedAvg', 'FedAvg', digits=4)}"
            for name, test in shares.items()
        )
        + "."
    ]
    if churn:
        listed = "; ".join(
            f"{name} {gap_text(test, 'FO-RI-FedAvg', 'FedAvg', digits=4)}"
            for name, test in churn.items()
        )
        sentences.append(f"Tuned FO-RI-FedAvg minus tuned FedAvg: {listed}.")
    if alone:
        sentences.append(
            f"At C = {', '.join(alone)} one vehicle takes part, and D_cv does not exist."
        )
    ri = get(plain(dataset, "ri-fedavg"))
    sentences.append(
        f"RI-FedAvg's mean pull λ·r(I_k) is {mean_pull(ri):.5f} of at most 0.1, and "
        f"{100 * ri.facts['flat']:.0f} % of its roughness indices are below {FLAT:g}."
    )
    carried = view.get(carrier(dataset, "fedavg"))
    if carried is not None:
        round_ = min(view.setting.scale.at(100) + 1, view.setting.scale.rounds)
        r = estimate(list(coupling_values(carried, (round_, round_))["pearson"].values()))
        correlation = (
            f"is {cell_text(r, 2)} over {r.seeds} seeds" if r.seeds else "exists in no seed"
        )
        sentences.append(
            f"With all vehicles in every round, the correlation of roughness with drift at t = 100 "
            f"{correlation}{' (printed 0.56)' if dataset == 'ved' else ''}."
        )
    base = get(plain(dataset, "fedavg"))
    at = view.setting.scale.at(200)
    lost = (ri.diverged, base.diverged)
    variance = paired(update_variance(ri, at), update_variance(base, at), *lost)
    rounds = paired(rounds_to_stability(ri), rounds_to_stability(base), *lost)
    sentences.append(
        f"Update variance across clients {gap_text(variance, 'RI-FedAvg', 'FedAvg', digits=5)}; "
        f"rounds to stability {gap_text(rounds, 'RI-FedAvg', 'FedAvg', digits=0)}."
    )
    number = f"drift lower in {sum(wins.values())} of {len(wins)} comparisons"
    return _verdict(all(wins.values())), number, tuple(sentences)


def _fractional(view: View, dataset: str, get: Get) -> Evaluated:
    """Return FO must be faster or steadier than every control, and not end higher."""
    cells = control_cells_of(dataset)
    fo = get(cells["FO-FedAvg"])
    rounds = view.setting.scale.rounds
    controls = {"FedAvg at the same rate": (fo, get(cells["FedAvg"]))}
    pair = (tuned(view.setting.scale, dataset, m) for m in ("fo-fedavg", "fedavg"))
    controls["FedAvg, both tuned"] = (get(next(pair)), get(next(pair)))
    controls["FedAvg at the rate of FO's mean step"] = (fo, get(cells["FedAvg at FO's mean step"]))
    comparisons = {name: convergence(*pair, rounds) for name, pair in controls.items()}
    tests = {
        f"{name} {what}": t
        for name, comparison in comparisons.items()
        for what, t in comparison.items()
    }
    lower = lower_ones(tests)
    higher = higher_ones(tests)
    holds = all(
        (lower[f"{name} rounds"] or lower[f"{name} steadiness"]) and not higher[f"{name} error"]
        for name in comparisons
    )
    sentences = []
    for name, comparison in comparisons.items():
        left = left_of(controls[name][0])
        name += f" ({left})" if left else ""
        error = gap_text(comparison["error"], "FO-FedAvg", "FedAvg", " Wh")
        speed = gap_text(comparison["rounds"], digits=0)
        jitter = gap_text(comparison["steadiness"], unit=" Wh")
        sentences.append(
            f"FO-FedAvg minus {name}: final error {error}; rounds to 10 % above the lower of the "
            f"two {speed}; jitter between evaluations in the last third of rounds {jitter}."
        )
    if fo.facts.get("step_scale"):
        sentences.append(f"Its steps are {step_length(fo):.2f} times as long as plain ones.")
    step = comparisons["FedAvg at the rate of FO's mean step"]
    number = f"{gap_text(step['error'])} Wh against FedAvg with equally long steps"
    return _verdict(holds), number, tuple(sentences)


def _overhead(view: View, dataset: str, get: Get) -> Evaluated:
    """Check that the interval of FO-RI-FedAvg's overhead ends below the limit on every engine."""
    record = get(turns_cell(dataset))
    turns = record.facts["turns"]
    fleet = record.facts["fleet"]
    windows = fleet["windows"]["train"] / fleet["vehicles"]
    sentences = []
    holds = True
    number = ""
    for engine in turns["engines"]:
        overheads = {name: overhead(turns, engine, name) for name in CONTENDERS if name != "fedavg"}
        listed = ", ".join(
            f"{contender_name(name)} {100 * middle:+.1f} % [{100 * low:+.1f}, {100 * high:+.1f}]"
            for name, (middle, low, high) in overheads.items()
        )
        middle, low, high = (100 * share for share in overheads["fo-ri-fedavg"])
        number = number or f"{middle:+.0f} % [{low:+.0f}, {high:+.0f}] client-side time"
        low_enough = high <= 100 * LOW_OVERHEAD
        holds &= low_enough
        sentences.append(
            f"{'Low' if low_enough else 'Not low'} on {engine_name(record, engine)}: client-side "
            f"time over FedAvg's, {listed}."
        )
    sentences.append(
        f"Printed for FO-RI-FedAvg: +4.24 % and, by another table, +28.8 %. Here with "
        f"{windows:,.0f} training windows a vehicle. " + load_note(record)
    )
    return _verdict(holds), number, tuple(sentences)


def _reductions(view: View, dataset: str, get: Get) -> Evaluated:
    off = {"alpha": 1.0, "lam": 0.0}
    pairs = {
        "α = 1 is RI-FedAvg": (variant(dataset, {"alpha": 1.0}), plain(dataset, "ri-fedavg")),
        "λ = 0 is FO-FedAvg": (variant(dataset, {"lam": 0.0}), plain(dataset, "fo-fedavg")),
        "α = 1 and λ = 0 is FedAvg": (variant(dataset, off), plain(dataset, "fedavg")),
    }
    reduced = {name: (get(a), get(b)) for name, (a, b) in pairs.items()}
    fo_ri = get(plain(dataset, "fo-ri-fedavg"))
    ri = get(plain(dataset, "ri-fedavg"))
    fo = get(plain(dataset, "fo-fedavg"))
    ordering = {"RI-FedAvg": against(fo_ri, ri), "FO-FedAvg": against(fo_ri, fo)}
    sentences = [
        f"{name}: largest difference of test RMSE in any round and seed "
        f"{_largest_gap(a, b):.2g} Wh, at the end "
        f"{gap_text(against(a, b), 'it', 'the other', ' Wh')} ({a.facts['device']})."
        for name, (a, b) in reduced.items()
    ]
    sentences += [
        f"What the components bring: FO-RI-FedAvg minus {name}: "
        f"{gap_text(test, 'FO-RI-FedAvg', name, ' Wh')}."
        for name, test in ordering.items()
    ]
    if not all(_on_one_cpu(a, b) for a, b in reduced.values()):
        sentences.append(
            f"On a GPU, and between machines of two kinds, the same means ending within "
            f"{100 * SAME:.0f} % of the error; on one kind of CPU, where tests hold them to it, "
            "the reductions are equal bit for bit."
        )
    widest = max(abs(against(a, b).difference.mean) for a, b in reduced.values())
    number = f"reductions end within {widest:.2g} Wh of the method they should equal"
    return _verdict(all(_same(a, b) for a, b in reduced.values())), number, tuple(sentences)


def _on_one_cpu(a: Record, b: Record) -> bool:
    """Return whether two records were made on one kind of processor."""
    alike = not same_kind(a.made_with, b.made_with)
    return a.facts["device"] == b.facts["device"] == "cpu" and alike


def _same(a: Record, b: Record) -> bool:
    """Return whether two records are one training, up to rounding."""
    if _on_one_cpu(a, b):
        return _largest_gap(a, b) < LAST_DIGITS_WH
    test = against(a, b)
    reach = SAME * level(b)
    return not test.decided and max(-test.difference.low, test.difference.high) <= reach


def _gate(view: View, dataset: str, get: Get) -> Evaluated:
    tests = {
        regime: against(get(cells["FO-RI-FedAvg, gate on"]), get(cells["FO-RI-FedAvg, gate off"]))
        for regime, cells in stress_cells_of(view.setting, dataset).items()
    }
    sentences = tuple(
        f"Gate on minus off, {name}: {gap_text(test, 'gate on', 'gate off', ' Wh')}."
        for name, test in tests.items()
    )
    wins = lower_ones(tests)
    number = f"error lower in {sum(wins.values())} of {len(wins)} regimes"
    return _verdict(all(wins.values())), number, sentences


def _accuracy(view: View, dataset: str, get: Get) -> Evaluated:
    """Check that FO-RI-FedAvg has a lower error than every other method, each tuned."""
    scale = view.setting.scale
    ours = get(tuned(scale, dataset, "fo-ri-fedavg"))
    base = get(tuned(scale, dataset, "fedavg"))
    records = {name_of(method): get(tuned(scale, dataset, method)) for method in METHODS}
    tests = {name: against(ours, r) for name, r in records.items() if r is not ours}
    kinds = kind_tests(view, dataset, get)
    better = [name for name, holds in lower_ones(tests).items() if holds]
    worse = [name for name, holds in higher_ones(tests).items() if holds]
    sound = {name: level(r) for name, r in records.items() if not r.diverged}
    parts = [
        f"{name_of(record.cell.method)} ends at {level_text(record)}"
        + (f" (printed {entry.mean:g})" if (entry := _printed(dataset, record)) else "")
        for record in (ours, base)
    ]
    if sound:
        best = min(sound, key=lambda name: sound[name])
        parts.append(f"the lowest is {best} with {cell_text(sound[best], 2)} Wh")
    else:
        parts.append("no method stayed finite in all seeds")
    minus = gap_text(tests["FedAvg"], "FO-RI-FedAvg", "FedAvg", " Wh")
    effect = cell_text(detectable(tests["FedAvg"].difference, len(tests)), 2)
    sentences = [
        f"Tuned ({own_trials(scale, dataset)}), {'; '.join(parts)}.",
        f"Significantly lower error than {len(better)} of {len(tests)} methods"
        f"{_listed(better)}, significantly higher than {len(worse)}{_listed(worse)}.",
        f"Minus tuned FedAvg: {minus}; {effect} Wh would have been detected.",
    ]
    test = against(get(plain(dataset, "fo-ri-fedavg")), get(plain(dataset, "fedavg")))
    sentences.append(
        "At the paper's settings, learning rate 0.05 for both, minus FedAvg: "
        + gap_text(test, "FO-RI-FedAvg", "FedAvg", " Wh")
        + (f" (p = {test.p:.3f})." if test.p == test.p else ".")
    )
    sentences += [f"{divergence(name, r)}." for name, r in records.items() if r.diverged]
    sentences += [f"{name}: {left}." for name, r in records.items() if (left := left_of(r))]
    wins = lower_ones(tests | kinds)
    if kinds:
        sentences.append(
            f"With trucks and buses on {view.setting.fleet}, lower than "
            f"{sum(wins[name] for name in kinds)} of {len(kinds)} tuned rivals."
        )
    number = f"{minus} against FedAvg; lower than {sum(wins.values())} of {len(wins)} tuned rivals"
    return _verdict(all(wins.values())), number, tuple(sentences)


def _listed(names: Sequence[str]) -> str:
    return f" ({', '.join(names)})" if names else ""


def _printed(dataset: str, record: Record) -> PrintedEntry | None:
    """Return the paper's RMSE on a dataset; None on one that only stands in."""
    return theirs("main", record.cell.method, f"{PRINTED_AS.get(dataset, '')} RMSE")


def _scaling(view: View, dataset: str, get: Get) -> Evaluated:
    """Check that its error grows by at most a quarter from K = 10 and no seed diverges."""
    grid = grid_of("scaling", view.setting, dataset)
    ours = [get(cell) for cell in grid["fo-ri-fedavg"]]
    growth = [level(record) / level(ours[0]) - 1 for record in ours]
    parts = [
        f"{level_text(record)} at K = {record.facts['fleet']['vehicles']}"
        + (f" ({100 * more:+.0f} %)" if place and isfinite(more) else "")
        for place, (record, more) in enumerate(zip(ours, growth, strict=True))
    ]
    left = left_of(ours[0])
    sentences = [
        f"FO-RI-FedAvg{f' ({left})' if left else ''}: {', '.join(parts)}. Every size has the "
        f"settings that were tuned at K = {ours[0].facts['fleet']['vehicles']}."
    ]
    base = [get(cell) for cell in grid["fedavg"]]
    sentences += [
        f"Minus FedAvg, K = {k}: {gap_text(against(a, b), 'FO-RI-FedAvg', 'FedAvg', ' Wh')}."
        for k, a, b in zip(SIZES, ours, base, strict=True)
    ]
    sentences.append(
        "Fleets of other sizes are other fleets. The printed table is declared estimated, so there "
        "is no measurement to compare with."
    )
    if all(more <= 0 for more in growth):
        sentences.insert(1, "It does not degrade at all: its error falls as the fleet grows.")
    graceful = all(more <= GRACEFUL for more in growth) and not any(r.diverged for r in ours)
    number = f"{100 * max(growth[1:]):+.0f} % error at worst from K = 10 to {SIZES[-1]}"
    return _verdict(graceful), number, tuple(sentences)


JUDGES: Final[dict[str, Callable[[View, str, Get], Evaluated]]] = {
    "C1": _drift,
    "C2": _fractional,
    "C3": _overhead,
    "C4": _reductions,
    "C5": _gate,
    "C6": _accuracy,
    "C7": _scaling,
}


def _verdict(holds: bool) -> str:
    return SUPPORTED if holds else NOT_SUPPORTED


def _largest_gap(a: Record, b: Record) -> float:
    """Return largest difference of the test RMSE of two records at equal seeds and rounds."""
    worst = 0.0
    for seed in a.seeds:
        first = a.curve("test_rmse", seed)
        second = b.curve("test_rmse", seed)
        if len(first[1]) != len(second[1]):
            return np.inf
        worst = max(worst, float(np.abs(first[1] - second[1]).max(initial=0.0)))
    return worst
