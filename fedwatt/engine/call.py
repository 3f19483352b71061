"""A vehicle that is asked to take part in a round."""

from typing import NamedTuple


class Call(NamedTuple):
    """A vehicle asked to take part in a round; with no steps, its reply never comes."""

    run: int
    vehicle: int
    steps: int
