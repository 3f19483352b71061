"""The model that a training keeps: the mean of its best-validated and its last model.

    w_kept = (w_best + w_last) / 2,  or w_best where that mean is broken

Neither of the two can be trusted alone. A small fleet chooses its best round on a handful of
validation trips, by luck as much as by merit, and the last round's steps still wander. Their mean
is within 1 % of the better of the two on every fleet that was measured (docs/journeys.md).

A mean of two models is a good model where both lie in one valley of the loss. They do not where
training has left its best model far behind: under much noise for privacy, at a rate that is too
high, or where another centre of IFCA has taken the lead. So the mean is validated once, after the
last round, and counts as broken if it validates far worse than w_best.
"""

from typing import Final

from torch import Tensor

GLOBAL_MODELS: Final = ("kept", "best", "last")
"""The models that a training leaves, the default first."""
BROKEN: Final = 1.5
"""Times the best model's validation RMSE above which a mean is broken. It must be far above 1: the
best model's is the lowest of all rounds, and with few validation trips a good mean was seen at 1.3
times as much. This is no choice between two good models, which the same trips would have to make.
"""


def mean_model(best: Tensor, last: Tensor) -> Tensor:
    """(w_best + w_last) / 2 of each run, [R, D]; equal models are their own mean, bit for bit.

    >>> mean_model(Tensor([[1.0, 4.0]]), Tensor([[3.0, 4.0]]))
    tensor([[2., 4.]])
    """
    return (best + last) / 2


def keeps_mean(mean_validation: Tensor, best_validation: Tensor) -> Tensor:
    """Return whether runs keep the mean, [R], by its validation RMSE and the best model's, [R]
    each.

    A mean that nobody has validated has an infinite error, and is not kept.

    >>> from math import inf
    >>> keeps_mean(Tensor([14.9, 15.1, inf]), Tensor([10.0, 10.0, inf]))
    tensor([ True, False, False])
    """
    return mean_validation.isfinite() & (mean_validation <= BROKEN * best_validation)
