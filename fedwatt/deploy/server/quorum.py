"""Rounds that wait: a run pauses while too few vehicles are there, and goes on by itself.

A round begins when so many vehicles are there that it can make a model, and a round that fewer than
the quorum answered is asked again, with the same draws, so that a fleet which goes away and comes
back trains the model of one that never left. Two kinds of rounds are not repeated:

- those of a private method: ε would have to count that a round stands or falls with one vehicle;
- a secure sum whose vectors were asked for: the difference of two sums of one round would be that
  of the vehicles that were in only one of them.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import Final

from fedwatt.deploy.server.run_state import PAUSED, RUNNING, RunState
from fedwatt.errors import RunError, counted
from fedwatt.federation.participation import participant_count

log = logging.getLogger("fedwatt.deploy")

FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
"""Seconds between two looks at who is there."""
MOST_FAILURES: Final = 3
"""How often a round is asked again that all vehicles fail at, without waiting for its deadline."""


def vehicles_needed(quorum: int, replies: int, participation: float, sampling: str) -> int:
    """Return the fewest vehicles that must be there for a round of so many replies.

    >>> vehicles_needed(1, 2, 0.3, "fixed")  # ⌈0.3 · 4⌉ = 2
    4
    """
    needed = max(quorum, replies)
    while sampling == "fixed" and participant_count(needed, participation) < replies:
        needed += 1
    return needed


@dataclass(frozen=True)
class Unanswered:
    """The outcome of a round with too few replies: it is repeated."""

    answered: frozenset[str]
    """Who did."""


@dataclass
class Quorum:
    """Keeps a run waiting while too few vehicles are there."""

    run: RunState
    needed: int
    """Vehicles that must be there."""
    longest_seconds: float
    """After which a pause ends the run."""
    failures: int = field(default=0, init=False)
    """How often in a row all vehicles failed at a round."""
    since: float | None = field(default=None, init=False)
    """When the first pause began since a round was answered."""
    why: str = field(default="", init=False)
    """Why the run is paused; empty if it is not."""

    def wait(self, done: int, connected: Callable[[], int]) -> None:
        """Return when enough vehicles are there; RunError if that takes too long."""
        present = connected()
        pause = FIRST_PAUSE
        while present < self.needed:
            vehicles = counted(self.needed, "vehicle")
            self._paused(done, f"{present} of the {vehicles} that a round needs are there")
            sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            present = connected()
        if self.why:
            log.info("goes on after round %d: %s there", done, counted(present, "vehicle"))
            self.why = ""
            self.run.note(RUNNING)

    def unanswered(self, done: int, called: int, answered: int, *, in_time: bool) -> None:
        """Record that a round must be repeated; raise RunError after `MOST_FAILURES` failed rounds.

        `in_time`: all vehicles reacted before the deadline, so missing updates are failures.
        """
        outcome = f"{answered} of {counted(called, 'vehicle')} answered round {done + 1}"
        self.failures = self.failures + 1 if in_time else 0
        if self.failures >= MOST_FAILURES:
            raise RunError(
                f"{outcome}, {self.failures} times in a row, and the others said that they cannot. "
                "Their own logs say why. Put it right and continue with --resume."
            )
        self._paused(done, f"{outcome}; it is asked again")
        sleep(FIRST_PAUSE)

    def answered(self) -> None:
        """Note that a round has been answered."""
        self.failures = 0
        self.since = None

    def _paused(self, done: int, why: str) -> None:
        now = monotonic()
        self.since = now if self.since is None else self.since
        if now - self.since > self.longest_seconds:
            raise RunError(
                f"The run has waited {self.longest_seconds:g} s (deploy.pause_seconds) after round "
                f"{done}: {why}. Continue it with --resume when vehicles are back."
            )
        if why != self.why:
            self.why = why
            self.run.note(PAUSED, f"after round {done}: {why}")
            log.warning("paused after round %d: %s", done, why)
