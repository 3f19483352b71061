"""Selection of models by validation error: the best round, and the final model.

    w_final = (w_best + w_last) / 2,  or w_best where that mean is broken

The best round of a small fleet is chosen on few validation trips and may be an accident; the last
round's model still moves. Their mean is within 1 % of the better of the two on every measured fleet
(docs/journeys.md).

The mean of two models is good where both lie in one valley of the loss. They do not where training
has moved far from its best model: under much noise for privacy, at too high a learning rate, or
with another centre of IFCA in front. So the mean is validated once, after the last round, and is
broken if it validates far worse than w_best.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite, nan
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fedwatt.federation.records import UNEVALUATED, Row

if TYPE_CHECKING:
    from fedwatt.federation.state import State

GLOBAL_MODELS = ("final", "best", "last")
"""Names of a training's models, the default first."""
BROKEN = 1.5
"""A mean is broken above this multiple of the best model's validation RMSE. It must be far above 1:
the best RMSE is the lowest of all rounds, and with few validation trips a good mean had 1.3 times
as much."""


def mean_model(best: Tensor, last: Tensor) -> Tensor:
    """Return (w_best + w_last) / 2 of each run, [R, D]; bit-identical where both are equal.

    >>> mean_model(Tensor([[1.0, 4.0]]), Tensor([[3.0, 4.0]]))
    tensor([[2., 4.]])
    """
    return (best + last) / 2


def keeps_mean(mean_validation: Tensor, best_validation: Tensor) -> Tensor:
    """Return whether the final model is the mean, [R], by validation RMSE of mean and best, [R].

    A mean that was not validated has an infinite error and is not chosen.

    >>> from math import inf
    >>> keeps_mean(Tensor([14.9, 15.1, inf]), Tensor([10.0, 10.0, inf]))
    tensor([ True, False, False])
    """
    return mean_validation.isfinite() & (mean_validation <= BROKEN * best_validation)


def evaluated(
    state: "State",
    seeds: Sequence[int],
    training: Sequence[Row],
    errors: Mapping[int, Row],
    runs: Iterable[int],
) -> tuple["State", list[Row]]:
    """Update the best models and return (state, a row for each of `runs`).

    `training` has the training columns of every run, `errors` the error columns of evaluated runs.
    A run whose error is not finite has diverged.
    """
    diverged = state.diverged.clone()
    best_weights = state.best_weights.clone()
    best_round = state.best_round.clone()
    best_validation = state.best_validation.clone()
    best_test = state.best_test.clone()
    rows = []
    for run in runs:
        run_errors = errors.get(run, UNEVALUATED)
        if run in errors:
            score = run_errors["validation_rmse"]
            if not isfinite(score):
                diverged[run] = state.round
            elif score < best_validation[run]:
                best_validation[run] = score
                best_test[run] = run_errors["test_rmse"]
                best_weights[run], best_round[run] = state.weights[run], state.round
        rows.append(
            {
                "seed": seeds[run],
                "round": state.round,
                **training[run],
                **run_errors,
                "best_round": int(best_round[run]),
                "best_validation_rmse": float(best_validation[run]),
                "best_test_rmse": float(best_test[run]),
                "final_validation_rmse": nan,
                "final_test_rmse": nan,
                "diverged": bool(diverged[run]),
            }
        )
    after = replace(
        state,
        diverged=diverged,
        best_weights=best_weights,
        best_round=best_round,
        best_validation=best_validation,
        best_test=best_test,
    )
    return after, rows


def stopped_early(state: "State", patience: int) -> "State":
    """Stop the runs that have not improved for `patience` rounds and return the state.

    Seeds of one stack may stop at different rounds. The decision depends on the state alone, so a
    resumed run stops at the same round.
    """
    if not patience:
        return state
    at_work = (state.stopped == 0) & (state.diverged == 0)
    worn = at_work & (state.round - state.best_round >= patience)
    return replace(state, stopped=torch.where(worn, state.round, state.stopped))


def concluded(
    state: "State",
    seeds: Sequence[int],
    rows: Sequence[Row],
    ended: Sequence[int],
    means: Mapping[int, Row],
) -> tuple["State", list[Row]]:
    """Choose the final models of `ended` runs and return (state, rows with their errors).

    `means` has the error columns of each run's mean model, where that was evaluated.
    """
    mean_validation = state.mean_validation.clone()
    for run in ended:  # the error of an earlier mean does not hold for this one
        mean_validation[run] = means[run]["validation_rmse"] if run in means else inf
    state = replace(state, mean_validation=mean_validation)
    filled = []
    for row in rows:
        run = seeds.index(row["seed"])
        validation = nan
        test = nan
        if state.keeps_mean[run]:
            validation = means[run]["validation_rmse"]
            test = means[run]["test_rmse"]
        elif run in ended:
            validation = row["best_validation_rmse"]
            test = row["best_test_rmse"]
        filled.append(row | {"final_validation_rmse": validation, "final_test_rmse": test})
    return state, filled
