"""What a reader should do: which method, which rate, when. Every sentence comes from the records.

A sentence is written where the records bear it out, and another one, or none, where they do not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedwatt.report.style import name_of
from fedwatt.report.table import shown
from reproduction.contests import (
    BASE,
    OWN,
    PAPER,
    dataset_contests,
    printed_contests,
    stride_contests,
)
from reproduction.controls import control_cells_of
from reproduction.convergence import against, finals
from reproduction.main_results import plain, tuned
from reproduction.outcomes import divergence, higher_ones, level, lower_ones
from reproduction.paired import LEVEL, Paired, holm, paired
from reproduction.record import Record
from reproduction.settle import RATE, reduced_to
from reproduction.show import p_text
from reproduction.splits import over_splits
from reproduction.study import View

ENOUGH = 4
"""Methods that must have run on a dataset for a word on which to use."""
FAR = 1.25
"""A seed that ends this many times above FedAvg's mean is named."""
ROADS = {"ved-enriched": "ved"}
"""Dataset whose features know the road → the same cars without."""
TUNE, BETTER, NEITHER = (
    "Tune the rate before you choose a method: that lowers FedAvg's error, and FO-RI-FedAvg adds "
    "nothing to it that differs from noise",
    "FO-RI-FedAvg gains more than FedAvg does by a tuned rate",
    "Neither a tuned rate nor FO-RI-FedAvg changes the error by more than noise",
)


def advice(view: View) -> list[str]:
    """Sentences, each a line of a list."""
    lines = [_on(view, dataset) for dataset in (*view.setting.ved, *view.setting.eved)]
    lines += _rates(view)
    lines += [road(view, rich, bare) for rich, bare in ROADS.items()]
    return [line for line in lines if line]


def candidates(view: View, dataset: str) -> dict[str, Record]:
    """Name → record of every method, tuned and at the paper's settings; FedAvg at its best first.

    Empty where fewer than `ENOUGH` methods have run.
    """
    scale, found = view.setting.scale, dict[str, Record]()
    for method in view.setting.methods:
        for cell in (tuned(scale, dataset, method), plain(dataset, method)):
            record = view.get(cell)
            if record is not None and reduced_to(record.cell) == method:
                found[f"{name_of(method)}, {_settings(record)}"] = record
    methods = {record.cell.method for record in found.values()}
    return found if "fedavg" in methods and len(methods) >= ENOUGH else {}


@dataclass(frozen=True)
class Choice:
    """All trainings of a dataset against FedAvg at its best."""

    records: Mapping[str, Record]
    first: str
    """FedAvg at its best."""
    tests: Mapping[str, Paired]
    """The others minus it: over splits of the trips where several ran, or over seeds."""
    better: Sequence[str]
    """Those that end significantly lower, the lowest first."""
    splits: Mapping[str, str]
    """Of tests over splits: how many, and what the seeds of one say."""

    @property
    def use(self) -> str:
        """What to use."""
        return self.better[0] if self.better else self.first

    @property
    def lowest(self) -> str:
        """What has the lowest mean, below FedAvg's at its best; empty if nothing has."""
        sound = {n: level(self.records[n]) for n in self.tests if not self.records[n].diverged}
        low = min(sound, key=lambda name: sound[name], default="")
        return low if low and sound[low] < self.base else ""

    @property
    def gain(self) -> str:
        """By how much the lowest one is lower, with its corrected p."""
        ps = dict(zip(self.tests, holm([t.p for t in self.tests.values()]), strict=True))
        return f"{self.told(self.lowest)}, corrected p {p_text(ps[self.lowest])}"

    def told(self, name: str) -> str:
        """By how much one differs, in Wh and as a share."""
        return _gain(self.tests[name], self.base) + self.splits.get(name, "")

    @property
    def base(self) -> float:
        """Error of FedAvg at its best, Wh."""
        return level(self.records[self.first])


