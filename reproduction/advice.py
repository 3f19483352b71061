"""What a reader should do: which method, which rate, when. Every number comes from the records."""

from fedwatt.report.style import name_of
from fedwatt.report.table import shown
from reproduction.contests import (
    BASE,
    MATCHED,
    OWN,
    PAPER,
    dataset_contests,
    stride_contests,
)
from reproduction.controls import control_cells_of
from reproduction.convergence import against
from reproduction.judges import divergence, higher_ones, level, lower_ones
from reproduction.main_results import plain, tuned
from reproduction.record import Record
from reproduction.settle import RATE
from reproduction.study import View


def advice(view: View) -> list[str]:
    """Sentences, each a line of a list."""
    lines = [_on(view, dataset) for dataset in (*view.setting.ved, *view.setting.eved)]
    return [line for line in (*lines, _rate(view), *GENERAL) if line]


ENOUGH = 4
"""Methods that must have run on a dataset for a word on which to use."""
GENERAL = (
    "Tune the rate of whatever you use before you choose among methods (`fedwatt tune`): compare "
    "at each method's own best rate, never at one rate for all.",
    "Look beyond the optimiser: label scaling in each vehicle, features of the road and a model "
    "that each vehicle makes its own move errors further than any method here does.",
)


def _on(view: View, dataset: str) -> str:
    """Which method on a dataset, at which rate, and what is gained over FedAvg."""
    how, records = compared(view, dataset)
    finals = {m: level(r) for m, r in records.items() if not r.diverged}
    if "fedavg" not in finals or len(finals) < ENOUGH:
        return ""
    tests = {m: against(records[m], records["fedavg"]) for m in records if m != "fedavg"}
    better = [m for m, holds in lower_ones(tests).items() if holds]
    worse = [m for m, holds in higher_ones(tests).items() if holds]
    base = finals["fedavg"]
    parts = [
        f"On `{dataset}`, {how}: FedAvg ends at {shown(base, 2)} Wh (rate {_rate_of(records)})"
    ]
    if better:
        ranked = sorted((m for m in better if m in finals), key=lambda m: finals[m])
        listed = ", ".join(
            f"{name_of(m)} {shown(finals[m], 2)} Wh (−{100 * (1 - finals[m] / base):.1f} %)"
            for m in ranked
        )
        parts.append(f"significantly lower: {listed}")
    else:
        parts.append("no method is significantly lower")
    if worse:
        parts.append(f"significantly higher: {', '.join(map(name_of, worse))}")
    text = "; ".join(parts) + "."
    text += "".join(f" {divergence(name_of(m), r)}." for m, r in records.items() if r.diverged)
    for name, word in (
        ("every vehicle alone", "Training every vehicle alone"),
        ("all data in one place", "Training all data in one place"),
    ):
        record = view.get(control_cells_of(dataset)[name])
        if record is not None and not record.diverged:
            text += f" {word} ends at {shown(level(record), 2)} Wh."
    return text


def _rate_of(records: dict[str, Record]) -> str:
    return f"{dict(records['fedavg'].cell.settings).get('rate', RATE):.3g}"


def _rate(view: View) -> str:
    """What the rate does: FedAvg at the paper's, at its own and at FO's mean step."""
    parts = []
    for one in (dataset_contests(view.setting)[0], *stride_contests(view.setting)):
        names = (*PAPER[1:], BASE, MATCHED, "FO-FedAvg, rate 0.05", *PAPER[:1], OWN)
        records = {n: view.get(one.cells[n]) for n in names if n in one.cells}
        sound = {n: r for n, r in records.items() if r is not None and not r.diverged}
        if {PAPER[1], BASE} <= sound.keys():
            listed = "; ".join(f"{name} {shown(level(r), 2)} Wh" for name, r in sound.items())
            parts.append(f"{one.title}: {listed}.")
    said = "Among FedAvg and the paper's methods the rate decides."
    return " ".join([said, *parts]) if parts else ""


def compared(view: View, dataset: str) -> tuple[str, dict[str, Record]]:
    """All methods tuned, or else all at the paper's settings, and which of the two in words.

    Where neither is complete: that of which more has run.
    """
    found = []
    scale = view.setting.scale
    for how, cells in (
        ("tuned with equal budgets", {m: tuned(scale, dataset, m) for m in view.setting.methods}),
        ("at the paper's settings", {m: plain(dataset, m) for m in view.setting.methods}),
    ):
        got = {m: r for m, cell in cells.items() if (r := view.get(cell)) is not None}
        some = f", {len(got)} of {len(cells)} methods"
        found.append((how + (some if len(got) < len(cells) else ""), got))
    return max(found, key=lambda one: len(one[1]))
