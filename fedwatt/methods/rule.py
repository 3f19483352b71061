"""Local rules: each is one mechanism of a vehicle's training.

One local step of any method, for vehicle k after h steps of round t:

    loss_h  = the model's, changed by each rule's `prediction` and `penalty`   (MOON, FedEL)
    g_h     = its gradient at w_h, or what a rule's `explore` makes of gradients elsewhere   (SAM)
    v_h     = g_h, changed by each rule's `gradient`             (a pull adds μ_k (w_h - w_t))
    u_h     = v_h, changed by each rule's `direction`            (a preconditioner scales it)
    w_{h+1} = w_h - η_t · u_h

A rule is a frozen dataclass of hyperparameters that overrides what it changes. Its functions are
pure: client state goes in and comes out. The first axis of tensors is the stack of vehicles, P; a
deployed vehicle is a stack of one.

The hooks of a step (`prediction`, `penalty`, `explore`, `gradient`, `direction`) take a number of
the rule as it is or as a column [P, 1], for a stack whose rows differ in it, and do not branch on
its value. They are the only place of a rule's mathematics: C for a processor is generated from
`gradient` and `direction` (engine/kernels/trace.py), and a GPU replays them. A hook that works on
single weights, as those of all rules here do, is fast everywhere; any other (with a norm, for
example) runs in torch.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from fedwatt.models import Loss, Model
from fedwatt.models.model import Parts
from fedwatt.settings import Tunable
from fedwatt.tables import Column

Rows = dict[str, Tensor]  # named tensors whose first axis is the stack of vehicles


@dataclass(frozen=True)
class Batch:
    """Training windows of one vehicle."""

    windows: Tensor
    """[batch, window, features]"""
    labels: Tensor
    """[batch]"""


@dataclass(frozen=True)
class PersonalTraining:
    """Steps on a model that stays in its vehicle."""

    rules: "tuple[LocalRule, ...]"
    plans: tuple[Rows, ...]
    weights: Tensor
    """Where each vehicle's steps begin, [P, D]."""
    learning_rate: float
    steps: Tensor
    """Number of steps of each vehicle, [P], on the round's first batches."""


@dataclass(frozen=True)
class Origin:
    """The weights from which vehicles start a round, where that is not the broadcast model."""

    weights: Tensor
    """[P, D]"""
    plan: Rows
    """Entries for the rule's plan."""
    taken: Tensor
    """How many of its H_k steps each vehicle has taken already, [P]; at least one is left."""


@dataclass(frozen=True)
class Start:
    """The inputs of a stack of vehicles at the start of round `round` (t, from 0)."""

    round: int
    vehicles: tuple[str, ...]
    """Names of the stacked vehicles, P of them."""
    learning_rate: float
    """η_t"""
    anchor: Tensor
    """The broadcast model w_t of each vehicle, [P, D]."""
    broadcast: Rows
    """The rest of the server's message, each [P, ...]."""
    steps: Tensor
    """H_k, the local steps of each vehicle from its origin, [P]."""
    relative_size: Tensor
    """ω_k = K n_k / n, the vehicle's windows over the mean of all vehicles', [P], float64."""
    speed: Tensor
    """Relative speed of each vehicle's computer, [P], float64."""
    model: Model
    loss: Loss
    probe_batch: Callable[[int, int, str], Batch]
    """(vehicle's row, size, purpose) → at most `size` of its windows, drawn for this round and
    purpose; draws of different purposes are independent."""
    fixed_batch: Callable[[int, int, str], Batch]
    """As `probe_batch`, with the same windows in every round."""
    probe_directions: Callable[[int, int], Tensor]
    """(vehicle's row, M) → standard normal directions [M, D], float64, the same for all vehicles
    of a round, so that their comparison has no noise of the draw."""
    train: Callable[[PersonalTraining], Tensor]
    """Train a model that stays in its vehicle; return the displacements [P, D]."""
    runs: Sequence[int] = ()
    """The run of each vehicle, [P]; empty: not known."""
    fastest: float = 1.0
    """Speed of the fastest class of computers in the fleet."""
    accumulation: Tensor | None = None
    """‖a_k‖₁ [P], float64, the sum of the gradients' weights; only in `finish`."""
    path: Tensor | None = None
    """Length of the path, Σ_h η ‖u_h‖ [P], float64, for rules that measure it; only in `finish`."""
    begins_at: Tensor | None = None
    """The weights of a rule's `origin`, [P, D]; None: w_t."""

    @property
    def origin(self) -> Tensor:
        """The weights at which each vehicle begins its steps, [P, D]."""
        return self.anchor if self.begins_at is None else self.begins_at


@dataclass(frozen=True)
class StepLoss:
    """The loss of one step's batch as a function of the weights, for all vehicles of a stack."""

    gradient: Callable[[Tensor], Tensor]
    """Weights [P, D] → each vehicle's gradient there, [P, D]."""
    value: Callable[[Tensor], Tensor]
    """Weights [P, D] → each vehicle's loss there, [P]."""
    learning_rate: float | Tensor
    """η_t, or [P, 1] where it is not the same for all."""


