"""The federation: rounds of local work and aggregation, several seeds in one stack.

    federation = Federation(fleet, training=Training(rounds=30), seeds=(1, 2, 3))
    history = federation.train("fo-ri-fedavg").history

`advance` takes the state after round t to the state after round t+1 and touches nothing else, so a
run can be stopped after any round and continued from its state bit for bit.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation.batches import batch_order, stack_batches
from fedwatt.federation.evaluate import error_rows, predict, vehicle_errors
from fedwatt.federation.local import accumulation, begin_round, finish_round, train_stack
from fedwatt.federation.memory import new_table, pages_path
from fedwatt.federation.participation import (
    device_speed,
    first_available,
    local_steps,
    lost_replies,
    next_available,
    participant_count,
    participants,
)
from fedwatt.federation.pool import Pool, pool_fleet
from fedwatt.federation.records import (
    UNEVALUATED,
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
from fedwatt.federation.work import Call, Work, enough, no_work, outcome_columns
from fedwatt.fleet import Fleet
from fedwatt.methods import Method, get
from fedwatt.methods.rule import Batch, Start
from fedwatt.methods.schedule import scheduled
from fedwatt.methods.server import Replies
from fedwatt.metrics import Stopwatch
from fedwatt.models import Model, get_loss, get_model
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
        model: str | Model = "mlp",
        *,
        training: Training | None = None,
        availability: Availability | None = None,
        seeds: Sequence[int] = (1,),
        device: str = "auto",
        scratch: Path | None = None,
    ) -> None:
        self.fleet = fleet
        self.training = training or Training()
        self.availability = availability or Availability()
        self.seeds = tuple(seeds)
        if not self.seeds or len(set(self.seeds)) < len(self.seeds):
            raise SettingError(f"seeds must be one or more different numbers, got {list(seeds)}.")
        self.device = resolve_device(device)
        self.scratch = scratch
        """Folder for what vehicles remember where that is too much; None: a temporary file."""
        if isinstance(model, str):
            model = get_model(model, window=fleet.window, features=len(fleet.features))
        self.model = model
        self.loss = get_loss(self.training.loss)
        self.population = np.array([not c.held_out for c in fleet.clients]).nonzero()[0]
        if not len(self.population):
            raise SettingError("All vehicles are held out, so none can train. Lower held_out.")

    @cached_property
    def pool(self) -> Pool:
        """The fleet's series on the device."""
        dtype = getattr(torch, self.training.precision)
        return pool_fleet(self.fleet, device=self.device, dtype=dtype)

    @cached_property
    def population_windows(self) -> float:
        """n, the training windows of all vehicles that may train."""
        return float(sum(self.pool.train.count(int(k)) for k in self.population))

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
        runs, vehicles = len(self.seeds), len(self.fleet.clients)
        dtype = self.pool.series.dtype
        model = self.model_for(method)
        initial = [model.initial(generator(seed, "initial model")) for seed in self.seeds]
        weights = torch.stack(initial).to(self.device, dtype)
        memory = {
            name: new_table(_like(value, weights), runs, vehicles, pages_path(self.scratch, name))
            for rule in method.local
            for name, value in rule.memory(model).items()
        }
        server = {
            name: value.to(self.device).expand(runs, *value.shape).clone()
            for name, value in method.server.state(model).items()
        }
        there = [first_available(s, len(self.population), self.availability) for s in self.seeds]
        unknown = torch.full((runs,), torch.inf, dtype=torch.float64)
        state = State(
            round=0,
            weights=weights,
            server=server,
            memory=memory,
            available=torch.from_numpy(np.stack(there)),
            diverged=torch.zeros(runs, dtype=torch.int64),
            best_weights=weights.clone(),
            best_round=torch.zeros(runs, dtype=torch.int64),
            best_validation=unknown,
            best_test=unknown.clone(),
        )
        watch = self._stopwatch()
        with watch.section("evaluation"):
            evaluations = self.evaluate(state.weights)
        columns = [UNTRAINED | {"available": int(own.sum())} for own in there]
        state, rows = self._record(state, columns, dict(enumerate(evaluations)))
        return state, RoundRecord(rows, [], _seconds(watch))

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
        watch = self._stopwatch()
        live = [run for run in range(len(self.seeds)) if not state.diverged[run]]
        with watch.section("training"):
            state, calls, work = self._local_work(method, state, live, watch)
            work = enough(work, method.replies_needed)
        with watch.section("aggregation"):
            after = self._aggregate(method, state, work)
        due = after.round % self.training.evaluate_every == 0 or after.round == self.training.rounds
        evaluations: dict[int, Evaluation] = {}
        if due:
            with watch.section("evaluation"):
                well = [run for run in live if not after.diverged[run]]
                evaluations = dict(zip(well, self.evaluate(after.weights[well]), strict=True))
        clients = [
            {
                "seed": self.seeds[call.run],
                "round": after.round,
                "vehicle": self.fleet.clients[call.vehicle].name,
                "windows": self.pool.train.count(call.vehicle),
                **outcome,
            }
            for call, outcome in zip(calls, outcome_columns(calls, work), strict=True)
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
        after, rows = self._record(after, columns, evaluations, live)
        return after, RoundRecord(rows, clients, _seconds(watch))

    def clock(self, state: State, run: int) -> float:
        """Simulated time of a run; rounds have none."""
        return nan

    def model_for(self, method: Method) -> Model:
        """The model as the method's rules need it: the federation's, perhaps with more heads."""
        model = self.model
        for rule in method.local:
            model = rule.adapt(model)
        return model

    def evaluate(self, weights: Tensor) -> list[Evaluation]:
        """Errors of R models, `weights` [R, D], on every vehicle's validation and test windows."""
        pool, clients = self.pool, self.fleet.clients
        weights = weights[:, : self.model.layout.size]
        validation = predict(self.model, weights, pool, pool.validation)
        test = predict(self.model, weights, pool, pool.test)
        return [
            Evaluation(
                vehicle_errors(clients, "validation", pool.validation, validation[run]),
                vehicle_errors(clients, "test", pool.test, test[run]),
            )
            for run in range(len(weights))
        ]

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
        calls = [call for run in live for call in self._calls(state, run)]
        return state, calls, self._train(method, state, [c for c in calls if c.steps], watch)

    def _calls(self, state: State, run: int) -> list[Call]:
        """The participants of one run and how many steps each will take, in ascending order."""
        seed, training = self.seeds[run], self.training
        available = state.available[run].numpy()
        lost = lost_replies(seed, state.round, len(available), self.availability)
        calls = []
        called = participants(
            seed, state.round, available, training.participation, sampling=training.sampling
        )
        for position in called:
            vehicle = int(self.population[position])
            steps = local_steps(
                self.pool.train.count(vehicle),
                self._speed(run, vehicle),
                epochs=training.epochs,
                steps=training.steps,
                batch=training.batch,
                availability=self.availability,
            )
            calls.append(Call(run, vehicle, 0 if lost[position] else steps))
        return calls

    def _speed(self, run: int, vehicle: int) -> float:
        return device_speed(self.seeds[run], self.fleet.clients[vehicle].name, self.availability)

    def _weight(self, vehicle: int) -> float:
        """What a vehicle's reply weighs in a mean: n_k."""
        return self.pool.train.count(vehicle)

    def _filled(self, replies: int) -> float:
        """Share of the places for `replies` that they fill; a round has as many as come."""
        return 1.0

    def _stopwatch(self) -> Stopwatch:
        """One that waits for a GPU, which works on after it was told what to do."""
        return Stopwatch(torch.cuda.synchronize if self.device.type == "cuda" else None)

    def _float64(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64, device=self.device)

    def _train(self, method: Method, state: State, calls: Sequence[Call], watch: Stopwatch) -> Work:
        """Local work of all `calls` in one stack."""
        if not calls:
            return no_work(state.weights)
        calls = sorted(calls, key=lambda call: (-call.steps, call.run, call.vehicle))
        runs, vehicles = [c.run for c in calls], [c.vehicle for c in calls]
        start = self._start(method, state, calls)
        memory = {name: table[runs, vehicles] for name, table in state.memory.items()}
        memory, plans = begin_round(method.local, memory, start, watch)
        orders = [
            batch_order(
                self.seeds[call.run],
                state.round,
                self.fleet.clients[call.vehicle].name,
                windows=self.pool.train.count(call.vehicle),
                steps=call.steps,
                batch=self.training.batch,
            )
            for call in calls
        ]
        deltas = train_stack(
            method.local,
            plans,
            start,
            stack_batches(self.pool, self.pool.train, vehicles, orders),
            [call.steps for call in calls],
            watch,
        )
        memory, uploads = finish_round(method.local, memory, plans, start, deltas)
        for rule, plan in zip(method.local, plans, strict=True):
            deltas = rule.reply(deltas, plan)
        if method.server.normalises:
            uploads["accumulation"] = accumulation(method.local, plans, start)
        columns = {
            name: rows.tolist() for plan in plans for name, rows in plan.items() if rows.dim() == 1
        }
        columns["drift"] = deltas.double().norm(dim=-1).tolist()
        finite = deltas.isfinite().all(dim=-1).cpu().numpy()
        return Work(calls, deltas, finite, finite, memory, uploads, columns)

    def _start(self, method: Method, state: State, calls: Sequence[Call]) -> Start:
        """The round as the stacked vehicles see it, with their own random draws for probing."""
        drawn: dict[tuple[int, int], Tensor] = {}
        model = self.model_for(method)

        def probe_batch(row: int, size: int, purpose: str) -> Batch:
            call = calls[row]
            seed, name = self.seeds[call.run], self.fleet.clients[call.vehicle].name
            count = self.pool.train.count(call.vehicle)
            rng = generator(seed, purpose, state.round, name)
            chosen = rng.choice(count, size=min(size, count), replace=False)
            index = torch.from_numpy(chosen + self.pool.train.offsets[call.vehicle])
            index = index.to(self.device)
            windows = self.pool.gather(self.pool.train.starts[index])
            return Batch(windows, self.pool.train.labels[index])

        def probe_directions(row: int, count: int) -> Tensor:
            key = (calls[row].run, count)
            if key not in drawn:
                rng = generator(self.seeds[key[0]], "probe directions", state.round)
                normal = rng.standard_normal((count, model.layout.size))
                drawn[key] = torch.from_numpy(normal).to(self.device)
            return drawn[key]

        runs = [call.run for call in calls]
        anchor = state.weights[runs]
        sent = method.server.broadcast(state.server)
        sizes = [self.pool.train.count(call.vehicle) for call in calls]
        return Start(
            round=state.round,
            vehicles=tuple(self.fleet.clients[call.vehicle].name for call in calls),
            rate=scheduled(self.training.rate, self.training.schedule, state.round),
            anchor=anchor,
            broadcast={name: _like(value, anchor)[runs] for name, value in sent.items()},
            steps=torch.tensor([call.steps for call in calls], device=self.device),
            relative_size=self._float64(sizes) * (len(self.population) / self.population_windows),
            speed=self._float64([self._speed(call.run, call.vehicle) for call in calls]),
            model=model,
            loss=self.loss,
            probe_batch=probe_batch,
            probe_directions=probe_directions,
            fastest=max(self.availability.speeds),
        )

    def _aggregate(self, method: Method, state: State, work: Work) -> State:
        """The state after the server has taken in the replies that are finite."""
        weights, diverged = state.weights.clone(), state.diverged.clone()
        memory = {name: table.clone() for name, table in state.memory.items()}
        server = {name: table.clone() for name, table in state.server.items()}
        for run in (~state.diverged.bool()).nonzero().flatten().tolist():
            rows = work.of(run)
            counted = [i for i in rows if work.counted[i]]
            if counted or method.server.acts_alone:
                vehicles = [work.calls[i].vehicle for i in counted]
                replies = Replies(
                    work.deltas[counted],
                    self._float64([self._weight(vehicle) for vehicle in vehicles]),
                    torch.tensor([work.calls[i].steps for i in counted], device=self.device),
                    len(self.population),
                    self.population_windows,
                    generator(self.seeds[run], "server", state.round),
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
        following = [
            next_available(seed, state.round + 1, own.numpy(), self.availability)
            for seed, own in zip(self.seeds, state.available, strict=True)
        ]
        return replace(
            state,
            round=state.round + 1,
            weights=weights,
            memory=memory,
            server=server,
            diverged=diverged,
            available=torch.from_numpy(np.stack(following)),
        )

    def _record(
        self,
        state: State,
        training: Sequence[Row],
        evaluations: dict[int, Evaluation],
        runs: Sequence[int] | None = None,
    ) -> tuple[State, list[Row]]:
        """Keep the best models so far and write a row for each run (of `runs`)."""
        windows = [self.pool.train.count(k) for k in range(len(self.fleet.clients))]
        held_out = [client.held_out for client in self.fleet.clients]
        diverged = state.diverged.clone()
        best_weights, best_round = state.best_weights.clone(), state.best_round.clone()
        best_validation, best_test = state.best_validation.clone(), state.best_test.clone()
        rows = []
        for run in range(len(self.seeds)) if runs is None else runs:
            errors = UNEVALUATED
            if run in evaluations:
                errors = evaluation_columns(evaluations[run], windows, held_out)
                score = errors["validation_rmse"]
                if not np.isfinite(score):
                    diverged[run] = state.round
                elif score < best_validation[run]:
                    best_validation[run], best_test[run] = score, errors["test_rmse"]
                    best_weights[run], best_round[run] = state.weights[run], state.round
            rows.append(
                {
                    "seed": self.seeds[run],
                    "round": state.round,
                    **training[run],
                    **errors,
                    "best_round": int(best_round[run]),
                    "best_validation_rmse": float(best_validation[run]),
                    "best_test_rmse": float(best_test[run]),
                    "diverged": bool(diverged[run]),
                }
            )
        state = replace(
            state,
            diverged=diverged,
            best_weights=best_weights,
            best_round=best_round,
            best_validation=best_validation,
            best_test=best_test,
        )
        return state, rows


def resolve_device(name: str) -> torch.device:
    """The device called `name`; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name not in ("cpu", "cuda"):
        raise SettingError(f"device must be 'auto', 'cpu' or 'cuda', got '{name}'.")
    if name == "cuda" and not torch.cuda.is_available():
        raise SettingError("device 'cuda' was asked for, but PyTorch sees no GPU. Use 'cpu'.")
    return torch.device(name)


def _like(value: Tensor, weights: Tensor) -> Tensor:
    """`value` on the device of `weights`, and a vector of numbers in their precision, too."""
    vector = value.is_floating_point() and value.dim() >= 1
    return value.to(weights.device, weights.dtype if vector else value.dtype)


def _seconds(watch: Stopwatch) -> dict[str, float]:
    parts = ("training", "preconditioner", "probe", "spectral", "aggregation", "evaluation")
    seconds = {part: watch.seconds.get(part, 0.0) for part in parts}
    return seconds | {"total": sum(seconds.values())}
