"""The interface of a fleet to the loop over rounds.

Five kinds of fleet answer: vehicles that are simulated in rounds (`simulated`), vehicles whose
replies are buffered (`buffered`), a real fleet (`deploy.remote_fleet`), one whose replies are
buffered (`deploy.buffered_road`), and one whose replies are added up in secret
(`deploy.secure_fleet`).

A fleet keeps nothing that one round leaves to the next. What it has to remember goes into
`State.events` with its answers and comes back with the next question. (A real fleet with a buffer
has questions on their way, and asks again for those that are lost with its process.)
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.federation.participation import Members
from fedwatt.federation.records import Errors, Row
from fedwatt.federation.state import State, Table
from fedwatt.federation.work import Work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import Stopwatch
from fedwatt.randomness import SystemNoise


@dataclass(frozen=True, eq=False)
class Present:
    """The vehicles as a round finds them; masks are [R, K], over those that may train."""

    members: Members
    available: Tensor  # A_t
    available_next: Tensor  # A_{t+1}, as far as it is known by now

    def idle(self, run: int, excluded: Collection[int]) -> NDArray[np.int64]:
        """Return the available vehicles, without those `excluded`."""
        present = self.members.population[self.available[run].numpy()]
        remaining: NDArray[np.int64] = present[~np.isin(present, list(excluded))]
        return remaining


@dataclass(frozen=True)
class ModelEvaluation:
    """Evaluation of R models by the vehicles."""

    evaluations: Sequence[Errors | None]
    """One for each model, of the members that are evaluated; None: nobody evaluated it."""
    events: Rows  # what the fleet remembers from now on
    comparable: bool = True
    """Whether the errors are of the vehicles that evaluated the best model so far."""


class Backend(Protocol):
    """A fleet as the loop sees it; the same question has the same answer."""

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work with this fleet."""

    def initial_states(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Return the state of vehicles and fleet before the first round, from w_0 [R, D]."""

    def present(self, state: State | None) -> Present:
        """Return the vehicles available in the round after `state`; None: before the first."""

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work | None:
        """Return the round's participants and their updates; None if the round must be repeated."""

    def evaluate(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Errors of the models `weights` [R, D] on the vehicles' windows."""

    def evaluate_mean(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Evaluate, after the last round, models that no round has made (`federation.selection`).

        Nothing follows, so what the fleet would remember of it is not used.
        """

    def evaluate_personalised(
        self, method: Method, state: State, runs: Sequence[int]
    ) -> Sequence[Errors | None]:
        """Errors of the models that vehicles of some runs would drive with after `state`."""

    def server_draws(self, run: int, round: int, work: Work) -> np.random.Generator | SystemNoise:
        """Return the server's own random numbers of a round, for rules that add noise."""

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Test errors of each run's model, `weights` [R, D], by vehicle and stratum."""
