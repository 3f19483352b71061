"""Errors of models on vehicles' windows, in the target's unit, as sums that each could report."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.engine.pool import Pool, Windows
from fedwatt.federation.records import Row, error_columns
from fedwatt.metrics import ErrorSums
from fedwatt.models import Model
from fedwatt.windows import Client

CHUNK = 4096  # windows predicted at a time; bounds memory whatever the size of the fleet


def predict(model: Model, weights: Tensor, pool: Pool, windows: Windows) -> NDArray[np.float64]:
    """Scaled predictions [R, W] of R models, `weights` [R, D], on the windows of a split."""
    rows: list[list[Tensor]] = [[] for _ in weights]
    # Products round differently where a matrix begins elsewhere in a line of the cache, so each
    # model gets memory of its own: its errors do not depend on its place among the R.
    models = [run_weights.clone() for run_weights in weights]
    with torch.no_grad():
        for starts in torch.split(windows.starts, CHUNK):
            gathered = pool.gather(starts)
            for row, run_weights in zip(rows, models, strict=True):
                row.append(model.predict(run_weights, gathered))
            pool.release()
    return torch.stack([torch.cat(row) for row in rows]).double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scaled predictions of R models on all vehicles' windows: validation [R, V], test [R, W]."""

    validation: NDArray[np.float64]
    test: NDArray[np.float64]


def predictions_of(model: Model, weights: Tensor, pool: Pool) -> Predictions:
    """Return the predictions of R models, `weights` [R, D]."""
    own_weights = weights[:, : model.layout.size]
    return Predictions(
        predict(model, own_weights, pool, pool.validation),
        predict(model, own_weights, pool, pool.test),
    )


def validation_error(model: Model, weights: Tensor, pool: Pool, vehicle: int) -> float:
    """Mean squared error of a model [D] on a vehicle's validation windows; infinite if diverged."""
    windows = pool.validation.of([vehicle])
    predicted = predict(model, weights[None], pool, windows)[0]
    error = float(np.mean((predicted - windows.labels.double().cpu().numpy()) ** 2))
    # A diverged model is worse than anything; NaN would compare as neither.
    return error if np.isfinite(error) else np.inf


def vehicle_errors(
    clients: Sequence[Client], split: str, windows: Windows, predictions: NDArray[np.float64]
) -> list[ErrorSums]:
    """Error sums of each vehicle from one model's scaled predictions [W]."""
    return [
        ErrorSums.of(
            client.energy_wh(predictions[windows.offsets[k] : windows.offsets[k + 1]]),
            client.energy_wh(client.labels[split]),
            client.label_typical,
        )
        for k, client in enumerate(clients)
    ]


def stratum_errors(
    clients: Sequence[Client], windows: Windows, predictions: NDArray[np.float64]
) -> list[dict[str, ErrorSums]]:
    """Error sums of each vehicle's test windows, "all" and by stratum ("speed: under 20 km/h")."""
    result = []
    for k, client in enumerate(clients):
        predicted_wh = client.energy_wh(predictions[windows.offsets[k] : windows.offsets[k + 1]])
        true = client.energy_wh(client.labels["test"])
        typical = client.label_typical
        strata = {
            f"{kind}: {name}": ErrorSums.of(
                predicted_wh[codes == code], true[codes == code], typical
            )
            for kind, (names, codes) in client.strata.items()
            for code, name in enumerate(names)
        }
        result.append({"all": ErrorSums.of(predicted_wh, true, typical)} | strata)
    return result


def error_rows(
    clients: Sequence[Client],
    windows: Windows,
    seeds: Sequence[int],
    predictions: NDArray[np.float64],
) -> list[Row]:
    """Test errors by seed, vehicle and stratum, from scaled predictions [seeds, W]."""
    rows = []
    for seed, run_predictions in zip(seeds, predictions, strict=True):
        for client, parts in zip(
            clients, stratum_errors(clients, windows, run_predictions), strict=True
        ):
            identity = {"seed": seed, "vehicle": client.name, "held_out": client.held_out}
            rows += [
                {**identity, "stratum": stratum, **error_columns(sums)}
                for stratum, sums in parts.items()
            ]
    return rows
