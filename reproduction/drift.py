"""Client drift, its magnitude and its dispersion: by round, at t = 200 and at every C."""

from dataclasses import replace

from fedwatt.report.style import name_of
from reproduction.cell import Cell
from reproduction.draw import curves
from reproduction.main_results import by_method, plain, plain_cells
from reproduction.record import REACH
from reproduction.show import Line, comparison, facts_line, matrix
from reproduction.study import Findings, Picture, Setting, Study, View

SHARES = (0.1, 0.2, 0.3, 0.5)
DRIFTING = ("fedavg", "ri-fedavg", "fo-ri-fedavg")


def share_cells(setting: Setting) -> list[Cell]:
    """What C1 compares, at the paper's settings and every C."""
    return [
        replace(plain(d, m), participation=c)
        for _, d in setting.places
        for c in SHARES
        for m in setting.among(DRIFTING)
    ]


def show_shares(view: View) -> Findings:
    """D_mean(200) and D_cv(200) by C."""
    at, blocks = view.setting.scale.at(200), []
    names = [f"C = {c:g}" for c in SHARES]
    for _, dataset in view.setting.places:
        records = {
            m: [view.get(replace(plain(dataset, m), participation=c)) for c in SHARES]
            for m in view.setting.among(DRIFTING)
        }
        for column, title in (("drift_mean", "D_mean"), ("drift_cv", "D_cv")):
            values = {
                m: [r.around(column, at, REACH) if r else {} for r in own]
                for m, own in records.items()
            }
            blocks.append(
                matrix(
                    f"drift-shares-{title.lower().replace('_', '-')}-{dataset}",
                    f"{title}(200) by participation on {dataset}",
                    names,
                    records,
                    values,
                    unit="",
                    digits=4,
                    note=f"The paper's settings; mean over rounds {at - REACH} to {at + REACH}.",
                )
            )
    return Findings(tuple(blocks))


def show_drift(view: View) -> Findings:
    """Drift and its dispersion, by round and at t = 200."""
    pictures, blocks = [], []
    for _, dataset in view.setting.places:
        records = by_method(view, dataset)
        facts = facts_line(list(records.values()))
        for column, title in (
            ("drift_mean", "Mean drift ‖Δ‖₂"),
            ("drift_cv", "Dispersion of drift D_cv"),
        ):
            pictures.append(
                Picture(
                    f"{column.replace('_', '-')}-{dataset}",
                    f"{title}, {dataset}",
                    curves(records, column, f"{title}, {dataset}"),
                    "Mean over seeds, band from the lowest to the highest. Smaller drift alone is "
                    "no merit: a smaller rate does the same.",
                    facts,
                )
            )
        at = view.setting.scale.at(200)
        lines = [Line(name_of(m), m, r) for m, r in records.items()]
        for column, title, digits in (
            ("drift_mean", "D_mean", 3),
            ("drift_cv", "D_cv", 3),
        ):
            values = [r.around(column, at, REACH) if r else {} for r in records.values()]
            blocks.append(
                comparison(
                    f"{column.replace('_', '-')}-{dataset}",
                    f"{title}(200) on {dataset}",
                    lines,
                    column,
                    heading=title,
                    unit="",
                    digits=digits,
                    values=values,
                    note=f"Mean over rounds {at - REACH} to {at + REACH}, because a round has few "
                    "participants. The paper prints no table of these.",
                )
            )
    return Findings(tuple(blocks), tuple(pictures))


DRIFT = Study(
    "drift",
    "Client drift: magnitude and dispersion",
    plain_cells,
    show_drift,
    claims=("C1",),
)
DRIFT_SHARES = Study(
    "drift-shares",
    "Client drift at every participation C",
    share_cells,
    show_shares,
    claims=("C1",),
)
