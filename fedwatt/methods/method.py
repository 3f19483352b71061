"""A method: local rules, an optional defence and a server rule, with the cost of its messages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from itertools import permutations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.errors import DataError, SettingError
from fedwatt.methods.defence import Defence
from fedwatt.methods.private import OUTSIDE
from fedwatt.methods.rule import LocalRule, Rows, explores
from fedwatt.methods.server import Average, Replies, ServerRule
from fedwatt.models import MLP, Model
from fedwatt.settings import Checked
from fedwatt.tables import Column, declared

SMALLEST = MLP(1, 1, (1,))
"""A model for the names of uploads, which do not depend on the model."""


@dataclass(frozen=True)
class Method:
    """A federated method: the local rules of the vehicles and the server rule that averages."""

    name: str
    local: tuple[LocalRule, ...] = ()
    server: ServerRule = Average()
    defence: Defence | None = None

    def __post_init__(self) -> None:
        # Rules that need the gradient as all other rules change it come last.
        in_order = tuple(sorted(self.local, key=lambda rule: rule.acts_last))
        object.__setattr__(self, "local", in_order)
        for rule in self.rules:
            Checked.__post_init__(rule)  # a rule may override it without calling it
        if reason := next(self._faults(), ""):
            raise SettingError(f"Method '{self.name}': {reason}")

    @property
    def composition(self) -> str:
        """The rules in words, as in "RoughnessProximal + Fractional → Krum → Average"."""
        local = " + ".join(type(rule).__name__ for rule in self.local) or "plain SGD"
        server_rules = [self.server] if self.defence is None else [self.defence, self.server]
        return " → ".join([local, *(type(rule).__name__ for rule in server_rules)])

    @property
    def rules(self) -> tuple[LocalRule | Defence | ServerRule, ...]:
        """All rules, in the order of their use in a round."""
        defence = () if self.defence is None else (self.defence,)
        return (*self.local, *defence, self.server)

    @property
    def settings(self) -> dict[str, object]:
        """Every hyperparameter of the rules by its name."""
        return {
            field.name: getattr(rule, field.name) for rule in self.rules for field in fields(rule)
        }

    @property
    def records(self) -> tuple[Column, ...]:
        """Columns that the local rules record for each vehicle and round."""
        return tuple(dict.fromkeys(column for rule in self.local for column in rule.records))

    @property
    def personalised(self) -> bool:
        """Return whether vehicles use personalised models."""
        return any(rule.personalised for rule in self.local)

    @property
    def replies_needed(self) -> int:
        """Least number of updates for a model."""
        return 1 if self.defence is None else self.defence.replies_needed

    def adapted(self, model: Model) -> Model:
        """Return `model` as the rules need it; they may add tensors at the end of its layout."""
        for rule in self.local:
            model = rule.adapt(model)
        return model

    def uploads(self, model: Model) -> Rows:
        """Return a template of a vehicle's uploads other than Δ_k, without the vehicle axis.

        `model` is adapted. Numbers of float32 have the precision of training.
        """
        rows: Rows = {}
        for rule in self.local:
            rows |= rule.uploads(model)
        if self.server.normalises:
            rows["accumulation"] = torch.zeros((), dtype=torch.float64)
        return rows

    @property
    def upload_names(self) -> list[str]:
        """Names of the uploads other than Δ_k."""
        return list(self.uploads(SMALLEST))

    def update(self, state: Rows, weights: Tensor, replies: Replies) -> tuple[Rows, Tensor]:
        """Return (server state, w_{t+1} [D]) from w_t [D] and `replies_needed` or more updates."""
        screened = replies if self.defence is None else self.defence.screen(replies)
        return self.server.update(state, weights, screened)

    def mean_of_sums(
        self, model: Model, sums: Mapping[str, NDArray[np.float64]]
    ) -> tuple[Tensor, float, Rows]:
        """Return (the Δ [D] that replaces every vehicle's, Σ w_k, the uploads) from weighted sums.

        `sums` has "weight", "delta" and the uploads by name; `model` is adapted.
        """
        weight = float(sums["weight"][0])
        if not weight > 0:
            raise DataError("The vehicles of a sum have no windows at all.")
        templates = self.uploads(model).items()
        uploads = {name: torch.from_numpy(sums[name]).view(t.shape) for name, t in templates}
        delta, uploads = self.server.mean_of_sums(
            model, torch.from_numpy(sums["delta"]), weight, uploads
        )
        return delta, weight, uploads

    def _faults(self) -> Iterator[str]:
        """Yield the reasons why these rules cannot work together."""
        kinds = [type(rule) for rule in self.local]
        for kind in kinds:
            if kinds.count(kind) > 1:
                yield f"{kind.__name__} is named twice; name each rule once."
        yield from self._shared_names()
        if self.server.only_deltas:
            for rule in self.local:
                if more := " and ".join(rule.uploads(SMALLEST)):
                    yield f"{type(rule).__name__} uploads {more} beside Δ_k, but {OUTSIDE}."
        personal_rules = [type(rule).__name__ for rule in self.local if rule.personalised]
        if len(personal_rules) > 1:
            names = " and ".join(personal_rules)
            yield f"{names} each give vehicles a personalised model; use one of them."
        yield from self._missing_halves()
        yield from self._accumulation_faults()
        for first_rule, other in permutations(self.local, 2):
            if reason := first_rule.conflict(other):
                yield reason
        if self.defence is not None and not self.server.averages:
            yield (
                f"{type(self.defence).__name__} screens updates, and "
                f"{type(self.server).__name__} needs more than their mean, which would be "
                "unscreened. Use an averaging server such as 'average' or 'adam'."
            )

    def _shared_names(self) -> Iterator[str]:
        """Yield columns that exist already, and uploads that are also columns."""
        taken = {column.name: column for column in declared("clients").columns}
        for column in self.records:
            if taken.setdefault(column.name, column) != column or column.filled_by != "rules":
                yield f"the table of clients already has '{column.name}'; choose another name."
        for name in (name for name in self.upload_names if name in taken):
            yield f"'{name}' is uploaded and recorded, and an update has both; rename one."

    def _missing_halves(self) -> Iterator[str]:
        """Yield rules whose counterpart in vehicle or server is missing."""
        needed_half = self.server.local_half
        if needed_half is not None and not any(
            isinstance(rule, needed_half) for rule in self.local
        ):
            yield _one_half(needed_half.__name__, type(self.server).__name__)
        server_classes = [kind.__name__ for kind in type(self.server).__mro__]
        for rule in self.local:
            if rule.server_half and rule.server_half not in server_classes:
                yield _one_half(type(rule).__name__, rule.server_half)

    def _accumulation_faults(self) -> Iterator[str]:
        """Yield why rules that divide by ‖a_k‖₁ lack linear steps or its closed form."""
        if self.server.normalises:
            for rule in self.local:
                if not rule.linear or explores(rule):
                    yield (
                        f"FedNova divides by the sum of the gradients' weights, and "
                        f"{type(rule).__name__} is not linear in the gradients. Use another server."
                    )
        dividing = ["FedNova"] if self.server.normalises else []
        dividing += [rule.divides_by_accumulation for rule in self.local]
        kinds = [type(rule) for rule in self.local]
        closed_forms = [k.__name__ for k in kinds if k.accumulation is not LocalRule.accumulation]
        for whose in filter(None, dividing):
            if len(closed_forms) > 1:
                yield (
                    f"{whose} divides by the sum of the gradients' weights, which has no "
                    f"closed form for {' and '.join(closed_forms)} together. Use one of them."
                )


def _one_half(local: str, server: str) -> str:
    return (
        f"{local} in the vehicles and {server} on the server are halves of one mechanism; use both "
        "or neither."
    )


@dataclass(frozen=True)
class Costs:
    """Counts of numbers sent and stored, for one vehicle and round."""

    weights: int  # d, those of the model
    down: int
    up: int
    vehicle: int  # client state
    server: int  # state of the server besides the model


def costs(method: Method, model: Model) -> Costs:
    """Return the costs of `method` with `model`."""
    adapted = method.adapted(model)
    server = method.server.state(adapted)
    size = adapted.layout.size
    return Costs(
        weights=model.layout.size,
        down=size + _numbers(method.server.broadcast(server)),
        up=size + _numbers(method.uploads(adapted)),
        vehicle=sum(_numbers(rule.client_state(adapted)) for rule in method.local),
        server=_numbers(server),
    )


def _numbers(rows: Rows) -> int:
    return sum(value.numel() for value in rows.values())
