"""A vehicle that is asked to take part in a round."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """A vehicle asked to take part in a round; with no steps, its reply never comes."""

    run: int
    vehicle: int
    steps: int
