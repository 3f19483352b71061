"""What a local rule is: one mechanism of a vehicle's training.

One local step of any method, for vehicle k after h steps of round t:

    v_h     = g_h, changed by each rule's `gradient`     (a proximal pull adds μ_k (w_h - w_t))
    u_h     = v_h, changed by each rule's `direction`    (a preconditioner scales coordinates)
    w_{h+1} = w_h - η_t · u_h

A rule is a frozen dataclass of hyperparameters that overrides what it changes. Its functions are
pure: what a vehicle remembers goes in and comes out. Tensors carry the stack of vehicles as their
first axis, P; a vehicle on the road is a stack of one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from fedwatt.models import Loss, Model

Rows = dict[str, Tensor]
"""Named tensors whose first axis is the stack of vehicles."""


@dataclass(frozen=True)
class Batch:
    """Training windows of one vehicle."""

    windows: Tensor
    """[batch, window, features]"""
    labels: Tensor
    """[batch]"""


@dataclass(frozen=True)
class Start:
    """What the vehicles of a stack know when round `round` (t, from 0) starts."""

    round: int
    anchor: Tensor
    """The broadcast model w_t of each vehicle, [P, D]."""
    model: Model
    loss: Loss
    probe_batch: Callable[[int, int], Batch]
    """(vehicle's row, size) → its probe windows of this round, at most `size` of them."""
    probe_directions: Callable[[int, int], Tensor]
    """(vehicle's row, M) → standard normal directions [M, D], float64, the same for all vehicles
    of a round: common random numbers take the noise of the draw out of the comparison."""


@dataclass(frozen=True, kw_only=True)
class LocalRule:
    """A rule that changes nothing; mechanisms override what they need."""

    begin_cost: ClassVar[str] = "training"
    """What the time of `begin` is booked under."""
    step_cost: ClassVar[str] = "training"
    """What the time of `direction` is booked under."""
    looks_back: ClassVar[bool] = False
    """Whether `direction` needs the weights before the last step."""

    def memory(self) -> Rows:
        """What a vehicle remembers before its first round, without the vehicle axis."""
        return {}

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """Once a round: (memory afterwards, what this round's steps need).

        The second part is the rule's plan; its entries of shape [P] are recorded by their names.
        """
        return memory, {}

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """The gradient [P, D] as this rule wants it, at `weights` [P, D]."""
        return gradient

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """The step's direction [P, D]; `previous` is w_{h-1}, None at the first step."""
        return gradient
