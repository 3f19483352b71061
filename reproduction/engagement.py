"""Map of λ, ℓ and α over decades, against FedAvg at its best learning rate.

Everything runs at the rate that is best for FedAvg under the same conditions.
"""

from dataclasses import replace
from typing import Any

from fedwatt.report.style import name_of
from reproduction.cell import Cell
from reproduction.main_results import how_tuned
from reproduction.show import Line, comparison
from reproduction.study import Findings, Setting, Study, View

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


def show_engagement(view: View) -> Findings:
    """Return a table for each regime, against FedAvg at its best learning rate."""
    blocks = []
    for regime in REGIMES:
        lines = [Line("FedAvg, tuned", "", view.get(reference(view.setting, regime)))]
        for (method, change), cell in map_cells(view.setting, regime).items():
            lines.append(Line(f"{name_of(method)}, {change}", "", view.get(cell)))
        lines.append(Line("FedAvg at FO's mean step", "", view.get(control(view.setting, regime))))
        blocks.append(
            comparison(
                f"engagement-{regime.replace(' ', '-')}",
                f"λ, ℓ and α over decades, {regime}, {view.setting.ved[0]}",
                lines,
                "test_rmse",
                first="Training",
                note="Everything at the learning rate that is best for FedAvg under the same "
                "conditions, but for FedAvg at FO's mean step, which is a control.",
            )
        )
    return Findings(tuple(blocks))


ENGAGEMENT = Study(
    "engagement",
    "Where the mechanisms engage: λ, ℓ and α over decades",
    engagement_cells,
    show_engagement,
    claims=("C1", "C2", "C6"),
)
