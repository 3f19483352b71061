"""Roughness index of a local loss, and the proximal pull that it controls.

Partohaghighi et al., 2026, arXiv 2602.12567, `eq:dir_norm` to `eq:ri_def` (after Wu et al.,
arXiv 2103.11069): the loss is sliced along M random unit directions d_i around the broadcast model,

    φ_i(s_j) = loss(w_t + s_j d_i),    s_j = -ℓ + 2ℓj/m,    j = 0..m
    TV_i = Σ_j |φ_i(s_{j+1}) - φ_i(s_j)|,    A_i = max φ_i - min φ_i
    T_i  = TV_i / (2ℓ (A_i + ε_A))
    I_k  = std(T) / (mean(T) + ε_T)

and vehicle k is pulled toward w_t with strength μ_k (`eq:prox_grad`):

    r(I) = I / (I + τ_I)   or   clip(I, I_min, I_max)
    v_h  = g_h + μ_k (w_h - w_t),    μ_k = λ_t r(I_k)

A monotone slice has TV = A, so I_k is 0 but for ε_A when all slices are monotone: T is A/(A + ε_A)
over 2ℓ for all of them, which differs only where an A is not far above ε_A. That is the usual case
at the paper's radius ℓ = 0.01 (docs/methods.md).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from fedwatt.errors import check
from fedwatt.methods.proximal import PlannedPull
from fedwatt.methods.rule import SCHEDULES, Batch, Rows, Start, scheduled
from fedwatt.models import Loss, Model
from fedwatt.settings import Range, choice, number
from fedwatt.tables import PROBED, PULL, ROUGHNESS
from fedwatt.threads import run_on_cores


def loss_slices(
    model: Model, loss: Loss, weights: Tensor, directions: Tensor, offsets: Tensor, batch: Batch
) -> Tensor:
    """Return φ [M, m+1], the mean loss on `batch` at `weights` [D] + s·d for directions d [M, D].

    Float64 whatever the training precision: in float32 the steps of a slice drown in rounding,
    which would appear as roughness.
    """
    windows = batch.windows.double()
    labels = batch.labels.double()
    predictions = model.along(weights.double(), directions.double(), offsets, windows)
    return loss(predictions, labels.expand_as(predictions)).mean(dim=-1)


def unit(directions: Tensor) -> Tensor:
    """Return the directions [..., D] at length 1, float64."""
    return torch.nn.functional.normalize(directions.double(), dim=-1, eps=0.0)


def roughness_index(
    slices: Tensor, radius: float, *, epsilon_a: float = 1e-8, epsilon_t: float = 1e-8
) -> Tensor:
    """Return the index I [...] of `slices` [..., M, m+1].

    >>> straight = torch.tensor([[0.0, 1.0, 2.0], [3.0, 2.0, 1.0]])
    >>> well = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
    >>> roughness_index(straight, 0.01).item()
    0.0
    >>> round(roughness_index(well, 0.01).item(), 6)  # TV/A is 2 and 1: std 0.5, mean 1.5
    0.333333
    >>> flat = torch.tensor([[0.0, 1e-4], [0.0, 1e-6]])  # TV/(A + ε_A) is 0.9999 and 0.9901
    >>> round(roughness_index(flat, 0.01).item(), 4)
    0.0049
    """
    variation = slices.diff(dim=-1).abs().sum(dim=-1)
    amplitude = slices.amax(dim=-1) - slices.amin(dim=-1)
    normalised = variation / (2 * radius * (amplitude + epsilon_a))
    return normalised.std(dim=-1, correction=0) / (normalised.mean(dim=-1) + epsilon_t)


TOGETHER = 32
"""Vehicles that a GPU probes at once. Each takes some 25 MB, most of it for windows in which units
switch, and 100 million operations: 32 occupy a large GPU and fit on a small one."""


@dataclass(frozen=True, eq=False)
class Slicing:
    """Settings of the loss slices, and the statistic that is computed from them."""

    count: int  # M
    lines: Callable[[Tensor, Tensor], Tensor]
    """(A model [D], directions as they were drawn [M, D]) → lines [M, D]."""
    offsets: Tensor  # s_j, [m+1], float64
    batch: Callable[[int], Batch]
    """A vehicle's row → its windows."""
    measure: Callable[[Tensor], Tensor]
    """φ [..., M, m+1] → statistics of each vehicle, [..., N]."""


def measured(start: Start, rows: Sequence[int], slicing: Slicing) -> Tensor:
    """Return the statistics of the vehicles in `rows`, [rows, N].

    Vehicles of a run that begin at one model share their lines, which are as large as ten models.
    """
    follow = together if start.anchor.is_cuda else side_by_side
    statistics: list[Tensor] = [start.anchor] * len(rows)
    for places in _alike(start, rows):
        group = [rows[place] for place in places]
        weights = start.origin[group[0]]
        lines = slicing.lines(weights, start.probe_directions(group[0], slicing.count))
        for place, statistic in zip(
            places, follow(start, slicing, weights, lines, group), strict=True
        ):
            statistics[place] = statistic
    return torch.stack(statistics)


def _alike(start: Start, rows: Sequence[int]) -> Iterable[list[int]]:
    """Group places in `rows`: vehicles of a group share origin and directions."""
    if start.begins_at is not None or not start.runs:
        return ([place] for place in range(len(rows)))
    of_run: dict[int, list[int]] = {}
    for place, row in enumerate(rows):
        of_run.setdefault(start.runs[row], []).append(place)
    return of_run.values()


