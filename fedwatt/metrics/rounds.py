"""Metrics of a round's updates, of a course of rounds, and of their time.

Drift (paper, `eq:delta_update`, `eq:mean_drift`, `eq:drift_cv`): ‖Δ_k‖₂, the length of the update
that a vehicle uploads, its mean and its dispersion over the vehicles of a round.

Agreement: whether the vehicles of a round move in the same direction, and which are out of line.

    A_t = (E₂/E₁ - Σ ω_k²) / (1 - Σ ω_k²),     E₁ = Σ ω_k ‖Δ_k‖²,     E₂ = ‖Σ ω_k Δ_k‖²

is the mean cosine between two updates where lengths and weights are equal: 1 alike, 0 orthogonal,
below 0 in conflict. The length of an update is compared with the others' by the logarithm of its
ratio to their median, in robust standard deviations. Neither is a quantity that a pull can control.

Coupling (`eq:roughness_drift_corr`): correlation of roughness and drift over the participants of a
round. Over a handful of vehicles a correlation is noise, and it does not exist when one side is
constant (at the paper's probe radius, most vehicles have roughness 0): both give NaN, which is
never filled in.

Convergence (`eq:rounds_to_threshold`): rounds until a method reaches an error threshold.

Time (section "Computational and diagnostic overhead", `eq:diag_fraction`): a round is split into
local training, the fractional preconditioner, the roughness probe, the spectral ratio, aggregation
and evaluation; probe and spectral ratio are diagnostics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import inf, nan, sqrt
from time import perf_counter

import numpy as np
from numpy.typing import ArrayLike

from fedwatt.metrics.sums import FloatArray

EPSILON_D = 1e-12
"""ε_D of `eq:drift_cv`; the paper gives no value. It only keeps 0/0 from happening."""


def mean_drift(drifts: ArrayLike) -> float:
    """Return the mean drift D_mean of a round, `eq:mean_drift`; `drifts` [participants].

    >>> mean_drift([1.0, 3.0])
    2.0
    """
    lengths = np.asarray(drifts, dtype=np.float64)
    return float(lengths.mean()) if lengths.size else nan


def drift_dispersion(drifts: ArrayLike) -> float:
    """Return D_cv of a round, `eq:drift_cv`: population standard deviation over mean.

    >>> round(drift_dispersion([1.0, 3.0]), 9)
    0.5
    """
    lengths = np.asarray(drifts, dtype=np.float64)
    return float(lengths.std() / (lengths.mean() + EPSILON_D)) if lengths.size else nan


TOO_LONG = 3.0
"""Robust standard deviations above the median at which a reply's length is flagged."""
AGAINST = -0.3
TURNS = 3
"""A vehicle works against the fleet if its alignment is below the one in so many turns running."""
FEWEST = 4
"""Replies among which one can be out of line."""
TO_DEVIATION = 1.4826
"""A normal spread's standard deviation over its median absolute deviation."""
LEAST_SPREAD = float(np.log(1.05))
"""Replies whose lengths agree to 5 % are not told apart by them."""


def agreement(shares: ArrayLike, lengths: ArrayLike, mean_length: float) -> float:
    """Return A_t of weights ω_k [R], ‖Δ_k‖ [R] and ‖Σ ω_k Δ_k‖; NaN for a single reply.

    >>> agreement([0.5, 0.5], [1.0, 1.0], 1.0), agreement([0.5, 0.5], [1.0, 1.0], 0.0)
    (1.0, -1.0)
    >>> round(agreement([0.5, 0.5], [3.0, 4.0], 2.5), 9)  # orthogonal: ‖(1.5, 2)‖
    0.0
    """
    p = np.asarray(shares, dtype=np.float64)
    norms = np.asarray(lengths, dtype=np.float64)
    together = float(p @ norms**2)
    alone = float(p @ p)
    if not together > 0 or alone > 1 - 1e-12:
        return nan
    return (mean_length**2 / together - alone) / (1 - alone)


