"""A federation in this process: vehicles with their windows, a model and the terms of training.

    federation = Federation(fleet, training=Training(rounds=30), seeds=(1, 2, 3))
    history = federation.train("fo-ri-fedavg").history

Several federations of one fleet can train side by side (`train_side_by_side`). They may differ in
seeds, learning rate, hyperparameters and server; jobs of one kind train in one stack, with the
results of separate trainings up to rounding.

All seeds train in one stack. A simulation has a whole fleet; a deployed vehicle has a federation of
itself, for its data and model.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor, nn

from fedwatt.engine.job import Job
from fedwatt.engine.pool import ChangingPool, Pool, Windows, pool_fleet, resolve_device
from fedwatt.engine.together import train_together
from fedwatt.errors import SettingError
from fedwatt.federation.buffered import SimulatedBuffer, refuse_impossible
from fedwatt.federation.evaluate import error_rows, predict, vehicle_errors
from fedwatt.federation.local_round import LocalRound, finish_round
from fedwatt.federation.loop import Loop, TrainingResult
from fedwatt.federation.participation import Call, Members, Present, Terms, checked_seeds
from fedwatt.federation.records import Evaluation, History, RoundRecord, Row
from fedwatt.federation.settings import Asynchronous, Availability, Training
from fedwatt.federation.simulated import Ahead, SimulatedBackend
from fedwatt.federation.state import State
from fedwatt.federation.work import no_work
from fedwatt.methods import Method
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.metrics.sums import FloatArray
from fedwatt.models import Model, ModuleModel, get_loss, get_model
from fedwatt.models.catalogue import made
from fedwatt.windows import Fleet

Network = Model | nn.Module | Callable[..., Model | nn.Module]
"""A network, or a class or function that makes one from `window` and `features`."""


class Federation(Loop):
    """A fleet, a model and the terms on which its vehicles train in this process.

    Training has rounds, or a buffer where `asynchronous` sets one. A model is a name, a
    `torch.nn.Module`, or a class or function that makes one.
    """

    def __init__(
        self,
        fleet: Fleet,
        model: str | Network = "mlp",
        *,
        training: Training | None = None,
        availability: Availability | None = None,
        asynchronous: Asynchronous | None = None,
        seeds: Sequence[int] = (1,),
        device: str = "auto",
    ) -> None:
        for name, value, kind, advice in (
            ("fleet", fleet, Fleet, "load_fleet(FOLDER) and synthetic_fleet() make one"),
            ("training", training, Training, "write Training()"),
            ("availability", availability, Availability, "write Availability(reply_loss=0.1)"),
            ("asynchronous", asynchronous, Asynchronous, "write Asynchronous(buffer=10)"),
        ):
            if value is not None and not isinstance(value, kind):
                type_name = type(value).__name__
                raise SettingError(f"{name} must be a {kind.__name__}, got {type_name}: {advice}.")
        buffered = asynchronous is not None and asynchronous.buffer > 0
        super().__init__(
            SimulatedBuffer if buffered else SimulatedBackend,
            Terms(training or Training(), availability or Availability(), checked_seeds(seeds)),
            fitting_model(model, fleet),
            resolve_device(device),
        )
        self.fleet = fleet
        self.availability = self.terms.availability
        self.asynchronous = asynchronous or Asynchronous()
        self.dtype = self.terms.dtype
        self.model_given = model
        """The `model` argument: a name, a network, or a class or function."""
        self.loss = get_loss(self.training.loss)
        self.members = Members(fleet, self.training.evaluate_vehicles)
        self.ahead: Ahead | None = None
        """The next round, if it was prepared while this one trained."""
        if buffered:
            refuse_impossible(self.asynchronous, self.availability, len(self.members.population))

    @property
    def simulated(self) -> SimulatedBackend:
        """The vehicles, simulated in rounds."""
        return SimulatedBackend(self)

    def personalised_models(
        self, method: Method, state: State
    ) -> Callable[[int, Sequence[int]], Tensor]:
        """Return a function from (run, vehicles) to their personalised models [P, D]."""

        def models(run: int, vehicles: Sequence[int]) -> Tensor:
            calls = [Call(run, vehicle, 0) for vehicle in vehicles]
            return self.simulated.personalised_models(method, state, calls)

        return models

    @cached_property
    def pool(self) -> Pool:
        """The fleet's series on the device."""
        return pool_fleet(self.fleet, device=self.device, dtype=self.dtype)

    def share_pool(self, other: "Federation") -> None:
        """Use the pool of another federation of the same fleet."""
        if not self.fleet.is_lazy:
            self.__dict__["pool"] = other.pool

    @cached_property
    def _changing(self) -> ChangingPool:
        return ChangingPool(self.device, self.dtype)

    def pool_of(self, vehicles: Sequence[int]) -> tuple[Pool, list[int]]:
        """Return a pool that holds these vehicles, and the place of each in it."""
        if self.fleet.is_lazy:
            return self._changing.hold(self.fleet, vehicles)
        return self.pool, list(vehicles)

    @cached_property
    def evaluated(self) -> "Federation":
        """A federation of the vehicles that evaluate models, for a lazy fleet; else this one."""
        if not self.fleet.is_lazy:
            return self
        clients = self.fleet.fetch(self.members.evaluated, stay=True)
        fleet = Fleet(tuple(clients), self.fleet.settings, self.fleet.source)
        return Federation(
            fleet,
            self.model,
            training=replace(self.training, evaluate_vehicles=0),
            availability=self.availability,
            seeds=self.seeds,
            device=str(self.device),
        )

    @cached_property
    def _evaluation_windows(self) -> tuple[Windows, Windows]:
        """(validation, test) windows of the evaluated vehicles."""
        pool = self.pool
        evaluated = self.members.evaluated
        if len(evaluated) == len(self.fleet.clients):
            return pool.validation, pool.test
        return pool.validation.of(evaluated), pool.test.of(evaluated)

    def evaluate(self, weights: Tensor) -> list[Evaluation]:
        """Return the errors of R models, `weights` [R, D], on validation and test windows."""
        population = len(self.members.population)
        if self.fleet.is_lazy:
            return [
                replace(evaluation, of=population)
                for evaluation in self.evaluated.evaluate(weights)
            ]
        clients = [self.fleet.clients[k] for k in self.members.evaluated]
        weights = weights[:, : self.model.layout.size]
        validation, test = self._evaluation_windows
        validated = predict(self.model, weights, self.pool, validation)
        tested = predict(self.model, weights, self.pool, test)
        return [
            Evaluation(
                vehicle_errors(clients, "validation", validation, validated[run]),
                vehicle_errors(clients, "test", test, tested[run]),
                population,
            )
            for run in range(len(weights))
        ]

    def vehicle_sums(self, vehicle: int, weights: Tensor) -> tuple[ErrorSums, ErrorSums]:
        """Return a vehicle's (validation, test) errors of the model `weights` [D]."""
        if self.fleet.is_lazy:
            return self.evaluated.vehicle_sums(self.members.evaluated.index(vehicle), weights)
        run_weights = weights[None, : self.model.layout.size]
        clients = [self.fleet.clients[vehicle]]
        sums = []
        for split, windows in (("validation", self.pool.validation), ("test", self.pool.test)):
            vehicle_windows = windows.of([vehicle])
            predicted = predict(self.model, run_weights, self.pool, vehicle_windows)[0]
            sums += vehicle_errors(clients, split, vehicle_windows, predicted)
        return sums[0], sums[1]

    def test_rows(self, weights: Tensor) -> list[Row]:
        """Return test errors of each run's model, `weights` [R, D], by vehicle and stratum."""
        if self.fleet.is_lazy:
            return self.evaluated.test_rows(weights)
        weights = weights[:, : self.model.layout.size]
        return self.prediction_rows(predict(self.model, weights, self.pool, self.pool.test))

    def prediction_rows(self, predictions: FloatArray) -> list[Row]:
        """Return test errors by vehicle and stratum from scaled predictions [R, W] of runs."""
        return error_rows(self.fleet.clients, self.pool.test, self.seeds, predictions)