def side_by_side(
    start: Start, slicing: Slicing, weights: Tensor, lines: Tensor, rows: Sequence[int]
) -> list[Tensor]:
    """Return the statistics of each of `rows`, which share a model and lines; one core each."""

    def follow(row: int) -> Tensor:
        # Drawn here: drawing all batches first would take more memory and a single core.
        batch = slicing.batch(row)
        slices = loss_slices(start.model, start.loss, weights, lines, slicing.offsets, batch)
        return slicing.measure(slices)

    return run_on_cores(follow, rows)


def together(
    start: Start, slicing: Slicing, weights: Tensor, lines: Tensor, rows: Sequence[int]
) -> list[Tensor]:
    """Return the statistics as `side_by_side`, on a GPU: up to `TOGETHER` vehicles per batch.

    They belong to one run, so that no bit depends on other runs in the stack.
    """
    weights, lines, statistics = weights.double(), lines.double(), list[Tensor]()
    for first in range(0, len(rows), TOGETHER):
        drawn = [slicing.batch(row) for row in rows[first : first + TOGETHER]]
        windows = torch.cat([probe.windows for probe in drawn]).double()
        labels = torch.cat([probe.labels for probe in drawn]).double()
        predictions = start.model.along(weights, lines, slicing.offsets, windows)
        losses = start.loss(predictions, labels.expand_as(predictions))
        parts = torch.split(losses, [len(probe.labels) for probe in drawn], dim=-1)
        statistics += slicing.measure(torch.stack([probe.mean(dim=-1) for probe in parts])).unbind()
    return statistics


@dataclass(frozen=True, kw_only=True)
class Probing(PlannedPull):
    """A pull by an index that vehicles probe every R rounds."""

    probe_every: int = number(5, "[1, inf]", "round")
    """R, rounds."""
    probe_schedule: str = choice("age", "global")
    """"age": a vehicle probes when its index is R rounds old; "global": all do every R-th round."""

    last_probe: ClassVar[str] = ""
    """Name of the round of the last probe in the client state; -1: never."""

    def due(self, client_state: Rows, start: Start) -> Tensor:
        """Return which vehicles probe, [P]; one without an index always does."""
        last = client_state[self.last_probe]
        if self.probe_schedule == "global" and start.round % self.probe_every == 0:
            return torch.ones_like(last, dtype=torch.bool)
        old = start.round - last >= self.probe_every
        return (last < 0) | (old & (self.probe_schedule == "age"))


@dataclass(frozen=True, kw_only=True)
class RoughnessProximal(Probing):
    """Pull of strength λ_t · r(I_k): the roughness-informed rule of RI-FedAvg and FO-RI-FedAvg.

    Between two probes a vehicle uses its last index.
    """

    lam: float = number(0.1, "[0, inf)", "(0 switches the pull off)", tuned=Range(1e-4, 1.0))
    """λ, the strength where the response is 1."""
    lam_schedule: str = choice(*SCHEDULES)
    directions: int = number(10, "[2, inf]", ": one has no spread")  # M
    points: int = number(100, "[2, inf]", ": fewer are always monotone")
    """m; each slice has m + 1 points."""
    radius: float = number(
        0.01, "(0, inf)", fixed="the distance at which roughness is measured"
    )  # ℓ
    probe_batch: int = number(128, "[1, inf]", "window")
    """B_probe, windows; a vehicle with fewer uses all of them."""
    response: str = choice("saturating", "clipped")
    """r(I): "saturating" is I/(I + τ_I), "clipped" is clip(I, I_min, I_max)."""
    tau_i: float = number(0.1, "(0, inf)", tuned=Range(0.01, 0.3))
    i_min: float = number(0.0, "[0, inf)", fixed="a safeguard")
    i_max: float = number(1.0, "[0, inf]", "(inf: no upper limit)", fixed="a safeguard")
    epsilon_a: float = number(1e-8, "(0, inf)", fixed="a safeguard")
    epsilon_t: float = number(1e-8, "(0, inf)", fixed="a safeguard")

    begin_timed_as = "probe"
    last_probe = "probed_in"
    records = (ROUGHNESS, PULL, PROBED)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(self, "i_min", self.i_min <= self.i_max, f"in [0, i_max={self.i_max}] and finite")

    def respond(self, index: Tensor) -> Tensor:
        """Return r(I), element by element (`eq:ri_response`)."""
        if self.response == "clipped":
            return index.clamp(self.i_min, self.i_max)
        return index / (index + self.tau_i)

    def client_state(self, model: Model) -> Rows:
        """Return the last index and the round it was probed in; -1: never."""
        return {"roughness": torch.tensor(0.0).double(), "probed_in": torch.tensor(-1)}

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Probe the vehicles that are due and set this round's strengths μ_k [P]."""
        due = self.due(client_state, start)
        rows = due.nonzero().flatten().tolist()
        index = client_state["roughness"].clone()
        if rows:
            index[rows] = measured(start, rows, self._slicing(start))
        strength = scheduled(self.lam, self.lam_schedule, start.round) * self.respond(index)
        last = client_state["probed_in"].masked_fill(due, start.round)
        next_state = client_state | {"roughness": index, "probed_in": last}
        return next_state, {"probed": due, "roughness": index, "pull": strength}

    def _slicing(self, start: Start) -> Slicing:
        offsets = torch.linspace(-self.radius, self.radius, self.points + 1, dtype=torch.float64)
        return Slicing(
            self.directions,
            lambda _, drawn: unit(drawn),
            offsets.to(start.anchor.device),
            lambda row: start.probe_batch(row, self.probe_batch, "probe batch"),
            partial(
                roughness_index,
                radius=self.radius,
                epsilon_a=self.epsilon_a,
                epsilon_t=self.epsilon_t,
            ),
        )
