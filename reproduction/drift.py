"""Client drift, its magnitude and its dispersion: by round and at t = 200."""

from fedwatt.report.style import name_of
from reproduction.draw import curves
from reproduction.main_results import by_method, plain_cells
from reproduction.record import REACH
from reproduction.show import Line, comparison, facts_line
from reproduction.study import Findings, Picture, Study, View


def show_drift(view: View) -> Findings:
    """Return drift and its dispersion, by round and at t = 200."""
    pictures = []
    blocks = []
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
