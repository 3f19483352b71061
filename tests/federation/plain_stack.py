"""Local steps of a whole stack, one after the other and nothing else: what the engines must do."""

from collections.abc import Sequence

from torch import Tensor

from fedwatt.engine.batches import StackedBatches
from fedwatt.federation.local import final, first_rows, is_shaped, move, step_gradient, turn
from fedwatt.methods.rule import LocalRule, Rows, Start, lifted
from fedwatt.metrics import Stopwatch


def train_stack(
    rules: Sequence[LocalRule],
    plans: Sequence[Rows],
    start: Start,
    rate: float | Tensor,
    batches: StackedBatches,
    steps: Sequence[int],
    watch: Stopwatch,
) -> Tensor:
    """Δ_k = w_k - w_t of every vehicle, [P, D].

    `steps` holds H_k in descending order; `plans` what each rule worked out in its `begin`; `rate`
    is η_t, or [P, 1] where it is not the same for all.
    """
    weights = start.anchor.clone()
    previous = weights.clone() if any(rule.looks_back for rule in rules) else None
    active = len(steps)
    for step in range(steps[0]):
        while steps[active - 1] <= step:
            active -= 1
        here, before = turn(weights, previous, step)
        here, anchor = here[:active], start.anchor[:active]
        own = [first_rows(plan, active) for plan in plans]
        if isinstance(rate, Tensor):
            rules = [narrowed(rule, active) for rule in rules]
        rates = rate[:active] if isinstance(rate, Tensor) else rate
        task, batch = (start.model, start.loss), batches.at(step, active)
        shaped = is_shaped(rules, own)
        gradient = step_gradient(rules, own, task, here, anchor, batch, shaped=shaped)
        before = before[:active] if before is not None else None
        move(rules, own, gradient, here, before, anchor, rates, first=step == 0, watch=watch)
    return final(weights, previous, steps) - start.anchor


def narrowed(rule: LocalRule, active: int) -> LocalRule:
    """The rule for the first `active` rows, where some of its numbers are columns [P, 1]."""
    columns = {name: value for name, value in vars(rule).items() if isinstance(value, Tensor)}
    return lifted(rule, first_rows(columns, active))
