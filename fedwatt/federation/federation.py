"""The federation: rounds of local work and aggregation, several seeds in one stack.

    federation = Federation(fleet, training=Training(rounds=30), seeds=(1, 2, 3))
    history = federation.train("fo-ri-fedavg").history

`advance` takes the state after round t to the state after round t+1 and touches nothing else, so a
run can be stopped after any round and continued from its state bit for bit.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedwatt.data import Fleet
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.call import Call
from fedwatt.engine.device import resolve_device
from fedwatt.engine.job import Job
from fedwatt.engine.pool import Pool, Windows, pool_fleet
from fedwatt.engine.probing import Probes
from fedwatt.engine.together import train
from fedwatt.errors import SettingError
from fedwatt.federation.best import judged
from fedwatt.federation.evaluate import (
    error_rows,
    evaluated_vehicles,
    predict,
    vehicle_errors,
)
from fedwatt.federation.local import accumulation, begin_round, finish_round
from fedwatt.federation.memory import Table, new_table, pages_path
from fedwatt.federation.participation import (
    BoolArray,
    device_speed,
    first_available,
    local_steps,
    lost_replies,
    next_available,
    participant_count,
    participants,
)
from fedwatt.federation.prepared import Prepared
from fedwatt.federation.records import (
    UNTRAINED,
    Evaluation,
    History,
    RoundRecord,
    Row,
    evaluation_columns,
    training_columns,
)
from fedwatt.federation.settings import Availability, Training
from fedwatt.federation.state import State
from fedwatt.federation.work import (
    Work,
    enough,
    no_work,
    outcome_columns,
    recorded_columns,
)
from fedwatt.methods import Method, get
from fedwatt.methods.rule import Rows, Start
from fedwatt.methods.schedule import scheduled
from fedwatt.methods.server import Replies
from fedwatt.metrics import PARTS, Stopwatch
from fedwatt.models import Model, ModuleModel, get_loss, get_model
from fedwatt.randomness import generator


@dataclass(frozen=True)
class Trained:
    """A finished training: its tables and the state it ended in."""

    history: History
    state: State


class Federation:
    """A fleet, a model and the terms on which vehicles train it together."""

    def __init__(
        self,
        fleet: Fleet,
        model: str | Model | nn.Module = "mlp",
        *,
        training: Training | None = None,
        availability: Availability | None = None,
        seeds: Sequence[int] = (1,),
        device: str = "auto",
        scratch: Path | None = None,
    ) -> None:
        _refuse_others("fleet", fleet, Fleet, "load_fleet(FOLDER) and synthetic_fleet() make one")
        _refuse_others("training", training, Training, "write Training()")
        _refuse_others(
            "availability", availability, Availability, "write Availability(reply_loss=0.1)"
        )
        self.fleet = fleet
        self.training = training or Training()
        self.availability = availability or Availability()
        self.seeds = tuple(seeds) if isinstance(seeds, Iterable) else ()
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SettingError(
                f"seeds must be one or more different numbers, such as (1, 2, 3), got {seeds}."
            )
        self.device = resolve_device(device)
        self.scratch = scratch
        """Folder for what vehicles remember where that is too much; None: a temporary file."""
        if isinstance(model, str):
            model = get_model(model, window=fleet.window, features=len(fleet.features))
        elif isinstance(model, nn.Module):
            model = ModuleModel(model)
        fault = model.input_fault(fleet.window, len(fleet.features))
        if fault:
            raise SettingError(
                f"{type(model).__name__} cannot read the windows of the fleet '{fleet.source}', "
                f"{fleet.window} samples by {len(fleet.features)} features: {fault}."
            )
        self.model = model
        self.loss = get_loss(self.training.loss)
        self.population = np.array([not c.held_out for c in fleet.clients]).nonzero()[0]
        if not len(self.population):
            raise SettingError("All vehicles are held out, so none can train. Lower held_out.")

    @cached_property
    def pool(self) -> Pool:
        """The fleet's series on the device."""
        return pool_fleet(self.fleet, device=self.device, dtype=self.dtype)

    def share_pool(self, other: "Federation") -> None:
        """Work on the series that another federation of the same fleet has on the device."""
        self.__dict__["pool"] = other.pool

    @property
    def dtype(self) -> torch.dtype:
        """Of models and series."""
        dtype: torch.dtype = getattr(torch, self.training.precision)
        return dtype

    def windows(self, vehicle: int) -> int:
        """n_k, the training windows of a vehicle."""
        return len(self.fleet.clients[vehicle].ends["train"])

    @property
    def population_size(self) -> int:
        """K, all vehicles that may train."""
        return len(self.population)

    @cached_property
    def population_windows(self) -> float:
        """n, the training windows of all vehicles that may train."""
        return float(sum(self.windows(int(k)) for k in self.population))

    def train(
        self,
        method: str | Method,
        *,
        on_round: Callable[[State, RoundRecord], None] | None = None,
    ) -> Trained:
        """All rounds of a method; `on_round` is called after each one."""
        method = get(method) if isinstance(method, str) else method
        history = History(method.name)
        state, record = self.start(method)
        history.add(state.round, len(self.seeds), record)
        while not self.finished(state):
            state, record = self.advance(method, state)
            history.add(state.round, len(self.seeds), record)
            if on_round is not None:
                on_round(state, record)
        return Trained(history, state)

    def finished(self, state: State) -> bool:
        """Whether all rounds are done, or no run is left to go on with."""
        return state.round >= self.training.rounds or bool(state.diverged.all())

    def start(self, method: Method) -> tuple[State, RoundRecord]:
        """Initial models, nothing remembered, and the record of round 0."""
        self.check(method)
        runs = len(self.seeds)
        model = self.model_for(method)
        initial = [model.initial(generator(seed, "initial model")) for seed in self.seeds]
        weights = torch.stack(initial).to(self.device, self.dtype)
        server = {
            name: value.to(self.device).expand(runs, *value.shape).clone()
            for name, value in method.server.state(model).items()
        }
        there = self._first_available()
        unknown = torch.full((runs,), torch.inf, dtype=torch.float64)
        state = State(
            round=0,
            weights=weights,
            server=server,
            memory=self._new_memory(method, weights),
            available=torch.from_numpy(np.stack(there)),
            diverged=torch.zeros(runs, dtype=torch.int64),
            best_weights=weights.clone(),
            best_round=torch.zeros(runs, dtype=torch.int64),
            best_validation=unknown,
            best_test=unknown.clone(),
        )
        watch = self.stopwatch()
        with watch.section("evaluation"):
            evaluations = self.evaluate(state.weights)
        columns = [UNTRAINED | {"available": int(own.sum())} for own in there]
        errors = {run: self._error_columns(own) for run, own in enumerate(evaluations)}
        state, rows = judged(state, self.seeds, columns, errors, range(runs))
        return state, RoundRecord(rows, [], _seconds(watch))

    def resume(self, history: History) -> None:
        """Go on after the rounds in `history`; nothing to do where all vehicles are at hand."""

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work on the terms of this federation."""
        fault = method.server.sampling_fault(self.training.sampling, self.training.participation)
        if fault:
            raise SettingError(f"Method '{method.name}': {fault}")
        if method.defence is not None:
            vehicles, share = len(self.population), self.training.participation
            poisson = self.training.sampling == "poisson"
            most = vehicles if poisson else participant_count(vehicles, share)
            where = f"a round of {vehicles} vehicles at participation {share:g}"
            method.defence.refuse_fewer(most, where)

    def advance(self, method: Method, state: State) -> tuple[State, RoundRecord]:
        """One round of every run that is still finite."""
        watch = self.stopwatch()
        with watch.section("training"):
            state, calls, work = self._local_work(method, state, state.live, watch)
        return self.conclude(method, state, calls, work, watch)

    def conclude(
        self,
        method: Method,
        state: State,
        calls: Sequence[Call],
        work: Work,
        watch: Stopwatch,
    ) -> tuple[State, RoundRecord]:
        """The next models, made of what the vehicles brought home, and the record of the round."""
        work = enough(work, method.replies_needed)
        with watch.section("aggregation"):
            after = self._aggregate(method, state, work)
        due = after.round % self.training.evaluate_every == 0 or after.round == self.training.rounds
        evaluations: dict[int, Evaluation] = {}
        well = after.live
        if due and well:
            with watch.section("evaluation"):
                evaluations = dict(zip(well, self.evaluate(after.weights[well]), strict=True))
        clients = [
            {
                "seed": self.seeds[call.run],
                "round": after.round,
                "vehicle": self.fleet.clients[call.vehicle].name,
                "windows": self.windows(call.vehicle),
                **outcome,
            }
            for call, outcome in zip(
                calls, outcome_columns(calls, work, method.records), strict=True
            )
        ]
        rate = scheduled(self.training.rate, self.training.schedule, state.round)
        columns = [
            training_columns(
                [row for row in clients if row["seed"] == seed],
                available=int(state.available[run].sum()),
                rate=rate,
                clock=self.clock(after, run),
            )
            for run, seed in enumerate(self.seeds)
        ]
        errors = {run: self._error_columns(own) for run, own in evaluations.items()}
        after, rows = judged(self.comparable(after), self.seeds, columns, errors, state.live)
        return after, RoundRecord(rows, clients, _seconds(watch))

    def comparable(self, state: State) -> State:
        """`state` with a best model that this round's may be compared with: here, always."""
        return state

    def clock(self, state: State, run: int) -> float:
        """Simulated time of a run; rounds have none."""
        return nan

    def model_for(self, method: Method) -> Model:
        """The model as the method's rules need it: the federation's, perhaps with more heads."""
        model = self.model
        for rule in method.local:
            model = rule.adapt(model)
        return model

    @cached_property
    def evaluated(self) -> list[int]:
        """Numbers of the vehicles that `evaluate` looks at."""
        return evaluated_vehicles(self.fleet, self.training.evaluate_vehicles)

    @cached_property
    def _evaluation_windows(self) -> tuple[Windows, Windows]:
        """(validation, test) windows of the vehicles that are evaluated."""
        pool = self.pool
        if len(self.evaluated) == len(self.fleet.clients):
            return pool.validation, pool.test
        return pool.validation.of(self.evaluated), pool.test.of(self.evaluated)

    def evaluate(self, weights: Tensor) -> list[Evaluation]:
        """Errors of R models, `weights` [R, D], on validation and test windows of vehicles."""
        clients = [self.fleet.clients[k] for k in self.evaluated]
        weights = weights[:, : self.model.layout.size]
        validation, test = self._evaluation_windows
        validated = predict(self.model, weights, self.pool, validation)
        tested = predict(self.model, weights, self.pool, test)
        return [
            Evaluation(
                vehicle_errors(clients, "validation", validation, validated[run]),
                vehicle_errors(clients, "test", test, tested[run]),
            )
            for run in range(len(weights))
        ]

    def _error_columns(self, evaluation: Evaluation) -> Row:
        """The columns of an evaluation in the table of rounds."""
        windows = [self.windows(k) for k in self.evaluated]
        held_out = [self.fleet.clients[k].held_out for k in self.evaluated]
        return evaluation_columns(evaluation, windows, held_out)

    def vehicle_rows(self, weights: Tensor) -> list[Row]:
        """Test errors of each run's model, `weights` [R, D], by vehicle and stratum."""
        pool = self.pool
        return self.prediction_rows(
            predict(self.model, weights[:, : self.model.layout.size], pool, pool.test)
        )

    def prediction_rows(self, predictions: NDArray[np.float64]) -> list[Row]:
        """Test errors by vehicle and stratum of each run's scaled predictions [R, W]."""
        return error_rows(self.fleet.clients, self.pool.test, self.seeds, predictions)

    def _local_work(
        self, method: Method, state: State, live: Sequence[int], watch: Stopwatch
    ) -> tuple[State, list[Call], Work]:
        """What happens between two models: (state before the next one, who was asked, replies)."""
        calls = self.calls(state)
        return state, calls, self._train(method, state, [c for c in calls if c.steps], watch)

    def calls(self, state: State) -> list[Call]:
        """Who is asked in the round that follows `state`, in all runs that are still finite."""
        return [call for run in state.live for call in self._calls(state, run)]

    def _calls(self, state: State, run: int) -> list[Call]:
        """The participants of one run and how many steps each will take, in ascending order."""
        seed, training = self.seeds[run], self.training
        available = state.available[run].numpy()
        lost = lost_replies(seed, state.round, len(available), self.availability)
        calls = []
        called = participants(
            self._calling_seed(run),
            state.round,
            available,
            training.participation,
            sampling=training.sampling,
        )
        for position in called:
            vehicle = int(self.population[position])
            steps = self._steps(run, vehicle)
            calls.append(Call(run, vehicle, 0 if lost[position] else steps))
        return calls

    def _steps(self, run: int, vehicle: int) -> int:
        """H_k of a vehicle in every round; 0 if it cannot finish any."""
        return local_steps(
            self.windows(vehicle),
            self._speed(run, vehicle),
            epochs=self.training.epochs,
            steps=self.training.steps,
            batch=self.training.batch,
            availability=self.availability,
        )

    def _speed(self, run: int, vehicle: int) -> float:
        return device_speed(self.seeds[run], self.fleet.clients[vehicle].name, self.availability)

    def _first_available(self) -> list[BoolArray]:
        """A_0 of every run, [K] each."""
        vehicles = self.population_size
        return [first_available(seed, vehicles, self.availability) for seed in self.seeds]

    def _next_available(self, state: State) -> list[BoolArray]:
        """A_{t+1} of every run, [K] each, after the round t of `state`."""
        return [
            next_available(seed, state.round + 1, own.numpy(), self.availability)
            for seed, own in zip(self.seeds, state.available, strict=True)
        ]

    def _new_memory(self, method: Method, weights: Tensor) -> dict[str, Table]:
        """What the vehicles remember before their first round."""
        runs, vehicles = len(self.seeds), len(self.fleet.clients)
        return {
            name: new_table(_like(value, weights), runs, vehicles, pages_path(self.scratch, name))
            for rule in method.local
            for name, value in rule.memory(self.model_for(method)).items()
        }

    def _calling_seed(self, run: int) -> int:
        """Of the draw of participants."""
        return self.seeds[run]

    def _server_generator(self, run: int, round: int) -> np.random.Generator:
        """The server's own random numbers of a round."""
        return generator(self.seeds[run], "server", round)

    def _broadcast(self, method: Method, state: State) -> Rows:
        """What the vehicles get besides the model, each [R, ...]."""
        return method.server.broadcast(state.server)

    def _weight(self, vehicle: int) -> float:
        """What a vehicle's reply weighs in a mean: n_k."""
        return self.windows(vehicle)

    def _filled(self, replies: int) -> float:
        """Share of the places for `replies` that they fill; a round has as many as come."""
        return 1.0

    def stopwatch(self) -> Stopwatch:
        """One that waits for a GPU, which works on after it was told what to do."""
        return Stopwatch(torch.cuda.synchronize if self.device.type == "cuda" else None)

    def _float64(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    def _train(self, method: Method, state: State, calls: Sequence[Call], watch: Stopwatch) -> Work:
        """Local work of all `calls` in one stack."""
        if not calls:
            return no_work(state.weights)
        prepared = self.prepare(method, state, calls, watch)
        return self.collect(method, prepared, train(prepared.job, watch))

    def prepare(
        self, method: Method, state: State, calls: Sequence[Call], watch: Stopwatch
    ) -> Prepared:
        """All `calls` as one stack, up to its first step."""
        calls = sorted(calls, key=lambda call: (-call.steps, call.run, call.vehicle))
        runs, vehicles = [c.run for c in calls], [c.vehicle for c in calls]
        start = self._start(method, state, calls)
        memory = {name: table[runs, vehicles] for name, table in state.memory.items()}
        memory, plans = begin_round(method.local, memory, start, watch)
        draws = tuple(
            Draw(
                self.seeds[call.run],
                state.round,
                self.fleet.clients[call.vehicle].name,
                windows=self.windows(call.vehicle),
                end=call.steps,
                batch=self.training.batch,
            )
            for call in calls
        )
        job = Job(
            method.local,
            tuple(plans),
            start.model,
            start.loss,
            start.anchor,
            start.rate,
            Batches(self.pool, vehicles, draws),
            self.training.tf32,
        )
        return Prepared(tuple(calls), start, memory, job)

    def collect(self, method: Method, prepared: Prepared, deltas: Tensor) -> Work:
        """What the vehicles of a stack hand in after their last step, with Δ_k [P, D]."""
        start, plans = prepared.start, prepared.job.plans
        self.pool.release()
        memory, uploads = finish_round(method.local, prepared.memory, plans, start, deltas)
        for rule, plan in zip(method.local, plans, strict=True):
            deltas = rule.reply(deltas, plan)
        if method.server.normalises:
            uploads["accumulation"] = accumulation(method.local, plans, start)
        columns = recorded_columns(method.local, plans)
        drift = torch.linalg.vector_norm(deltas, dim=-1, dtype=torch.float64)
        columns["drift"] = drift.tolist()
        # A norm in float64 is finite where all numbers are, and reading them again takes longer.
        finite = drift.isfinite().cpu().numpy()
        return Work(prepared.calls, deltas, finite, finite, memory, uploads, columns)

    def _start(self, method: Method, state: State, calls: Sequence[Call]) -> Start:
        """The round as the stacked vehicles see it, with their own random draws for probing."""
        model = self.model_for(method)

        probes = Probes(self.pool, self.fleet, self.seeds, state.round, calls, model)
        runs = [call.run for call in calls]
        anchor = _rows(state.weights, runs)
        sent = self._broadcast(method, state)
        sizes = [self.windows(call.vehicle) for call in calls]
        return Start(
            round=state.round,
            vehicles=tuple(self.fleet.clients[call.vehicle].name for call in calls),
            rate=scheduled(self.training.rate, self.training.schedule, state.round),
            anchor=anchor,
            broadcast={name: _like(value, anchor)[runs] for name, value in sent.items()},
            steps=torch.tensor([call.steps for call in calls], device=self.device),
            relative_size=self._float64(sizes) * (self.population_size / self.population_windows),
            speed=self._float64([self._speed(call.run, call.vehicle) for call in calls]),
            model=model,
            loss=self.loss,
            probe_batch=probes.batch,
            probe_directions=probes.directions,
            fastest=max(self.availability.speeds),
        )

    def _aggregate(self, method: Method, state: State, work: Work) -> State:
        """The state after the server has taken in the replies that are finite."""
        weights, diverged = state.weights.clone(), state.diverged.clone()
        memory = {name: table.clone() for name, table in state.memory.items()}
        server = {name: table.clone() for name, table in state.server.items()}
        for run in state.live:
            rows = work.of(run)
            counted = [i for i in rows if work.counted[i]]
            if counted or method.server.acts_alone:
                vehicles = [work.calls[i].vehicle for i in counted]
                replies = Replies(
                    _rows(work.deltas, counted),
                    self._float64([self._weight(vehicle) for vehicle in vehicles]),
                    self.population_size,
                    self.population_windows,
                    self._server_generator(run, state.round),
                    {name: rows[counted] for name, rows in work.uploads.items()},
                    self.training.participation,
                    self._filled(len(counted)),
                )
                own = {name: table[run] for name, table in server.items()}
                own, weights[run] = method.update(own, weights[run], replies)
                for name, value in own.items():
                    server[name][run] = value
                for name, values in work.memory.items():
                    memory[name][run, vehicles] = values[counted]
            if (rows and not work.finite[rows].any()) or not weights[run].isfinite().all():
                # The last finite model is kept; the run itself ends here.
                weights[run] = state.weights[run]
                diverged[run] = state.round + 1
        return replace(
            state,
            round=state.round + 1,
            weights=weights,
            memory=memory,
            server=server,
            diverged=diverged,
            available=torch.from_numpy(np.stack(self._next_available(state))),
        )


def _refuse_others(name: str, given: object, kind: type, advice: str) -> None:
    """Refuse an argument that is neither missing nor of its kind."""
    if given is not None and not isinstance(given, kind):
        found = type(given).__name__
        raise SettingError(f"{name} must be a {kind.__name__}, got {found}: {advice}.")


def _rows(values: Tensor, rows: Sequence[int]) -> Tensor:
    """`values`[rows], which copies number by number, in a third of the time."""
    return values.index_select(0, torch.tensor(rows, dtype=torch.int64, device=values.device))


def _like(value: Tensor, weights: Tensor) -> Tensor:
    """`value` on the device of `weights`, and a vector of numbers in their precision, too."""
    vector = value.is_floating_point() and value.dim() >= 1
    return value.to(weights.device, weights.dtype if vector else value.dtype)


def _seconds(watch: Stopwatch) -> dict[str, float]:
    seconds = {part: watch.seconds.get(part, 0.0) for part in (*PARTS, "evaluation")}
    return seconds | {"total": sum(seconds.values())}
