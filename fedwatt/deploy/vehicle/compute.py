"""Computations of a vehicle, from its plan and its folder: updates, errors, contributions.

A vehicle goes through a round as those of a simulation do (`federation.local_round`), as a stack
of one and with the same draws, which are keyed by its name. From the server it takes the model,
the arrays that the method's server rule broadcasts, the fleet's size and the last round that
counted; every setting comes from the plan.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import fedwatt
from fedwatt.deploy import log
from fedwatt.deploy.plan.plan import read_configuration
from fedwatt.deploy.vehicle import client_state
from fedwatt.deploy.vehicle.messages import BROADCAST
from fedwatt.deploy.vehicle.places import Places
from fedwatt.deploy.wire import Content
from fedwatt.elevation.climb import with_elevation, with_measured_elevation
from fedwatt.elevation.elevation_map import empty_map
from fedwatt.elevation.grid import Grid
from fedwatt.engine.together import train
from fedwatt.errors import DataError
from fedwatt.evaluation import PersonalisedModel, personalise
from fedwatt.federation import Federation, local_round
from fedwatt.federation.evaluate import (
    EVALUATION,
    FINAL,
    error_values,
    evaluation_values,
    vehicle_errors,
)
from fedwatt.federation.participation import Call
from fedwatt.federation.work import Work
from fedwatt.files import flush
from fedwatt.methods import Method
from fedwatt.methods.defence import bounded
from fedwatt.methods.rule import Rows
from fedwatt.metrics import ErrorSums, Stopwatch
from fedwatt.metrics.sums import FloatArray, VectorLayout
from fedwatt.models import Model
from fedwatt.privacy.secure.compose import drawn, reply_layout, reply_values, vehicles_draw
from fedwatt.runs.config import MethodChoice, RunConfig
from fedwatt.runs.model_file import write_personalised
from fedwatt.runs.source import learns_elevation
from fedwatt.telemetry.store import read_vehicle
from fedwatt.windows import Fleet
from fedwatt.windows.client import Client, build_client, prepared
from fedwatt.windows.features import feature_names, needs_climb
from fedwatt.windows.splits import SPLITS


@dataclass(frozen=True)
class AcceptedRequest:
    """A request that a vehicle has decided to answer."""

    plan: str
    """Digest of the plan, which lies in the vehicle's state."""
    kind: str
    request: Content
    called: int = 0
    """Vehicles called to the secure aggregation; 0: there is none."""
    threshold: int = 0
    """Its fewest survivors."""


@dataclass(frozen=True)
class Task:
    """A method of a plan on this vehicle's windows, with a request about it."""

    local: Federation
    choice: MethodChoice
    config: RunConfig
    job: AcceptedRequest

    @property
    def method(self) -> Method:
        """Return the method that the plan names."""
        return self.choice.method

    @property
    def model(self) -> Model:
        """Return the model as the method trains it."""
        return self.method.adapted(self.local.model)

    @property
    def round(self) -> int:
        """Return the round of the request."""
        return int(self.job.request.values["round"])

    @property
    def windows(self) -> int:
        """Return n_k."""
        return self.local.members.windows(0)

    def weights(self) -> Tensor:
        """Return the model of the request, [1, D]; DataError unless its weights are finite.

        Other precisions than the plan's are refused, since rounding would give several requests
        the same model.
        """
        size = self.model.layout.size
        array = self.job.request.arrays.get("weights")
        precision = self.local.training.precision
        fits = array is not None and array.shape == (size,) and array.dtype == precision
        if array is None or not fits or not np.isfinite(array).all():
            raise DataError(f"the request holds no 'weights' of {size} finite {precision} numbers")
        return torch.from_numpy(array.copy())[None]

    def broadcast_rows(self, model: Tensor) -> Rows:
        """Return the arrays that the server rule sent, as a stack of one beside the model."""
        arrays = self.job.request.arrays.items()
        rows = {
            name.removeprefix(BROADCAST): torch.from_numpy(array.copy())[None]
            for name, array in arrays
            if name.startswith(BROADCAST)
        }
        return {name: local_round.on_device_of(row, model) for name, row in rows.items()}