def out_of_line(lengths: ArrayLike) -> tuple[FloatArray, FloatArray]:
    """Return (length over the median, robust z of its logarithm), each [R]; NaN with too few
    replies.

    >>> ratio, z = out_of_line([1.0, 2.0, 2.0, 4.0, 64.0])
    >>> ratio.tolist(), z.round(3).tolist()  # the median absolute deviation is ln 2
    ([0.5, 1.0, 1.0, 2.0, 32.0], [-0.674, 0.0, 0.0, 0.674, 3.372])
    """
    norms = np.asarray(lengths, dtype=np.float64)
    valid = np.isfinite(norms) & (norms > 0)
    ratio, z = np.full((2, norms.size), nan)
    if valid.sum() < FEWEST:
        return ratio, z
    ratio[valid] = norms[valid] / _median(norms[valid])
    logs = np.log(ratio[valid])
    centred = logs - _median(logs)
    spread = max(_median(np.abs(centred)), LEAST_SPREAD)
    z[valid] = centred / (TO_DEVIATION * spread)
    return ratio, z


def _median(values: FloatArray) -> float:
    """Return the median, ten times as fast as NumPy's for the updates of one round."""
    ordered = np.sort(values)
    middle = values.size // 2
    if values.size % 2:
        return float(ordered[middle])
    return float((ordered[middle - 1] + ordered[middle]) / 2)


FEWEST_PARTICIPANTS = 8

CONSTANT = 1e-12
"""A spread this small, relative to the largest value, is rounding and not a difference."""


def pearson(first: ArrayLike, second: ArrayLike) -> float:
    """Return the linear correlation of two [participants]; pairs with NaN are left out."""
    return _correlation(*_pairs(first, second))


def spearman(first: ArrayLike, second: ArrayLike) -> float:
    """Rank correlation, [participants] each; equal values share their average rank."""
    x, y = _pairs(first, second)
    if x.size < FEWEST_PARTICIPANTS or x.min() == x.max():
        return nan
    return _correlation(ranks(x), ranks(y))


def ranks(values: FloatArray) -> FloatArray:
    """Return the ranks from 1, ties averaged.

    >>> ranks(np.array([30.0, 10.0, 30.0])).tolist()
    [2.5, 1.0, 2.5]
    """
    order = values.argsort(kind="stable")
    ordered = values[order]
    new = ordered[1:] != ordered[:-1]
    rank = np.empty(values.size)
    if new.all():
        rank[order] = np.arange(1.0, values.size + 1)
        return rank
    first = np.flatnonzero(np.concatenate([[True], new]))
    counts = np.diff(first, append=values.size)
    rank[order] = np.repeat(first + 1 + (counts - 1) / 2, counts)
    return rank


def _pairs(first: ArrayLike, second: ArrayLike) -> tuple[FloatArray, FloatArray]:
    x = np.asarray(first, dtype=np.float64)
    y = np.asarray(second, dtype=np.float64)
    paired = np.isfinite(x) & np.isfinite(y)
    return x[paired], y[paired]


@np.errstate(over="ignore", invalid="ignore")
def _correlation(x: FloatArray, y: FloatArray) -> float:
    if x.size < FEWEST_PARTICIPANTS or _constant(x) or _constant(y):
        return nan
    # Scaled to at most 1 first: squares of tiny drifts would otherwise underflow to 0/0.
    x = (x - x.mean()) / _range(x)
    y = (y - y.mean()) / _range(y)
    squares = float(x @ x) * float(y @ y)
    # Beyond the largest float, squares are 0 or NaN; `min` and `max` keep a NaN that comes first.
    return max(min(float(x @ y) / sqrt(squares), 1.0), -1.0) if squares else nan


def _constant(values: FloatArray) -> bool:
    return _range(values) <= CONSTANT * float(np.abs(values).max())


def _range(values: FloatArray) -> float:
    return float(values.max() - values.min())


