"""A vehicle on the road: its own folder of the fleet, its own memory, answers to the server.

It goes through a round as the vehicles of a simulation do (`federation.local_round`), as a stack of
one and with the same draws, which are keyed by its name. All that it hears of the rest of the fleet
is in the question.
"""

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from flwr.app import RecordDict
from torch import Tensor

import fedwatt
from fedwatt.deploy import memory
from fedwatt.deploy.board import Board
from fedwatt.deploy.configuration import configuration_of, read_configuration
from fedwatt.deploy.error_vectors import (
    judging_layout,
    judging_values,
    strata_layout,
    strata_values,
)
from fedwatt.deploy.followed import Followed, sum_name
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.hills_on_board import HillsOnBoard, hills_of
from fedwatt.deploy.ledger import Ledger
from fedwatt.deploy.messages import (
    AWAY,
    IN_THE_CLEAR,
    Content,
    ReplyForm,
    Value,
    from_records,
    sealed,
)
from fedwatt.deploy.one_vehicle import (
    by_stratum,
    driven_model,
    fleet_of_one,
    local_work,
    round_summand,
    sums_by_stratum,
    with_rounding,
)
from fedwatt.deploy.privacy_ledger import LIFETIME_DELTA, PrivacyLedger, epsilon_of
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.questions import AFTER, RoundQuestion, Task, value, weights
from fedwatt.deploy.routes_on_board import RoutesOnBoard
from fedwatt.deploy.secure_board import Secrets
from fedwatt.elevation.climb import with_measured_terrain, with_terrain
from fedwatt.elevation.field import empty_field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.level import LEVEL, Predictions
from fedwatt.elevation.store import read_field, read_provenance, warn_unknown
from fedwatt.errors import DataError, RunError
from fedwatt.evaluation import PersonalModel, personalise
from fedwatt.federation import LocalFleet, local_round
from fedwatt.federation.evaluate import predict
from fedwatt.files import flush
from fedwatt.methods import Method
from fedwatt.methods.bounding import bounded
from fedwatt.metrics import ErrorSums
from fedwatt.privacy.drawing import drawn, draws_on_board
from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.privacy.hiding import chance_share, own_seed
from fedwatt.runs.config import MethodChoice, RunConfig, to_toml
from fedwatt.runs.hills import learns_hills
from fedwatt.runs.level import level_config, predictions_of, with_level
from fedwatt.runs.model_file import own_weights, write_own_model
from fedwatt.telemetry import trip
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows import DataSettings
from fedwatt.windows.client import Client, build_client, prepared
from fedwatt.windows.features import feature_names, needs_climb
from fedwatt.windows.split import SPLITS

log = logging.getLogger("fedwatt.deploy")

CLEAR = ("train", "evaluate", "strata", "personalise")
"""Questions about a method that are answered outside a sum."""
MASKED = (
    "secure-train", "secure-evaluate", "secure-strata", "secure-personalise",
    "secure-terrain", "secure-routes",
)  # fmt: skip
"""Questions that are answered inside one."""
Hills = tuple[str, str]
"""A run, and the digest of the field that its vehicles learned."""


