"""Tuning ranges of hyperparameters, declared by the rule that has them, on the same line:

    mu: float = number(0.01, "[0, inf)", "(0 is FedAvg)", tuned=Range(1e-3, 1.0))

A float is `tuned` in a range, so that a composition is tuned over the ranges of its parts, or keeps
its value and is `fixed` for the reason given. The paper's own ranges are those of its table
`tab:training_hparams`; a baseline's are its authors'. What a hyperparameter means is in
`hyperparameters.toml`, or in the rule's own `meanings`.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import Any, ClassVar

from fedwatt.settings import Checked


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, searched on a logarithmic scale where orders of magnitude matter."""

    low: float
    high: float
    log: bool = True

    def __str__(self) -> str:
        """Return text such as "0.001 to 0.1, log"."""
        return f"{self.low:g} to {self.high:g}" + (", log" if self.log else "")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


class Tunable(Checked):
    """A rule, by its hyperparameters."""

    ranges: ClassVar[Mapping[str, Range]] = {}  # those that are tuned, by name, each with its range
    fixed: ClassVar[Mapping[str, str]] = {}  # those that are not, each with the reason
    meanings: ClassVar[Mapping[str, str]] = {}  # as `fedwatt list` shows them

    def __init_subclass__(cls, **more: Any) -> None:
        """Join what parents say, what fields declare, and what the class lists by itself."""
        super().__init_subclass__(**more)
        ranges: dict[str, Range | str] = {}
        for parent in reversed(cls.__bases__):
            ranges |= {**getattr(parent, "ranges", {}), **getattr(parent, "fixed", {})}
        for name, attribute in vars(cls).items():
            # `dataclass` has not yet put its default in the place of a field.
            if isinstance(attribute, Field) and "allowed" in attribute.metadata:
                ranges[name] = attribute.metadata.get("tuned") or attribute.metadata.get(
                    "fixed", ""
                )
        ranges |= {**vars(cls).get("ranges", {}), **vars(cls).get("fixed", {})}
        cls.ranges = {
            name: attribute
            for name, attribute in sorted(ranges.items())
            if isinstance(attribute, Range)
        }
        cls.fixed = {
            name: attribute
            for name, attribute in ranges.items()
            if attribute and isinstance(attribute, str)
        }
