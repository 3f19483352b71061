"""How each claim of the paper is judged.

A comparison over seeds is lost by the side that diverged; otherwise it counts if its paired test,
Holm-corrected over the comparisons of the claim, is below 5 %.
"""

from collections.abc import Callable, Mapping
from math import isfinite, sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.report.statistics import estimate
from fedwatt.report.style import name_of
from fedwatt.report.table import shown
from reproduction.ablations import variant
from reproduction.cell import Cell
from reproduction.conditions import SIZES, size_grid
from reproduction.controls import control_cells_of, stress_cells_of
from reproduction.main_results import plain, rounds_to, tuned
from reproduction.mechanism import carrier, coupling_values
from reproduction.overhead import client_side, seconds, timed_method
from reproduction.paired import Paired, holm, paired
from reproduction.paper import printed
from reproduction.record import FLAT, REACH, Record
from reproduction.settle import mean_pull, step_length
from reproduction.study import View

SUPPORTED: Final = "supported"
NOT_SUPPORTED: Final = "not supported"
NOT_TESTABLE: Final = "not testable here"
LEVEL: Final = 0.05
LOW_OVERHEAD: Final = 0.10
"""What counts as low: the paper's own table says 4 to 5 %."""
GRACEFUL: Final = 0.25
"""By how much the error may grow from 10 to 200 vehicles; the paper's estimate doubles it."""
NEAR: Final = 1.10
"""Speed is the rounds to this multiple of the lower one of two final errors."""
LAST_DIGITS_WH: Final = 1e-3
SAME: Final = 0.01
"""Share of the error within which two trainings of one mathematics must end on a GPU, where stacks
of other widths add in another order and 300 rounds make what they please of the last digits."""

Get = Callable[[Cell], Record]
Judged = tuple[str, tuple[str, ...]]


class MissingCell(Exception):
    """A claim needs a cell that has not run; None: one of a method that was not asked for."""

    def __init__(self, cell: Cell | None) -> None:
        super().__init__(cell)
        self.cell = cell


def _drift(view: View, dataset: str, get: Get) -> Judged:
    at = view.setting.scale.at(200)
    own, base = get(plain(dataset, "ri-fedavg")), get(plain(dataset, "fedavg"))
    tests = {
        name: paired(
            own.around(column, at, REACH),
            base.around(column, at, REACH),
            own.diverged,
            base.diverged,
        )
        for name, column in (("D_mean", "drift_mean"), ("D_cv", "drift_cv"))
    }
    lower = lower_ones(tests)
    sentences = [
        f"{name}(200) of RI-FedAvg minus FedAvg's: {_told(test, 'RI-FedAvg', 'FedAvg', digits=4)}."
        for name, test in tests.items()
    ]
    sentences.append(f"RI-FedAvg's mean pull λ·r(I_k) is {mean_pull(own):.5f} of at most 0.1.")
    carried = view.get(carrier(dataset, "fedavg"))
    if carried is not None:
        round_ = min(view.setting.scale.at(100) + 1, view.setting.scale.rounds)
        found = coupling_values(carried, (round_, round_))
        flat = 100 * float(np.mean(list(found["flat"].values())))
        r = estimate(list(found["pearson"].values()))
        known = f"{shown(r, 2)} over {r.seeds} seeds" if r.seeds else "does not exist in any seed"
        sentences.append(
            f"At t = 100, {flat:.0f} % of vehicles have a roughness below {FLAT:g}; its "
            "correlation with drift "
            f"(printed 0.56) {'is ' if r.seeds else ''}{known}."
        )
    return _verdict(all(lower.values())), tuple(sentences)


def steadiness(record: Record) -> dict[int, float]:
    """How much a seed's test RMSE jitters over the last third of its evaluations, Wh.

    The standard deviation of successive differences over √2: that of noise about a level, and a
    curve that still falls evenly has none.

    >>> jitter(np.array([5.0, 4.0, 3.0, 2.0]))
    0.0
    """
    found = {}
    for seed in record.seeds:
        rounds, values = record.curve("test_rmse", seed)
        late = values[rounds > 2 * rounds.max(initial=0) / 3]
        if late.size and seed not in record.diverged:
            found[seed] = jitter(late)
    return found


def jitter(values: NDArray[np.float64]) -> float:
    """Standard deviation of successive differences, over √2; 0 of fewer than three values."""
    return float(np.diff(values).std() / sqrt(2)) if values.size > 2 else 0.0


