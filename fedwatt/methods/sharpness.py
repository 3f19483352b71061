"""Relative sharpness of a local loss, an index that can be measured twice, and its pull.

The paper's roughness index divides small numbers by small numbers and cannot tell vehicles apart
(docs/methods.md). This one asks how much the loss rises, relative to itself, at a relative distance
ℓ from the broadcast model, in the mean over M directions d_i (after Li et al., NeurIPS 2018, who
scale the directions; Foret et al., ICLR 2021, who ask for the rise):

    d_f = z_f ‖w_f‖ / ‖z_f‖       f: the incoming weights of one unit; biases 0; z normal
    e_i = ½ (φ_i(ℓ) + φ_i(-ℓ)) - φ(0),     φ_i(s) = loss(w_t + s d_i)
    J_k = max(0, mean_i e_i) / φ(0)

Points on both sides cancel the gradient exactly, so that J is ½ℓ² dᵀHd / φ(0) for a quadratic; it
costs 2M + 1 evaluations. Directions are common to all vehicles of a round, the probe batch is the
same in all rounds, and a mean over rounds that forgets takes out what noise is left:

    m ← βᵃ m + (1 - βᵃ) J,   c ← βᵃ c + (1 - βᵃ),   Ĵ_k = m / c     a: rounds since the last probe

Vehicle k is pulled toward w_t with strength μ_k = λ Ĵ_k / (Ĵ_k + τ).
"""

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final

import torch
from torch import Tensor

from fedwatt.methods.ranges import Range
from fedwatt.methods.roughness import Slicing, measured
from fedwatt.methods.rule import Rows, Start
from fedwatt.methods.trigger import PROBE_REASON, Probing
from fedwatt.models import Model
from fedwatt.settings import number
from fedwatt.tables import PROBED, PULL, Column

SMALLEST_LOSS: Final = 1e-12
"""Below it a loss is taken for rounding."""

SHARPNESS: Final = Column("sharpness", float, "Ĵ_k, relative sharpness of the vehicle's loss")
PROBE_LOSS: Final = Column("probe_loss", float, "φ(0), the loss of its last probe at w_t")


def filter_normalised(model: Model, weights: Tensor, directions: Tensor) -> Tensor:
    """Directions [M, D] in which every unit moves by as much as its own weights, of one model [D].

    All have the length of the weights without biases, so that a step along them is a relative one.
    """
    tensors = model.layout.split(weights.double())
    drawn = model.layout.split(directions.double())
    parts = []
    for name, part in drawn.items():
        if tensors[name].dim() < 2:
            parts.append(torch.zeros_like(part))
            continue
        unit = model.unit_axis % tensors[name].dim()
        axes = [axis - tensors[name].dim() for axis in range(tensors[name].dim()) if axis != unit]
        length = part.norm(dim=axes, keepdim=True)
        scale = tensors[name].norm(dim=axes, keepdim=True) / length
        parts.append(part * torch.where(length > 0, scale, 0.0))
    return torch.cat([part.flatten(1) for part in parts], dim=1)


@dataclass(frozen=True)
class SliceStatistics:
    """Statistics of the loss slices φ_i(s_j): ratios of sums over the M slices, each [...]."""

    sharpness: Tensor
    """J1: the mean rise at both ends over the loss in the middle; 0 where the ends are lower."""
    excess: Tensor
    """J2: the share of all variation that does not lead from one end to the other, in [0, 1]."""
    residual: Tensor
    """J3: the variation about the best parabola over all variation: roughness proper."""
    over_range: Tensor
    """T: variation over range, at least 1."""
    valid: Tensor
    """How many slices vary by more than rounding; J2, J3 and T are NaN with fewer than M/2."""


