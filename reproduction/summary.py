"""What to use, in a table and a few sentences: README's block, which the page has as well."""

from collections.abc import Mapping

from fedwatt.report.style import name_of
from fedwatt.report.table import shown
from reproduction.advice import ROADS, Choice, choice, interval, rates, road
from reproduction.budgets import against_fedavg, pair_of, rounds_within
from reproduction.contests import BASE, OWN, dataset_contests
from reproduction.controls import control_cells_of
from reproduction.convergence import against
from reproduction.outcomes import level
from reproduction.paired import LEVEL
from reproduction.show import left_of
from reproduction.study import View

HEAD = (
    "Dataset",
    "FedAvg at its best",
    "FO-RI-FedAvg, tuned, minus that",
    "Use for the shared model",
    "Every vehicle alone",
)
CAPTION = (
    "RMSE of a minute's energy; brackets are 95 % intervals over seeds, or over splits of the "
    "trips for what is used where several ran."
)


def summary_lines(view: View) -> list[str]:
    """Lines of Markdown; none where too little has run to say anything."""
    datasets = (*view.setting.ved, *view.setting.eved)
    found = {d: best for d in datasets if (best := choice(view, d)) is not None}
    if not found:
        return []
    rows = [_row(view, dataset, best) for dataset, best in found.items()]
    lines = [f"| {' | '.join(cells)} |" for cells in (HEAD, ["---"] * len(HEAD), *rows)]
    lines += ["", CAPTION, ""]
    for verdict, own in rates(view).items():
        lines.append(f"- {verdict} ({'; '.join(one.title for one in own)}).")
    lines += [f"- {text}" for rich, bare in ROADS.items() if (text := road(view, rich, bare))]
    lines += [f"- {text}" for text in (_own_models(view, found), _bytes(view, found)) if text]
    return lines


def _own_models(view: View, found: Mapping[str, Choice]) -> str:
    """Where vehicles that train alone end lower than the advised model, and where they do not.

    Empty where they do so nowhere.
    """
    better: list[str] = []
    others: list[str] = []
    for dataset, best in found.items():
        alone = view.get(control_cells_of(dataset)["local-only"])
        if alone is None or alone.diverged:
            continue
        test = against(alone, best.records[best.use])
        windows = alone.facts["fleet"]["windows"]["train"] / alone.facts["fleet"]["vehicles"]
        text = f"`{dataset}` ({interval(test)}, {windows:,.0f} training windows a vehicle)"
        (better if test.below(test.p, LEVEL) else others).append(text)
    if not better:
        return ""
    text = (
        "Do not stop at a shared model where vehicles have much data of their own: each trained "
        f"alone, they end lower than the shared model above on {', '.join(better)}"
    )
    return f"{text}; not on {', '.join(others)}." if others else f"{text}."


def _bytes(view: View, found: Mapping[str, Choice]) -> str:
    """What is left of a better method at equal bytes, if it sends more than FedAvg."""
    parts = []
    for dataset, best in found.items():
        record, rounds = best.records[best.use], view.setting.scale.rounds
        method, left = record.cell.method, rounds_within(record, "bytes", view)
        pair = pair_of(view, dataset, method)
        if not best.better or left == rounds or pair is None or pair[0] is not record:
            continue
        tests = against_fedavg(view, dataset, method)
        (test,) = (own for name, own in tests.items() if "bytes" in name)
        stopped = f"{name_of(method)} after {left} of {rounds} rounds"
        parts.append(f"`{dataset}`, {stopped}, {interval(test)}")
    text = "Count bytes where the network is what costs. With as many as FedAvg sends, minus FedAvg"
    return f"{text}: {'; '.join(parts)}." if parts else ""


def _row(view: View, dataset: str, found: Choice) -> list[str]:
    """The cells of a dataset."""
    (contest,) = (c for c in dataset_contests(view.setting) if c.cells[BASE].dataset == dataset)
    own, base = (view.get(contest.cells[n]) if n in contest.cells else None for n in (OWN, BASE))
    gained = "not run"
    if own is not None and base is not None:
        left = left_of(own)
        gained = interval(against(own, base)) + (f" ({left})" if left else "")
    use = found.use
    if found.better:
        use += f": {interval(found.tests[use])}"
    elif found.lowest:
        use += f" (lowest mean: {found.lowest}, {found.gain})"
    alone = view.get(control_cells_of(dataset)["local-only"])
    known = alone is not None and not alone.diverged
    return [
        f"`{dataset}`",
        f"{found.first}: {shown(found.base, 2)} Wh",
        gained,
        use,
        f"{shown(level(alone), 2)} Wh" if known and alone is not None else "not run",
    ]