def fitting_model(model: str | Network, fleet: Fleet) -> Model:
    """Return the named or given model; refuse one that cannot read the fleet's windows."""
    window = fleet.window
    features = len(fleet.features)
    if isinstance(model, str):
        model = get_model(model, window=window, features=features)
    elif isinstance(model, nn.Module):
        model = ModuleModel(model)
    elif not isinstance(model, Model):
        model = made(getattr(model, "__qualname__", str(model)), model, window, features)
    fault = model.input_fault(window, features)
    if fault:
        raise SettingError(
            f"{type(model).__name__} cannot read the windows of the fleet '{fleet.source}', "
            f"{window} samples by {features} features: {fault}."
        )
    return model


@dataclass
class _Member:
    federation: Federation
    method: Method
    state: State
    history: History


@dataclass(frozen=True)
class _Begun:
    """A member's round up to its first step."""

    watch: Stopwatch
    present: Present
    calls: list[Call]
    stack: LocalRound | None  # None: no vehicle trains


def train_side_by_side(
    trainings: Sequence[tuple[Federation, Method]],
    *,
    on_round: Callable[[int, State, RoundRecord], None] | None = None,
) -> list[TrainingResult]:
    """Train all `trainings`; `on_round` gets the place of the training that finished a round."""
    first = trainings[0][0]
    members = []
    for federation, method in trainings:
        if federation.asynchronous.buffer or federation.fleet is not first.fleet:
            raise SettingError(
                "Only synchronous federations of one fleet object can train side by side."
            )
        if (federation.device, federation.dtype) == (first.device, first.dtype):
            federation.share_pool(first)
        history = History(method.name)
        state, record = federation.start(method)
        history.add(state.round, len(federation.seeds), record)
        members.append(_Member(federation, method, state, history))
    while left := [i for i, m in enumerate(members) if not m.federation.finished(m.state)]:
        for place, record in zip(left, _advance([members[i] for i in left]), strict=True):
            if on_round is not None:
                on_round(place, members[place].state, record)
    return [TrainingResult(member.history, member.state) for member in members]