@dataclass(frozen=True, kw_only=True)
class LocalRule(Tunable):
    """Base of local rules, which change nothing; a mechanism overrides the hooks that it needs."""

    begin_timed_as: ClassVar[str] = "training"
    """Section of the timing table for `begin`."""
    step_timed_as: ClassVar[str] = "training"
    """Section of the timing table for `direction`."""
    measures_path: ClassVar[bool] = False
    """Whether `finish` needs `Start.path`, which costs a norm per step."""
    looks_back: ClassVar[bool] = False
    """Whether `direction` needs the weights before the last step; true by default for a class that
    overrides it."""
    shapes_loss: ClassVar[bool] = False
    """Whether `prediction` or `penalty` is overridden; found out by default."""
    chooses_prediction: ClassVar[bool] = False
    """Whether `prediction` replaces the model's; such rules come first."""
    acts_last: ClassVar[bool] = False
    """Whether `direction` must come after those of all other rules."""
    linear: ClassVar[bool] = True
    """Whether steps stay linear in the gradients, as FedNova's normalisation needs."""
    derived: ClassVar[tuple[str, ...]] = ()
    """Names of cached properties with numbers derived from the hyperparameters."""
    server_half: ClassVar[str] = ""
    """Name of the class of server rules that this rule needs; empty: any will do."""
    records: ClassVar[tuple[Column, ...]] = ()
    """Columns of the table of clients; the plan has an entry [P] for each."""

    def __init_subclass__(cls, **more: Any) -> None:
        """Set the class attributes that follow from what a class overrides, unless it sets them."""
        super().__init_subclass__(**more)
        if "direction" in vars(cls) and "looks_back" not in vars(cls):
            cls.looks_back = True
        shaping = {"prediction", "penalty"} & vars(cls).keys()
        if shaping and not {"shapes_loss", "shapes"} & vars(cls).keys():
            cls.shapes_loss = True

    def adapt(self, model: Model) -> Model:
        """Return the model as this rule needs it; it may gain tensors at the end of its layout."""
        return model

    def client_state(self, model: Model) -> Rows:
        """Return a vehicle's client state before its first round, without the vehicle axis."""
        return {}

    def uploads(self, model: Model) -> Rows:
        """Return a template of the uploads other than Δ_k, without the vehicle axis.

        The names do not depend on the model. Numbers of float32 have the precision of training.
        """
        return {}

    def conflict(self, other: "LocalRule") -> str:
        """Return the reason why this rule cannot work beside `other`; empty if it can."""
        return ""

    @property
    def divides_by_accumulation(self) -> str:
        """Name of the part that divides by ‖a_k‖₁ and so needs its closed form; empty: none."""
        return ""

    def origin(self, client_state: Rows, start: Start) -> Origin | None:
        """Return the start of the steps, before any rule's `begin`; None for the broadcast model.

        Of the rules of a method only one may have such a place.
        """
        return None

    def begin(self, client_state: Rows, start: Start) -> tuple[Rows, Rows]:
        """Begin a round: return (client state, plan).

        The plan has what this round's steps need; entries named in `records` go into the table of
        clients.
        """
        return client_state, {}

    def shapes(self, plan: Rows) -> bool:
        """Return whether `prediction` or `penalty` changes anything for the vehicles of `plan`.

        Where no rule's does, the model's own gradient serves, which may differ in its rounding.
        """
        return self.shapes_loss

    def prediction(
        self, prediction: Tensor, model: Model, parts: Parts, windows: Tensor, plan: Rows
    ) -> Tensor:
        """Return the prediction for the loss, [P, batch]; by default the model's."""
        return prediction

    def penalty(
        self, representation: Tensor, model: Model, windows: Tensor, anchor: Tensor, plan: Rows
    ) -> Tensor | float:
        """Return the term added to the loss of each window, [P, batch].

        `representation` is [P, batch, width].
        """
        return 0.0

    def explore(self, loss: StepLoss, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return the gradient [P, D] of a step at `weights` [P, D]; by default the loss's there.

        `loss` may be asked for its gradient or value at any points, as often as needed, all on this
        step's batch. The pulls and preconditioners of other rules then act at `weights`. Steps are
        recorded on a GPU, so choose between tensors by `torch.where`; a hook that reads a number
        off one (`.item()`, `if`) works, slowly. Rules that explore nest, the first innermost.
        """
        return loss.gradient(weights)

    def shift(self, plan: Rows) -> Tensor | None:
        """Return the offset [P, D] at which all gradients of a round are taken; None: none.

        Training then runs from w_t plus the shift, so other rules must look at weights only beside
        w_t or earlier weights, as those here do.
        """
        return None

    def gradient(self, gradient: Tensor, weights: Tensor, anchor: Tensor, plan: Rows) -> Tensor:
        """Return the gradient [P, D] as changed by this rule, at `weights` [P, D]."""
        return gradient

    def direction(
        self, gradient: Tensor, weights: Tensor, previous: Tensor | None, plan: Rows
    ) -> Tensor:
        """Return the step's direction [P, D]; `previous` is w_{h-1}, None at the first step."""
        return gradient

    def reply(self, deltas: Tensor, plan: Rows) -> Tensor:
        """Return the update Δ_k [P, D] that a vehicle uploads; by default the trained one."""
        return deltas

    def finish(
        self, client_state: Rows, plan: Rows, start: Start, deltas: Tensor
    ) -> tuple[Rows, Rows]:
        """Finish a round with Δ_k [P, D]: return (client state, uploads other than Δ_k).

        Both count only if the update does: a lost update leaves the client state of before. By
        default the entries of the plan with the names of uploads are uploaded.
        """
        return client_state, {
            name: plan[name] for name in self.uploads(start.model) if name in plan
        }

    @property
    def personalised(self) -> bool:
        """Return whether vehicles use personalised models, those of `vehicle_model`."""
        return type(self).vehicle_model is not LocalRule.vehicle_model

    def vehicle_model(self, client_state: Rows, start: Start) -> Tensor:
        """Return the model [P, D] that each vehicle would use after this round.

        `start` is that of the next round, with w_{t+1}. Vehicles that never participated are
        included.
        """
        return start.anchor

    def accumulation(self, start: Start, plan: Rows) -> Tensor | None:
        """Return ‖a_k‖₁ [P], the sum of the gradients' weights (FedNova); None: H_k."""
        return None


def explores(rule: LocalRule) -> bool:
    """Return whether a rule asks for gradients elsewhere than at the weights of a step."""
    return type(rule).explore is not LocalRule.explore


def gradients_at_origin(start: Start, size: int, purpose: str) -> Tensor:
    """Return ∇F_k(w_t) [P, D], each over at most `size` windows drawn for `purpose`."""
    gradients = []
    for row, weights in enumerate(start.origin):
        batch = start.probe_batch(row, size, purpose)
        share = torch.full_like(batch.labels, 1 / len(batch.labels))
        gradients.append(
            start.model.gradient(weights, batch.windows, batch.labels, share, start.loss)
        )
    return torch.stack(gradients)


def mean_losses(start: Start, weights: Tensor, size: int, purpose: str) -> Tensor:
    """Return F_k [P] of `weights` [P, D], float64, over at most `size` fixed windows."""
    losses = []
    for row, row_weights in enumerate(weights):
        batch = start.fixed_batch(row, size, purpose)
        errors = start.loss(start.model.predict(row_weights, batch.windows), batch.labels)
        losses.append(errors.double().mean())
    return torch.stack(losses)


AnyRule = TypeVar("AnyRule", bound=LocalRule)


def lifted(rule: AnyRule, numbers: Mapping[str, Tensor]) -> AnyRule:
    """Return a copy of the rule whose `numbers` are columns [P, 1], for the hooks of a step."""
    copy = object.__new__(type(rule))
    copy.__dict__.update(vars(rule) | dict(numbers))
    return copy


def numbers(rule: LocalRule) -> dict[str, float | Tensor]:
    """Return all numbers of a rule, fields and derived ones; some may be columns [P, 1]."""
    values = {name: getattr(rule, name) for name in rule.derived} | vars(rule)
    return {name: value for name, value in sorted(values.items()) if _is_number(value)}


def _is_number(value: object) -> bool:
    column = isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] == 1
    return isinstance(value, float) or column


def composition(rules: Sequence[LocalRule]) -> tuple[Hashable, ...]:
    """Return the key that rules of one stack share: their attributes except numbers."""
    return tuple(tuple(_common(rule)) for rule in rules)


def _common(rule: LocalRule) -> Iterator[Any]:
    """Yield a rule's class, the names of its numbers, and all other attributes."""
    yield type(rule)
    yield from numbers(rule)
    for name, value in sorted(vars(rule).items()):
        if not _is_number(value):
            simple = isinstance(value, str | int | tuple | frozenset | type(None) | type)
            yield name, value if simple else _Itself(value)


class _Itself:
    """A key that equals only keys of the same object, for attributes such as tensors or lists."""

    def __init__(self, identified: object) -> None:
        self.identified = identified

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Itself) and self.identified is other.identified

    def __hash__(self) -> int:
        return id(self.identified)


SCHEDULES = ("constant", "inverse-sqrt")


def scheduled(start: float, schedule: str, round: int) -> float:
    """Return the value in round t (from 0): `start`, or `start`/√(t+1), the paper's schedule.

    >>> scheduled(0.05, "inverse-sqrt", 3)
    0.025
    """
    return start / (round + 1) ** 0.5 if schedule == "inverse-sqrt" else start