def speed(record: Record, target: float, rounds: int) -> dict[int, float]:
    """Rounds to the target, of seeds that did not diverge; one never reached counts as T + 1."""
    found = rounds_to(record, target)
    return {s: r if isfinite(r) else rounds + 1.0 for s, r in found.items() if s in _finals(record)}


def convergence(own: Record, other: Record, rounds: int) -> dict[str, Paired]:
    """Rounds to 10 % above the lower final error, unsteadiness, and final error; own − other."""
    levels = [np.mean(list(_finals(r).values())) for r in (own, other) if _finals(r)]
    target = NEAR * float(min(levels)) if levels else 0.0
    lost = (own.diverged, other.diverged)
    return {
        "rounds": paired(speed(own, target, rounds), speed(other, target, rounds), *lost),
        "steadiness": paired(steadiness(own), steadiness(other), *lost),
        "error": _against(own, other),
    }


def _fractional(view: View, dataset: str, get: Get) -> Judged:
    """FO must be faster or steadier than every control, and not end higher."""
    cells = control_cells_of(dataset)
    fo, rounds = get(cells["FO-FedAvg"]), view.setting.scale.rounds
    controls = {"FedAvg at the same rate": (fo, get(cells["FedAvg"]))}
    pair = (tuned(view.setting.scale, dataset, m) for m in ("fo-fedavg", "fedavg"))
    controls["FedAvg, both tuned"] = (get(next(pair)), get(next(pair)))
    matched = view.get(cells["FedAvg at FO's mean step"])
    if matched is not None:
        controls["FedAvg at the rate of FO's mean step"] = (fo, get(matched.cell))
    found = {name: convergence(*pair, rounds) for name, pair in controls.items()}
    tests = {f"{name} {what}": t for name, own in found.items() for what, t in own.items()}
    lower, higher = lower_ones(tests), higher_ones(tests)
    holds = all(
        (lower[f"{name} rounds"] or lower[f"{name} steadiness"]) and not higher[f"{name} error"]
        for name in found
    )
    sentences = []
    for name, own in found.items():
        lost = own["error"].losses("FO-FedAvg", "FedAvg")
        sentences.append(
            f"FO-FedAvg minus {name}: {lost}."
            if lost
            else f"FO-FedAvg minus {name}: final error {_told(own['error'])} Wh; rounds to 10 % "
            f"above the lower of the two {_told(own['rounds'], digits=0)}; jitter between "
            f"evaluations in the last third of rounds {_told(own['steadiness'])} Wh."
        )
    if fo.facts.get("step_scale"):
        sentences.append(f"Its steps are {step_length(fo):.2f} times as long as plain ones.")
    if matched is None:
        word = f"By the other comparisons it would read: {_verdict(holds)}."
        lack = "The control that tells a shape from a smaller rate has not run (study 'controls')."
        return NOT_TESTABLE, (lack, word, *sentences)
    return _verdict(holds), tuple(sentences)


def _overhead(view: View, dataset: str, get: Get) -> Judged:
    timings = (
        timed_method(view.setting, dataset, m) for m in ("fedavg", "fo-ri-fedavg", "fo-fedavg")
    )
    base_record, own, fo = (get(cell) for cell in timings)
    base = client_side(base_record)
    parts = seconds(own)
    over, precondition = client_side(own) / base - 1, client_side(fo) / base - 1
    windows = own.facts["fleet"]["windows"]["train"] / own.facts["fleet"]["vehicles"]
    sentences = (
        f"Client-side time over FedAvg's: FO-RI-FedAvg {100 * over:+.0f} % (printed +4.24 % and, "
        f"by another table, +28.8 %), FO-FedAvg {100 * precondition:+.0f} %.",
        f"The probe takes {100 * parts['probe'] / client_side(own):.0f} % of FO-RI-FedAvg's "
        f"client-side time, with {windows:,.0f} training windows a vehicle. {own.facts['device']}.",
        "Shares are those of this simulator, whose training is many times as fast as a plain "
        "loop's; and a vehicle that is called in three rounds of ten probes at more than every "
        "second call, so most rounds hold a probe. A few rounds of each method were timed one "
        "after the other, which is rough; docs/performance.md has medians of methods in turns.",
    )
    return _verdict(over <= LOW_OVERHEAD), sentences


