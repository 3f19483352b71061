"""Length of fractional steps beside plain ones, measured.

Paper, `eq:frac_precond`. From models met on the way, the local steps of that round are taken again
and each step's length ‖p ⊙ g‖ is put beside ‖g‖. FedAvg at the rate times their ratio takes steps
of the same mean length: what FO gains beyond it is due to its shape, not to its size.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from torch import Tensor

from fedwatt.engine import plain
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.federation import Federation
from fedwatt.federation.participation import participants
from fedwatt.methods import Fractional, Method
from fedwatt.methods.rule import LocalRule, Rows, scheduled

STEPS = 60
"""Steps of a round that are measured: the scale settles within a few."""


@dataclass(frozen=True, kw_only=True)
class Measured(LocalRule):
    """Takes the steps of a fractional rule, without its gate, and notes how long they are."""

    rule: Fractional
    steps: list[tuple[float, float, float]] = field(default_factory=list)
    """(‖g‖, ‖p ⊙ g‖, mean of p) of each step after the first of a round."""

    looks_back: ClassVar[bool] = True

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return g ⊙ p, noted; the first step of a round is plain."""
        if previous is None:
            return gradient
        p = self.rule.scale(weights - previous)
        scaled = gradient * p
        self.steps.append((float(gradient.norm()), float(scaled.norm()), float(p.mean())))
        return scaled


def step_scale(
    federation: Federation, method: Method, models: Mapping[int, Tensor]
) -> dict[str, float]:
    """Return means over steps h ≥ 1 of the first seed's participants: `length` Σ‖p⊙g‖/Σ‖g‖ and
    `coordinate`, the mean of p; `models` maps a round to the models [R, D] it started from.

    Only the fractional rule is applied: a pull is far weaker than the gradient.
    """
    (rule,) = (r for r in method.local if isinstance(r, Fractional))
    measured = Measured(rule=rule)
    for at, weights in models.items():
        _train(federation, measured, at, weights[:1, : federation.model.layout.size])
    if not measured.steps:
        return {}
    plain_length, length, coordinate = np.array(measured.steps).T
    return {
        "length": float(length.sum() / plain_length.sum()),
        "coordinate": float(coordinate.mean()),
    }


def _train(federation: Federation, rule: Measured, at: int, broadcast: Tensor) -> None:
    """Take the first steps of round `at`, vehicle by vehicle, from the model [1, D]."""
    training = federation.training
    seed = federation.seeds[0]
    everyone = np.ones(len(federation.members.population), dtype=bool)
    learning_rate = scheduled(training.learning_rate, training.schedule, at)
    for position in participants(seed, at, everyone, training.participation).tolist():
        vehicle = int(federation.members.population[position])
        name = federation.fleet.names[vehicle]
        windows = federation.pool.train.count(vehicle)
        steps = min(STEPS, training.epochs * -(-windows // training.batch))
        draw = Draw(seed, at, name, windows=windows, end=steps, batch=training.batch)
        batches = Batches(federation.pool, [vehicle], [draw])
        task = (federation.model, federation.loss)
        plain.train(Job((rule,), ({},), *task, broadcast, learning_rate, batches))
