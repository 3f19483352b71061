"""What a method costs: numbers sent, and numbers kept between rounds.

Found by going through a round of one vehicle without training it, so that it cannot fall out of
step with the rules.
"""

from dataclasses import dataclass

import torch

from fedwatt.methods.method import Method
from fedwatt.methods.rule import Batch, Rows, Start
from fedwatt.models import Model
from fedwatt.models.loss import squared


@dataclass(frozen=True)
class Costs:
    """Counts of numbers, for one vehicle and round."""

    weights: int
    """d, those of the model."""
    down: int
    up: int
    vehicle: int
    """Kept on each vehicle between rounds."""
    server: int
    """Kept on the server besides the model."""


def costs(method: Method, model: Model, *, window: int, features: int) -> Costs:
    """Costs of `method` with `model` over windows of `window` samples of `features` numbers."""
    adapted = method.adapted(model)
    server = method.server.state(adapted)
    sent = method.server.broadcast(server)
    kept = sum(_numbers(rule.memory(adapted)) for rule in method.local)
    up = handed_up(method, model, window=window, features=features)
    size = adapted.layout.size
    return Costs(
        model.layout.size, size + _numbers(sent), size + _numbers(up), kept, _numbers(server)
    )


def handed_up(method: Method, model: Model, *, window: int, features: int) -> Rows:
    """What a vehicle hands up besides its displacement, [1, ...] each."""
    model = method.adapted(model)
    size = model.layout.size
    sent = method.server.broadcast(method.server.state(model))
    start = Start(
        round=0,
        vehicles=("vehicle",),
        rate=0.1,
        anchor=torch.zeros(1, size),
        broadcast={name: value[None].float() for name, value in sent.items()},
        steps=torch.ones(1, dtype=torch.int64),
        relative_size=torch.ones(1, dtype=torch.float64),
        speed=torch.ones(1, dtype=torch.float64),
        model=model,
        loss=squared,
        probe_batch=lambda row, count, purpose: Batch(
            torch.zeros(2, window, features), torch.zeros(2)
        ),
        probe_directions=lambda row, count: torch.ones(count, size, dtype=torch.float64),
        accumulation=torch.ones(1, dtype=torch.float64),
    )
    uploads: Rows = {}
    for rule in method.local:
        memory = {name: value[None] for name, value in rule.memory(model).items()}
        memory, plan = rule.begin(memory, start)
        uploads |= rule.finish(memory, plan, start, torch.zeros(1, size))[1]
    return uploads


def _numbers(rows: Rows) -> int:
    return sum(value.numel() for value in rows.values())