def _reductions(view: View, dataset: str, get: Get) -> Judged:
    off = {"alpha": 1.0, "lam": 0.0}
    pairs = {
        "α = 1 is RI-FedAvg": (variant(dataset, {"alpha": 1.0}), plain(dataset, "ri-fedavg")),
        "λ = 0 is FO-FedAvg": (variant(dataset, {"lam": 0.0}), plain(dataset, "fo-fedavg")),
        "α = 1 and λ = 0 is FedAvg": (variant(dataset, off), plain(dataset, "fedavg")),
    }
    reduced = {name: (get(a), get(b)) for name, (a, b) in pairs.items()}
    own = get(plain(dataset, "fo-ri-fedavg"))
    ri, fo = get(plain(dataset, "ri-fedavg")), get(plain(dataset, "fo-fedavg"))
    ordering = {"RI-FedAvg": _against(own, ri), "FO-FedAvg": _against(own, fo)}
    sentences = [
        f"{name}: largest difference of test RMSE in any round and seed "
        f"{_largest_gap(a, b):.2g} Wh, at the end {_told(_against(a, b), 'it', 'the other', ' Wh')}"
        f" ({a.facts['device']})."
        for name, (a, b) in reduced.items()
    ]
    sentences += [
        f"What the components bring: FO-RI-FedAvg minus {name}: "
        f"{_told(test, 'FO-RI-FedAvg', name, ' Wh')}."
        for name, test in ordering.items()
    ]
    if any(r.facts["device"] != "cpu" for pair in reduced.values() for r in pair):
        sentences.append(
            f"On a GPU the same means ending within {100 * SAME:.0f} % of the error; on a CPU, "
            "where tests hold them to it, the reductions are equal bit for bit."
        )
    return _verdict(all(_same(a, b) for a, b in reduced.values())), tuple(sentences)


def _same(a: Record, b: Record) -> bool:
    """Whether two records are one training, up to rounding."""
    if a.facts["device"] == b.facts["device"] == "cpu":
        return _largest_gap(a, b) < LAST_DIGITS_WH
    test = _against(a, b)
    reach = SAME * level(b)
    return not test.decided and max(-test.difference.low, test.difference.high) <= reach


def _gate(view: View, dataset: str, get: Get) -> Judged:
    tests = {}
    for regime, cells in stress_cells_of(view.setting, dataset).items():
        off, on = get(cells["FO-RI-FedAvg, gate off"]), get(cells["FO-RI-FedAvg, gate on"])
        tests[regime] = _against(on, off)
    lower = lower_ones(tests)
    sentences = tuple(
        f"Gate on minus off, {name}: {_told(test, 'gate on', 'gate off', ' Wh')}."
        for name, test in tests.items()
    )
    return _verdict(all(lower.values())), sentences


def _accuracy(view: View, dataset: str, get: Get) -> Judged:
    make = tuned if view.setting.scale.trials > 1 else plain
    others = [m for m in view.setting.methods if m != "fo-ri-fedavg"]
    if not others:
        raise MissingCell(None)
    own = get(make(dataset, "fo-ri-fedavg"))
    records = {"FO-RI-FedAvg": own} | {name_of(m): get(make(dataset, m)) for m in others}
    tests = {name: _against(own, r) for name, r in records.items() if r is not own}
    better = [name for name, holds in lower_ones(tests).items() if holds]
    worse = [name for name, holds in higher_ones(tests).items() if holds]
    sound = {name: level(r) for name, r in records.items() if not r.diverged}
    how = "tuned with equal budgets" if make is tuned else "at the paper's settings"
    parts = [
        f"{name} ends at {_level(records[name])} (printed {entry.mean:g})"
        for name, method in (("FO-RI-FedAvg", "fo-ri-fedavg"), ("FedAvg", "fedavg"))
        if name in records and (entry := printed("main").entry(method, "VED RMSE")) is not None
    ]
    if sound:
        best = min(sound, key=lambda name: sound[name])
        parts.append(f"the lowest is {best} with {shown(sound[best], 2)} Wh")
    else:
        parts.append("no method stayed finite in all seeds")
    sentences = [
        f"{how.capitalize()}, {'; '.join(parts)}.",
        f"Significantly lower error than {len(better)} of {len(others)} methods"
        + (f" ({', '.join(better)})" if better else "")
        + f", significantly higher than {len(worse)}"
        + (f" ({', '.join(worse)})." if worse else "."),
    ]
    sentences += [f"{divergence(name, r)}." for name, r in records.items() if r.diverged]
    return _verdict(len(better) == len(others)), tuple(sentences)