def choice(view: View, dataset: str) -> Choice | None:
    """What to use on a dataset; None where too little has run to say."""
    records = candidates(view, dataset)
    first = next(iter(records), "")
    if not records or records[first].diverged:
        return None
    tests = {name: against(r, records[first]) for name, r in records.items() if name != first}
    wide = {name: t for name in tests if (t := _wide(view, records[first], records[name])).ran}
    narrow = dict(zip(tests, holm([test.p for test in tests.values()]), strict=True))
    splits = {
        name: f" (over {test.difference.seeds} splits of the trips; over the seeds of one "
        f"{interval(tests[name])}, corrected p {p_text(narrow[name])})"
        for name, test in wide.items()
    }
    tests |= wide
    better = [n for n, holds in lower_ones(tests).items() if holds and not records[n].diverged]
    return Choice(records, first, tests, sorted(better, key=lambda n: level(records[n])), splits)


def _wide(view: View, base: Record, record: Record) -> Paired:
    """A tuned training minus tuned FedAvg over several splits of the trips, where these ran."""
    dataset, methods = record.cell.dataset, (record.cell.method, base.cell.method)
    best = [view.get(tuned(view.setting.scale, dataset, m)) for m in methods]
    if dataset != view.setting.ved[0] or best[0] is not record or best[1] is not base:
        return paired({}, {})
    return over_splits(view, f"{name_of(record.cell.method)}, tuned", BASE)


def _on(view: View, dataset: str) -> str:
    """Which method on a dataset, at which settings, and what is gained over FedAvg at its best."""
    found = choice(view, dataset)
    if found is None:
        return ""
    records, tests, base = found.records, found.tests, found.base
    reference = f"{found.first} ({shown(base, 2)} Wh)"
    if found.better:
        listed = "; ".join(f"{n}: {found.told(n)}" for n in found.better)
        text = f"On `{dataset}`, use {found.use} for the shared model. Lower than {reference}: "
        text += f"{listed}."
    else:
        text = (
            f"On `{dataset}`, use {reference}: no other setting is significantly lower "
            f"({len(tests)} were compared)."
        )
        if low := found.lowest:
            text += f" {low} has the lowest mean: {found.gain}."
    for name, test in tests.items():
        if records[name].cell.method == "fo-ri-fedavg" and name not in found.better:
            text += f" {name}: {interval(test)}."
    worse = [n for n, holds in higher_ones(tests).items() if holds]
    if worse:
        text += f" Higher: {'; '.join(worse)}."
    text += _lost(records, base) + _again(view, dataset)
    return text + _references(view, dataset, found.use, records[found.use])


def _again(view: View, dataset: str) -> str:
    """Methods that tuning made another one, which were not compared once more."""
    made: dict[str, list[str]] = {}
    for method in view.setting.methods:
        record = view.get(tuned(view.setting.scale, dataset, method))
        if record is not None and (left := reduced_to(record.cell)) != method:
            made.setdefault(name_of(left), []).append(name_of(method))
    return "".join(
        f" Tuned, {' and '.join(own)} {'is' if len(own) == 1 else 'are'} {left}, counted once."
        for left, own in made.items()
    )


def _lost(records: Mapping[str, Record], base: float) -> str:
    """Trainings with seeds that diverged, or ended far above the rest."""
    text = ""
    for name, record in records.items():
        if record.diverged:
            text += f" {divergence(name, record)}."
        far = {s: e for s, e in finals(record).items() if e > FAR * base}
        if far:
            seeds = ", ".join(f"seed {s} at {shown(e, 2)} Wh" for s, e in far.items())
            text += f" {name} is unsteady: {seeds}."
    return text