def rounds_to_threshold(rounds: Sequence[int], scores: Sequence[float], threshold: float) -> float:
    """Return the first round whose score is at most `threshold`; infinite if there is none.

    Rounds that were not evaluated (NaN) are passed over.

    >>> rounds_to_threshold([0, 1, 2, 3], [90.0, float("nan"), 60.0, 55.0], 60.0)
    2
    >>> rounds_to_threshold([0, 1], [90.0, 80.0], 60.0)
    inf
    """
    reached = [r for r, score in zip(rounds, scores, strict=True) if score <= threshold]
    return min(reached, default=inf)


PARTS = {
    "training": "local steps",
    "preconditioner": "scaling of fractional-order steps",
    "probe": "probes of roughness and importance",
    "spectral": "spectral ratio",
    "aggregation": "making the next model of the replies",
}
"""What T_round consists of. Evaluation is left out: it serves the report, not the fleet."""

DIAGNOSTICS = ("probe", "spectral")


class Stopwatch:
    """Seconds by named section; a section inside another stops the outer one's clock.

    `sync` is called before the clock is read, to wait for work that is still under way on a GPU.

    >>> watch = Stopwatch()
    >>> with watch.section("training"):
    ...     with watch.section("preconditioner"):
    ...         pass
    >>> sorted(watch.seconds)
    ['preconditioner', 'training']
    """

    def __init__(self, sync: Callable[[], None] | None = None) -> None:
        self.sync = sync
        self.seconds: dict[str, float] = {}
        self._open: list[str] = []
        self._since = 0.0

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Count the time of the `with` block towards `name`."""
        if self._open[-1:] == [name]:  # goes on as before; a wait for nothing would be slow
            yield
            return
        self._settle()
        self._open.append(name)
        try:
            yield
        finally:
            self._settle()
            self._open.pop()

    @contextmanager
    def divided(self) -> Iterator[list[Mapping[str, float]]]:
        """Divide the time of the `with` block by what several threads did in it.

        Each thread adds its own seconds by section to the list; sections get shares in proportion.

        >>> watch = Stopwatch()
        >>> with watch.section("training"), watch.divided() as spent:
        ...     spent += [{"training": 3.0}, {"training": 2.0, "preconditioner": 5.0}]
        >>> watch.seconds["preconditioner"] > 0
        True
        """
        self._settle()
        begin = self._since
        spent: list[Mapping[str, float]] = []
        yield spent
        elapsed = perf_counter() - begin
        total = sum(sum(parts.values()) for parts in spent)
        if self._open and total:
            for parts in spent:
                for name, seconds in parts.items():
                    share = elapsed * seconds / total
                    self.seconds[name] = self.seconds.get(name, 0.0) + share
            self._since = begin + elapsed

    def _settle(self) -> None:
        """Give the time since the last change to the innermost open section."""
        if self.sync is not None:
            self.sync()
        now = perf_counter()
        if self._open:
            name = self._open[-1]
            self.seconds[name] = self.seconds.get(name, 0.0) + now - self._since
        self._since = now


def diagnostics_fraction(seconds: Mapping[str, float]) -> float:
    """Return R_diag of one round, `eq:diag_fraction`: probe and spectral ratio over all of `PARTS`.

    >>> diagnostics_fraction({"training": 3.0, "probe": 1.0, "evaluation": 9.0})
    0.25
    """
    total = sum(seconds.get(part, 0.0) for part in PARTS)
    return sum(seconds.get(part, 0.0) for part in DIAGNOSTICS) / total if total else nan


def amortised_diagnostics_fraction(rounds: Sequence[Mapping[str, float]]) -> float:
    """Return R_diag over many rounds: time of all diagnostics over time of all rounds.

    With a probe every R rounds this is what a fleet pays; the mean of the rounds' own fractions is
    something else, because rounds with a probe are longer.

    >>> amortised_diagnostics_fraction([{"training": 3.0, "probe": 1.0}, {"training": 4.0}])
    0.125
    """
    parts = {part: sum(seconds.get(part, 0.0) for seconds in rounds) for part in PARTS}
    return diagnostics_fraction(parts)
