r"""Vehicles that send false updates, to try defences against them in a simulation.

    fedwatt run --method examples.faulty_vehicles:SignFlip \
                --method fedavg+examples.faulty_vehicles:SignFlip@median

Each fault is a local rule that leaves honest vehicles alone; which vehicles are faulty is drawn
once for each name, so the same ones fail in every round, whatever other vehicles participate. With
σ = `fault_scale`:

    SignFlip         Δ_k ← -σ Δ_k                            pushes against what was learned
    ScaledUpdate     Δ_k ← σ Δ_k                             takes over the mean by its length
    GaussianUpdate   Δ_k ← σ ‖Δ_k‖ z/√D,  z ~ N(0, I)        noise about as long as σ updates
    LabelShift       trains on labels y + σ, in units of the vehicle's label scale

Only Δ_k is falsified. Other uploads of a method (SCAFFOLD's controls) stay honest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from fedwatt.methods.rule import LocalRule, Rows, Start
from fedwatt.models import Model
from fedwatt.models.model import Parts
from fedwatt.randomness import generator
from fedwatt.settings import number


def is_faulty(vehicle: str, *, seed: int, share: float) -> bool:
    """Return whether `vehicle` is one of the faulty ones; each is with probability `share`."""
    return bool(generator(seed, "faulty vehicle", vehicle).random() < share)


@dataclass(frozen=True, kw_only=True)
class FaultRule(LocalRule):
    """Marks the faulty vehicles of a stack."""

    fault_share: float = number(0.2, "[0, 1]", fixed="part of the experiment")
    """Probability that a vehicle is faulty."""
    fault_seed: int = 0  # of the draw of faulty vehicles
    fault_scale: float = number(1.0, "(-inf, inf)", fixed="part of the experiment")  # σ

    meanings: ClassVar[Mapping[str, str]] = {
        "fault_share": "probability that a vehicle is faulty",
        "fault_seed": "seed of the draw of faulty vehicles",
        "fault_scale": "how large the fault is",
    }

    def conflict(self, other: LocalRule) -> str:
        """Refuse a second fault, which would falsify the update of the first."""
        if not isinstance(other, FaultRule):
            return ""
        return "a vehicle has one fault at a time; name only one."

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the mask of faulty vehicles, [P, 1]."""
        seed = self.fault_seed
        share = self.fault_share
        drawn = [is_faulty(name, seed=seed, share=share) for name in start.vehicles]
        return client_state, {"faulty": torch.tensor(drawn, device=start.anchor.device)[:, None]}


@dataclass(frozen=True, kw_only=True)
class SignFlip(FaultRule):
    """An update in the opposite direction, `fault_scale` times as long."""

    fault_scale: float = 4.0

    def reply(self, deltas: Tensor, plan: Rows) -> Tensor:
        """Return -σ Δ_k for faulty vehicles."""
        return torch.where(plan["faulty"], -self.fault_scale * deltas, deltas)


@dataclass(frozen=True, kw_only=True)
class ScaledUpdate(FaultRule):
    """An update multiplied by a large factor."""

    fault_scale: float = 100.0

    def reply(self, deltas: Tensor, plan: Rows) -> Tensor:
        """Return σ Δ_k for faulty vehicles."""
        return torch.where(plan["faulty"], self.fault_scale * deltas, deltas)


@dataclass(frozen=True, kw_only=True)
class GaussianUpdate(FaultRule):
    """Gaussian noise in place of the update."""

    fault_scale: float = 100.0

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the mask of faulty vehicles and z/√D [P, D], drawn anew every round."""
        client_state, plan = super().begin(client_state, start)
        size = start.anchor.shape[-1]
        noise = np.zeros((len(start.vehicles), size))
        for row in plan["faulty"].flatten().nonzero().flatten().tolist():
            rng = generator(self.fault_seed, "faulty update", start.round, start.vehicles[row])
            noise[row] = rng.standard_normal(size) / np.sqrt(size)
        return client_state, plan | {"noise": torch.from_numpy(noise).to(start.anchor)}

    def reply(self, deltas: Tensor, plan: Rows) -> Tensor:
        """Return σ ‖Δ_k‖ z/√D for faulty vehicles."""
        length = self.fault_scale * deltas.norm(dim=-1, keepdim=True)
        return torch.where(plan["faulty"], length * plan["noise"], deltas)


@dataclass(frozen=True, kw_only=True)
class LabelShift(FaultRule):
    """Training on labels that are too high, as with a wrong current sensor."""

    fault_scale: float = 3.0

    shapes_loss = True

    def shapes(self, plan: Rows) -> bool:
        """Return whether any vehicle of the stack is faulty."""
        return bool(plan["faulty"].any())

    def prediction(
        self, prediction: Tensor, model: Model, parts: Parts, windows: Tensor, plan: Rows
    ) -> Tensor:
        """Return the prediction - σ for faulty vehicles: its error equals that against y + σ."""
        return torch.where(plan["faulty"], prediction - self.fault_scale, prediction)
