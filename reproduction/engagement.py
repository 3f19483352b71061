"""Map of λ, ℓ and α over decades, against FedAvg at its best learning rate.

Everything runs at the rate that is best for FedAvg under the same conditions.
"""

from dataclasses import dataclass, replace
from typing import Any

from fedwatt.report.style import name_of
from fedwatt.report.table import Cell as Entry
from fedwatt.report.table import ReportTable, TableColumn
from reproduction.cell import Cell
from reproduction.convergence import against
from reproduction.main_results import how_tuned
from reproduction.paired import LEVEL, Paired, detectable, holm
from reproduction.show import DETECTABLE, facts_line, p_text
from reproduction.study import Block, Findings, Setting, Study, View

LAMBDAS = (0.1, 1.0, 10.0)
RADII = (0.01, 1.0)
ALPHAS = (0.8, 0.5)
PULLED = ("ri-fedavg", "fo-ri-fedavg")
REGIMES: dict[str, dict[str, Any]] = {
    "vehicles as they are": {},
    "severe skew": {"partition": "severe"},
    "noisy clients": {"noisy": 0.3},
}


def reference(setting: Setting, regime: str) -> Cell:
    """Return FedAvg at its best rate under a regime."""
    base = Cell(
        dataset=setting.ved[0],
        method="fedavg",
        rounds=setting.scale.map_rounds,
        seeds=setting.scale.map_seeds,
        **REGIMES[regime],
    )
    natural = not REGIMES[regime]
    return replace(base, follow=how_tuned(setting.scale, base.dataset) if natural else "own rate")


def map_cells(setting: Setting, regime: str) -> dict[tuple[str, str], Cell]:
    """Return (method, what is changed) → cell."""
    base = reference(setting, regime)
    base = replace(base, follow=f"{base.follow}:fedavg")
    cells = {}
    for method in setting.among(PULLED):
        for lam in LAMBDAS:
            for radius in RADII:
                settings = (("lam", lam), ("radius", radius))
                cell = replace(base, method=method, settings=settings)
                cells[method, f"λ = {lam:g}, ℓ = {radius:g}"] = cell
    for method in setting.among(("fo-fedavg",)):
        for alpha in ALPHAS:
            cell = replace(base, method=method, settings=(("alpha", alpha),))
            cells[method, f"α = {alpha:g}"] = cell
    return cells


def control(setting: Setting, regime: str) -> Cell:
    """Return the control: FedAvg with steps as long as FO-FedAvg's in the map."""
    base = reference(setting, regime)
    return replace(base, follow=f"matched rate:{base.follow}:fedavg")


def engagement_cells(setting: Setting) -> list[Cell]:
    """Return the map of every regime, what it is held against, and the control."""
    return [
        cell
        for regime in REGIMES
        for cell in (
            reference(setting, regime),
            *map_cells(setting, regime).values(),
            control(setting, regime),
        )
    ]


@dataclass(frozen=True)
class Point:
    """A point of the map against FedAvg at its best rate."""

    regime: str
    method: str
    change: str
    test: Paired
    p: float
    """Corrected over the whole map; NaN where a diverged seed decides."""

    @property
    def lower(self) -> bool:
        """Return whether it ends significantly lower, or FedAvg alone diverged."""
        return self.test.below(self.p, LEVEL)

    @property
    def higher(self) -> bool:
        """Return whether it ends significantly higher, or diverged alone."""
        return self.test.above(self.p, LEVEL)


def differences(view: View) -> list[Point]:
    """Return all points of the map that ran."""
    tests = []
    for regime in REGIMES:
        base = view.get(reference(view.setting, regime))
        if base is None:
            continue
        for (method, change), cell in map_cells(view.setting, regime).items():
            record = view.get(cell)
            if record is not None:
                tests.append((regime, method, change, against(record, base)))
    corrected = holm([test.p for *_, test in tests])
    return [Point(*test, p) for test, p in zip(tests, corrected, strict=True)]


def controlled(view: View, regime: str) -> Paired | None:
    """Return the control minus FedAvg at its best rate; None unless both ran and differ."""
    matched, base = (view.get(make(view.setting, regime)) for make in (control, reference))
    return None if matched is None or base is None or matched is base else against(matched, base)


def show_engagement(view: View) -> Findings:
    """Return a table for each regime."""
    points = differences(view)
    blocks = []
    for regime in REGIMES:
        rows = [_row(point, len(points)) for point in points if point.regime == regime]
        if rows and (test := controlled(view, regime)) is not None:
            difference = test.losses("it", "FedAvg") if test.decided else test.difference
            rows.append(("FedAvg", "FO's mean step", difference, "–", "–"))
        records = [view.get(cell) for cell in map_cells(view.setting, regime).values()]
        blocks.append(
            Block(
                ReportTable(
                    f"engagement-{regime.replace(' ', '-')}",
                    f"Difference from FedAvg at its best rate, {regime}, {view.setting.ved[0]}",
                    (
                        TableColumn("Method"),
                        TableColumn("Changed"),
                        TableColumn("Minus FedAvg", "Wh", 2),
                        TableColumn("Detectable", "Wh", 2),
                        TableColumn("p, Holm"),
                    ),
                    tuple(rows),
                    "Everything at the rate that is best for FedAvg, but for FedAvg at FO's mean "
                    "step, a control that is no point of the map. p is corrected over the whole "
                    f"map; below zero is better. {DETECTABLE}",
                ),
                facts_line(records),
            )
        )
    return Findings(tuple(blocks))


def _row(point: Point, comparisons: int) -> tuple[Entry, ...]:
    named = (name_of(point.method), point.change)
    if point.test.decided:
        return (*named, point.test.losses("it", "FedAvg"), "–", "–")
    difference = point.test.difference
    return (*named, difference, detectable(difference, comparisons), p_text(point.p))


ENGAGEMENT = Study(
    "engagement",
    "Where the mechanisms engage: λ, ℓ and α over decades",
    engagement_cells,
    show_engagement,
    claims=("C1", "C2", "C6"),
)
