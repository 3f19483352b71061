"""Vehicles that are simulated in rounds, all participants of all runs in one stack."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine.batches import Batches
from fedwatt.engine.together import train
from fedwatt.federation.local_round import (
    Broadcast,
    LocalRound,
    batches_of,
    begin_round,
    finish_round,
    in_stack_order,
    initial_client_state,
    vehicle_models,
)
from fedwatt.federation.loop import ModelEvaluation
from fedwatt.federation.participation import Call, Members, Present, first_available, next_available
from fedwatt.federation.records import Evaluation, Row
from fedwatt.federation.state import State, Table, new_table
from fedwatt.federation.work import Work, no_work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import Stopwatch
from fedwatt.randomness import generator

if TYPE_CHECKING:
    from fedwatt.federation.federation import Federation

STACK = 128
"""Personalised models in memory at a time, whatever the size of the fleet."""


@dataclass(frozen=True, eq=False)
class Ahead:
    """The prepared next round, valid for the same runs `at_work` and `available` vehicles."""

    round: int
    at_work: list[int]
    available: Tensor
    """[R, K]"""
    calls: list[Call]
    stack: list[Call]
    """The calls with steps, in the order of their stack."""
    batches: Batches | None
    """Of the stack; None: no vehicle trains."""


@dataclass(frozen=True)
class SimulatedVehicles:
    """Vehicles with windows in this process; churn and losses are drawn from the run's seeds."""

    local: "Federation"

    @property
    def members(self) -> Members:
        """The vehicles, and which of them may train."""
        return self.local.members

    def tables(self, method: Method, weights: Tensor) -> dict[str, Table]:
        """Return the client state of every vehicle of every run before the first round."""
        runs = len(weights)
        vehicles = len(self.local.fleet.clients)
        initial = initial_client_state(method, method.adapted(self.local.model), weights)
        return {name: new_table(value, runs, vehicles) for name, value in initial.items()}

    def present(self, state: State | None) -> Present:
        """Draw the available vehicles A_t of every run from its seed."""
        members = self.members
        terms = self.local.terms
        vehicles = len(members.population)
        if state is None:
            masks = [first_available(seed, vehicles, terms.availability) for seed in terms.seeds]
            first = torch.from_numpy(np.stack(masks))
            return Present(members, first, first)
        masks = [
            next_available(seed, state.round + 1, run_available.numpy(), terms.availability)
            for seed, run_available in zip(terms.seeds, state.available, strict=True)
        ]
        return Present(members, state.available, torch.from_numpy(np.stack(masks)))

    def evaluate(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Return the errors on the windows of the evaluated vehicles, which always reply."""
        return ModelEvaluation(self.local.evaluate(weights), events)

    def evaluate_mean(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Evaluate any model: a simulation needs no round for it."""
        return self.evaluate(weights, events, present)

    def evaluate_personalised(
        self, method: Method, state: State, runs: Sequence[int]
    ) -> list[Evaluation | None]:
        """Return the errors of each evaluated vehicle's personalised model on its windows."""
        evaluations: list[Evaluation | None] = []
        for run in runs:
            calls = [Call(run, vehicle, 0) for vehicle in self.members.evaluated]
            sums = [
                self.local.vehicle_sums(call.vehicle, weights)
                for first in range(0, len(calls), STACK)
                for stack in [calls[first : first + STACK]]
                for call, weights in zip(
                    stack, self.personalised_models(method, state, stack), strict=True
                )
            ]
            validation, test = zip(*sums, strict=True)
            evaluations.append(Evaluation(validation, test, len(self.members.population)))
        return evaluations

    def server_draws(self, run: int, round: int, work: Work) -> np.random.Generator:
        """Return the server's random numbers of a round, the same whenever a run is repeated."""
        return generator(self.local.seeds[run], "server", round)

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Return test errors of each run's model, `weights` [R, D], by vehicle and stratum."""
        return self.local.test_rows(weights)

    def calls(self, state: State, present: Present) -> list[Call]:
        """Return the calls of the round after `state`, in all runs that still train."""
        at_work = state.at_work
        ahead = self.local.ahead
        if (
            ahead is not None
            and (ahead.round, ahead.at_work) == (state.round, at_work)
            and torch.equal(ahead.available, present.available)
        ):
            return ahead.calls
        return self.local.terms.calls(state.round, present.members, present.available, at_work)

    def trained(
        self,
        method: Method,
        state: State,
        calls: Sequence[Call],
        watch: Stopwatch,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> Work:
        """Train all `calls` as one stack; `meanwhile` runs while a GPU trains."""
        if not calls:
            return no_work(state.weights)
        begun = self.begin(method, state, calls, watch)
        deltas = train(begun.job, watch)
        meanwhile()
        return finish_round(method, begun, deltas)

    def begin(
        self, method: Method, state: State, calls: Sequence[Call], watch: Stopwatch
    ) -> LocalRound:
        """Begin the local round of all `calls` as one stack."""
        calls = in_stack_order(calls)
        ahead = self.local.ahead
        is_prepared = ahead is not None and ahead.round == state.round and ahead.stack == calls
        broadcast, client_state = self._inputs(method, state, calls)
        batches = ahead.batches if ahead is not None and is_prepared else None
        return begin_round(self.local, method, broadcast, client_state, calls, watch, batches)

    def personalised_models(self, method: Method, state: State, calls: Sequence[Call]) -> Tensor:
        """Return the model [P, D] that each vehicle of `calls` would use after `state`."""
        return vehicle_models(self.local, method, *self._inputs(method, state, calls), calls)

    def broadcast(self, method: Method, state: State) -> Broadcast:
        """Return the server's message after `state`, a row for each run."""
        return Broadcast(
            state.round,
            state.weights,
            method.server.broadcast(state.server),
            len(self.members.population),
            self.members.population_windows,
        )

    def _inputs(
        self, method: Method, state: State, calls: Sequence[Call]
    ) -> tuple[Broadcast, Rows]:
        """Return (the server's message after `state`, client states), a row for each call."""
        runs = [call.run for call in calls]
        vehicles = [call.vehicle for call in calls]
        client_state = {name: table[runs, vehicles] for name, table in state.client_state.items()}
        return self.broadcast(method, state).of_runs(runs), client_state


class SimulatedBackend(SimulatedVehicles):
    """Vehicles simulated in rounds."""

    def check(self, method: Method) -> None:
        """Refuse a method that cannot train in rounds of these vehicles."""
        self.local.terms.check(method, len(self.members.population))

    def initial_states(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Return the client states before the first round; rounds have no events."""
        return self.tables(method, weights), {}

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """Train the participants of all runs that are still finite."""
        calls = self.calls(state, present)
        self._prepare(state, present)
        working = [call for call in calls if call.steps]
        meanwhile = partial(self._look_ahead, state, present)
        return replace(self.trained(method, state, working, watch, meanwhile), called=calls)

    def _prepare(self, state: State, present: Present) -> None:
        """Prepare the next round's vehicles while those of this round train."""
        terms = self.local.terms
        following = state.round + 1
        if self.local.fleet.is_lazy and following < terms.training.rounds:
            available = present.available_next
            participants = terms.participants(following, present.members, available, state.at_work)
            self.local.fleet.prepare([participant.vehicle for participant in participants])

    def _look_ahead(self, state: State, present: Present) -> None:
        """Prepare the next round, valid unless a run ends; a GPU draws its batches.

        Not for lazy fleets, whose vehicles have no windows yet.
        """
        local = self.local
        following = state.round + 1
        at_work = state.at_work
        local.ahead = None
        if local.fleet.is_lazy or following >= local.terms.training.rounds:
            return
        available = present.available_next
        calls = local.terms.calls(following, present.members, available, at_work)
        stack = in_stack_order(call for call in calls if call.steps)
        batches = None
        if stack:
            windows = [present.members.windows(call.vehicle) for call in stack]
            batches = batches_of(local, following, stack, windows)
            if local.device.type == "cuda":
                _ = batches.tensors  # drawn before the round needs them
        local.ahead = Ahead(following, at_work, available, calls, stack, batches)
