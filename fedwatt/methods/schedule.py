"""Schedules of a learning rate or a strength over the rounds."""

from typing import Final

SCHEDULES: Final = ("constant", "inverse-sqrt")


def scheduled(start: float, schedule: str, round: int) -> float:
    """Value in round t (from 0): `start`, or `start`/√(t+1), the paper's diminishing schedule.

    >>> scheduled(0.05, "inverse-sqrt", 3)
    0.025
    """
    return start / (round + 1) ** 0.5 if schedule == "inverse-sqrt" else start
