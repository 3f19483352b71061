"""Time of a round by part.

Paper, section "Computational and diagnostic overhead", `eq:diag_fraction`. A round is split into
local training, the fractional preconditioner, the roughness probe, the spectral ratio, aggregation
and evaluation; probe and spectral ratio are diagnostics.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import nan
from time import perf_counter
from typing import Final

PARTS: Final = {
    "training": "local steps",
    "preconditioner": "scaling of fractional-order steps",
    "probe": "probes of roughness and importance",
    "spectral": "spectral ratio",
    "aggregation": "making the next model of the replies",
}
"""What T_round consists of. Evaluation is left out: it serves the report, not the fleet."""

DIAGNOSTICS: Final = ("probe", "spectral")


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
