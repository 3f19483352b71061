"""Who follows a run: called at each step of it, whatever its vehicles are.

    on_fleet → (on_start → on_round → … → on_round → on_end) for each method → on_finish

An observer overrides what it needs and may end the run by raising. It sees a round after the round
is complete, so nothing that it does changes a number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from fedwatt.data import Fleet
    from fedwatt.federation import History, RoundRecord, State


class Observer(Protocol):
    """By itself it does nothing."""

    def on_fleet(self, fleet: "Fleet") -> None:
        """The vehicles are loaded."""
        return None

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """A method starts, or goes on after `done` of its `rounds`."""
        return None

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """A round of a method is over; `state.round` is its number."""
        return None

    def on_end(self, label: str, history: "History") -> None:
        """A method has done all it will do."""
        return None

    def on_finish(self, run: Path) -> None:
        """All methods are done, and their tables and models are in the folder `run`."""
        return None


@dataclass(frozen=True)
class Observers(Observer):
    """Several as one, called in their order."""

    each: Sequence[Observer]

    def on_fleet(self, fleet: "Fleet") -> None:
        """The vehicles are loaded."""
        for one in self.each:
            one.on_fleet(fleet)

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """A method starts, or goes on."""
        for one in self.each:
            one.on_start(label, done, rounds)

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """A round of a method is over."""
        for one in self.each:
            one.on_round(label, state, record)

    def on_end(self, label: str, history: "History") -> None:
        """A method has done all it will do."""
        for one in self.each:
            one.on_end(label, history)

    def on_finish(self, run: Path) -> None:
        """All methods are done."""
        for one in self.each:
            one.on_finish(run)


@dataclass(frozen=True)
class OnRound(Observer):
    """Calls a function, where there is one, with the state and the record of each round."""

    tell: "Callable[[State, RoundRecord], None] | None" = None

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """A round of a method is over."""
        if self.tell is not None:
            self.tell(state, record)
