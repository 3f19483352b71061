"""What a reader should do: which method, which rate, when. Every sentence comes from the records.

A sentence is written where the records bear it out, and another one, or none, where they do not.
"""

from collections.abc import Mapping

from fedwatt.report.style import name_of
from fedwatt.report.table import shown
from reproduction.contests import (
    BASE,
    MATCHED,
    OWN,
    PAPER,
    Contest,
    dataset_contests,
    stride_contests,
)
from reproduction.controls import control_cells_of
from reproduction.convergence import against
from reproduction.judges import divergence, higher_ones, level, lower_ones
from reproduction.main_results import plain, tuned
from reproduction.paired import LEVEL, Paired
from reproduction.record import Record
from reproduction.settle import RATE
from reproduction.study import View

ENOUGH = 4
"""Methods that must have run on a dataset for a word on which to use."""
ROADS = {"ved-enriched": "ved"}
"""Dataset whose features know the road → the same cars without."""


def advice(view: View) -> list[str]:
    """Sentences, each a line of a list."""
    lines = [_on(view, dataset) for dataset in (*view.setting.ved, *view.setting.eved)]
    contests = (*dataset_contests(view.setting), *stride_contests(view.setting))
    lines += [_rate(view, one) for one in contests]
    lines += [_road(view, rich, bare) for rich, bare in ROADS.items()]
    return [line for line in lines if line]


def compared(view: View, dataset: str) -> tuple[str, dict[str, Record]]:
    """Methods tuned, with FedAvg among them; where too few are, all at the paper's settings."""
    scale, methods = view.setting.scale, view.setting.methods
    for how, cells in (
        ("each method tuned", {m: tuned(scale, dataset, m) for m in methods}),
        ("at the paper's settings", {m: plain(dataset, m) for m in methods}),
    ):
        got = {m: r for m, cell in cells.items() if (r := view.get(cell)) is not None}
        if "fedavg" in got and len(got) >= ENOUGH:
            some = f" ({len(got)} of {len(cells)} methods)" if len(got) < len(cells) else ""
            return how + some, got
    return "", {}


def _on(view: View, dataset: str) -> str:
    """Which method on a dataset, at which rate, and what is gained over FedAvg."""
    how, records = compared(view, dataset)
    if not records or records["fedavg"].diverged:
        return ""
    tests = {m: against(records[m], records["fedavg"]) for m in records if m != "fedavg"}
    better = [m for m, holds in lower_ones(tests).items() if holds and not records[m].diverged]
    worse = [m for m, holds in higher_ones(tests).items() if holds]
    base = level(records["fedavg"])
    reference = f"FedAvg at rate {_rate_of(records['fedavg'])}, which ends at {shown(base, 2)} Wh"
    if better:
        ranked = sorted(better, key=lambda m: level(records[m]))
        listed = "; ".join(f"{name_of(m)} {_gain(records[m], tests[m], base)}" for m in ranked)
        text = f"On `{dataset}`, {how}, use {name_of(ranked[0])}. Lower than {reference}: {listed}."
    else:
        text = f"On `{dataset}`, {how}, use {reference}: no other method ends lower."
    if "fo-ri-fedavg" in tests and "fo-ri-fedavg" not in better:
        text += f" FO-RI-FedAvg minus FedAvg: {_interval(tests['fo-ri-fedavg'])}."
    if worse:
        text += f" Higher: {', '.join(map(name_of, worse))}."
    text += "".join(f" {divergence(name_of(m), r)}." for m, r in records.items() if r.diverged)
    return text + _references(view, dataset)


def _references(view: View, dataset: str) -> str:
    """What training every vehicle alone, and all data in one place, end at."""
    text = ""
    for name, word in (
        ("every vehicle alone", "Training every vehicle alone"),
        ("all data in one place", "Training all data in one place"),
    ):
        record = view.get(control_cells_of(dataset)[name])
        if record is not None and not record.diverged:
            text += f" {word} ends at {shown(level(record), 2)} Wh."
    return text


def _rate(view: View, one: Contest) -> str:
    """What the rate does to FedAvg, beside what the paper's method does at equal effort."""
    names = (PAPER[1], BASE, MATCHED, PAPER[0], OWN)
    records = {n: view.get(one.cells[n]) for n in names if n in one.cells}
    sound = {n: r for n, r in records.items() if r is not None and not r.diverged}
    if not {PAPER[1], BASE, OWN} <= sound.keys():
        return ""
    moved = against(sound[BASE], sound[PAPER[1]])
    gained = against(sound[OWN], sound[BASE])
    significant = {n: t.p < LEVEL for n, t in (("rate", moved), ("method", gained))}
    if significant["rate"] and moved.difference.mean < 0 and not significant["method"]:
        verdict = "Tune the rate before you choose a method: it alone brings what FO-RI does"
    elif significant["method"] and gained.difference.mean < 0:
        verdict = "FO-RI brings more than a tuned rate does"
    else:
        verdict = "Neither a tuned rate nor FO-RI moves the error beyond noise"
    listed = "; ".join(f"{name} {shown(level(r), 2)} Wh" for name, r in sound.items())
    return (
        f"{verdict} ({one.title}). FedAvg tuned minus FedAvg at rate {RATE:g}: {_interval(moved)}; "
        f"FO-RI minus FedAvg, both tuned: {_interval(gained)}. Levels: {listed}."
    )


def _road(view: View, rich: str, bare: str) -> str:
    """What features of the road do, beside what the best method does."""
    found: dict[str, Mapping[str, Record]] = {d: compared(view, d)[1] for d in (rich, bare)}
    if not all(found.values()) or any(own["fedavg"].diverged for own in found.values()):
        return ""
    before, after = (level(found[d]["fedavg"]) for d in (bare, rich))
    best = min(level(r) for r in found[bare].values() if not r.diverged)
    if after >= before:
        return ""
    return (
        f"Climb and descent as features take FedAvg from {shown(before, 2)} Wh on `{bare}` to "
        f"{shown(after, 2)} Wh on `{rich}` (its trips that the terrain model covers); the best "
        f"method without them reaches {shown(best, 2)} Wh."
    )


def _gain(record: Record, test: Paired, base: float) -> str:
    settings = ", ".join(f"{n} {v:.3g}" for n, v in record.cell.settings) or f"rate {RATE:g}"
    share = 100 * test.difference.mean / base
    return f"{shown(level(record), 2)} Wh, {_interval(test)}, {shown(share, 1)} % ({settings})"


def _interval(test: Paired) -> str:
    one = test.difference
    if one.seeds < 2:
        return f"{shown(one.mean, 2)} Wh"
    return f"{shown(one.mean, 2)} [{shown(one.low, 2)}, {shown(one.high, 2)}] Wh"


def _rate_of(record: Record) -> str:
    return f"{dict(record.cell.settings).get('rate', RATE):.3g}"
