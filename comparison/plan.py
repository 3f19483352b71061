"""Rounds, seeds and trials: one plan that every run follows."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from fedwatt.errors import check
from fedwatt.evaluation import Personalisation
from fedwatt.federation import Availability, Training

SPEEDS = (1.0, 1.0, 0.25)
"""Of stragglers: a third of the vehicles, drawn by seed and name, does a quarter of the work."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The size of a comparison; the defaults are those of the committed records."""

    trials: int = 20
    """Settings tried of every candidate, its defaults among them."""
    further: int = 5
    """Rates tried beyond the range, as far apart as those in it, where the best one is its last;
    and as many again where it is the last of these."""
    rounds: int = 60
    """T, of trials and results alike."""
    steps: int = 20
    """H, local steps of every participant in a round."""
    every: int = 5
    """Rounds between evaluations of a result; of a trial only the end is looked at."""
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    """Of results."""
    tuning_seeds: tuple[int, ...] = (101, 102)
    """Of trials."""
    fine_tuning: tuple[int, ...] = (100, 300)
    """Numbers of steps after which a vehicle looks at the model it fine-tunes."""

    def __post_init__(self) -> None:
        check(self, "trials", self.trials >= 1, "at least 1, the defaults")
        check(self, "further", self.further >= 0, "at least 0 rates")
        check(self, "rounds", self.rounds >= 1, "at least 1")
        check(self, "steps", self.steps >= 1, "at least 1")
        check(self, "every", self.every >= 1, "at least 1 round")
        apart = bool(self.seeds) and not set(self.seeds) & set(self.tuning_seeds)
        check(self, "tuning_seeds", apart, "other seeds than those of results")

    @classmethod
    def of(cls, recorded: Mapping[str, Any]) -> "Plan":
        """Return the plan that a record names."""
        names = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in recorded.items()
            if name in names
        }
        return cls(**values)

    def differences(self, other: "Plan") -> str:
        """Return the differences, as in "trials is 20, not 5"; empty where nothing does."""
        pairs = ((f.name, getattr(other, f.name), getattr(self, f.name)) for f in fields(self))
        return ", ".join(
            f"{name} is {theirs}, not {here}" for name, theirs, here in pairs if theirs != here
        )

    def training(self, learning_rate: float, participation: float, *, trial: bool) -> Training:
        """Return the rounds of one training."""
        return Training(
            rounds=self.rounds,
            steps=self.steps,
            learning_rate=learning_rate,
            participation=participation,
            evaluate_every=self.rounds if trial else min(self.every, self.rounds),
        )

    @property
    def stragglers(self) -> Availability:
        """Vehicles of which some cannot finish in time, and send what they have."""
        return Availability(speeds=SPEEDS, deadline=float(self.steps))

    @property
    def evaluated(self) -> list[int]:
        """The rounds of a result that are evaluated, after round 0."""
        due = range(min(self.every, self.rounds), self.rounds + 1, min(self.every, self.rounds))
        return sorted({*due, self.rounds})

    @property
    def personalised(self) -> Personalisation:
        """Return how every vehicle fine-tunes on its own trips, whatever the method."""
        return Personalisation(enabled=True, rates=(0.003, 0.01, 0.03), steps=self.fine_tuning)
