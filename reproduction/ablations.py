"""Ablations of FO-RI-FedAvg: one setting changed at a time, the rest as the paper has it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reproduction.cell import Cell
from reproduction.draw import sweep
from reproduction.main_results import plain
from reproduction.record import REACH
from reproduction.show import Line, comparison, facts_line
from reproduction.study import Findings, Picture, Setting, Study, View

OWN = "fo-ri-fedavg"
ALPHAS = (1.0, 0.9, 0.8, 0.7, 0.6)
LAMBDAS = (0.02, 0.05, 0.10, 0.20)
NO_DELTA = {"delta": 1e-12}
"""δ → 0: the rule refuses 0 itself, which would freeze a coordinate for good."""
NO_CLIP = {"p_min": 1e-9, "p_max": 1e9}

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "default": ("FO-RI-FedAvg, default", {}),
    "integer order": ("α = 1 (integer order)", {"alpha": 1.0}),
    "no roughness control": ("no roughness control (λ = 0)", {"lam": 0.0}),
    "no safeguards": ("no safeguards (δ → 0, no clip)", NO_DELTA | NO_CLIP),
    "both off": ("α = 1 and λ = 0 (FedAvg)", {"alpha": 1.0, "lam": 0.0}),
    "spectral gate": ("spectral gate (β_κ = 0.5)", {"beta_kappa": 0.5}),
}
SAFEGUARDS: dict[str, dict[str, Any]] = {
    "δ > 0, clip": {},
    "δ > 0, no clip": NO_CLIP,
    "δ → 0, clip": NO_DELTA,
    "δ → 0, no clip": NO_DELTA | NO_CLIP,
}


def variant(dataset: str, settings: Mapping[str, Any]) -> Cell:
    """FO-RI-FedAvg with some settings changed; with none, the very cell of the main results."""
    return plain(dataset, OWN).with_settings(settings)


def _cells(changes: Sequence[Mapping[str, Any]]) -> Callable[[Setting], list[Cell]]:
    def made(setting: Setting) -> list[Cell]:
        return [variant(dataset, own) for _, dataset in setting.places for own in changes]

    return made


def show_key(view: View) -> Findings:
    """The paper's five variants, and both components off at once."""
    return Findings(
        tuple(
            comparison(
                f"ablations-{dataset}",
                f"Key ablation variants on {dataset}",
                [
                    Line(name, row, view.get(variant(dataset, settings)))
                    for row, (name, settings) in VARIANTS.items()
                ],
                "test_rmse",
                beside=("ablations", f"{place} RMSE"),
                first="Variant",
                note="The default probes every 5 rounds here, as the paper's recipe says.",
            )
            for place, dataset in view.setting.places
        )
    )


def _sweep_study(
    name: str,
    what: str,
    places: Mapping[str, Mapping[str, Any]],
    *,
    reference: int,
    beside: Callable[[str], tuple[str, str] | None] = lambda place: None,
    note: str = "",
) -> Callable[[View], Findings]:
    def show(view: View) -> Findings:
        blocks, pictures = [], []
        for place, dataset in view.setting.places:
            records = [view.get(variant(dataset, settings)) for settings in places.values()]
            lines = [Line(key, key, r) for key, r in zip(places, records, strict=True)]
            blocks.append(
                comparison(
                    f"{name}-{dataset}",
                    f"{what} on {dataset}",
                    lines,
                    "test_rmse",
                    beside=beside(place),
                    reference=reference,
                    first=what.partition(":")[0],
                    note=note,
                )
            )
            values = {OWN: [r.final("test_rmse") if r else {} for r in records]}
            pictures.append(
                Picture(
                    f"{name}-{dataset}",
                    f"{what}, {dataset}",
                    sweep(list(places), values, f"Final test RMSE, Wh, {dataset}", what),
                    "Mean over seeds that did not diverge; bars are their standard deviation.",
                    facts_line(records),
                )
            )
        return Findings(tuple(blocks), tuple(pictures))

    return show


FREQUENCIES = {str(every): {"probe_every": every} for every in (1, 5, 10)}
BETAS = {beta: {"beta_kappa": float(beta)} for beta in ("0", "0.25", "0.5", "1.0")}
"""Named as the paper prints them."""


def show_gate(view: View) -> Findings:
    """RMSE and dispersion of drift with the gate off and on."""
    shown = _sweep_study(
        "gate",
        "Spectral gate β_κ",
        BETAS,
        reference=0,
        beside=lambda place: ("gate", f"{place} RMSE"),
        note="The gate uses κ of the last hidden matrix; of the one-row output layer it would be 1 "
        "for every vehicle and round.",
    )(view)
    at = view.setting.scale.at(200)
    blocks = list(shown.blocks)
    for place, dataset in view.setting.places:
        records = [view.get(variant(dataset, settings)) for settings in BETAS.values()]
        blocks.append(
            comparison(
                f"gate-drift-{dataset}",
                f"Spectral gate: dispersion of drift D_cv(200) on {dataset}",
                [Line(key, key, r) for key, r in zip(BETAS, records, strict=True)],
                "drift_cv",
                heading="D_cv",
                unit="",
                digits=3,
                beside=("gate", "VED D_cv") if place == "VED" else None,
                first="β_κ",
                values=[r.around("drift_cv", at, REACH) if r else {} for r in records],
            )
        )
    return Findings(tuple(blocks), shown.pictures)


KEY = Study(
    "ablations",
    "Key ablations of FO-RI-FedAvg",
    _cells([settings for _, settings in VARIANTS.values()]),
    show_key,
    printed=("ablations",),
    claims=("C4",),
)
ALPHA = Study(
    "alpha",
    "Effect of the fractional order α",
    _cells([{"alpha": alpha} for alpha in ALPHAS]),
    _sweep_study(
        "alpha",
        "Fractional order α",
        {f"{alpha:g}": {"alpha": alpha} for alpha in ALPHAS},
        reference=0,
        note="α = 1 is RI-FedAvg. The paper shows this in a figure whose file is empty.",
    ),
    claims=("C2", "C4"),
)
LAMBDA = Study(
    "lambda",
    "Effect of the proximal strength λ",
    _cells([{"lam": lam} for lam in LAMBDAS]),
    _sweep_study(
        "lambda",
        "Proximal strength λ",
        {f"{lam:g}": {"lam": lam} for lam in LAMBDAS},
        reference=2,
        note="The paper shows this in a figure whose file is empty.",
    ),
    claims=("C4",),
)
PROBE = Study(
    "probe-frequency",
    "Effect of the probe frequency",
    _cells(list(FREQUENCIES.values())),
    _sweep_study(
        "probe-frequency",
        "Rounds between probes",
        FREQUENCIES,
        reference=0,
        beside=lambda place: ("probe-frequency", f"{place} RMSE"),
    ),
    printed=("probe-frequency",),
    claims=("C4",),
)
SAFE = Study(
    "safeguards",
    "Effect of the fractional safeguards δ and clipping",
    _cells(list(SAFEGUARDS.values())),
    _sweep_study(
        "safeguards",
        "Safeguards",
        SAFEGUARDS,
        reference=0,
        note="Without clip and δ a coordinate that did not move stays where it is for the rest of "
        "the round: small displacements shrink steps, they do not amplify them.",
    ),
    claims=("C4",),
)
GATE = Study(
    "gate",
    "Optional spectral gate",
    _cells(list(BETAS.values())),
    show_gate,
    printed=("gate",),
    claims=("C5",),
)
