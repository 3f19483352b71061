"""How a hyperparameter is tuned, declared by the rule that has it, in the line in which it stands:

    mu: float = number(0.01, "[0, inf)", "(0 is FedAvg)", tuned=Range(1e-3, 1.0))

A float is `tuned` in a range, so that a composition is tuned over the ranges of its parts, or keeps
its value and is `fixed` for the reason given. The paper's own ranges are those of its table
`tab:training_hparams`; a baseline's are its authors'. What a hyperparameter means is in
`hyperparameters.toml`, or in the rule's own `meanings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from fedwatt.settings import Checked


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


class Tunable(Checked):
    """A rule, by its hyperparameters."""

    meanings: ClassVar[Mapping[str, str]] = {}  # as `fedwatt methods` shows them

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Those that are tuned, in the order of their names, each with its range."""
        declared = sorted(self._declared().items())
        return {name: own["tuned"] for name, own in declared if "tuned" in own}

    @property
    def fixed(self) -> Mapping[str, str]:
        """Those that are not, each with the reason."""
        return {name: own["fixed"] for name, own in self._declared().items() if "fixed" in own}