class Computer:
    """Computes a vehicle's replies; reads its folder and its state, and no other."""

    def __init__(self, folder: Path, state: Path) -> None:
        self.folder = folder
        self.state = state
        self._config = lru_cache(maxsize=2)(self._read_config)
        self.places = Places(folder, state, self._config)
        self._client = lru_cache(maxsize=2)(self._read_client)
        self._method = lru_cache(maxsize=4)(self._read_method)

    def compute(self, job: AcceptedRequest) -> Content:
        """Return the fields of a plain reply, or the words of a contribution."""
        if job.kind == "enrol":
            return self._enrol(job)
        if job.kind in ("elevation", "routes"):
            request, values = self.places.contribution(job)
            return _words(VectorLayout(request, vehicles=job.called), values)
        if job.kind in ("elevation-map", "driving-map"):
            return self.places.install(job)
        task = self._task(job)
        if job.called:
            return _words(*self._contribution(task))
        if job.kind == "train":
            return self._update(task)
        if job.kind == "evaluate":
            validation, test = self._evaluated(task)
            return Content({}, {"validation": validation.as_array(), "test": test.as_array()})
        return Content({}, {"test": self._tested(task).as_array()})

    def _contribution(self, task: Task) -> tuple[VectorLayout, Mapping[str, FloatArray]]:
        """Return the layout and the values of what the vehicle adds to a sum."""
        job = task.job
        if job.kind == "train":
            return self._update_contribution(task)
        if job.kind == "evaluate":
            values = evaluation_values(*self._evaluated(task), task.windows)
            return VectorLayout(EVALUATION, vehicles=job.called), values
        return VectorLayout(FINAL, vehicles=job.called), error_values([self._tested(task)])

    def _read_config(self, plan: str) -> RunConfig:
        """Return the configuration of a plan that this vehicle has verified."""
        file = client_state.plan_folder(self.state, plan) / "plan.json"
        try:
            return read_configuration(json.loads(file.read_bytes())["plan"]["configuration"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{file} cannot be read: {error}") from error

    def _read_client(self, plan: str, elevation: str) -> Client:
        """Return the vehicle's windows; `elevation` names the map that it has."""
        config = self._config(plan)
        settings = config.data
        vehicle = prepared(read_vehicle(self.folder), settings)
        if needs_climb(feature_names(settings.features)):
            if config.elevation.source == "measured":
                vehicle = with_measured_elevation(vehicle)
            elif elevation:
                vehicle = with_elevation(vehicle, self.places.elevation(plan))
            else:  # before a map is learned; the number of windows is the same
                vehicle = with_elevation(vehicle, empty_map(Grid()))
        return build_client(vehicle, settings)

    def _enrol(self, job: AcceptedRequest) -> Content:
        client = self._client(job.plan, "")
        counts = [len(client.ends[split]) for split in SPLITS]
        values = {"vehicle": client.name, "enough": min(counts) >= 1}
        windows = {} if self._config(job.plan).secure.enabled else {"windows": np.array(counts)}
        return Content(values | {"version": fedwatt.__version__}, windows)

    def _task(self, job: AcceptedRequest) -> Task:
        """Return the method that a request is about."""
        method = str(job.request.values["method"])
        config = self._config(job.plan)
        elevation = ""
        if learns_elevation(config):
            elevation = self.places.elevation_digest(job.plan)
        return Task(*self._method(job.plan, method, elevation), config, job)

    def _read_method(
        self, plan: str, label: str, elevation: str
    ) -> tuple[Federation, MethodChoice]:
        config = self._config(plan)
        choices = [choice for choice in config.methods if choice.label == label]
        if not choices:
            raise DataError(f"the plan has no method '{label[:40]}'")
        alone = Fleet((self._client(plan, elevation),), config.data, "this vehicle")
        federation = Federation(
            alone,
            config.model.on(alone),
            training=choices[0].training(config.training),
            availability=config.availability,
            seeds=config.seeds,
            device="cpu",
        )
        return federation, choices[0]

    def _folder(self, task: Task) -> Path:
        """Return where the vehicle keeps its state of a method."""
        return client_state.method_folder(self.state, task.job.plan, task.choice.label)

    def _update(self, task: Task) -> Content:
        """Return this vehicle's update of a round, and keep its state after it."""
        values = task.job.request.values
        population = int(values["population"])
        total = float(values["population_windows"])
        if population < 1 or not total > 0:
            raise DataError("the request does not tell the size of the fleet")
        model = task.weights()
        initial = local_round.initial_client_state(task.method, task.model, model[0])
        folder = self._folder(task)
        before = client_state.load(folder, int(values["counted"]), initial)
        broadcast = local_round.Broadcast(
            task.round,
            model.to(task.local.dtype),
            task.broadcast_rows(model),
            population,
            total,
        )
        work = _local_work(task, broadcast, before)
        if work.client_state:
            client_state.delete_old_states(self.state, task.job.plan)
            client_state.save(
                folder, task.round, {n: rows[0] for n, rows in work.client_state.items()}
            )
        arrays = {name: rows[0].numpy() for name, rows in work.uploads.items()}
        log.info("round %d: trained %d windows", task.round + 1, task.windows)
        return Content({"windows": task.windows}, {"delta": work.deltas[0].numpy(), **arrays})

    def _update_contribution(self, task: Task) -> tuple[VectorLayout, dict[str, FloatArray]]:
        """Return the contribution of a round: w_k, w_k Δ_k and uploads, with a share of noise."""
        training = task.local.training
        job = task.job
        secure = task.config.secure
        if vehicles_draw(task.method, training) and not drawn(training.participation):
            arrays: dict[str, NDArray[Any]] = {"delta": np.zeros(task.model.layout.size)}
        else:
            arrays = dict(self._update(task).arrays)
        # A vehicle that is missing because its training diverged would show that it did.
        uploads = {
            name: torch.from_numpy(array).nan_to_num(0.0, 0.0, 0.0)
            for name, array in arrays.items()
        }
        # Honest vehicles stay within the limit by which a server tells a spoiled sum.
        delta = bounded(uploads.pop("delta")[None], secure.norm_limit)[0]
        layout = reply_layout(task.method, task.model, secure, vehicles=job.called)
        values = reply_values(
            task.method, task.model, delta, task.windows, uploads, layout, job.threshold
        )
        return layout, values

    def _evaluated(self, task: Task) -> tuple[ErrorSums, ErrorSums]:
        """Return the validation and test errors of the request's model."""
        validation, test = task.local.vehicle_sums(0, task.weights()[0])
        return validation, test

    def _vehicle_model(self, task: Task, model: Tensor, folder: Path) -> Tensor:
        """Return the model [1, D] that this vehicle uses under a method with personal parts."""
        method = task.method
        initial = local_round.initial_client_state(method, task.model, model[0])
        state = client_state.load_latest(folder, initial)
        windows = float(max(1, task.windows))
        rows = task.broadcast_rows(model)
        broadcast = local_round.Broadcast(task.round, model, rows, 1, windows)
        stacked = {name: row[None] for name, row in state.items()}
        return local_round.vehicle_models(task.local, method, broadcast, stacked, [Call(0, 0, 0)])

    def _tested(self, task: Task) -> ErrorSums:
        """Return test errors of the request's model, or after fine-tuning it in this vehicle."""
        return self._evaluated(task)[1] if task.job.kind == "final" else self._personalised(task)

    def _personalised(self, task: Task) -> ErrorSums:
        """Return test errors after fine-tuning in this vehicle; the model stays here."""
        model = task.weights()
        folder = self._folder(task)

        def keep(personalised: PersonalisedModel) -> None:
            client_state.delete_old_states(self.state, task.job.plan)
            write_personalised(folder / client_state.PERSONAL, task.local, personalised)
            flush(folder)

        def vehicle_models(run: int, vehicles: Sequence[int]) -> Tensor:
            return self._vehicle_model(task, model, folder)

        vehicle_initial_models = vehicle_models if task.method.personalised else None
        settings = task.config.personalisation
        test = personalise(
            task.local, model, settings, keep=keep, initial=vehicle_initial_models
        ).test
        local = task.local
        return vehicle_errors(local.fleet.clients, "test", local.pool.test, test[0])[0]


def _local_work(task: Task, broadcast: local_round.Broadcast, state: Rows) -> Work:
    """Train this vehicle's local round, as a stack of one, and return its update."""
    local = task.local
    method = task.method
    speed = local.terms.speed(0, local.members.name(0))
    call = Call(0, 0, local.terms.steps(task.windows, speed))
    before = {name: row[None] for name, row in state.items()}
    begun = local_round.begin_round(local, method, broadcast, before, [call], Stopwatch())
    return local_round.finish_round(method, begun, train(begun.job))


def _words(layout: VectorLayout, values: Mapping[str, FloatArray]) -> Content:
    """Return a contribution as words of fixed point."""
    return Content({"bits": layout.bits}, {"words": layout.encode(values)})
