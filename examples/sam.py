"""FedSAM: every step takes the gradient where the loss is worst nearby.

    g_h = ∇ loss(w_h + ρ ∇loss(w_h) / ‖∇loss(w_h)‖), both on the same batch

Foret et al., ICLR 2021; in federated learning Qu et al., ICML 2022.

    fedwatt run --method fedavg --method ./examples/sam.py:sam --set sam.rho=0.05
"""

from dataclasses import dataclass

from torch import Tensor

from fedwatt.methods import LocalRule, Method, Range, Rows, StepLoss, number


@dataclass(frozen=True, kw_only=True)
class SharpnessAware(LocalRule):
    """The gradient at the point of a ball of radius ρ at which the loss grows fastest."""

    rho: float = number(0.02, "[0, inf)", tuned=Range(0.001, 0.2))

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Two gradients a step, all vehicles [P, D] at once."""
        gradient = loss.gradient(weights)
        norm = gradient.norm(dim=-1, keepdim=True).clamp_min(1e-12)
        return loss.gradient(weights + self.rho * gradient / norm)


sam = Method("sam", (SharpnessAware(),))