def _scaling(view: View, dataset: str, get: Get) -> Judged:
    """Its own error must not grow by more than a quarter from K = 10, and no seed may diverge."""
    grid = size_grid(view.setting, dataset)
    if "fo-ri-fedavg" not in grid:
        raise MissingCell(None)
    own = [get(cell) for cell in grid["fo-ri-fedavg"]]
    growth = [level(record) / level(own[0]) - 1 for record in own]
    parts = [
        f"{_level(record)} at K = {record.facts['fleet']['vehicles']}"
        + (f" ({100 * more:+.0f} %)" if place and isfinite(more) else "")
        for place, (record, more) in enumerate(zip(own, growth, strict=True))
    ]
    sentences = [f"FO-RI-FedAvg: {', '.join(parts)}."]
    if "fedavg" in grid:
        base = [get(cell) for cell in grid["fedavg"]]
        tests = {f"K = {k}": _against(a, b) for k, a, b in zip(SIZES, own, base, strict=True)}
        sentences += [
            f"Minus FedAvg, {name}: {_told(test, 'FO-RI-FedAvg', 'FedAvg', ' Wh')}."
            for name, test in tests.items()
        ]
    sentences.append(
        f"Graceful means at most {100 * GRACEFUL:.0f} % above its own error at K = 10; fleets of "
        "other sizes are other fleets. The printed table is declared estimated, so there is no "
        "measurement to compare with."
    )
    if all(more <= 0 for more in growth):
        sentences.insert(1, "It does not degrade at all: its error falls as the fleet grows.")
    graceful = all(more <= GRACEFUL for more in growth) and not any(r.diverged for r in own)
    return _verdict(graceful), tuple(sentences)


JUDGES: Final[dict[str, Callable[[View, str, Get], Judged]]] = {
    "C1": _drift,
    "C2": _fractional,
    "C3": _overhead,
    "C4": _reductions,
    "C5": _gate,
    "C6": _accuracy,
    "C7": _scaling,
}


def lower_ones(tests: Mapping[str, Paired]) -> dict[str, bool]:
    """Which comparisons the one side wins."""
    corrected = holm([test.p for test in tests.values()])
    return {n: t.below(p, LEVEL) for (n, t), p in zip(tests.items(), corrected, strict=True)}


def higher_ones(tests: Mapping[str, Paired]) -> dict[str, bool]:
    """Which comparisons it loses."""
    corrected = holm([test.p for test in tests.values()])
    return {n: t.above(p, LEVEL) for (n, t), p in zip(tests.items(), corrected, strict=True)}


def level(record: Record) -> float:
    """Mean final test RMSE of the seeds that did not diverge, Wh; NaN if all did."""
    return estimate(list(_finals(record).values())).mean


def divergence(name: str, record: Record) -> str:
    """Which seeds diverged, and when."""
    cases = ", ".join(f"seed {seed} at round {at}" for seed, at in record.diverged.items())
    return f"{name} diverged ({cases})"


def _level(record: Record) -> str:
    lost, left = len(record.diverged), level(record)
    if not lost:
        return f"{shown(left, 2)} Wh"
    if not isfinite(left):
        return "nothing finite"
    return f"{shown(left, 2)} Wh in the seeds that did not diverge ({lost} did)"


def _finals(record: Record) -> dict[int, float]:
    return record.final("test_rmse")


def _against(own: Record, other: Record) -> Paired:
    return paired(_finals(own), _finals(other), own.diverged, other.diverged)


def _verdict(holds: bool) -> str:
    return SUPPORTED if holds else NOT_SUPPORTED


def _told(test: Paired, own: str = "", other: str = "", unit: str = "", digits: int = 2) -> str:
    one = test.difference
    if test.decided:
        return test.losses(own, other)
    if not one.seeds:
        return "no seed that both finished"
    if one.seeds < 2:
        return shown(one.mean, digits) + unit
    return f"{shown(one.mean, digits)} [{shown(one.low, digits)}, {shown(one.high, digits)}]{unit}"


def _largest_gap(a: Record, b: Record) -> float:
    """Largest difference of the test RMSE of two records at equal seeds and rounds."""
    worst = 0.0
    for seed in a.seeds:
        own, other = a.curve("test_rmse", seed), b.curve("test_rmse", seed)
        if len(own[1]) != len(other[1]):
            return np.inf
        worst = max(worst, float(np.abs(own[1] - other[1]).max(initial=0.0)))
    return worst
