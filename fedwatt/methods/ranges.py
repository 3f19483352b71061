"""The range in which a hyperparameter is tuned, declared by the rule that has it.

A rule lists its `ranges` by hyperparameter, so a composition is tuned over the ranges of its parts.
The paper's own are those of its table `tab:training_hparams`; a baseline's are its authors'. A
float hyperparameter that keeps its value is named in the rule's `fixed`, with the reason. What a
hyperparameter means is in `hyperparameters.toml`, or in the rule's own `meanings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, searched on a logarithmic scale where orders of magnitude matter."""

    low: float
    high: float
    log: bool = True

    def __str__(self) -> str:
        """As in "0.001 to 0.1, log"."""
        return f"{self.low:g} to {self.high:g}" + (", log" if self.log else "")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


class Tunable:
    """What every rule declares about its hyperparameters: a float is in one of the first two."""

    ranges: ClassVar[Mapping[str, Range]] = {}  # those that are tuned, each with its range
    fixed: ClassVar[Mapping[str, str]] = {}  # those that are not, each with the reason
    meanings: ClassVar[Mapping[str, str]] = {}  # as `fedwatt methods` shows them
