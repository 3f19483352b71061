"""Exponential back-off for vehicles that repeatedly miss requests.

After `deploy.backoff_after` consecutive misses a vehicle is skipped for two rounds; each further
miss doubles that, up to 64 rounds, and a reply resets it. Training and evaluation are counted
separately. A refusal is not a miss. Only where replies come one by one: ε of a private method
counts on its draws being from all vehicles, and a secure aggregation on vehicles not being chosen.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

KINDS: Final = ("train", "evaluate")
"""Requests that are counted separately."""
FIRST_ROUNDS: Final = 2
MOST_ROUNDS: Final = 64


@dataclass(frozen=True)
class BackOff:
    """Consecutive misses of one vehicle and the round in which it is asked again."""

    misses: int = 0
    resume_round: int = 0

    def after_miss(self, round: int, after: int, every: int = 1) -> "BackOff":
        """Return the state after a miss in `round` of requests that come every so many rounds.

        >>> BackOff(misses=1).after_miss(9, after=2)  # skipped in rounds 10 and 11
        BackOff(misses=2, resume_round=12)
        >>> BackOff(misses=2, resume_round=12).after_miss(12, after=2)
        BackOff(misses=3, resume_round=17)
        """
        misses = self.misses + 1
        if not 0 < after <= misses:
            return BackOff(misses)
        doubled = min(misses - after, 20)
        return BackOff(misses, round + every * (1 + min(FIRST_ROUNDS << doubled, MOST_ROUNDS)))


def updated(
    before: Mapping[str, BackOff],
    called: Collection[str],
    missed: Collection[str],
    round: int,
    *,
    after: int,
    every: int = 1,
) -> dict[str, BackOff]:
    """Return the back-offs after a request to `asked`, which some have `missed`."""
    unchanged = {name: back_off for name, back_off in before.items() if name not in called}
    return unchanged | {
        name: before.get(name, BackOff()).after_miss(round, after, every)
        for name in called
        if name in missed
    }


def skipped_vehicles(back_offs: Mapping[str, BackOff], round: int) -> frozenset[str]:
    """Return the names of the vehicles that are skipped in `round`."""
    return frozenset(name for name, back_off in back_offs.items() if back_off.resume_round > round)
