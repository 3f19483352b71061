"""How much shorter fractional steps are than plain ones: FO-FedAvg's scale, measured.

Paper, `eq:frac_precond`. From models met on the way, the local steps of that round are taken again
and each step's length ‖p ⊙ g‖ is put beside ‖g‖. FedAvg at the rate times their ratio takes steps
of the same mean length: what FO gains beyond it is due to its shape, not to its size.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.data import Client
from fedwatt.engine.batches import Draw
from fedwatt.federation import Federation
from fedwatt.federation.participation import participants
from fedwatt.methods import Fractional, Method
from fedwatt.methods.schedule import scheduled

STEPS = 60
"""Steps of a round that are measured: the scale settles within a few."""


def step_scale(
    federation: Federation, method: Method, models: Mapping[int, Tensor]
) -> dict[str, float]:
    """Means over steps h ≥ 1 of the first seed's participants: `length` Σ‖p⊙g‖/Σ‖g‖ and
    `coordinate`, the mean of p; `models` maps a round to the models [R, D] it started from.

    Only the fractional rule is applied: a pull is far weaker than the gradient.
    """
    (rule,) = (r for r in method.local if isinstance(r, Fractional))
    plain, scaled, coordinate, count = 0.0, 0.0, 0.0, 0
    for at, weights in models.items():
        for p, g in _round(federation, rule, at, weights[0]):
            plain += float(g.norm())
            scaled += float((p * g).norm())
            coordinate += float(p.mean())
            count += 1
    return {"length": scaled / plain, "coordinate": coordinate / count} if count else {}


def _round(
    federation: Federation, rule: Fractional, at: int, broadcast: Tensor
) -> Iterator[tuple[Tensor, Tensor]]:
    """(p [D], g [D]) of each step after the first, vehicle by vehicle."""
    training, seed, model = federation.training, federation.seeds[0], federation.model
    everyone = np.ones(len(federation.population), dtype=bool)
    rate = scheduled(training.rate, training.schedule, at)
    broadcast = broadcast[: model.layout.size]
    for position in participants(seed, at, everyone, training.participation).tolist():
        client = federation.fleet.clients[int(federation.population[position])]
        windows = len(client.ends["train"])
        steps = min(STEPS, training.epochs * -(-windows // training.batch))
        draw = Draw(seed, at, client.name, windows=windows, end=steps, batch=training.batch)
        here, before = broadcast[None].clone(), None
        for row in draw.order():
            inputs, labels = _batch(client, row[row >= 0])
            share = torch.full((1, len(labels)), 1 / len(labels))
            one = (inputs[None].to(here), labels[None].to(here), share.to(here))
            g = model.gradient(here, *one, federation.loss)
            p = torch.ones_like(g) if before is None else rule.scale(here - before)
            if before is not None:
                yield p[0], g[0]
            before, here = here, here - rate * p * g


def _batch(client: Client, index: NDArray[np.int64]) -> tuple[Tensor, Tensor]:
    """(windows [batch, window, features], labels [batch]) of a vehicle's training windows."""
    ends = client.ends["train"][index]
    rows = ends[:, None] + np.arange(1 - client.window, 1)
    return torch.from_numpy(client.series[rows]), torch.from_numpy(client.labels["train"][index])
