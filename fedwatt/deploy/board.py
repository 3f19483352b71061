"""A vehicle on the road: its own folder of the fleet, its own memory, answers to the server.

It runs what a simulation runs, `Federation`'s local work on a stack of one, with the same draws:
they are keyed by its name. All it is told about the rest of the fleet is in the question.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray

import fedwatt
from fedwatt import fleet
from fedwatt.deploy.memory import (
    forget_old_runs,
    mark,
    memory_folder,
    personal_file,
    recall,
    remember,
    run_folder,
)
from fedwatt.deploy.messages import (
    DIAGNOSTICS,
    NO_MODEL,
    SUMS,
    Content,
    Sizes,
    from_records,
    sealed,
)
from fedwatt.deploy.secure_board import Secrets
from fedwatt.deploy.terrain_board import HillsOnBoard, hills_of
from fedwatt.errors import DataError
from fedwatt.federation import Federation, State
from fedwatt.federation.evaluate import predict, stratum_errors, vehicle_errors
from fedwatt.federation.work import Call
from fedwatt.files import flush
from fedwatt.fleet import DataSettings, Fleet
from fedwatt.fleet.client import Client, build_client
from fedwatt.fleet.features import feature_names, needs_climb
from fedwatt.fleet.store import read_vehicle
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.personal import PersonalModel, personalise
from fedwatt.privacy.secure import reply_layout, reply_values
from fedwatt.runs.config import MethodChoice, RunConfig, from_toml
from fedwatt.runs.hills import learns_hills
from fedwatt.runs.own_models import write_own_model
from fedwatt.terrain import Grid, empty_field
from fedwatt.terrain.climb import with_measured_terrain, with_terrain
from fedwatt.terrain.store import read_field, read_taught
from fedwatt.terrain.taught import warn_unknown

log = logging.getLogger("fedwatt.deploy")

BROADCAST = "broadcast."
"""Prefix of the arrays that a server rule sends besides the model."""


Hills = tuple[str, str]
"""A run, and the digest of the field that its vehicles learned."""


class OnBoard(Federation):
    """A federation as one of its vehicles sees it: its own data, and what it was told."""

    def __init__(self, client: Client, config: RunConfig, choice: MethodChoice) -> None:
        alone = Fleet((client,), config.data, "this vehicle")
        super().__init__(
            alone,
            config.model.on(alone),
            training=choice.training(config.training),
            availability=config.availability,
            seeds=config.seeds,
            device="cpu",
        )
        self.told: Rows = {}
        self.told_population = 1

    @property
    def population_size(self) -> int:
        """K, as the server says."""
        return self.told_population

    def _broadcast(self, method: Method, state: State) -> Rows:
        return self.told

    def sizes(self, method: Method) -> Sizes:
        """Lengths of what this method's messages hold."""
        return sizes_of(self, method)

    def work(
        self, method: Method, round: int, weights: NDArray[Any], memory: Rows
    ) -> tuple[NDArray[Any], Rows, Rows, dict[str, float]]:
        """One round: (Δ_k [D], memory afterwards, uploads, what the rules recorded)."""
        anchor = torch.from_numpy(weights).to(self.dtype)[None]
        none = torch.zeros(1, dtype=torch.int64)
        state = State(
            round=round,
            weights=anchor,
            server={},
            memory={name: row[None, None] for name, row in memory.items()},
            available=torch.ones(1, 1, dtype=torch.bool),
            diverged=none,
            best_weights=anchor,
            best_round=none,
            best_validation=none.double(),
            best_test=none.double(),
        )
        done = self._train(method, state, [Call(0, 0, self._steps(0, 0))], Stopwatch())
        return (
            done.deltas[0].numpy(),
            {name: rows[0] for name, rows in done.memory.items()},
            {name: rows[0] for name, rows in done.uploads.items()},
            {name: float(rows[0]) for name, rows in done.columns.items()},
        )


def sizes_of(federation: Federation, method: Method) -> Sizes:
    """Lengths of what a method's messages hold."""
    layout = federation.model_for(method).layout
    return Sizes(layout.size, len(layout.shapes), federation.training.precision)


def uploads_of(method: Method) -> list[str]:
    """Names of what a method's vehicles hand up besides Δ_k."""
    names = [name for rule in method.local for name in rule.hands_up]
    return [*names, "accumulation"] if method.server.normalises else names


@dataclass(frozen=True)
class _Task:
    """A question with the objects it is about."""

    board: OnBoard
    choice: MethodChoice
    config: RunConfig
    question: Content

    @property
    def method(self) -> Method:
        return self.choice.method

    def value(self, name: str, kind: type) -> Any:
        value = self.question.values.get(name)
        if type(value) is not kind:
            raise DataError(f"the question lacks '{name}'")
        return value

    def weights(self) -> NDArray[Any]:
        weights = self.question.arrays.get("weights")
        size = self.board.model_for(self.method).layout.size
        if weights is None or weights.shape != (size,) or not np.isfinite(weights).all():
            raise DataError(f"the question holds no model of {size} finite weights")
        return weights


