"""Controls that the claims need and the paper leaves out, and stress tests of claim C5."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedwatt.report.style import name_of
from reproduction.cell import Cell
from reproduction.main_results import how_tuned, plain, tuned
from reproduction.scale import Scale
from reproduction.study import Setting, View
from reproduction.tables import Trainings, trainings_study
from reproduction.tuning import RATE, mean_pull, step_length

NOISY = 0.3
"""Share of vehicles with noisy training labels."""
GATE = {"beta_kappa": 0.5}


def control_cells_of(dataset: str) -> dict[str, Cell]:
    """Name → cell, FedAvg first."""
    return {
        "FedAvg": plain(dataset, "fedavg"),
        "FO-FedAvg": plain(dataset, "fo-fedavg"),
        "FedAvg at FO's mean step": replace(plain(dataset, "fedavg"), follow="matched rate"),
        "RI-FedAvg": plain(dataset, "ri-fedavg"),
        "FedProx at RI's mean pull": replace(plain(dataset, "fedprox"), follow="matched pull"),
        "FO-RI-FedAvg": plain(dataset, "fo-ri-fedavg"),
        "local-only": replace(plain(dataset, "fedavg"), work="local"),
        "centralised": replace(plain(dataset, "fedavg"), work="pooled"),
    }


def baseline_cells(scale: Scale, dataset: str) -> dict[str, Cell]:
    """Return the baselines without federation, at the learning rate that their trials chose."""
    follow = how_tuned(scale, dataset)
    return {
        name: Cell(dataset=dataset, method="fedavg", work=work, follow=follow)
        for name, work in (("local-only, tuned", "local"), ("centralised, tuned", "pooled"))
    }


def control_tables(setting: Setting) -> list[Trainings]:
    """Return the controls and the tuned baselines on every dataset."""
    return [
        Trainings(
            f"controls-{dataset}",
            f"Controls on {dataset}",
            control_cells_of(dataset) | baseline_cells(setting.scale, dataset),
            "The paper's settings, unless tuned. Local-only: a vehicle trains as many rounds as "
            "the federation asks it for. Centralised: the model takes as many steps as all "
            "participants together, on windows scaled by each vehicle.",
        )
        for _, dataset in setting.places
    ]


def control_remarks(view: View) -> Iterator[str]:
    """Yield the length of FO's steps and the strength of RI's pull, which the controls match."""
    for _, dataset in view.setting.places:
        cells = control_cells_of(dataset)
        fractional, rough = (view.get(cells[name]) for name in ("FO-FedAvg", "RI-FedAvg"))
        if fractional is not None and (scale := fractional.facts.get("step_scale")):
            length = step_length(fractional)
            yield (
                f"On {dataset}, FO-FedAvg's steps after the first are {length:.3f} times as long "
                f"as plain ones (mean scale of a coordinate {scale['coordinate']:.3f}): FedAvg's "
                f"rate {RATE:g} becomes {RATE * length:.4f}."
            )
        elif fractional is not None and fractional.final("test_rmse"):
            yield (
                f"On {dataset}, no vehicle was measured in a second step of a round, and a first "
                f"step is a plain one: FedAvg keeps its rate {RATE:g} in the control."
            )
        if rough is not None:
            yield (
                f"On {dataset}, RI-FedAvg's mean pull λ·r(I_k) is {mean_pull(rough):.5f}, which is "
                "FedProx's μ in the control."
            )


def stress_cells_of(setting: Setting, dataset: str) -> Mapping[str, dict[str, Cell]]:
    """Return regime → name → cell: gate off and on, and FedAvg."""
    methods = {
        "FO-RI-FedAvg, gate off": plain(dataset, "fo-ri-fedavg"),
        "FO-RI-FedAvg, gate on": plain(dataset, "fo-ri-fedavg").with_settings(GATE),
        "FedAvg": plain(dataset, "fedavg"),
        "FedAvg, tuned": tuned(setting.scale, dataset, "fedavg"),
    }
    changes: dict[str, dict[str, float]] = {
        "low participation, C = 0.1": {"participation": 0.1},
        "noisy clients": {"noisy": NOISY},
        "noisy clients, C = 0.1": {"noisy": NOISY, "participation": 0.1},
    }
    return {
        regime: {name: replace(cell, **change) for name, cell in methods.items()}  # type: ignore[arg-type]
        for regime, change in changes.items()
    }


def stress_tables(setting: Setting) -> list[Trainings]:
    """Return the gate in the regimes where it should help, on the first dataset of each place."""
    noise = (
        f"Noisy: {NOISY:.0%} of vehicles, whose training labels are off by one standard deviation "
        "of a minute's energy, minute by minute; test labels are sound."
    )
    return [
        Trainings(
            f"stress-{place}-{dataset}",
            f"Stress test, {regime}, on {dataset}",
            cells,
            noise if "noisy" in regime else "",
        )
        for _, dataset in setting.few_places
        for place, (regime, cells) in enumerate(stress_cells_of(setting, dataset).items(), start=1)
    ]


CONTROLS = trainings_study(
    "controls",
    "Controls: equal step, equal pull, local-only, pooled",
    control_tables,
    ("C1", "C2", "C6"),
    control_remarks,
)
STRESS = trainings_study(
    "stress",
    "Stress tests: low participation, noisy clients, gate on and off",
    stress_tables,
    ("C5",),
)


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


def engagement_cells_of(setting: Setting, regime: str) -> dict[str, Cell]:
    """Return name → cell: FedAvg, then methods at its learning rate, then the control."""
    base = reference(setting, regime)
    cells = {"FedAvg, tuned": base}
    at_its_rate = replace(base, follow=f"{base.follow}:fedavg")
    for method in PULLED:
        for lam in LAMBDAS:
            for radius in RADII:
                settings = (("lam", lam), ("radius", radius))
                name = f"{name_of(method)}, λ = {lam:g}, ℓ = {radius:g}"
                cells[name] = replace(at_its_rate, method=method, settings=settings)
    for alpha in ALPHAS:
        cell = replace(at_its_rate, method="fo-fedavg", settings=(("alpha", alpha),))
        cells[f"FO-FedAvg, α = {alpha:g}"] = cell
    cells["FedAvg at FO's mean step"] = replace(base, follow=f"matched rate:{base.follow}:fedavg")
    return cells


def engagement_tables(setting: Setting) -> list[Trainings]:
    """Return a table for each regime, against FedAvg at its best learning rate."""
    return [
        Trainings(
            f"engagement-{regime.replace(' ', '-')}",
            f"λ, ℓ and α over decades, {regime}, {setting.ved[0]}",
            engagement_cells_of(setting, regime),
            "Everything at the learning rate that is best for FedAvg under the same conditions, "
            "but for FedAvg at FO's mean step, which is a control.",
        )
        for regime in REGIMES
    ]


ENGAGEMENT = trainings_study(
    "engagement",
    "Where the mechanisms engage: λ, ℓ and α over decades",
    engagement_tables,
    ("C1", "C2", "C6"),
)
