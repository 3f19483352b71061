"""Observers: objects that a run calls at each step.

    on_elevation → on_vehicle → … → on_fleet
    (on_start → on_round → … → on_round → on_end) for each method
    on_baseline → … → on_finish

An observer overrides what it needs and may end the run by raising. It sees a round after the round
is complete, so nothing that it does changes a number. A class with some of these methods will
do, too, whatever it derives from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

if TYPE_CHECKING:
    from fedwatt.elevation.learn import Learned
    from fedwatt.elevation.settings import ElevationSettings
    from fedwatt.federation import History, RoundRecord, State
    from fedwatt.windows import Fleet


class Observer:
    """By itself it does nothing."""

    def on_elevation(self, learned: "Learned", elevation: "ElevationSettings") -> None:
        """Handle the elevation map that simulated vehicles have learned before the first round."""

    def on_vehicle(self, built: int, of: int) -> None:
        """Handle progress in building simulated vehicles: `built` of `of` are ready."""

    def on_fleet(self, fleet: "Fleet") -> None:
        """Handle the loaded fleet."""

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Handle the start of a method, or its continuation after `done` of its `rounds`."""

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Handle the end of a round; `state.round` is its number."""

    def on_end(self, label: str, history: "History") -> None:
        """Handle the end of a method."""

    def on_baseline(self, name: str) -> None:
        """Handle a finished baseline (`fedwatt.evaluation`)."""

    def on_finish(self, run: Path) -> None:
        """All methods are done, and their tables and models are in the folder `run`."""


SILENT: Final = Observer()
"""Follows what nobody wants to hear of."""


About = ParamSpec("About")


def _told_to_each(
    event: Callable[Concatenate[Observer, About], None],
) -> Callable[Concatenate["Observers", About], None]:
    """Return a method that tells an event to those of several observers that have it."""

    def tell(self: "Observers", /, *arguments: About.args, **named: About.kwargs) -> None:
        for observer in self.each:
            getattr(observer, event.__name__, getattr(SILENT, event.__name__))(*arguments, **named)

    return tell


@dataclass(frozen=True)
class Observers(Observer):
    """Several as one, called in their order."""

    each: Sequence[Observer]

    on_elevation = _told_to_each(Observer.on_elevation)
    on_vehicle = _told_to_each(Observer.on_vehicle)
    on_fleet = _told_to_each(Observer.on_fleet)
    on_start = _told_to_each(Observer.on_start)
    on_round = _told_to_each(Observer.on_round)
    on_end = _told_to_each(Observer.on_end)
    on_baseline = _told_to_each(Observer.on_baseline)
    on_finish = _told_to_each(Observer.on_finish)


@dataclass(frozen=True)
class OnRound(Observer):
    """Calls a function, where there is one, with the state and the record of each round."""

    tell: "Callable[[State, RoundRecord], None] | None" = None

    def on_round(self, label: str, state: "State", record: "RoundRecord") -> None:
        """Handle the end of a round."""
        if self.tell is not None:
            self.tell(state, record)