_Known = tuple[OnBoard, MethodChoice, RunConfig]


class Vehicle:
    """Answers the server's questions; reads its folder and writes its state folder, no other."""

    def __init__(self, folder: Path, state: Path, field: Path | None = None) -> None:
        self.folder, self.state, self.field = folder, state, field
        self.name = read_vehicle(folder).name
        self._client: tuple[tuple[object, ...], Client] | None = None
        self._known: tuple[tuple[object, ...], _Known | None] = (), None
        """The last question's configuration, method and hills, with what was made of them."""
        self._config: tuple[str, RunConfig] | None = None
        self.secrets = Secrets(self.name, state)
        self.hills = HillsOnBoard(folder, state)

    def client(
        self, settings: DataSettings, terrain: str = "measured", hills: Hills | None = None
    ) -> Client:
        """The vehicle's windows; read once for as long as the settings stay the same.

        `hills` is the run and the field of hills that the fleet learned in it.
        """
        if self._client is None or self._client[0] != (settings, terrain, hills):
            vehicle = read_vehicle(self.folder)
            if needs_climb(feature_names(settings.features)):
                vehicle = self._climbing(vehicle, terrain, settings, hills)
            self._client = (settings, terrain, hills), build_client(vehicle, settings)
        return self._client[1]

    def _climbing(
        self, vehicle: fleet.Vehicle, terrain: str, settings: DataSettings, hills: Hills | None
    ) -> fleet.Vehicle:
        """The vehicle with climb and descent: from its altitude, or from a field on board."""
        if terrain == "measured":
            return with_measured_terrain(vehicle)
        if terrain == "learn":
            # Before hills are learned the road is level; how many windows there are is the same.
            field = empty_field(Grid()) if hills is None else self.hills.field(*hills)
            return with_terrain(vehicle, field)
        if self.field is None:
            raise DataError("terrain features need a field on board: start with --field FILE")
        field = read_field(self.field)
        if (taught := read_taught(self.field)) is None:
            warn_unknown(self.field)
        else:
            taught.refuse(self.field, vehicle.name, settings)
        return with_terrain(vehicle, field)

    def answer(self, kind: str, records: RecordDict) -> RecordDict:
        """The sealed reply to a question."""
        before: dict[str, Callable[[Content], Content]] = {
            "enrol": self._enrol,
            "secure-keys": self.secrets.keys,
            "secure-shares": self.secrets.shares,
            "secure-reveal": self.secrets.revealed,
            "secure-terrain": lambda asked: self.hills.masked(
                asked, self._configuration(asked), self.secrets
            ),
            "terrain-field": lambda asked: self.hills.take(asked, self._configuration(asked)),
        }
        answers: dict[str, Callable[[_Task], tuple[Content, list[str]]]] = {
            "train": self._train,
            "evaluate": self._evaluate,
            "strata": self._strata,
            "personalise": self._personalise,
            "secure-train": self._train_in_secret,
        }
        question = from_records(records)
        if kind in before:
            return sealed(kind, before[kind](question), NO_MODEL)
        if kind not in answers:
            raise DataError(f"a question '{kind[:40]}' is not known on board")
        task = self._task(question)
        if kind == "train" and task.config.secure.enabled:
            raise DataError("this run adds up in secret, so a reply in the clear is not given")
        content, asked = answers[kind](task)
        return sealed(kind, content, task.board.sizes(task.method), asked)

    def _configuration(self, question: Content) -> RunConfig:
        """The configuration of a question; read once for as long as it stays the same."""
        text = question.values.get("config")
        if not isinstance(text, str):
            raise DataError("the question lacks its configuration")
        if self._config is None or self._config[0] != text:
            self._config = text, from_toml(text, "the server's configuration")
        return self._config[1]

    def _task(self, question: Content) -> _Task:
        """What a question about a method is about."""
        config = self._configuration(question)
        label, hills = question.values.get("label", ""), hills_of(question.values)
        if not label:
            raise DataError("the question lacks its method")
        about = question.values["config"], label, hills
        if about != self._known[0]:
            choices = [choice for choice in config.methods if choice.label == label]
            if not choices:
                raise DataError(f"the configuration has no method '{str(label)[:40]}'")
            if learns_hills(config) and hills is None:
                raise DataError("the question lacks the hills that this run learned")
            client = self.client(config.data, config.terrain.source, hills)
            board = OnBoard(client, config, choices[0])
            self._known = about, (board, choices[0], config)
        assert self._known[1] is not None
        return _Task(*self._known[1], question)

    def _enrol(self, question: Content) -> Content:
        config = self._configuration(question)
        client = self.client(config.data, config.terrain.source)
        counts = [len(client.ends[split]) for split in ("train", "validation", "test")]
        return Content(
            {
                "vehicle": client.name,
                "features": list(client.features),
                "simulated": client.simulated,
                "version": fedwatt.__version__,
            },
            {"windows": np.array(counts, dtype=np.int64)},
        )

    def _train(self, task: _Task) -> tuple[Content, list[str]]:
        board, method = task.board, task.method
        round, counted = task.value("round", int), task.value("counted", int)
        run = task.value("run", str)
        folder = memory_folder(self.state, run, task.choice.label)
        model = board.model_for(method)
        vector = board.dtype
        initial = {
            name: value.to(vector) if value.is_floating_point() and value.dim() else value
            for rule in method.local
            for name, value in rule.memory(model).items()
        }
        memory = recall(folder, counted, initial)
        board.told_population = task.value("population", int)
        board.population_windows = task.value("population_windows", float)
        board.told = {
            name.removeprefix(BROADCAST): torch.from_numpy(array)[None]
            for name, array in task.question.arrays.items()
            if name.startswith(BROADCAST)
        }
        if board.told_population < 1 or not board.population_windows > 0:
            raise DataError("the question knows no fleet")
        delta, memory, uploads, recorded = board.work(method, round, task.weights(), memory)
        if memory:
            forget_old_runs(self.state, run)
            remember(folder, round, memory)
        values: dict[str, Any] = {"round": round, "windows": board.windows(0)}
        asked = uploads_of(method)
        if task.question.values.get("diagnostics") is True:
            told = [name for name in DIAGNOSTICS if name in recorded]
            values |= {name: recorded[name] for name in told}
            asked = [*asked, *told]
        arrays = {name: rows.numpy() for name, rows in uploads.items()}
        log.info("round %d: trained %d windows", round + 1, board.windows(0))
        return Content(values, {"delta": delta, **arrays}), asked

    def _train_in_secret(self, task: _Task) -> tuple[Content, list[str]]:
        method, model = task.method, task.board.model_for(task.method)
        called = self.secrets.terms.called
        reply, _ = self._train(task)
        layout = reply_layout(method, model, task.config.secure, vehicles=called)
        uploads = {name: torch.from_numpy(array) for name, array in reply.arrays.items()}
        delta, windows = uploads.pop("delta"), task.board.windows(0)
        values = reply_values(method, model, delta, windows, uploads, layout)
        return self.secrets.masked(task.question, layout, values), []

    def _evaluate(self, task: _Task) -> tuple[Content, list[str]]:
        weights = torch.from_numpy(task.weights()).to(task.board.dtype)[None]
        errors = task.board.evaluate(weights)[0]
        return Content(
            {},
            {"validation": as_array(errors.validation[0]), "test": as_array(errors.test[0])},
        ), []

    def _strata(self, task: _Task) -> tuple[Content, list[str]]:
        board, pool = task.board, task.board.pool
        weights = torch.from_numpy(task.weights()).to(board.dtype)[None]
        size = board.model.layout.size
        return _sums(board, predict(board.model, weights[:, :size], pool, pool.test)[0]), []

    def _personalise(self, task: _Task) -> tuple[Content, list[str]]:
        weights = torch.from_numpy(task.weights()).to(task.board.dtype)[None]
        run = task.value("run", str)
        file = personal_file(memory_folder(self.state, run, task.choice.label))

        def keep(one: PersonalModel) -> None:
            forget_old_runs(self.state, run)
            mark(run_folder(self.state, run))
            write_own_model(file, task.board, one)
            flush(file.parent)

        # What cannot be kept is not reported either.
        own = personalise(task.board, weights, task.config.personal, keep=keep)
        return _sums(task.board, own.predictions[0]), []


def _sums(board: OnBoard, predictions: NDArray[np.float64]) -> Content:
    """Error sums of the test windows, all and by stratum."""
    clients, windows = board.fleet.clients, board.pool.test
    total = vehicle_errors(clients, "test", windows, predictions)[0]
    parts = {"all": total} | stratum_errors(clients, windows, predictions)[0]
    return Content(
        {"strata": list(parts)}, {"sums": np.stack([as_array(sums) for sums in parts.values()])}
    )


def as_array(sums: ErrorSums) -> NDArray[np.float64]:
    """Error sums in the order of `SUMS`."""
    return np.array([getattr(sums, name) for name in SUMS], dtype=np.float64)


def from_array(row: NDArray[np.float64]) -> ErrorSums:
    """Error sums from a row of numbers in the order of `SUMS`."""
    if not np.isfinite(row).all() or (row < 0).any():
        raise DataError("error sums are finite and not below 0")
    sums = dict(zip(SUMS, row.tolist(), strict=True))
    whole = {name: int(sums.pop(name)) for name in ("windows", "near_zero")}
    return ErrorSums(windows=whole["windows"], near_zero=whole["near_zero"], **sums)
