"""FedEL: slow vehicles train a sliding window of blocks, and in it the tensors that matter most.

Zhang et al., NeurIPS 2025, arXiv 2509.16902, for vehicles with unequal computers
(`availability.speeds`). In each round that it takes part in, a vehicle moves its window of blocks
on and leaves the network at the window's end by an early exit. It weighs each tensor by its
importance I, trains the tensors with the largest ΣI that fit into the runtime budget, and the exit:

    I = β local + (1 - β) global        each over its largest value
    local  = -⟨g', δ⟩,  δ = -η_t g      the gain of a step on a probe batch
    global = ‖w_t - w_{t-1}‖²           how far the last round moved the tensor

The server averages each tensor over the vehicles that trained it. The budget is the time in which
the fastest class of computers trains the whole model, so with equal computers this is FedAvg.

The authors published no code. Decided here: importances are normalised before mixing, local
importance is taken through the window's exit and counts from 0 up, exits are averaged like other
tensors, tensors that no vehicle trained stay, and time is counted in floating-point operations.

In an MLP over a minute of driving nine tenths of the work is the first matrix. A computer half as
fast as the fastest trains biases and exits alone, so FedEL gains little on the networks used here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from math import prod
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.methods.contrastive import Contrastive
from fedwatt.methods.elastic_model import (
    ElasticModel,
    next_window,
    select,
    tensor_work,
    training_work,
    whole_work,
)
from fedwatt.methods.rule import Batch, LocalRule, Rows, Start
from fedwatt.methods.server import Replies, ServerRule, moved
from fedwatt.models import Model
from fedwatt.models.model import Parts
from fedwatt.settings import Range, choice, number
from fedwatt.tables import RUNTIME


@dataclass(frozen=True, kw_only=True)
class Elastic(LocalRule):
    """FedEL's local rule."""

    beta: float = number(0.6, "[0, 1]", tuned=Range(0.2, 0.8, log=False))
    """β, the share of local importance."""
    budget: float = number(
        0.0, "[0, inf]", "(0: the fastest class sets it)", fixed="how long a step may take"
    )
    """Time for a step, in steps of the whole model on a computer of speed 1; 0: that of the
    fastest class."""
    importance_batch: int = number(128, "[1, inf]", "window")
    """Windows of the probe batch; a vehicle with fewer uses all it has."""

    begin_timed_as = "probe"
    records = (RUNTIME,)
    server_half = "ElasticServer"
    looks_back = False
    shapes_loss = True
    chooses_prediction = True

    def adapt(self, model: Model) -> Model:
        """Return the model with its early exits."""
        return ElasticModel(model)

    def client_state(self, model: Model) -> Rows:
        """Return no window and no trained tensors."""
        return {"window": torch.tensor([-1, -1]), **self.uploads(model)}

    def uploads(self, model: Model) -> Rows:
        """Return a template of the upload, which tensors were trained."""
        return {"trained": torch.zeros(len(model.layout.shapes), dtype=torch.bool)}

    def conflict(self, other: LocalRule) -> str:
        """Refuse MOON, which needs the whole model in every vehicle."""
        if not isinstance(other, Contrastive):
            return ""
        return (
            "Contrastive compares representations of the whole model, and Elastic trains a part "
            "that ends before them; use one of the two."
        )

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Return the plan: each vehicle's window, its tensors, and `runtime` over the budget."""
        assert isinstance(start.model, ElasticModel)
        choices = [self._choose(client_state, start, row) for row in range(len(start.anchor))]
        names = list(start.model.layout.shapes)
        device = start.anchor.device
        window = torch.tensor([choice.window for choice in choices], device=device)
        trained = torch.tensor([[n in c.trained for n in names] for c in choices], device=device)
        plan = {
            "front": window[:, 1],
            "early": window[:, 1:] < len(start.model.blocks) - 1,
            "trained": trained,
            "mask": trained.repeat_interleave(_sizes(start.model).to(device), dim=-1),
            "runtime": torch.tensor([choice.runtime for choice in choices], dtype=torch.float64),
        }
        return {"window": window, "trained": trained}, plan

    def _choose(self, client_state: Rows, start: Start, row: int) -> "_Choice":
        """Return the tensors that the vehicle in `row` trains this round."""
        model = start.model
        assert isinstance(model, ElasticModel)
        batch = start.probe_batch(row, self.importance_batch, "importance batch")
        seconds = batch.windows.shape[-2]
        speed = start.speed[row].item()
        # The speed over the fastest first: exactly 1 where they are equal.
        share = self.budget * speed if self.budget else speed / start.fastest
        budget = whole_work(model, seconds) * share

        work = tensor_work(model, seconds)
        times = [sum(work[n].apply + work[n].through for n in block) for block in model.blocks]
        on = dict(zip(model.layout.shapes, client_state["trained"][row].tolist(), strict=True))
        used = [any(on[name] for name in block) for block in model.blocks]
        before = client_state["window"][row].tolist()
        window = next_window(None if before[1] < 0 else tuple(before), used, times, budget)

        candidates = [n for block in model.blocks[window[0] : window[1] + 1] for n in block]
        head = model.exit(window[1])
        trained = {*candidates, *head}
        # Where everything fits nothing needs to be weighed.
        if training_work(model, seconds, window[1], trained) > budget:
            chosen = select(
                self._importance(start, row, batch, window[1], candidates),
                [work[name].apply for name in candidates],
                [*(work[name].through for name in candidates), sum(work[n].through for n in head)],
                budget - training_work(model, seconds, window[1], ()),
            )
            trained = {*compress(candidates, chosen), *head}
        return _Choice(window, trained, training_work(model, seconds, window[1], trained) / budget)

    def _importance(
        self, start: Start, row: int, batch: Batch, front: int, candidates: Sequence[str]
    ) -> list[float]:
        """Return the importance I of the tensors `candidates`, each in [0, 1].

        Float64 whatever the training precision: rounding should not choose tensors.
        """
        model = start.model
        assert isinstance(model, ElasticModel)
        windows = batch.windows.double()
        labels = batch.labels.double()

        def loss(parts: Parts) -> Tensor:
            return start.loss(model.leave(front, parts, windows), labels).mean()

        here = start.anchor[row].double()
        gradient = model.gradient_of(loss, here)
        gain = (
            start.learning_rate
            * gradient
            * model.gradient_of(loss, here - start.learning_rate * gradient)
        )
        places = [list(model.layout.shapes).index(name) for name in candidates]
        local = _normalised(tensor_sums(gain, _sizes(model))[places])
        fleet_importance = _normalised(start.broadcast["tensor_changes"][row].double()[places])
        # Before the first round only the local importance is known.
        beta = self.beta if fleet_importance.any() else 1.0
        return (beta * local + (1 - beta) * fleet_importance).tolist()

    def shapes(self, plan: Rows) -> bool:
        """Return whether any vehicle of the stack leaves before the last block."""
        return bool(plan["early"].any())

    def prediction(
        self, prediction: Tensor, model: Model, parts: Parts, windows: Tensor, plan: Rows
    ) -> Tensor:
        """Return each vehicle's prediction at the exit of its window."""
        assert isinstance(model, ElasticModel)
        for block in range(len(model.blocks) - 1):
            left = model.leave(block, parts, windows)
            prediction = torch.where(plan["front"][:, None] == block, left, prediction)
        return prediction

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return the gradient of the chosen tensors, 0 for all others."""
        return torch.where(plan["mask"], gradient, 0.0)


@dataclass(frozen=True)
class _Choice:
    window: tuple[int, int]
    trained: set[str]
    runtime: float


@dataclass(frozen=True, kw_only=True)
class ElasticServer(ServerRule):
    """FedEL's server rule: for each tensor the mean over the vehicles that trained it."""

    weighting: str = choice("windows", "uniform")

    local_half = Elastic
    sum_limits: ClassVar[Mapping[str, float]] = {"trained": 1.0}
    adds_up = True
    # Vehicles add up A_k Δ_k and A_k, A_k being 1 for trained tensors and 0 for others.

    @property
    def counts_alike(self) -> bool:
        """True if every vehicle that trained a tensor has the same weight in its average."""
        return self.weighting == "uniform"

    def contribution(self, model: Model, delta: Tensor, uploads: Rows) -> Tensor:
        """Return A_k Δ_k, the update with 0 for tensors that were not trained."""
        return delta * uploads["trained"].repeat_interleave(_sizes(model))

    def mean_of_sums(
        self, model: Model, delta: Tensor, weight: float, uploads: Rows
    ) -> tuple[Tensor, Rows]:
        """Return each tensor's mean over the vehicles that trained it, 0 without any."""
        trained = uploads["trained"]
        share = torch.where(trained > 0, weight / trained, 0.0)
        mean = delta / weight * share.repeat_interleave(_sizes(model))
        return mean, {"trained": trained > 0}

    def state(self, model: Model) -> Rows:
        """Return ‖w_t - w_{t-1}‖² of each tensor, 0 at first, and the tensors' sizes."""
        sizes = _sizes(model)
        return {"changes": torch.zeros(len(sizes), dtype=torch.float64), "sizes": sizes}

    def broadcast(self, state: Rows) -> Rows:
        """Return ‖w_t - w_{t-1}‖² of each tensor."""
        return {"tensor_changes": state["changes"]}

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return w_t + Σ_k n_k A_k Δ_k / Σ_k n_k A_k; a tensor that no vehicle trained stays."""
        share = replies.windows if self.weighting == "windows" else replies.windows.new_ones(())
        shares = share.expand_as(replies.windows)[:, None] * replies.uploads["trained"].double()
        total = shares.sum(dim=0)
        shares = torch.where(total > 0, shares / total, 0.0)
        sizes = state["sizes"]
        step = (shares.repeat_interleave(sizes, dim=-1) * replies.deltas.double()).sum(dim=0)
        after = moved(weights, step)
        changes = tensor_sums((after.double() - weights.double()) ** 2, sizes)
        return {"changes": changes, "sizes": sizes}, after


def _sizes(model: Model) -> Tensor:
    return torch.tensor([prod(shape) for shape in model.layout.shapes.values()])


def tensor_sums(values: Tensor, sizes: Tensor) -> Tensor:
    """Sum `values` [D] over each tensor, where tensor i has `sizes[i]` weights; shape [T].

    >>> tensor_sums(torch.tensor([1.0, 2.0, 4.0]), torch.tensor([2, 1]))
    tensor([3., 4.])
    """
    return torch.stack([part.sum() for part in torch.split(values, sizes.tolist())])


def _normalised(values: Tensor) -> Tensor:
    """Return `values` over the largest one; negative and infinite ones become 0."""
    values = values.nan_to_num(nan=0.0, posinf=0.0).clamp(min=0)
    return values / values.max() if values.any() else values
