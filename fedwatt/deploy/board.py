"""A vehicle on the road: its own folder of the fleet, its own memory, answers to the server.

It runs what a simulation runs, `Federation`'s local work on a stack of one, with the same draws:
they are keyed by its name. All it is told about the rest of the fleet is in the question.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import RecordDict
from numpy.typing import NDArray
from torch import Tensor

import fedwatt
from fedwatt.data import DataSettings, trip
from fedwatt.data.client import Client, build_client
from fedwatt.data.features import feature_names, needs_climb
from fedwatt.data.store import read_vehicle
from fedwatt.deploy.alone import BROADCAST, OnBoard, uploads_of
from fedwatt.deploy.hills_on_board import HillsOnBoard, hills_of
from fedwatt.deploy.memory import (
    forget_old_runs,
    level_run,
    mark,
    memory_folder,
    personal_file,
    recall,
    remember,
)
from fedwatt.deploy.messages import (
    DIAGNOSTICS,
    NO_MODEL,
    Content,
    from_records,
    sealed,
)
from fedwatt.deploy.secure_board import Secrets
from fedwatt.deploy.sums import as_array, sums_by_stratum
from fedwatt.errors import DataError, RunError
from fedwatt.federation.evaluate import predict
from fedwatt.files import flush
from fedwatt.methods import Method
from fedwatt.personal import PersonalModel, personalise
from fedwatt.privacy.secure import reply_layout, reply_values
from fedwatt.runs.config import MethodChoice, RunConfig, from_toml, to_toml
from fedwatt.runs.hills import learns_hills
from fedwatt.runs.level import level_config, predictions_of, with_level
from fedwatt.runs.own_models import own_weights, write_own_model
from fedwatt.terrain import Grid, empty_field
from fedwatt.terrain.climb import with_measured_terrain, with_terrain
from fedwatt.terrain.level import LEVEL, Predictions
from fedwatt.terrain.provenance import warn_unknown
from fedwatt.terrain.store import read_field, read_provenance

log = logging.getLogger("fedwatt.deploy")

Hills = tuple[str, str]
"""A run, and the digest of the field that its vehicles learned."""
Made = TypeVar("Made")


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
        return self.array("weights", "model", self.board.model_for(self.method).layout.size)

    def array(self, name: str, what: str, size: int) -> NDArray[Any]:
        weights = self.question.arrays.get(name)
        if weights is None or weights.shape != (size,) or not np.isfinite(weights).all():
            raise DataError(f"the question holds no {what} of {size} finite weights")
        return weights


class Vehicle:
    """Answers the server's questions; reads its folder and writes its state folder, no other."""

    def __init__(self, folder: Path, state: Path, field: Path | None = None) -> None:
        self.folder, self.state, self.field = folder, state, field
        self.name = read_vehicle(folder).name
        self._clients: dict[tuple[object, ...], Client] = {}
        """Cache key: data settings, source of terrain, and hills."""
        self._boards: dict[tuple[object, ...], tuple[OnBoard, MethodChoice]] = {}
        """Cache key: configuration, method and hills."""
        self._config: tuple[str, RunConfig] | None = None
        self.secrets = Secrets(self.name, state)
        self.hills = HillsOnBoard(folder, state)

    def client(
        self, settings: DataSettings, terrain: str = "measured", hills: Hills | None = None
    ) -> Client:
        """The vehicle's windows; read once for as long as the settings stay the same.

        `hills` is the run and the field of hills that the fleet learned in it.
        """
        about = settings, terrain, hills
        if about not in self._clients:
            vehicle = read_vehicle(self.folder)
            if needs_climb(feature_names(settings.features)):
                vehicle = self._climbing(vehicle, terrain, settings, hills)
            self._clients = _latest(self._clients) | {about: build_client(vehicle, settings)}
        return self._clients[about]

    def _climbing(
        self, vehicle: trip.Vehicle, terrain: str, settings: DataSettings, hills: Hills | None
    ) -> trip.Vehicle:
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
        if (provenance := read_provenance(self.field)) is None:
            warn_unknown(self.field)
        else:
            provenance.refuse(self.field, vehicle.name, settings)
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
        label, hills = question.values.get("label"), hills_of(question.values)
        if not isinstance(label, str) or not label:
            raise DataError("the question lacks its method")
        if learns_hills(config) and hills is None:
            raise DataError("the question lacks the hills that this run learned")
        text = str(question.values["config"])
        return _Task(*self._board(config, text, label, hills), config, question)

    def _board(
        self, config: RunConfig, text: str, label: str, hills: Hills | None
    ) -> tuple[OnBoard, MethodChoice]:
        """The method `label` of a configuration on this vehicle's windows."""
        about = text, label, hills
        if about not in self._boards:
            choices = [choice for choice in config.methods if choice.label == label]
            if not choices:
                raise DataError(f"the configuration has no method '{label[:40]}'")
            client = self.client(config.data, config.terrain.source, hills)
            board = OnBoard(client, config, choices[0])
            self._boards = _latest(self._boards) | {about: (board, choices[0])}
        return self._boards[about]

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
        if LEVEL in task.question.arrays:
            level = predictions_of(*self._level(task))
            test = with_level(board, predictions_of(board, weights), level)
        else:
            test = predict(board.model, weights[:, : board.model.layout.size], pool, pool.test)
        return sums_by_stratum(board, test[0]), []

    def _personalise(self, task: _Task) -> tuple[Content, list[str]]:
        weights = torch.from_numpy(task.weights()).to(task.board.dtype)[None]
        run, label = task.value("run", str), task.choice.label
        below = None
        if level_config(task.config) is not None or LEVEL in task.question.arrays:
            below = self._level(task)
        own = self._own(task, memory_folder(self.state, run, label), task.board, weights)
        test = own.test
        if below is not None:
            folder = memory_folder(self.state, level_run(run), label)
            test = with_level(task.board, own, self._own_level(task, folder, *below))
        return sums_by_stratum(task.board, test[0]), []

    def _level(self, task: _Task) -> tuple[OnBoard, Tensor]:
        """The level model [1, D] that comes with a model with hills, and the board it is for."""
        config = level_config(task.config)
        if config is None:
            raise DataError("the question holds a level model, and its run has none")
        board, _ = self._board(config, to_toml(config), task.choice.label, None)
        weights = task.array(LEVEL, "level model", board.model.layout.size)
        return board, torch.from_numpy(weights).to(board.dtype)[None]

    def _own(self, task: _Task, folder: Path, board: OnBoard, weights: Tensor) -> Predictions:
        """Predictions of what the vehicle makes of a model [1, D] for itself, and keeps."""
        run = task.value("run", str)

        def keep(one: PersonalModel) -> None:
            forget_old_runs(self.state, run)
            mark(folder.parent)
            write_own_model(personal_file(folder), board, one)
            flush(folder)

        # What cannot be kept is not reported either.
        own = personalise(board, weights, task.config.personal, keep=keep)
        return Predictions(own.validation, own.predictions)

    def _own_level(self, task: _Task, folder: Path, board: OnBoard, weights: Tensor) -> Predictions:
        """Predictions of the vehicle's own level model: the one it kept, or one made now."""
        file = personal_file(folder)
        if file.exists():
            try:
                kept = own_weights(file, self.name, board.model.layout)
                return predictions_of(board, torch.from_numpy(kept).to(board.dtype)[None])
            except RunError as error:
                log.warning("%s This vehicle makes its level model anew.", error)
        return self._own(task, folder, board, weights)


def _latest(made: Mapping[tuple[object, ...], Made]) -> dict[tuple[object, ...], Made]:
    """The last that was made; with the next one there are two, a run's and its level model's."""
    return dict([*made.items()][-1:])
