"""What a vehicle may try when it makes the global model its own."""

from dataclasses import dataclass
from math import inf

from fedwatt.errors import check


@dataclass(frozen=True, kw_only=True)
class Personal:
    """Candidates of fine-tuning, from which each vehicle chooses on its validation trips."""

    enabled: bool = False
    """Whether vehicles fine-tune after the last round; `--personalise` says yes."""
    rates: tuple[float, ...] = (0.003, 0.01, 0.03)
    """Rates to try."""
    steps: tuple[int, ...] = (100, 300, 1000)
    """Numbers of steps after which the model is looked at, ascending."""
    batch: int = 64
    """Windows a step."""

    def __post_init__(self) -> None:
        rates = len(self.rates) >= 1 and all(0 < rate < inf for rate in self.rates)
        check(self, "rates", rates, "one or more positive numbers, such as (0.003, 0.01)")
        rising = list(self.steps) == sorted(set(self.steps)) and min(self.steps, default=0) >= 1
        check(self, "steps", rising, "one or more ascending whole numbers, such as (100, 300)")
        check(self, "batch", self.batch >= 1, "at least 1 window")
