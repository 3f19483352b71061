"""A `Job`: everything that a stack of vehicles needs to train, taken by every engine."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from fedwatt.engine.batches import Batches
from fedwatt.methods.rule import LocalRule, Rows, composition, explores, lifted
from fedwatt.models import Loss, Model


@dataclass(frozen=True, eq=False)
class Job:
    """P vehicles before their first step, those with the most steps first."""

    rules: tuple[LocalRule, ...]
    """A rule's numbers may be columns [P, 1] where vehicles differ in them."""
    plans: tuple[Rows, ...]  # what each rule worked out in its `begin`, each [P, ...]
    model: Model
    loss: Loss
    anchor: Tensor  # the broadcast model w_t of each vehicle, [P, D]
    learning_rate: float | Tensor  # η_t, or [P, 1] where it is not the same for all
    batches: Batches
    tf32: bool = False  # whether float32 products may use TF32 on a GPU that has it
    deterministic: bool = False  # whether a row's bits may not depend on the other rows
    path: Tensor | None = None  # [P], float64: every step adds its length, where it is given

    @cached_property
    def steps(self) -> tuple[int, ...]:
        """H_k, in descending order."""
        return tuple(draw.end - draw.begin for draw in self.batches.draws)

    @property
    def looks_back(self) -> bool:
        """Return whether any rule needs the weights before the last step."""
        return any(rule.looks_back for rule in self.rules)

    @property
    def shapes_loss(self) -> bool:
        """Return whether any rule changes the loss of any of these vehicles.

        A deterministic job does not ask its rows, lest one of them decide how others are trained.
        """
        if self.deterministic:
            return any(rule.shapes_loss for rule in self.rules)
        return any(rule.shapes(plan) for rule, plan in zip(self.rules, self.plans, strict=True))

    @property
    def explores(self) -> bool:
        """Return whether any rule asks for gradients elsewhere than at the weights of a step."""
        return any(explores(rule) for rule in self.rules)

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Key that jobs of one stack share: everything but rows and numbers."""
        names = tuple(tuple(plan) for plan in self.plans)
        task = (self.model, self.loss, self.tf32, self.deterministic, self.path is None)
        return composition(self.rules), task, self.batches.size, self.batches.pool, names

    def part(self, rows: slice) -> "Job":
        """Return some of the vehicles."""
        return replace(
            self,
            rules=tuple(_part(rule, rows) for rule in self.rules),
            plans=tuple({n: values[rows] for n, values in plan.items()} for plan in self.plans),
            anchor=self.anchor[rows],
            learning_rate=self.learning_rate[rows]
            if isinstance(self.learning_rate, Tensor)
            else self.learning_rate,
            batches=self.batches.part(rows),
            path=None if self.path is None else self.path[rows],
        )


def _part(rule: LocalRule, rows: slice) -> LocalRule:
    """Return the rule for some rows, where any of its numbers are columns [P, 1]."""
    columns = {name: value for name, value in vars(rule).items() if isinstance(value, Tensor)}
    return lifted(rule, {n: values[rows] for n, values in columns.items()}) if columns else rule