def landscape(slices: Tensor, precision: torch.dtype = torch.float64) -> SliceStatistics:
    """Of `slices` [..., M, m+1] on an even grid with its middle at the model, m even.

    `precision` is what the loss was computed in.

    >>> bowl = torch.tensor([[[1.5, 1.125, 1.0, 1.125, 1.5]]], dtype=torch.float64)
    >>> found = landscape(bowl)
    >>> [round(x.item(), 6) for x in (found.sharpness, found.excess, found.over_range)]
    [0.5, 1.0, 2.0]
    """
    points = slices.shape[-1]
    middle = slices[..., points // 2]
    rise = (slices[..., 0] + slices[..., -1]) / 2 - middle
    level = middle.abs().amax(dim=-1).clamp(min=SMALLEST_LOSS)
    sharpness = rise.mean(dim=-1).clamp(min=0) / level
    amplitude = slices.amax(dim=-1) - slices.amin(dim=-1)
    variation = slices.diff(dim=-1).abs().sum(dim=-1)
    grid = torch.linspace(-1, 1, points, dtype=slices.dtype, device=slices.device)
    powers = torch.linalg.qr(torch.stack([grid**n for n in range(3)], dim=1)).Q
    residuals = slices - slices @ powers @ powers.T
    rounding = 100 * (points - 1) * torch.finfo(precision).eps * level
    valid = amplitude >= rounding[..., None]

    def total(values: Tensor) -> Tensor:
        return (values * valid).sum(dim=-1)

    enough = valid.sum(dim=-1) * 2 >= slices.shape[-2]

    def ratio(part: Tensor, denominator: Tensor) -> Tensor:
        return torch.where(enough, total(part) / total(denominator), torch.nan)

    across = (slices[..., -1] - slices[..., 0]).abs()
    residual = residuals.diff(dim=-1).abs().sum(dim=-1)
    return SliceStatistics(
        sharpness,
        1 - ratio(across, variation),
        ratio(residual, variation),
        ratio(variation, amplitude),
        valid.sum(dim=-1),
    )


@dataclass(frozen=True, kw_only=True)
class SharpnessIndex(Probing):
    """Ĵ_k of every vehicle, and a pull λ r(Ĵ_k), wherever λ comes from."""

    tau_j: float = number(0.03, "(0, inf)", tuned=Range(0.003, 0.3))
    """τ, the sharpness at which the response is ½; fixed, so that no index leaves its vehicle."""
    directions: int = number(16, "[1, inf]")
    """M"""
    radius: float = number(0.1, "(0, inf)", fixed="what sharpness is measured at")
    """ℓ, relative to the length of the weights."""
    probe_batch: int = number(128, "[1, inf]")
    """Windows; a vehicle with fewer uses all it has."""
    keep: float = number(0.8, "[0, 1)", fixed="a safeguard against noise")
    """β, what a round leaves of the mean over probes; 0 takes the last one alone."""

    begin_timed_as: ClassVar[str] = "probe"
    last_probe: ClassVar[str] = "sharpness_in"
    records: ClassVar[tuple[Column, ...]] = (SHARPNESS, PROBE_LOSS, PULL, PROBED, PROBE_REASON)

    def memory(self, model: Model) -> Rows:
        """m, c, the loss and the round of the last probe; -1: never."""
        none = torch.tensor(0.0).double()
        state = {"sharpness_sum": none, "sharpness_weight": none, "probe_loss": none}
        return {**state, "sharpness_in": torch.tensor(-1), **super().memory(model)}

    def strength(self, lam: float | Tensor, index: Tensor) -> Tensor:
        """λ r(Ĵ_k) [P], with r = Ĵ/(Ĵ + τ)."""
        return lam * index / (index + self.tau_j)

    def probed(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """Probe the vehicles that are due: (memory afterwards, Ĵ_k and what else is recorded)."""
        signs, rows, plan = self.due(memory, start)
        next_state = {name: values.clone() for name, values in memory.items()} | signs
        probed = measured(start, rows, self._slicing(start)) if rows else start.anchor.new_empty(0)
        # Whatever decides is read once: a GPU is waited for each time that it is asked.
        finite = probed.isfinite().tolist()
        rounds = memory["sharpness_in"].tolist()
        for row, (statistic, loss), is_finite in zip(rows, probed, finite, strict=True):
            if not is_finite[0]:
                continue  # a loss that is not finite says nothing: the old index stays
            age = start.round - rounds[row] if rounds[row] >= 0 else 1
            left = self.keep**age
            next_state["sharpness_sum"][row] = (
                left * memory["sharpness_sum"][row] + (1 - left) * statistic
            )
            next_state["sharpness_weight"][row] = left * memory["sharpness_weight"][row] + 1 - left
            next_state["probe_loss"][row] = loss
            next_state["sharpness_in"][row] = start.round
        weight = next_state["sharpness_weight"]
        index = torch.where(weight > 0, next_state["sharpness_sum"] / weight, 0.0)
        return next_state, plan | {"sharpness": index, "probe_loss": next_state["probe_loss"]}

    def _slicing(self, start: Start) -> Slicing:
        """At -ℓ, 0 and ℓ; found are J and φ(0)."""
        offsets = torch.tensor([-self.radius, 0.0, self.radius], dtype=torch.float64)
        return Slicing(
            self.directions,
            partial(filter_normalised, start.model),
            offsets.to(start.anchor.device),
            lambda row: start.fixed_batch(row, self.probe_batch, "sharpness batch"),
            lambda slices: torch.stack((landscape(slices).sharpness, slices[..., 0, 1]), dim=-1),
        )


@dataclass(frozen=True, kw_only=True)
class SharpnessProximal(SharpnessIndex):
    """Pull of strength λ r(Ĵ_k): as the paper's rule, with an index that repeats."""

    lam: float = number(0.1, "[0, inf)", "(0 switches the pull off)", tuned=Range(1e-4, 1.0))
    """λ, the strength where the response is 1."""

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """Probe the vehicles that are due and set this round's strengths μ_k [P]."""
        next_state, plan = self.probed(memory, start)
        return next_state, plan | {"pull": self.strength(self.lam, plan["sharpness"])}
