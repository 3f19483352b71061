"""What to use, in a table and a few sentences: README's block, which the page has as well."""

from fedwatt.report.table import shown
from reproduction.advice import ROADS, Choice, choice, interval, rates, road
from reproduction.contests import BASE, OWN, dataset_contests
from reproduction.controls import control_cells_of
from reproduction.convergence import against
from reproduction.outcomes import level
from reproduction.show import left_of
from reproduction.study import View

HEAD = (
    "Dataset",
    "FedAvg at its best",
    "FO-RI-FedAvg, tuned, minus that",
    "Use",
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
    return lines


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
    alone = view.get(control_cells_of(dataset)["every vehicle alone"])
    known = alone is not None and not alone.diverged
    return [
        f"`{dataset}`",
        f"{found.first}: {shown(found.base, 2)} Wh",
        gained,
        use,
        f"{shown(level(alone), 2)} Wh" if known and alone is not None else "not run",
    ]
