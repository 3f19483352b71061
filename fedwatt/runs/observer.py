"""Whoever follows a run while it goes on."""

from typing import Protocol

from fedwatt.data import Fleet
from fedwatt.federation import History, RoundRecord, State


class Observer(Protocol):
    """Is called at each step of a run, and may stop it by raising."""

    def fleet_ready(self, fleet: Fleet) -> None:
        """The vehicles are loaded."""

    def method_begins(self, label: str, done: int, rounds: int) -> None:
        """A method starts, or goes on after `done` rounds."""

    def round_done(self, label: str, state: State, record: RoundRecord) -> None:
        """A round of a method is over."""

    def method_ends(self, label: str, history: History) -> None:
        """A method has done all it will do."""
