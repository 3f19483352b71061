"""What a reader should do: which method, which rate, when. Every sentence comes from the records.

A sentence is written where the records bear it out, and another one, or none, where they do not.
"""

from collections.abc import Mapping

from fedwatt.report.style import name_of
from fedwatt.report.table import shown
from reproduction.contests import (
    BASE,
    OWN,
    PAPER,
    dataset_contests,
    stride_contests,
)
from reproduction.controls import control_cells_of
from reproduction.convergence import against, finals
from reproduction.judges import divergence, higher_ones, level, lower_ones
from reproduction.main_results import plain, tuned
from reproduction.paired import LEVEL, Paired
from reproduction.record import Record
from reproduction.settle import RATE
from reproduction.study import View

ENOUGH = 4
"""Methods that must have run on a dataset for a word on which to use."""
FAR = 1.25
"""A seed that ends this many times above FedAvg's mean is named."""
ROADS = {"ved-enriched": "ved"}
"""Dataset whose features know the road → the same cars without."""
TUNE, BETTER, NEITHER = (
    "Tune the rate before you choose a method: it alone brings what FO-RI-FedAvg does",
    "FO-RI-FedAvg brings more than a tuned rate",
    "Neither a tuned rate nor FO-RI-FedAvg moves the error beyond noise",
)


def advice(view: View) -> list[str]:
    """Sentences, each a line of a list."""
    lines = [_on(view, dataset) for dataset in (*view.setting.ved, *view.setting.eved)]
    lines += _rates(view)
    lines += [_road(view, rich, bare) for rich, bare in ROADS.items()]
    return [line for line in lines if line]


def candidates(view: View, dataset: str) -> dict[str, Record]:
    """Name → record of every method, tuned and at the paper's settings; FedAvg at its best first.

    Empty where fewer than `ENOUGH` methods have run.
    """
    scale, found = view.setting.scale, dict[str, Record]()
    for method in view.setting.methods:
        for cell in (tuned(scale, dataset, method), plain(dataset, method)):
            record = view.get(cell)
            if record is not None:
                found[f"{name_of(method)}, {_settings(record)}"] = record
    methods = {record.cell.method for record in found.values()}
    return found if "fedavg" in methods and len(methods) >= ENOUGH else {}


def _on(view: View, dataset: str) -> str:
    """Which method on a dataset, at which settings, and what is gained over FedAvg at its best."""
    records = candidates(view, dataset)
    first = next(iter(records), "")
    if not records or records[first].diverged:
        return ""
    base = level(records[first])
    tests = {name: against(r, records[first]) for name, r in records.items() if name != first}
    better = [n for n, holds in lower_ones(tests).items() if holds and not records[n].diverged]
    worse = [n for n, holds in higher_ones(tests).items() if holds]
    reference = f"{first} ({shown(base, 2)} Wh)"
    ranked = sorted(better, key=lambda n: level(records[n]))
    if better:
        listed = "; ".join(f"{n}: {_gain(tests[n], base)}" for n in ranked)
        text = f"On `{dataset}`, use {ranked[0]}. Lower than {reference}: {listed}."
    else:
        text = f"On `{dataset}`, use {reference}: none of {len(tests)} others ends surely lower."
        sound = {n: level(records[n]) for n in tests if not records[n].diverged}
        low = min(sound, key=lambda n: sound[n], default=first)
        if sound.get(low, base) < base:
            text += f" The lowest mean has {low}: {_gain(tests[low], base)}."
    mine = [n for n in tests if records[n].cell.method == "fo-ri-fedavg" and n not in better]
    text += "".join(f" {name}: {_interval(tests[name])}." for name in mine)
    if worse:
        text += f" Higher: {'; '.join(worse)}."
    chosen = records[ranked[0] if better else first]
    return text + _lost(records, base) + _references(view, dataset, chosen)


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


def _references(view: View, dataset: str, best: Record) -> str:
    """What training every vehicle alone, and all data in one place, end at."""
    cells, text = control_cells_of(dataset), ""
    alone, pooled = (view.get(cells[n]) for n in ("every vehicle alone", "all data in one place"))
    if alone is not None and not alone.diverged:
        test = against(alone, best)
        text += f" Every vehicle alone ends at {shown(level(alone), 2)} Wh"
        if test.below(test.p, LEVEL):
            text += f" ({_interval(test)} against that): give vehicles models of their own"
        text += "."
    if pooled is not None and not pooled.diverged:
        text += f" All data in one place ends at {shown(level(pooled), 2)} Wh."
    return text


def _rates(view: View) -> list[str]:
    """What the rate does to FedAvg, beside what the paper's method does at equal effort."""
    told: dict[str, list[str]] = {TUNE: [], BETTER: [], NEITHER: []}
    for one in (*dataset_contests(view.setting), *stride_contests(view.setting)):
        records = [
            view.get(one.cells[n]) if n in one.cells else None for n in (PAPER[1], BASE, OWN)
        ]
        sound = [r for r in records if r is not None and not r.diverged]
        if len(sound) < len(records):
            continue
        moved, gained = against(sound[1], sound[0]), against(sound[2], sound[1])
        if gained.below(gained.p, LEVEL):
            verdict = BETTER
        else:
            verdict = TUNE if moved.below(moved.p, LEVEL) else NEITHER
        told[verdict].append(
            f"{one.title}: {_interval(moved)} by the rate, {_interval(gained)} by FO-RI-FedAvg"
        )
    note = f"FedAvg at its best rate minus FedAvg at {RATE:g}, then FO-RI minus FedAvg at the best"
    return [f"{verdict} ({note}). {'; '.join(own)}." for verdict, own in told.items() if own]


def _road(view: View, rich: str, bare: str) -> str:
    """What features of the road do, beside what the best method does."""
    found = [candidates(view, dataset) for dataset in (rich, bare)]
    if not all(found):
        return ""
    after, before = (level(next(iter(own.values()))) for own in found)
    best = min(level(r) for r in found[1].values() if not r.diverged)
    if not after < best:
        return ""
    return (
        f"Know the road: climb and descent as features take FedAvg from {shown(before, 2)} Wh on "
        f"`{bare}` to {shown(after, 2)} Wh on `{rich}` (its trips that the terrain model covers); "
        f"the best method without them reaches {shown(best, 2)} Wh."
    )


def _settings(record: Record) -> str:
    """Settings that are not the paper's, and always the rate."""
    changed = {"rate": RATE, **dict(record.cell.settings)}
    return ", ".join(f"{name} {value:.3g}" for name, value in changed.items())


def _gain(test: Paired, base: float) -> str:
    return f"{_interval(test)}, {shown(100 * test.difference.mean / base, 1)} %"


def _interval(test: Paired) -> str:
    one = test.difference
    if test.decided:
        return test.losses("it", "FedAvg")
    if one.seeds < 2:
        return f"{shown(one.mean, 2)} Wh"
    return f"{shown(one.mean, 2)} [{shown(one.low, 2)}, {shown(one.high, 2)}] Wh"
