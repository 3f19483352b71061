"""Fractional-order steps: each coordinate's step is scaled by a power of its last displacement.

Partohaghighi et al., 2026, arXiv 2602.12567, `eq:frac_precond`, `eq:precond_clip` and
`eq:spectral_gate`:

    p_h = (|w_h - w_{h-1}| + δ)^(1-α) / Γ(2-α)    element-wise, h ≥ 1;  p_0 = 1
    p   ← p / (1 + β_κ κ)                         spectral gate, off at β_κ = 0
    p   ← clip(p, p_min, p_max)
    p   ← p / mean(p)                             only with `match_rate`
    u_h = p ⊙ v_h

Unlike the paper's prose, small displacements shrink p: at α = 0.8 it reaches 1 only for a
displacement of 0.65, so on real models the rule is a coordinate-wise cut of the learning rate.
Compare it with FedAvg at a reduced rate, or keep only the shape of p: with `match_rate` its mean is
1 in every step, so that steps are as long as plain ones in that sense.

Spectral ratio (`eq:spectral_flatness`): κ = ‖W‖₂ / (‖W‖_F + ε_F). For a matrix of rank r it is in
[1/√r, 1]; it is 1 for every output layer of a scalar regressor, so look at a hidden matrix. The
paper's ten power iterations leave κ 1 to 5 % too low where the largest singular values are close
together; the exact one (`power_iterations = 0`) costs little for matrices of this size. The paper's
algorithm gates before it clips, its text clips first: `order` chooses.
"""

from dataclasses import dataclass
from functools import cached_property
from math import gamma

import torch
from torch import Tensor

from fedwatt.errors import SettingError, check
from fedwatt.methods.momentum import FrozenMomentum, Momentum
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.settings import Range, choice, number
from fedwatt.tables import KAPPA


def spectral_ratio(matrix: Tensor, *, iterations: int = 10, epsilon_f: float = 1e-12) -> Tensor:
    """Return κ [...] of `matrix` [..., rows, columns]; 0 iterations: exact to rounding.

    >>> round(spectral_ratio(torch.diag(torch.tensor([4.0, 3.0])), iterations=50).item(), 6)
    0.8
    >>> round(spectral_ratio(torch.diag(torch.tensor([4.0, 3.0])), iterations=0).item(), 6)
    0.8
    """
    if iterations == 0:
        exact: Tensor = torch.linalg.svdvals(matrix)[..., 0] / (
            matrix.norm(dim=(-2, -1)) + epsilon_f
        )
        return exact
    # A fixed start keeps the estimate reproducible and free of a random stream; the uneven values
    # make it unlikely to be orthogonal to the leading singular vector.
    columns = matrix.shape[-1]
    vector = torch.linspace(1.0, 2.0, columns, dtype=matrix.dtype, device=matrix.device)
    vector = vector.expand(*matrix.shape[:-2], columns).unsqueeze(-1)
    tiny = torch.finfo(matrix.dtype).tiny
    for _ in range(iterations):
        vector = matrix.mT @ (matrix @ vector)
        vector = vector / vector.norm(dim=-2, keepdim=True).clamp_min(tiny)
    largest = (matrix @ vector).norm(dim=(-2, -1))
    ratio: Tensor = largest / (matrix.norm(dim=(-2, -1)) + epsilon_f)
    return ratio


@dataclass(frozen=True, kw_only=True)
class Fractional(LocalRule):
    """Fractional preconditioner of order α, with its clip and its spectral gate."""

    alpha: float = number(
        0.8, "(0, 1]", ". Use 1 to switch the scaling off", tuned=Range(0.3, 1.0, log=False)
    )
    """Order; 1 is plain SGD."""
    delta: float = number(1e-6, "(0, inf)", fixed="a safeguard")
    """δ; with it a coordinate that did not move can still move."""
    p_min: float = number(0.2, "(0, inf)", fixed="a safeguard")
    p_max: float = number(5.0, "(0, inf]", "(inf: no upper limit)", fixed="a safeguard")
    beta_kappa: float = number(
        0.0,
        "[0, inf)",
        "(0 switches the gate off)",
        fixed="switches on the spectral gate: a choice of form",
    )
    """β_κ, strength of the spectral gate."""
    matrix: str = ""  # weight matrix whose κ gates the steps; the model's last hidden one if empty
    power_iterations: int = number(10, "[0, inf]", "(0: exact)")
    """Power iterations for κ; 0: κ is exact to rounding."""
    epsilon_f: float = number(1e-12, "(0, inf)", fixed="a safeguard")
    order: str = choice("gate-then-clip", "clip-then-gate")
    """The paper's algorithm; "clip-then-gate" is the order of its text."""
    match_rate: bool = False  # divide p by its mean; not the paper's

    begin_timed_as = "spectral"
    step_timed_as = "preconditioner"
    records = (KAPPA,)
    looks_back = True
    linear = False
    derived = ("normaliser",)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "p_min", self.p_min <= self.p_max, f"in (0, p_max={self.p_max}] and finite")

    def conflict(self, other: LocalRule) -> str:
        """Refuse momentum: the displacement that sets p would be that of a mixture of steps."""
        if isinstance(other, FrozenMomentum):
            return "MimeLite's momentum is frozen for a round; leave out Fractional."
        if isinstance(other, Momentum):
            return "Fractional scales single steps and Momentum mixes them; use one of the two."
        return ""

    @cached_property
    def normaliser(self) -> float:
        """Γ(2-α)."""
        return gamma(2 - self.alpha)

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: κ of the broadcast model, if β_κ is above 0."""
        if self.beta_kappa == 0:
            return client_state, {}
        name = self.matrix or start.model.spectral_matrix
        shapes = start.model.layout.shapes
        if len(shapes.get(name, ())) != 2:
            matrices = ", ".join(n for n, shape in shapes.items() if len(shape) == 2)
            raise SettingError(
                f"Fractional(matrix={name!r}): the model has no such matrix. It has: {matrices}."
            )
        matrix = start.model.layout.split(start.origin)[name]
        kappa = spectral_ratio(matrix, iterations=self.power_iterations, epsilon_f=self.epsilon_f)
        return client_state, {"kappa": kappa}

    def scale(self, moved: Tensor, kappa: Tensor | float = 0.0) -> Tensor:
        """Return p for the displacement w_h - w_{h-1}, both [..., D]; `kappa` may be [..., 1]."""
        # exp(log) is pow at twice the speed, and exactly 1 at α = 1.
        power = moved.abs().add_(self.delta).log_().mul_(1 - self.alpha).exp_()
        p = power.div_(self.normaliser)
        gate = 1 + self.beta_kappa * kappa
        if self.order == "clip-then-gate":
            p = p.clamp(self.p_min, self.p_max) / gate
        else:
            p = (p / gate).clamp(self.p_min, self.p_max)
        return p / p.mean(dim=-1, keepdim=True) if self.match_rate else p

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return g ⊙ p; in the first step of a round g."""
        if previous is None:
            return gradient
        kappa = plan["kappa"][:, None].to(gradient.dtype) if "kappa" in plan else 0.0
        return gradient * self.scale(weights - previous, kappa)