def _references(view: View, dataset: str, name: str, best: Record) -> str:
    """What training every vehicle alone, and all data in one place, end at."""
    cells, text = control_cells_of(dataset), ""
    alone, pooled = (view.get(cells[n]) for n in ("local-only", "centralised"))
    if alone is not None and not alone.diverged:
        test = against(alone, best)
        text += f" Training each vehicle alone gives {shown(level(alone), 2)} Wh"
        if test.below(test.p, LEVEL):
            text += f" ({interval(test)} against {name}): vehicles with as much data as these are "
            text += "served better by models of their own"
        text += "."
    if pooled is not None and not pooled.diverged:
        text += f" Training on all data in one place gives {shown(level(pooled), 2)} Wh."
    return text


@dataclass(frozen=True)
class Rate:
    """What the rate does to FedAvg under a condition, beside what the paper's method does."""

    title: str
    moved: Paired
    """FedAvg at its best rate minus FedAvg at the paper's."""
    gained: Paired
    """FO-RI-FedAvg at its best minus FedAvg at its best."""

    @property
    def verdict(self) -> str:
        """Which of the two matters."""
        if self.gained.below(self.gained.p, LEVEL):
            return BETTER
        return TUNE if self.moved.below(self.moved.p, LEVEL) else NEITHER


def rates(view: View) -> dict[str, list[Rate]]:
    """Verdict → the conditions under which it holds."""
    told: dict[str, list[Rate]] = {TUNE: [], BETTER: [], NEITHER: []}
    contests = (dataset_contests, stride_contests, printed_contests)
    for one in (one for make in contests for one in make(view.setting)):
        names = (PAPER[1], BASE, OWN)
        records = [view.get(one.cells[n]) if n in one.cells else None for n in names]
        sound = [r for r in records if r is not None and not r.diverged]
        if len(sound) == len(records):
            found = Rate(one.title, against(sound[1], sound[0]), against(sound[2], sound[1]))
            told[found.verdict].append(found)
    return {verdict: own for verdict, own in told.items() if own}


def _rates(view: View) -> list[str]:
    note = f"FedAvg at its best rate minus FedAvg at {RATE:g}, then FO-RI minus FedAvg at the best"
    lines = []
    for verdict, own in rates(view).items():
        listed = (
            f"{one.title}: {interval(one.moved)} by the rate, {interval(one.gained)} by "
            "FO-RI-FedAvg"
            for one in own
        )
        lines.append(f"{verdict} ({note}). {'; '.join(listed)}.")
    return lines


def road(view: View, rich: str, bare: str) -> str:
    """What features of the road do, beside what the best method does."""
    found = [candidates(view, dataset) for dataset in (rich, bare)]
    if not all(found):
        return ""
    after, before = (level(next(iter(own.values()))) for own in found)
    windows = [next(iter(own.values())).facts["fleet"]["windows"]["test"] for own in found]
    best = min(level(r) for r in found[1].values() if not r.diverged)
    if not after < best:
        return ""
    return (
        f"Know the road: climb and descent as features take FedAvg from {shown(before, 2)} Wh on "
        f"`{bare}` to {shown(after, 2)} Wh on `{rich}`; the best method without them reaches "
        f"{shown(best, 2)} Wh. The test windows are not all the same: `{bare}` has "
        f"{windows[1]:,}, `{rich}` the {windows[0]:,} of trips that the terrain model covers."
    )


def _settings(record: Record) -> str:
    """Settings that are not the paper's, and always the rate."""
    changed = {"rate": RATE, **dict(record.cell.settings)}
    return ", ".join(f"{name} {value:.3g}" for name, value in changed.items())


def _gain(test: Paired, base: float) -> str:
    return f"{interval(test)}, {shown(100 * test.difference.mean / base, 1)} %"


def interval(test: Paired) -> str:
    """A difference with its interval, or who diverged."""
    one = test.difference
    if test.decided:
        return test.losses("it", "FedAvg")
    if one.seeds < 2 or one.copies:
        return f"{shown(one.mean, 2)} Wh"
    return f"{shown(one.mean, 2)} [{shown(one.low, 2)}, {shown(one.high, 2)}] Wh"
