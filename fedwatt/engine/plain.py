"""The plain engine: one vehicle after the other, one step after the other, by ordinary autograd.

    loss_h  = Σ_b share_b · (loss(prediction, label) + Σ_rules penalty)       `shaped_gradient`
    g_h     = ∇ loss_h at w_h, or what rules that `explore` make of it elsewhere
    v_h     = g_h, changed by each rule's `gradient`
    u_h     = v_h, changed by each rule's `direction`
    w_{h+1} = w_h - η_t · u_h

It is slow and meant to be read. The other engines must do what this one does, to rounding.
"""

import torch
from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.step import explored_gradient


def train(job: Job) -> Tensor:
    """Return Δ_k = w_k - w_t of every vehicle, [P, D]."""
    rows = (job.part(slice(row, row + 1)) for row in range(len(job.steps)))
    return torch.cat([_train_one(single) for single in rows])


def _train_one(job: Job) -> Tensor:
    """Return Δ_k [1, D] of a job of one vehicle."""
    weights = job.anchor
    previous = None
    for step in range(job.steps[0]):
        direction = explored_gradient(job, weights, job.batches.at(step, 1))
        for rule, plan in zip(job.rules, job.plans, strict=True):
            direction = rule.gradient(direction, weights, job.anchor, plan)
        for rule, plan in zip(job.rules, job.plans, strict=True):
            direction = rule.direction(direction, weights, previous, plan)
        weights, previous = weights - job.learning_rate * direction, weights
        if job.path is not None:
            job.path.add_(torch.linalg.vector_norm(weights - previous, dtype=torch.float64))
    return weights - job.anchor
