"""The rounds of a federation, over any fleet.

    available vehicles → participants, their updates → the next model → its errors
    `backend.present`    `backend.work`                `aggregated`     `backend.evaluate`

`advance` takes the state after round t to the state after round t+1. All state is in its argument
and result, so a run can be stopped after any round and continued from its state.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import nan
from statistics import fmean
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedwatt.federation.participation import Members, Present, Terms
from fedwatt.federation.records import (
    SHOWN,
    UNTRAINED,
    Errors,
    Evaluation,
    History,
    RoundRecord,
    Row,
    clients,
    evaluation_columns,
)
from fedwatt.federation.selection import concluded, evaluated, mean_model, stopped_early
from fedwatt.federation.settings import Training
from fedwatt.federation.state import State, Table
from fedwatt.federation.work import Work, agreements, enough, picked
from fedwatt.methods import Method, get
from fedwatt.methods.rule import Rows
from fedwatt.metrics import PARTS, Stopwatch
from fedwatt.models import Model
from fedwatt.plugins import short
from fedwatt.randomness import SystemNoise, generator


@dataclass(frozen=True)
class ModelEvaluation:
    """Evaluation of R models by the vehicles."""

    evaluations: Sequence[Errors | None]
    """For each model its errors; None: no vehicle evaluated it."""
    events: Rows  # next state of the backend
    comparable: bool = True
    """Whether the same vehicles evaluated the best model so far."""


class Backend(Protocol):
    """The vehicles of a loop; equal arguments give equal results."""

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work with this fleet."""

    def initial_states(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Return (client states, state of the backend) before the first round, from w_0 [R, D]."""

    def present(self, state: State | None) -> Present:
        """Return the vehicles available in the round after `state`; None: before the first."""

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work | None:
        """Return the round's participants and their updates; None if the round must be repeated."""

    def evaluate(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Return the errors of the models `weights` [R, D] on the vehicles' windows."""

    def evaluate_mean(self, weights: Tensor, events: Rows, present: Present) -> ModelEvaluation:
        """Evaluate final models after the last round (`federation.selection`).

        The state of the backend is not used afterwards.
        """

    def evaluate_personalised(
        self, method: Method, state: State, runs: Sequence[int]
    ) -> Sequence[Errors | None]:
        """Return the errors of the models that vehicles of some runs would use after `state`."""

    def server_draws(self, run: int, round: int, work: Work) -> np.random.Generator | SystemNoise:
        """Return the server's random numbers of a round, for rules that add noise."""

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Return test errors of each run's model, `weights` [R, D], by vehicle and stratum."""


@dataclass(frozen=True)
class TrainingResult:
    """The tables of a finished training and the state in which it ended."""

    history: History
    state: State


class Loop:
    """The rounds in which vehicles train a model on some terms.

    `make_backend` returns the vehicles of a loop: simulated or connected, with or without a buffer.
    """

    def __init__(
        self,
        make_backend: Callable[[Any], Backend],
        terms: Terms,
        model: Model,
        device: torch.device,
    ) -> None:
        self.make_backend = make_backend
        self.terms = terms
        self.model = model
        self.device = device

    @property
    def backend(self) -> Backend:
        """The vehicles."""
        # Made anew each time: a stored backend would refer back to its loop, and the windows of
        # both would outlive their last use.
        return self.make_backend(self)

    @property
    def training(self) -> Training:
        """The rounds and the work inside a round."""
        return self.terms.training

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds, one for each run."""
        return self.terms.seeds

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work with these vehicles on these terms."""
        self.backend.check(method)

    def vehicle_rows(self, weights: torch.Tensor) -> list[Row]:
        """Return test errors of each run's model, `weights` [R, D], by vehicle and stratum."""
        return self.backend.vehicle_rows(weights)

    def train(
        self,
        method: str | Method,
        *,
        on_round: Callable[[State, RoundRecord], None] | None = None,
        epsilon: Callable[[int], float] | None = None,
    ) -> TrainingResult:
        """Train all rounds of a method; `on_round` is called after each one.

        `epsilon` gives the privacy that a private method has spent after t rounds.
        """
        method = get(method) if isinstance(method, str) else method
        history = History(short(method.name))
        state, record = self.start(method)
        history.add(state.round, len(self.seeds), record.spending(epsilon))
        while not self.finished(state):
            state, record = self.advance(method, state)
            record = record.spending(epsilon)
            history.add(state.round, len(self.seeds), record)
            if on_round is not None:
                on_round(state, record)
        return TrainingResult(history, state)

    def finished(self, state: State) -> bool:
        """Return whether all rounds are done or no run trains any more."""
        return state.round >= self.training.rounds or not state.at_work

    def start(self, method: Method) -> tuple[State, RoundRecord]:
        """Return the state before the first round, and the record of round 0."""
        self.check(method)
        runs = len(self.seeds)
        model = method.adapted(self.model)
        initial = [model.initial(generator(seed, "initial model")) for seed in self.seeds]
        weights = torch.stack(initial).to(self.device, self.terms.dtype)
        begun = [
            method.server.begin(model, run_weights, partial(generator, seed, "initial model"))
            for seed, run_weights in zip(self.seeds, weights, strict=True)
        ]
        server = {
            name: torch.stack([run_weights[name] for run_weights in begun]).to(self.device)
            for name in begun[0]
        }
        present = self.backend.present(None)
        client_state, events = self.backend.initial_states(method, weights)
        unknown = torch.full((runs,), torch.inf, dtype=torch.float64)
        watch = self.stopwatch()
        with watch.section("evaluation"):
            evaluation = self.backend.evaluate(weights, events, present)
        state = State(
            round=0,
            weights=weights,
            server=server,
            client_state=client_state,
            available=present.available,
            diverged=torch.zeros(runs, dtype=torch.int64),
            stopped=torch.zeros(runs, dtype=torch.int64),
            best_weights=weights.clone(),
            best_round=torch.zeros(runs, dtype=torch.int64),
            best_validation=unknown,
            best_test=unknown.clone(),
            mean_validation=unknown.clone(),
            events=evaluation.events,
        )
        columns = [
            UNTRAINED | {"available": int(run_weights.sum())} for run_weights in present.available
        ]
        evaluations = dict(enumerate(evaluation.evaluations))
        errors = self._error_columns(method, state, evaluations, present.members, watch)
        state, rows = evaluated(state, self.seeds, columns, errors, range(runs))
        by_vehicle = _by_vehicle(evaluations, present.members)
        return state, RoundRecord(rows, [], _seconds(watch), by_vehicle)

    def advance(self, method: Method, state: State) -> tuple[State, RoundRecord]:
        """Do one round of every run that still trains."""
        watch = self.stopwatch()
        work = None
        while work is None:
            present = self.backend.present(state)
            with watch.section("training"):
                work = self.backend.work(method, state, present, watch)
        return self.conclude(method, state, present, work, watch)

    def conclude(
        self, method: Method, state: State, present: Present, work: Work, watch: Stopwatch
    ) -> tuple[State, RoundRecord]:
        """Aggregate and evaluate a round: return the next state and the record of the round."""
        work, training = enough(work, method.replies_needed), self.training
        with watch.section("aggregation"):
            after = aggregated(
                method,
                state,
                work,
                present,
                participation=training.participation,
                draws=self.backend.server_draws,
            )
        due = after.round % training.evaluate_every == 0 or after.round == training.rounds
        evaluations: dict[int, Errors | None] = {}
        well = after.at_work
        if due and well:
            with watch.section("evaluation"):
                evaluation = self.backend.evaluate(after.weights[well], after.events, present)
            evaluations = dict(zip(well, evaluation.evaluations, strict=True))
            after = replace(after, events=evaluation.events)
            if not evaluation.comparable:
                unknown = torch.full_like(after.best_validation, torch.inf)
                after = replace(after, best_validation=unknown)
        outcomes = clients(work, after.round, self.seeds, present.members, method.records)
        agreement = agreements(work)
        available = present.available.sum(dim=1).tolist()
        columns = [
            outcomes.training_columns(
                run,
                available=available[run],
                learning_rate=self.terms.learning_rate(state.round),
                clock=work.clock.get(run, nan),
                agreement=agreement.get(run, nan),
            )
            for run in range(len(self.seeds))
        ]
        errors = self._error_columns(method, after, evaluations, present.members, watch)
        after, rows = evaluated(after, self.seeds, columns, errors, state.at_work)
        if due:
            after = stopped_early(after, training.patience)
        left = [] if self.finished(after) else after.at_work
        ended = [run for run in state.at_work if run not in left]
        if ended:
            means = self._mean_columns(after, ended, present, watch)
            after, rows = concluded(after, self.seeds, rows, ended, means)
        by_vehicle = _by_vehicle(evaluations, present.members)
        return after, RoundRecord(rows, outcomes.rows, _seconds(watch), by_vehicle)

    def stopwatch(self) -> Stopwatch:
        """Return a stopwatch that waits for work queued on a GPU."""
        return Stopwatch(torch.cuda.synchronize if self.device.type == "cuda" else None)

    def _error_columns(
        self,
        method: Method,
        state: State,
        evaluations: Mapping[int, Errors | None],
        members: Members,
        watch: Stopwatch,
    ) -> dict[int, Row]:
        """Return the columns of each run's evaluation in the table of rounds."""
        evaluated = {
            run: evaluation for run, evaluation in evaluations.items() if evaluation is not None
        }
        driven: dict[int, Errors | None] = dict(evaluated)
        if method.personalised and evaluated:
            with watch.section("evaluation"):
                driven |= zip(
                    evaluated,
                    self.backend.evaluate_personalised(method, state, list(evaluated)),
                    strict=True,
                )
        return {
            run: evaluation_columns(evaluation, driven[run], *members.weights)
            for run, evaluation in evaluated.items()
        }

    def _mean_columns(
        self, state: State, ended: Sequence[int], present: Present, watch: Stopwatch
    ) -> dict[int, Row]:
        """Evaluate (w_best + w_last) / 2 of ended runs and return the columns of each run.

        Runs whose last model is the best one are left out.
        """
        best = state.best_weights
        last = state.weights
        finished = [run for run in ended if run in state.live]
        apart = [run for run in finished if not torch.equal(best[run], last[run])]
        if not apart:
            return {}
        with watch.section("evaluation"):
            mean = mean_model(best[apart], last[apart])
            evaluation = self.backend.evaluate_mean(mean, state.events, present)
        if not evaluation.comparable:
            return {}
        evaluated = zip(apart, evaluation.evaluations, strict=True)
        return {
            run: evaluation.columns(*present.members.weights)
            for run, evaluation in evaluated
            if evaluation is not None
        }


def _by_vehicle(evaluated: Mapping[int, Errors | None], members: Members) -> dict[str, float]:
    """Return the test RMSE of each vehicle, mean over the evaluated runs.

    Vehicles without test windows are left out, and all of them above `SHOWN`.
    """
    evaluations = [errors.test for errors in evaluated.values() if isinstance(errors, Evaluation)]
    if not evaluations or len(members.evaluated) > SHOWN:
        return {}
    names = [members.name(k) for k in members.evaluated]
    means = {name: fmean(run[k].rmse for run in evaluations) for k, name in enumerate(names)}
    return {name: mean for name, mean in means.items() if mean == mean}


def _seconds(watch: Stopwatch) -> dict[str, float]:
    seconds = {part: watch.seconds.get(part, 0.0) for part in (*PARTS, "evaluation")}
    return seconds | {"total": sum(seconds.values())}


def aggregated(
    method: Method,
    state: State,
    work: Work,
    present: Present,
    *,
    participation: float,
    draws: Callable[[int, int, Work], np.random.Generator | SystemNoise],
) -> State:
    """Aggregate the updates that count and return the next state.

    A vehicle's client state advances only if its update counts. A run whose updates or whose next
    model are not finite keeps its last model and ends. `draws` gives the server's random numbers of
    a run and round.
    """
    weights = state.weights.clone()
    diverged = state.diverged.clone()
    client_state = {name: table.clone() for name, table in state.client_state.items()}
    server = {name: table.clone() for name, table in state.server.items()}
    at_work = state.at_work
    counts = work.counted.tolist()
    aggregated_rows = list[int]()
    for run in at_work:
        counted = [i for i in work.of(run) if counts[i]]
        if counted or method.server.acts_alone:
            numbers = draws(run, state.round, work)
            replies = work.replies(run, counted, present.members, participation, numbers)
            server_state = {name: table[run] for name, table in server.items()}
            server_state, weights[run] = method.update(server_state, weights[run], replies)
            for name, value in server_state.items():
                server[name][run] = value
            aggregated_rows += counted
    # All runs at once, here and below: every read waits for a GPU.
    runs = [work.calls[i].run for i in aggregated_rows]
    vehicles = [work.calls[i].vehicle for i in aggregated_rows]
    for name, values in work.client_state.items():
        client_state[name][runs, vehicles] = picked(values, aggregated_rows)
    finite = weights.isfinite().all(dim=-1).tolist()
    for run in at_work:
        rows = work.of(run)
        if (rows and not work.finite[rows].any()) or not finite[run]:
            weights[run] = state.weights[run]
            diverged[run] = state.round + 1
    return replace(
        state,
        round=state.round + 1,
        weights=weights,
        client_state=client_state,
        server=server,
        diverged=diverged,
        available=present.available_next,
        events=work.events,
    )
