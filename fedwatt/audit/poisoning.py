"""What lying vehicles do to the model: test RMSE after some rounds, beside that of honest ones.

Lies: a weight of millions with Δ = 1, Δ = 1e30, a flipped sign, a flipped sign at five times the
length, by one vehicle or by a tenth of them together. Limits are the defaults of `[deploy]` and
`[secure]`: capped weights and bounded lengths in plain rounds, and under masks words of fixed point
and a bounded mean.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.audit.levels import PLAIN
from fedwatt.deploy.limits_of_replies import capped, shortened
from fedwatt.federation import Federation, Loop, State, Training
from fedwatt.federation.port import Present
from fedwatt.federation.simulated import SimulatedFleet
from fedwatt.federation.work import Work
from fedwatt.methods import Method, get
from fedwatt.metrics import Stopwatch
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.runs.deployment import Deployment
from fedwatt.windows import Fleet

MILLIONS: Final = 4_000_000.0
"""Windows, of 1 Hz: a month and a half of driving without a stop."""
FLIPPED_LENGTH: Final = 5.0
"""Of a flipped reply: what a norm bound of 5 medians lets pass, so the worst that is not cut."""
COLLUDING: Final = 0.1
"""Share of the vehicles that lie together."""
Lie = Callable[[Tensor], Tensor]
LIES: Final[dict[str, tuple[Lie, float, bool]]] = {
    "n_k = 4e6, Δ = 1": (torch.ones_like, MILLIONS, False),
    "Δ = 1e30": (lambda delta: torch.full_like(delta, 1e30), 0.0, False),
    "one sign flipped": (lambda delta: -delta, 0.0, False),
    "one sign flipped, 5 times as long": (
        lambda delta: -FLIPPED_LENGTH * delta,
        0.0,
        False,
    ),
    "a tenth flipped, 5 times as long": (
        lambda delta: -FLIPPED_LENGTH * delta,
        0.0,
        True,
    ),
}
"""The reply of a liar, its weight (0: its own), and whether a tenth of the vehicles lie."""
NO_LIMITS: Final = "no limits"


@dataclass(frozen=True)
class Liars:
    """Vehicles that lie, and the limits that their replies meet."""

    lie: Lie
    weight: float
    vehicles: frozenset[int]
    level: str

    def change(self, work: Work, sizes: list[int]) -> Work:
        """The work of a round as the server takes it in."""
        deltas, weights = work.deltas.clone(), work.weights.copy()
        for row, call in enumerate(work.calls):
            if call.vehicle in self.vehicles:
                deltas[row] = self.lie(deltas[row])
                weights[row] = self.weight or weights[row]
        counted = work.counted & deltas.isfinite().all(dim=-1).numpy()
        if self.level == NO_LIMITS:
            return replace(work, deltas=deltas, weights=weights, counted=counted)
        if self.level == PLAIN:
            limits = Deployment()
            deltas, _ = shortened(deltas, counted, limits.norm_bound)
            weights = capped(weights.tolist(), sizes, limits.weight_cap)
            return replace(work, deltas=deltas, weights=weights, counted=counted)
        settings = SecureSettings()
        # A liar under masks leaves out its own guards; fixed point still clips what it can hold.
        weights = np.minimum(weights, settings.windows_limit)
        deltas = deltas.clamp(-settings.delta_limit, settings.delta_limit)
        mean = (torch.from_numpy(weights)[:, None] * deltas.double()).sum(dim=0) / weights.sum()
        if float(mean.norm()) > settings.norm_limit:
            counted = np.zeros_like(counted)
        return replace(work, deltas=deltas, weights=weights, counted=counted)


class LiedTo(SimulatedFleet):
    """A simulated fleet some vehicles of which lie."""

    liars: Liars | None = None

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """The round's replies, lies among them."""
        work = super().work(method, state, present, watch)
        sizes = [present.members.windows(int(k)) for k in present.members.population]
        return work if self.liars is None else self.liars.change(work, sizes)


def poisoning(fleet: Fleet, rounds: int, levels: tuple[str, ...]) -> dict[str, dict[str, float]]:
    """Test RMSE in Wh after `rounds` of FedAvg, by lie and level; inf where it left all numbers."""
    training = Training(rounds=rounds, participation=1.0, evaluate_every=rounds)
    federation = Federation(fleet, training=training, device="cpu")
    honest = _rmse(federation, None)
    scores: dict[str, dict[str, float]] = {}
    for name, (lie, weight, many) in LIES.items():
        count = ceil(COLLUDING * len(fleet.clients)) if many else 1
        found = {
            level: _rmse(federation, Liars(lie, weight, frozenset(range(count)), level))
            for level in (NO_LIMITS, *levels)
        }
        scores[name] = found | {"honest": honest}
    return scores


def _rmse(federation: Federation, liars: Liars | None) -> float:
    port = LiedTo(federation)
    port.liars = liars
    loop = Loop(port, federation.terms, federation.model, federation.device)
    row = loop.train(get("fedavg")).history.rounds[-1]
    value = float(row["test_rmse"])
    return inf if row["diverged"] or not np.isfinite(value) else value
