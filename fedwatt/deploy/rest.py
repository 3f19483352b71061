"""Vehicles that miss one round after the other rest: for some rounds nobody waits for them.

A vehicle that was late with its answers, or failed to give them, as many times in a row as
`deploy.rest_after` says is left out of the next two rounds and then asked again; each further miss
doubles the rounds, and an answer ends it. Training and judging are counted apart: a vehicle that is
too slow to train may still judge models. A refusal is a vehicle's right and no miss, and neither is
a reply that nobody waited for because enough others had come.

Only where replies come one by one. ε of a private method counts on its draws being from all
vehicles, a sum under masks on vehicles not being chosen, and behind a relay the relay is late.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("train", "evaluate")
"""Questions that are counted apart."""
FIRST_ROUNDS: Final = 2
MOST_ROUNDS: Final = 64
"""For which a vehicle rests at first, and at most."""


@dataclass(frozen=True)
class Rest:
    """How often in a row a vehicle has missed a question, and what follows."""

    missed: int = 0
    until: int = 0
    """The first round, counted from 0, in which it is asked again."""

    def after_miss(self, round: int, after: int, every: int = 1) -> "Rest":
        """One miss more, in `round`; it is asked every so many rounds, and rests `after` misses.

        >>> Rest().after_miss(5, after=2)
        Rest(missed=1, until=0)
        >>> Rest(missed=1).after_miss(9, after=2)  # left out of rounds 10 and 11
        Rest(missed=2, until=12)
        >>> Rest(missed=2, until=12).after_miss(12, after=2)
        Rest(missed=3, until=17)
        """
        missed = self.missed + 1
        if not 0 < after <= missed:
            return Rest(missed)
        doubled = min(missed - after, 20)
        return Rest(missed, round + every * (1 + min(FIRST_ROUNDS << doubled, MOST_ROUNDS)))


def rested(
    before: Mapping[str, Rest],
    asked: Collection[str],
    missed: Collection[str],
    round: int,
    *,
    after: int,
    every: int = 1,
) -> dict[str, Rest]:
    """How the vehicles stand after a question to `asked`, of whom some have `missed` it."""
    kept = {name: own for name, own in before.items() if name not in asked}
    return kept | {
        name: before.get(name, Rest()).after_miss(round, after, every)
        for name in asked
        if name in missed
    }


def resting(rests: Mapping[str, Rest], round: int) -> frozenset[str]:
    """Who is left out of a round."""
    return frozenset(name for name, own in rests.items() if own.until > round)
