"""The level model of a run with hills: the same methods without climb, a run of its own.

RUN/level/      a whole run folder, trained before the hills are

`fedwatt.terrain.level` says which of the two predicts a window.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.data.features import feature_names, level_features, needs_climb
from fedwatt.errors import SettingError
from fedwatt.federation import LocalFleet
from fedwatt.federation.evaluate import predict
from fedwatt.runs.config import RunConfig
from fedwatt.terrain import TerrainSettings
from fedwatt.terrain.level import borne_out, chosen

LEVEL = "level"


def level_config(config: RunConfig) -> RunConfig | None:
    """The configuration of a run's level model; None where it trains none."""
    data = config.data
    level = level_features(data.features)
    if not (config.terrain.level_model and level and needs_climb(feature_names(data.features))):
        return None
    for choice in config.methods:
        if choice.method.server.private:
            raise SettingError(
                f"Method '{choice.label}' adds noise for privacy, and a run with hills would train "
                "it twice and spend its budget twice: for the level model, too. Set "
                "terrain.level_model = false; windows without known climb are then predicted as "
                "level roads by the one model."
            )
    count = len(feature_names(level))
    own = replace(
        data,
        features=level,
        components=min(data.components, count),
        selected=min(data.selected, count),
    )
    return replace(config, data=own, terrain=TerrainSettings())


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scaled predictions of R models on all vehicles' windows: validation [R, V], test [R, W]."""

    validation: NDArray[np.float64]
    test: NDArray[np.float64]


def predictions_of(federation: LocalFleet, weights: Tensor) -> Predictions:
    """Predictions of the global models `weights` [R, D]."""
    model, pool = federation.model, federation.pool
    own = weights[:, : model.layout.size]
    return Predictions(
        predict(model, own, pool, pool.validation), predict(model, own, pool, pool.test)
    )


def with_level(
    federation: LocalFleet, hilly: Predictions, level: Predictions
) -> NDArray[np.float64]:
    """Test predictions [R, W], each by the model that its vehicle would use.

    `federation` is the one with hills; the level model's has the same windows in the same order.
    """
    pool, result = federation.pool, level.test.copy()
    for vehicle, client in enumerate(federation.fleet.clients):
        judged, test = (
            slice(windows.offsets[vehicle], windows.offsets[vehicle + 1])
            for windows in (pool.validation, pool.test)
        )
        for run, own in enumerate(result):
            both = hilly.validation[run, judged], level.validation[run, judged]
            own[test] = chosen(
                hilly.test[run, test],
                level.test[run, test],
                client.known["test"],
                borne_out=borne_out(*both, client),
            )
    return result
