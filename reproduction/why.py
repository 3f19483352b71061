"""Why the mechanisms do what they do, from formulas and from what was measured."""

from math import gamma, sqrt

import numpy as np

from fedwatt.methods import Fractional
from reproduction.main_results import plain
from reproduction.mechanism import carrier, coupling_values
from reproduction.record import FLAT
from reproduction.settle import mean_pull
from reproduction.study import View


def why(view: View) -> str:
    """The section of the page."""
    dataset = view.setting.ved[0]
    rule = Fractional()
    neutral = gamma(2 - rule.alpha) ** (1 / (1 - rule.alpha))
    floor = (rule.p_min * gamma(2 - rule.alpha)) ** (1 / (1 - rule.alpha))
    bound = 1 / (2 * sqrt(2))
    found = [
        "## Why",
        "",
        "**The probe radius.** Along a slice φ(s) on [−ℓ, ℓ] the index is built from TV/A. A "
        "monotone slice has TV = A, so that T = 1/(2ℓ) for every direction and I_k is 0 but for "
        "the guard ε_A, however steep the loss is. A slice φ ≈ φ(0) + a·s + ½·b·s² turns inside "
        "only if |a| < ℓ·|b|; along a random unit direction in D dimensions a is about ‖g‖/√D and "
        "b about tr(H)/D, so a share 2Φ(κ) − 1 of slices with κ = ℓ·tr(H)/(‖g‖·√D) is not "
        "monotone. At ℓ = 0.01 that is next to none. Slices with one turn cannot exceed "
        f"I = 1/(2√2) = {bound:.3f}; the paper lists values up to 1.00.",
        _roughness_numbers(view, dataset),
        "",
        "**The preconditioner.** p = (|w_h − w_{h−1}| + δ)^(1−α) / Γ(2−α) reaches 1 only for a "
        f"displacement of {neutral:.3f} at α = {rule.alpha:g}, and the clip p_min = {rule.p_min:g} "
        f"holds below {floor:.2g}: no coordinate of such a network moves that far in a step, so FO "
        "is a coordinate-wise reduction of the rate. Smaller displacements shrink steps further; "
        "they do not amplify them, and the memory is one step long.",
        _step_numbers(view, dataset),
        "",
        "**The spectral ratio.** κ = ‖W‖₂/‖W‖_F of the final layer of a network with one output is "
        "1 for all weights, because a matrix of one row has one singular value. The gate is then "
        "the constant factor 1/(1 + β_κ) on every step after the first, and where p already sits "
        "on p_min it changes nothing at all. Here κ is taken of the last hidden matrix.",
    ]
    return "\n".join(found)


def _roughness_numbers(view: View, dataset: str) -> str:
    parts = []
    record = view.get(carrier(dataset, "fedavg"))
    if record is not None:
        flat = float((record.vehicles["roughness"] < FLAT).mean())
        at = min(view.setting.scale.at(100) + 1, view.setting.scale.rounds)
        one = coupling_values(record, (at, at))["flat"]
        parts.append(
            f"Measured on {dataset}: {100 * np.mean(list(one.values())):.0f} % of vehicles have "
            f"I_k below {FLAT:g} at t = 100, and {100 * flat:.0f} % of all values over all rounds "
            "are that small."
        )
    rough = view.get(plain(dataset, "ri-fedavg"))
    if rough is not None:
        parts.append(f"RI-FedAvg's mean pull on {dataset} is {mean_pull(rough):.5f} (λ = 0.1).")
    return " ".join(parts)


def _step_numbers(view: View, dataset: str) -> str:
    fo = view.get(plain(dataset, "fo-fedavg"))
    if fo is None or not fo.facts.get("step_scale"):
        return ""
    scale = fo.facts["step_scale"]
    return (
        f"Measured on {dataset}: steps after the first are {scale['length']:.3f} times as long as "
        f"plain ones, and the mean scale of a coordinate is {scale['coordinate']:.3f}."
    )
