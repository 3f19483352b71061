"""Totals over vehicles by secure sums, for what a fleet learns together: hills, and routes.

A sum that fails is tried a few times: without those that failed where the others are enough, and
with them where not.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from fedwatt.deploy.kept_sums import SecretSum
from fedwatt.deploy.messages import Content, Value
from fedwatt.deploy.parts import NoSum
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.secure_exchange import SecureExchange
from fedwatt.deploy.state import RunState
from fedwatt.elevation.summands import Fields, Total
from fedwatt.errors import RunError
from fedwatt.privacy.fixed_point import CLIPPED, Layout
from fedwatt.runs.earlier import earlier_toml

log = logging.getLogger("fedwatt.deploy")

ATTEMPTS: Final = 3
"""Secure sums for one question, before learning is given up."""


class Addable(Protocol):
    """A question whose answers add up."""

    @property
    def described(self) -> str:
        """What is asked for, for a log."""

    @property
    def fields(self) -> Fields:
        """What an answer holds; the same for every vehicle."""


@dataclass(frozen=True)
class SecretTotals:
    """Asks the vehicles of a roster for totals, and for nothing of one of them."""

    roster: Roster
    run: RunState
    what: str  # is learned, for the log
    kind: str  # of the questions
    content: Callable[[Any], Content]  # what a message about a question holds
    about: Mapping[str, Value] = field(default_factory=dict)
    """What every question says besides its run and configuration."""

    @property
    def least(self) -> int:
        """Vehicles that a sum must be of."""
        return max(2, self.roster.config.terrain.minimum_vehicles)

    def __call__(self, question: Addable, present: frozenset[str]) -> Total:
        """The totals of a question and who is in them; RunError if all attempts fail."""
        log.info("%s: asking %d vehicles for %s", self.what, len(present), question.described)
        lost: frozenset[str] = frozenset()
        rejected: frozenset[str] = frozenset()
        reason = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                # A reply may be lost by chance: who failed is left out while others are enough.
                there = self._gathered(present)
                ways = (there - lost, there - rejected, there)
                called = next(names for names in ways if len(names) >= self.least)
                found = self._sum(question, called)
            except NoSum as error:
                lost, rejected = lost | error.lost, rejected | error.rejected
                silent = ", ".join(sorted(error.lost - error.rejected))
                reason = f"{error} No answer came from {silent}." if silent else str(error)
                log.warning(
                    "%s: secure sum %d of at most %d: %s", self.what, attempt, ATTEMPTS, reason
                )
                continue
            if found.sums[CLIPPED][0]:
                log.warning("%s: %d values were clipped", self.what, found.sums[CLIPPED][0])
            return found.sums, frozenset(found.survivors)
        raise RunError(
            f"The {self.what} could not be learned: {ATTEMPTS} secure sums failed one after the "
            f"other. {reason} --resume tries again."
        )

    def _sum(self, question: Addable, called: frozenset[str]) -> SecretSum:
        config, own = self.roster.config, self.content(question)
        common = {"run": self.run.run, "config": earlier_toml(config), **self.about}
        needed = self.least
        sums = SecureExchange(self.roster, self.run, config.secure, common, survivors_needed=needed)
        content = Content({**common, **own.values}, own.arrays)
        # In words of 64 bits: of 32 sums would be too coarse, whatever training makes do with.
        layout = Layout(question.fields, vehicles=config.deploy.room(len(called)))
        seconds = config.deploy.round_seconds
        return sums.total(self.what, called, layout, self.kind, lambda name: content, seconds)

    def _gathered(self, names: frozenset[str]) -> frozenset[str]:
        """Those of `names` that are there; waits a while for enough of them."""
        roster = self.roster
        there: frozenset[str] = frozenset()

        def enough() -> bool:
            nonlocal there
            roster.refresh()
            there = frozenset(name for name in names if roster.there(name))
            return len(there) >= self.least

        if not roster.exchange.wait(enough, roster.config.secure.stage_seconds):
            reason = f"{len(there)} of {len(names)} vehicles are there, {self.least} are needed."
            raise NoSum(reason, frozenset())
        return there
