"""FedEL's window of blocks, and its selection of the tensors to train when time is short.

Zhang et al., NeurIPS 2025, after Huang et al., MobiSys 2023 (ElasticTrainer). Training the tensors
A of a window costs, besides the forward pass,

    Σ_{k in A} apply_k + Σ_{k deeper than the shallowest of A} through_k

where `apply` is the time of a tensor's own gradient and `through` that of passing the gradient on
to what lies before it. Tensors are ordered from input to output, so deeper means later.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple


class _Selection(NamedTuple):
    """The worth of a set of tensors; the larger tuple is the better one.

    Exact fractions: rounding may not decide between two sets of equal worth.
    """

    importance: Fraction
    size: int
    tensors: int
    """Bit k is tensor k, so that of two sets of equal worth and size the deeper is larger."""

    def with_tensor(self, k: int, worth: Fraction) -> "_Selection":
        """Return the set with one more tensor."""
        return _Selection(self.importance + worth, self.size + 1, self.tensors | 1 << k)


def select(
    importance: Sequence[float], apply: Sequence[float], through: Sequence[float], budget: float
) -> list[bool]:
    """Return the tensors with the largest total importance that fit into the budget.

    `through` has one more entry than there are tensors: that of the exit behind them. Of two sets
    of equal importance the larger is taken, then the deeper. For each shallowest tensor the cost
    of passing the gradient is fixed and the rest is a knapsack, solved by keeping the sets that
    no cheaper set outdoes.

    >>> select([3, 1, 2], [4, 1, 4], [4, 0, 4, 1], budget=10)  # 4 + 1, and 0 + 4 + 1 behind
    [True, True, False]
    >>> select([3, 1, 2], [4, 1, 4], [4, 0, 4, 1], budget=9)
    [True, False, False]
    """
    best = _Selection(Fraction(0), 0, 0)
    for shallowest in range(len(importance)):
        cost = sum(through[shallowest + 1 :]) + apply[shallowest]
        if cost > budget:
            continue
        sets = [(cost, _Selection(Fraction(importance[shallowest]), 1, 1 << shallowest))]
        for k in range(shallowest + 1, len(importance)):
            worth = Fraction(importance[k])
            affordable = [(cost, of) for cost, of in sets if cost + apply[k] <= budget]
            sets += [(cost + apply[k], of.with_tensor(k, worth)) for cost, of in affordable]
            sets = _undominated(sets)
        best = max(best, sets[-1][1])
    return [bool(best.tensors >> k & 1) for k in range(len(importance))]


def _undominated(sets: list[tuple[float, _Selection]]) -> list[tuple[float, _Selection]]:
    """Return the sets that no cheaper or equally cheap set beats, by rising cost and worth."""
    sets.sort(key=lambda entry: entry[1], reverse=True)
    sets.sort(key=lambda entry: entry[0])
    undominated: list[tuple[float, _Selection]] = []
    for entry in sets:
        if not undominated or entry[1] > undominated[-1][1]:
            undominated.append(entry)
    return undominated


def front_after(block: int, times: Sequence[float], budget: float) -> int:
    """First block f > `block` with times[block+1] + ... + times[f] >= budget, else the last.

    >>> front_after(-1, [3, 2, 4], budget=5), front_after(1, [3, 2, 4], budget=5)
    (1, 2)
    """
    total = 0.0
    for front in range(block + 1, len(times)):
        total += times[front]
        if total >= budget:
            return front
    return len(times) - 1


def next_window(
    window: tuple[int, int] | None, used: Sequence[bool], times: Sequence[float], budget: float
) -> tuple[int, int]:
    """Return the window (first, front) of a vehicle's next participation; None: it has had none
    yet.

    The front moves on by about a budget's worth of blocks; leading blocks of which nothing was
    `used` [blocks] last time are left behind. Past the last block the window starts anew.

    >>> next_window(None, [], [3, 2, 4], budget=3)
    (0, 0)
    >>> next_window((0, 1), [False, True, False], [3, 2, 4], budget=3)
    (1, 2)
    >>> next_window((1, 2), [False, True, True], [3, 2, 4], budget=3)
    (0, 0)
    """
    if window is None or window[1] == len(times) - 1:
        return 0, front_after(-1, times, budget)
    first, front = window
    used_blocks = (block for block in range(first, front + 1) if used[block])
    return next(used_blocks, front), front_after(front, times, budget)
