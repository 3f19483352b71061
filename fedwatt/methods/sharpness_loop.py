"""A pull by sharpness in closed loop: where a vehicle's loss is sharp, and how hard all are pulled.

    μ_k = λ_t r(Ĵ_k),      r = Ĵ/(Ĵ + τ)

Ĵ_k is each vehicle's own index (`methods/sharpness.py`) and stays in it. λ_t is the server's, which
controls it by the vehicles' transfer ratios with all safeguards of `methods/control.py`: the index
says who is pulled, the loop how much that is worth. With κ = 0 it is `si-fedavg` at λ_0 while that
is at most ½/η_t; with τ → 0 it is `ti-fedavg-server` where every Ĵ_k is above 0.
"""

from dataclasses import dataclass
from typing import ClassVar

from fedwatt.errors import check
from fedwatt.methods.rule import Rows, Start
from fedwatt.methods.sharpness import SharpnessIndex
from fedwatt.methods.transfer import TRANSFER, TransferReport
from fedwatt.tables import Column


@dataclass(frozen=True, kw_only=True)
class SharpnessReport(SharpnessIndex, TransferReport):
    """The vehicle's part: it is pulled by λ_t r(Ĵ_k), and tells q_k."""

    records: ClassVar[tuple[Column, ...]] = (*SharpnessIndex.records, TRANSFER)

    def __post_init__(self) -> None:
        super().__post_init__()
        allowed = "'age' or 'global': the server of the trigger is not that of the loop"
        check(self, "probe_schedule", not self.triggered, allowed)

    def begin(self, memory: Rows, start: Start) -> tuple[Rows, Rows]:
        """λ_t r(Ĵ_k) [P], and q_k."""
        next_state, index = self.probed(memory, start)
        _, plan = super().begin(memory, start)
        pull = self.strength(plan["pull"], index["sharpness"])
        return next_state, index | plan | {"pull": pull}