def _advance(members: Sequence[_Member]) -> list[RoundRecord]:
    """Do one round of every member."""
    rounds = [_begin(member) for member in members]
    kinds: dict[Hashable, dict[int, Job]] = {}
    for place, begun in enumerate(rounds):
        if begun.stack is not None:
            kinds.setdefault(begun.stack.job.kind, {})[place] = begun.stack.job
    deltas: dict[int, Tensor] = {}
    for jobs in kinds.values():
        # The time of the whole stack is recorded for the first of its trainings.
        watch = rounds[min(jobs)].watch
        with watch.section("training"):
            displacements = train_together(list(jobs.values()), watch)
        deltas |= zip(jobs, displacements, strict=True)
    return [
        _conclude(member, begun, deltas.get(place))
        for place, (member, begun) in enumerate(zip(members, rounds, strict=True))
    ]


def _begin(member: _Member) -> _Begun:
    fleet = member.federation.simulated
    watch = member.federation.stopwatch()
    present = fleet.present(member.state)
    with watch.section("training"):
        calls = fleet.calls(member.state, present)
        working = [call for call in calls if call.steps]
        stack = fleet.begin(member.method, member.state, working, watch) if working else None
    return _Begun(watch, present, calls, stack)


def _conclude(member: _Member, begun: _Begun, deltas: Tensor | None) -> RoundRecord:
    """Aggregate a member's round and return its record; `deltas` are [P, D]."""
    federation = member.federation
    method = member.method
    state = member.state
    work = no_work(state.weights)
    if begun.stack is not None and deltas is not None:
        work = finish_round(method, begun.stack, deltas)
    work = replace(work, called=begun.calls)
    member.state, record = federation.conclude(method, state, begun.present, work, begun.watch)
    member.history.add(member.state.round, len(federation.seeds), record)
    return record
