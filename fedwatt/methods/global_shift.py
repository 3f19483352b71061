"""FedLESAM: sharpness-aware training at the cost of plain steps.

Fan et al., ICML 2024. FedSAM asks every batch where uphill is; here the fleet's own path tells it.
The server moved downhill from the model that vehicle k was sent last to the one it is sent now, so

    o = ρ (w_k^old - w_t) / ‖w_k^old - w_t‖,      g_h = ∇loss(w_h + o),      o = 0 at the first time

One gradient a step, and nothing more is sent. As o is the same in all steps of a round, training at
w + o is training from w_t + o: every other rule sees weights relative to w_t or to earlier weights,
which the shift leaves as they are. The published code indexes the flat update by the number of the
tensor and shifts every tensor by one number; this is the paper's method.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from fedwatt.methods.ranges import Range
from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.methods.sharpness_aware import SMALLEST_NORM, SharpnessAware
from fedwatt.models import Model
from fedwatt.settings import number


@dataclass(frozen=True, kw_only=True)
class GlobalShift(LocalRule):
    """Gradients at distance ρ back along the path of the global model."""

    rho_lesam: float = number(0.05, "[0, inf)", "(0 is FedAvg)", tuned=Range(0.01, 0.2))
    """ρ; 0 is FedAvg."""

    def conflict(self, other: LocalRule) -> str:
        """Refuse rules that read the weights themselves, or perturb them as well."""
        if isinstance(other, SharpnessAware):
            return "SharpnessAware and GlobalShift both move the point of the gradient; use one."
        if other.shapes_loss:
            return (
                f"{type(other).__name__} compares models, and GlobalShift moves the one that is "
                "trained. Use 'sam' in its place."
            )
        return ""

    def memory(self, model: Model) -> Rows:
        """Return the model that it was sent last, and whether there was one."""
        return {"sent_before": torch.zeros(model.layout.size), "was_there": torch.tensor(False)}

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """o [P, D]."""
        back = memory["sent_before"].to(start.anchor) - start.anchor
        length = back.norm(dim=-1, keepdim=True) + SMALLEST_NORM
        seen_before = memory["was_there"][:, None]
        shift = torch.where(seen_before, self.rho_lesam * back / length, torch.zeros_like(back))
        return memory, {"shift": shift}

    def shift(self, plan: Rows) -> Tensor:
        """o."""
        return plan["shift"]

    def finish(self, memory: Rows, plan: Rows, start: Start, deltas: Tensor) -> tuple[Rows, Rows]:
        """Remember w_t."""
        seen = torch.ones_like(memory["was_there"])
        return {"sent_before": start.anchor, "was_there": seen}, {}
