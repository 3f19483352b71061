"""The level model as a step of a run: the same methods without climb, a run of its own.

RUN/level/      a whole run folder, trained before the networks with hills are

`fedwatt.elevation.level` says which of the two networks predicts a window.
"""

from dataclasses import dataclass, replace

import numpy as np
from torch import Tensor

from fedwatt.elevation.level import LEVEL as LEVEL
from fedwatt.elevation.level import Predictions, borne_out, level_data
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.errors import SettingError
from fedwatt.evaluation import Baselines
from fedwatt.federation import History, LocalFleet, RoundRecord, State
from fedwatt.federation.evaluate import predict
from fedwatt.observers import Observer
from fedwatt.runs.config import RunConfig
from fedwatt.telemetry.trip import FloatArray


def level_config(config: RunConfig) -> RunConfig | None:
    """Return the configuration of a run's level model; None where it trains none."""
    data = level_data(config.data)
    if data is None or not config.elevation.model_without_elevation:
        return None
    for choice in config.methods:
        if choice.method.server.private:
            raise SettingError(
                f"Method '{choice.label}' adds noise for privacy, and a run with hills would train "
                "it twice and spend its budget twice: for the level model, too. Set "
                "elevation.model_without_elevation = false; windows without known climb are then "
                "predicted as level roads by the one model."
            )
    return replace(
        config,
        data=data,
        elevation=ElevationSettings(),
        baselines=Baselines(enabled=False),
        deploy=replace(config.deploy, routes=False),
    )


def level_label(label: str) -> str:
    """Return the label of the model without elevation of the method `label`."""
    return f"{label}, level roads"


@dataclass(frozen=True)
class LevelObserver(Observer):
    """Tells the observer of a run how the training of its level model goes."""

    observer: Observer  # knows the vehicles already

    def on_start(self, label: str, done: int, rounds: int) -> None:
        """Pass on the start of a method, or its continuation after `done` rounds."""
        self.observer.on_start(level_label(label), done, rounds)

    def on_round(self, label: str, state: State, record: RoundRecord) -> None:
        """Pass on the end of a round."""
        self.observer.on_round(level_label(label), state, record)

    def on_end(self, label: str, history: History) -> None:
        """Pass on the end of a method."""
        self.observer.on_end(level_label(label), history)


@dataclass(frozen=True, eq=False)
class ModelPredictions:
    """Predictions of a method's final models: the global ones and the personalised ones.

    `finite` are the places of the seeds that did not diverge.
    """

    kept: Predictions
    personalised: Predictions | None
    finite: tuple[int, ...]


def predictions_of(federation: LocalFleet, weights: Tensor) -> Predictions:
    """Predictions of the global models `weights` [R, D]."""
    model = federation.model
    pool = federation.pool
    own = weights[:, : model.layout.size]
    return Predictions(
        predict(model, own, pool, pool.validation), predict(model, own, pool, pool.test)
    )


def with_level(federation: LocalFleet, hilly: Predictions, level: Predictions) -> FloatArray:
    """Test predictions [R, W], each by the model that its vehicle would use.

    `federation` is the one with hills; the level model's has the same windows in the same order.
    """
    splits = (federation.pool.validation, federation.pool.test)
    result = level.test.copy()
    for vehicle, client in enumerate(federation.fleet.clients):
        evaluated, test = (slice(*windows.offsets[vehicle : vehicle + 2]) for windows in splits)
        for run, own in enumerate(result):
            if borne_out(
                hilly.validation[run, evaluated], level.validation[run, evaluated], client
            ):
                known = client.known["test"]
                own[test] = np.where(known, hilly.test[run, test], level.test[run, test])
    return result


def used_on_board(
    federation: LocalFleet, hilly: ModelPredictions, level: ModelPredictions
) -> dict[str, FloatArray]:
    """Test predictions [R, W] of the kept and the personalised models, as vehicles would use them.

    Where the level model of a seed diverged, that is the network with hills alone.
    """
    pairs = {"kept": (hilly.kept, level.kept)}
    if hilly.personalised is not None and level.personalised is not None:
        pairs["personalised"] = hilly.personalised, level.personalised
    used = {}
    seeds = list(level.finite)
    for name, (own, other) in pairs.items():
        used[name] = own.test.copy()
        used[name][seeds] = with_level(federation, own, other)[seeds]
    return used