class Vehicle:
    """Answers the server's questions; reads its folder and writes its state folder, no other."""

    def __init__(
        self, folder: Path, state: Path, field: Path | None = None, board: Board | None = None
    ) -> None:
        self.folder, self.state, self.field = folder, state, field
        self.board = board or Board()
        self.name = read_vehicle(folder).name
        self.guard = Guard(self.board.policy, Ledger(state))
        # Two of each: those of a run and of its level model.
        self.client = lru_cache(maxsize=2)(self._read_client)
        self._method = lru_cache(maxsize=2)(self._read_method)
        self.secrets = Secrets(self.name, state, self.board, self.guard)
        self.hills = HillsOnBoard(folder, state)
        self.routes = RoutesOnBoard(folder, state, self.hills)
        self.spent = PrivacyLedger.of(state)
        self.followed = Followed(state, self.board.fleet_key)

    def _read_client(self, settings: DataSettings, terrain: str, hills: Hills | None) -> Client:
        """The vehicle's windows; `hills` are the run and the field that its fleet learned."""
        vehicle = prepared(read_vehicle(self.folder), settings)
        if needs_climb(feature_names(settings.features)):
            vehicle = self._climbing(vehicle, terrain, settings, hills)
        return build_client(vehicle, settings)

    def _climbing(
        self, vehicle: trip.Vehicle, terrain: str, settings: DataSettings, hills: Hills | None
    ) -> trip.Vehicle:
        """The vehicle with climb and descent: from its altitude, or from a field on board."""
        if terrain == "measured":
            return with_measured_terrain(vehicle)
        if terrain in ("auto", "learn"):
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
        """The sealed reply to a question; Refusal if the policy forbids it, NotNow at this hour."""
        if self.board.hours is not None:
            self.board.hours.refuse(kind)
        question = from_records(records)
        self.guard.size(question)
        self.guard.kind(kind)
        within: dict[str, Callable[[Content], Content]] = {
            "secure-shares": self.secrets.shares,
            "secure-agree": self.secrets.agreed,
            "secure-reveal": self.secrets.revealed,
        }
        if kind in within:
            return sealed(ReplyForm(kind), within[kind](question))
        config = configuration_of(question)
        self.guard.configuration(config, kind)
        if kind == "enrol":
            asked = {} if config.secure.enabled else IN_THE_CLEAR
            return sealed(ReplyForm(kind, more={**asked, **AWAY}), self._enrol(config))
        if kind == "secure-keys":
            return sealed(ReplyForm(kind), self.secrets.keys(question))
        if kind in ("terrain-field", "driving-field"):
            taker = self.hills if kind == "terrain-field" else self.routes
            return sealed(ReplyForm(kind), taker.take(question, config))
        if kind in MASKED:
            return sealed(ReplyForm(kind), self._masked(kind, question, config))
        if kind not in CLEAR:
            raise DataError(f"a question '{kind[:40]}' is not known on board")
        return self._in_the_clear(kind, question, config)

    def _in_the_clear(self, kind: str, question: Content, config: RunConfig) -> RecordDict:
        """The sealed reply to a question that is answered outside a sum."""
        self.guard.clear()
        if config.secure.enabled:
            raise DataError("this run adds up in secret, so a reply in the clear is not given")
        task = self._task(question)
        self._refuse_work(kind, task)
        self.guard.answer(Purpose.of(kind, question), masked=False)
        answers: dict[str, Callable[[Task], Content]] = {
            "train": lambda own: with_rounding(self._train(own), own, self.state),
            "evaluate": self._evaluate,
            "strata": lambda own: by_stratum(self._strata(own)),
            "personalise": lambda own: by_stratum(self._personalise(own)),
        }
        form = task.training_form if kind == "train" else ReplyForm(kind)
        return sealed(form, answers[kind](task))

    def _masked(self, kind: str, question: Content, config: RunConfig) -> Content:
        """The vector of a sum; it counts as given once nothing is left that could refuse it."""
        secrets = self.secrets
        purpose, vehicles = secrets.purpose(kind, question), secrets.vehicles
        if kind in ("secure-terrain", "secure-routes"):
            self.guard.adds(purpose, vehicles, cell_m=config.terrain.cell_m)
            asked = self.hills if kind == "secure-terrain" else self.routes
            return asked.masked(question, config, secrets)
        task = self._task(question)
        self._refuse_work(kind, task)
        follows = self.guard.follows(purpose, task.method, lambda: self.followed.follows(task))
        self.guard.adds(purpose, vehicles, follows=follows)
        masked = partial(secrets.masked, question, follows=follows)
        if kind == "secure-train":
            return masked(*self._reply(task, follows=follows))
        hidden, room = self.guard.policy.hiding > 0, config.deploy.room(secrets.terms.called)
        share = chance_share() if hidden else 1.0
        if kind == "secure-evaluate":
            errors = task.local.evaluate(task.weights())[0]
            weight = self.guard.weight(task.local.members.windows(0), hidden=hidden)
            values = judging_values(errors.validation[0], errors.test[0], weight, share)
            return masked(judging_layout(room), values)
        parts = self._strata(task) if kind == "secure-strata" else self._personalise(task)
        return masked(strata_layout(room), strata_values(parts, share))

    def _refuse_work(self, kind: str, task: Task) -> None:
        """Refuse what would take this vehicle too long."""
        local, config = task.local, task.config
        if kind.endswith("train"):
            windows, speed = local.members.windows(0), local.terms.speed(0, self.name)
            steps = local.terms.steps(windows, speed)
            self.guard.training(config, task.method, steps, windows, task.size)
            spent = self.spent.after(*self._spending(task))
            self.guard.spending(lambda: epsilon_of(spent, LIFETIME_DELTA, sampled=False))
        elif kind.endswith("personalise"):
            self.guard.fine_tuning(config, task.size)
        else:
            ends = local.fleet.clients[0].ends
            self.guard.judging(config, len(ends["validation"]) + len(ends["test"]), task.size)

    def _spending(self, task: Task) -> tuple[str, str, Method, float, int]:
        """What the privacy ledger counts of a question to train."""
        share, round_ = task.local.training.participation, value(task.question, "round", int)
        return task.run, task.choice.label, task.method, share, round_

    def _task(self, question: Content) -> Task:
        """What a question about a method is about."""
        config = configuration_of(question)
        label, hills = question.values.get("label"), hills_of(question.values)
        if not isinstance(label, str) or not label:
            raise DataError("the question lacks its method")
        if learns_hills(config) and hills is None:
            raise DataError("the question lacks the hills that this run learned")
        return Task(*self._method(str(question.values["config"]), label, hills), config, question)

    def _read_method(
        self, text: str, label: str, hills: Hills | None
    ) -> tuple[LocalFleet, MethodChoice]:
        """The method `label` of the configuration `text` on this vehicle's windows."""
        config = read_configuration(text)
        choices = [choice for choice in config.methods if choice.label == label]
        if not choices:
            raise DataError(f"the configuration has no method '{label[:40]}'")
        client = self.client(config.data, config.terrain.source, hills)
        return fleet_of_one(client, config, choices[0]), choices[0]

    def _enrol(self, config: RunConfig) -> Content:
        client = self.client(config.data, config.terrain.source, None)
        counts = [len(client.ends[split]) for split in SPLITS]
        values: dict[str, Value] = {
            "vehicle": client.name,
            "enough": self.guard.enough(counts),
            "features": list(client.features),
            "simulated": client.simulated,
            "version": fedwatt.__version__,
        }
        if self.board.hours is not None:
            values["away"] = self.board.hours.away_seconds()
        hidden = config.secure.enabled
        return Content(values, {} if hidden else {"windows": np.array(counts, dtype=np.int64)})

    def _train(self, task: Task, seed: int | None = None) -> Content:
        """A round of this vehicle, with a Δ no longer than its policy allows."""
        question, windows = task.round_question(), task.local.members.windows(0)
        self.spent.spend(*self._spending(task))
        kept = self._kept(task, question)
        work = local_work(task.local, task.method, question, kept, seed)
        if work.memory:
            memory.forget_old_runs(self.state, task.run)
            after = {name: rows[0] for name, rows in work.memory.items()}
            memory.remember(self._memory(task), question.round, after)
        values: dict[str, Any] = {"round": question.round, "windows": windows}
        asked = task.training_form.more
        values |= {name: float(own[0]) for name, own in work.columns.items() if name in asked}
        arrays = {name: rows[0].numpy() for name, rows in work.uploads.items()}
        log.info("round %d: trained %d windows", question.round + 1, windows)
        delta = bounded(work.deltas, self.guard.policy.largest_step)[0]
        return Content(values, {"delta": delta.numpy(), **arrays})

    def _stay_out(self, task: Task) -> dict[str, Any]:
        """What a vehicle adds to a private sum that it did not draw itself for: nothing but noise.

        Only methods that hand up nothing but Δ_k are private. What the vehicle remembers stays.
        """
        question = task.round_question()
        self.spent.spend(*self._spending(task))
        if kept := self._kept(task, question):
            memory.remember(self._memory(task), question.round, kept)
        return {"delta": np.zeros(task.size)}

    def _memory(self, task: Task) -> Path:
        """Where the vehicle keeps what it remembers of a method."""
        return memory.memory_folder(self.state, task.run, task.choice.label)

    def _kept(self, task: Task, question: RoundQuestion) -> dict[str, Tensor]:
        """What it remembers of a method after the last round that counted."""
        initial = local_round.initial_memory(task.method, task.model, task.weights()[0])
        return memory.recall(self._memory(task), question.counted, initial)

    def _reply(self, task: Task, *, follows: bool) -> tuple[Layout, dict[str, FloatArray]]:
        """What the vehicle adds to a round."""
        training = task.local.training
        if draws_on_board(task.method, training) and not drawn(training.participation):
            arrays = self._stay_out(task)
        else:
            seed = own_seed() if self.guard.hiding(task.method) else None
            arrays = dict(self._train(task, seed).arrays)
        terms = self.secrets.terms
        if follows:
            self.followed.remember(task, terms)
        check = self.followed.check_key(sum_name(task, terms), terms.digest)
        return round_summand(task, arrays, self.guard, terms, check)

    def _evaluate(self, task: Task) -> Content:
        model = task.weights()
        if task.method.personal and AFTER in task.question.values:
            folder = self._memory(task)
            model = driven_model(task.local, task.method, model, task.question, folder)
        validation, test = task.local.vehicle_sums(0, model[0])
        return Content({}, {"validation": validation.as_array(), "test": test.as_array()})

    def _strata(self, task: Task) -> dict[str, ErrorSums]:
        local, pool, model = task.local, task.local.pool, task.weights()
        if LEVEL in task.question.arrays:
            level = predictions_of(*self._level(task))
            test = with_level(local, predictions_of(local, model), level)
        else:
            test = predict(local.model, model[:, : local.model.layout.size], pool, pool.test)
        return sums_by_stratum(local, test[0])

    def _personalise(self, task: Task) -> dict[str, ErrorSums]:
        model, below = task.weights(), None
        if level_config(task.config) is not None or LEVEL in task.question.arrays:
            below = self._level(task)
        own = self._own(task, self._memory(task), task.local, model)
        test = own.test
        if below is not None:
            run, label = memory.level_run(task.run), task.choice.label
            folder = memory.memory_folder(self.state, run, label)
            test = with_level(task.local, own, self._own_level(task, folder, *below))
        return sums_by_stratum(task.local, test[0])

    def _level(self, task: Task) -> tuple[LocalFleet, Tensor]:
        """This vehicle without climb, and the level model [1, D] that comes with the question."""
        config = level_config(task.config)
        if config is None:
            raise DataError("the question holds a level model, and its run has none")
        local, _ = self._method(to_toml(config), task.choice.label, None)
        size, precision = local.model.layout.size, local.training.precision
        found = weights(task.question, LEVEL, "level model", size, precision)
        return local, torch.from_numpy(found)[None]

    def _own(self, task: Task, folder: Path, local: LocalFleet, model: Tensor) -> Predictions:
        """Predictions of what the vehicle makes of a model [1, D] for itself, and keeps."""

        def keep(one: PersonalModel) -> None:
            memory.forget_old_runs(self.state, task.run)
            memory.mark(folder.parent)
            write_own_model(memory.personal_file(folder), local, one)
            flush(folder)

        def driven(run: int, vehicles: Sequence[int]) -> Tensor:
            return driven_model(local, task.method, model, task.question, folder)

        # What cannot be kept is not reported either.
        own_models = driven if task.method.personal else None
        return personalise(local, model, task.config.personal, keep=keep, own_models=own_models)

    def _own_level(self, task: Task, folder: Path, local: LocalFleet, model: Tensor) -> Predictions:
        """Predictions of the vehicle's own level model: the one it kept, or one made now."""
        file = memory.personal_file(folder)
        if file.exists():
            try:
                kept = own_weights(file, self.name, local.model.layout)
                return predictions_of(local, torch.from_numpy(kept).to(local.dtype)[None])
            except RunError as error:
                log.warning("%s This vehicle makes its level model anew.", error)
        return self._own(task, folder, local, model)
