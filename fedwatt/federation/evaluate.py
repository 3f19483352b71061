"""Errors of models on vehicles' windows, and the sums by which a deployed fleet evaluates a model.

A vehicle contributes its `ErrorSums` of validation and of test windows, n_k, its test RMSE and n_k
times that, so that pooled, mean and weighted errors follow from totals. To evaluate the final model
it contributes the sums of its test windows. All vehicles' vectors have the same length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine.pool import Pool, Windows
from fedwatt.errors import DataError
from fedwatt.federation.records import FleetErrors, Row, error_columns
from fedwatt.metrics import SUMS, ErrorSums
from fedwatt.metrics.sums import Fields, FloatArray
from fedwatt.models import Model
from fedwatt.windows import Client

CHUNK = 4096  # windows predicted at a time; bounds memory whatever the size of the fleet


def predict(model: Model, weights: Tensor, pool: Pool, windows: Windows) -> FloatArray:
    """Return scaled predictions [R, W] of R models, `weights` [R, D], on the windows of a split."""
    rows: list[list[Tensor]] = [[] for _ in weights]
    # Products round differently where a matrix begins elsewhere in a line of the cache, so each
    # model is copied: its errors do not depend on its place among the R.
    models = [run_weights.clone() for run_weights in weights]
    with torch.no_grad():
        for starts in torch.split(windows.starts, CHUNK):
            gathered = pool.gather(starts)
            for row, run_weights in zip(rows, models, strict=True):
                row.append(model.predict(run_weights, gathered))
    return torch.stack([torch.cat(row) for row in rows]).double().cpu().numpy()


@dataclass(frozen=True, eq=False)
class Predictions:
    """Scaled predictions of R models on all vehicles' windows: validation [R, V], test [R, W]."""

    validation: FloatArray
    test: FloatArray


def predictions_of(model: Model, weights: Tensor, pool: Pool) -> Predictions:
    """Return the predictions of R models, `weights` [R, D]."""
    weights = weights[:, : model.layout.size]
    return Predictions(
        predict(model, weights, pool, pool.validation), predict(model, weights, pool, pool.test)
    )


def validation_error(model: Model, weights: Tensor, pool: Pool, vehicle: int) -> float:
    """Return a model's mean squared error on a vehicle's validation windows; inf if diverged."""
    windows = pool.validation.of([vehicle])
    predicted = predict(model, weights[None], pool, windows)[0]
    error = float(np.mean((predicted - windows.labels.double().cpu().numpy()) ** 2))
    # Infinite, because NaN compares as neither better nor worse.
    return error if np.isfinite(error) else np.inf


def vehicle_errors(
    clients: Sequence[Client], split: str, windows: Windows, predictions: FloatArray
) -> list[ErrorSums]:
    """Return the error sums of each vehicle from one model's scaled predictions [W]."""
    return [
        ErrorSums.of(
            client.energy_wh(predictions[windows.offsets[k] : windows.offsets[k + 1]]),
            client.energy_wh(client.labels[split]),
            client.label_typical,
        )
        for k, client in enumerate(clients)
    ]


def stratum_errors(
    clients: Sequence[Client], windows: Windows, predictions: FloatArray
) -> list[dict[str, ErrorSums]]:
    """Return each vehicle's test error sums, "all" and by stratum ("speed: under 20 km/h")."""
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
    predictions: FloatArray,
) -> list[Row]:
    """Return test errors by seed, vehicle and stratum, from scaled predictions [seeds, W]."""
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


MOST_WINDOWS = 4_000_000
"""Limit of a vehicle's windows of one split."""
LARGEST_ERROR_WH = 10_000.0
"""Limit of a window's error; larger ones are clipped and counted."""
_WEIGHTS: Fields = {
    "train_windows": (1, float(MOST_WINDOWS)),
    "rmse": (1, LARGEST_ERROR_WH),
    "weighted_rmse": (1, MOST_WINDOWS * LARGEST_ERROR_WH),
}


def _limit(name: str) -> float:
    """Return the limit of |value| for a sum over a vehicle's windows."""
    if SUMS[name] is int:
        return float(MOST_WINDOWS)
    return MOST_WINDOWS * LARGEST_ERROR_WH ** (2 if "squared" in name else 1)


EVALUATION: Fields = {name: (2, _limit(name)) for name in SUMS} | _WEIGHTS
"""Contribution to the evaluation of a model: validation, then test windows."""
FINAL: Fields = {name: (1, _limit(name)) for name in SUMS}
"""Contribution to the errors of the final or personalised model: test windows."""


def evaluation_values(
    validation: ErrorSums, test: ErrorSums, windows: int
) -> dict[str, FloatArray]:
    """Return one vehicle's contribution to the evaluation of a model; `windows` is n_k."""
    rmse = _finite(np.array([test.rmse]), LARGEST_ERROR_WH)
    weights = {
        "train_windows": np.array([float(windows)]),
        "rmse": rmse,
        "weighted_rmse": rmse * windows,
    }
    return error_values([validation, test]) | weights


def error_values(rows: Sequence[ErrorSums]) -> dict[str, FloatArray]:
    """Return the error sums as a contribution."""
    table = np.stack([row.as_array() for row in rows])
    return {name: _finite(table[:, at], _limit(name)) for at, name in enumerate(SUMS)}


def fleet_errors(sums: Mapping[str, FloatArray], vehicles: int) -> FleetErrors:
    """Return the fleet's errors from totals over `vehicles`; DataError if they are impossible."""
    validation, test = error_sums(sums, 2)
    windows, rmse, weighted = (float(sums[name][0]) for name in _WEIGHTS)
    if not windows > 0:
        raise DataError("the vehicles that evaluated a model have no windows at all")
    return FleetErrors(
        validation,
        test,
        vehicles=vehicles,
        mean_windows=windows / vehicles,
        macro=rmse / vehicles,
        weighted=weighted / windows,
    )


def error_sums(sums: Mapping[str, FloatArray], rows: int) -> list[ErrorSums]:
    """Return the error sums from totals."""
    counts = {name: np.rint(sums[name]) for name in SUMS if SUMS[name] is int}
    table = np.stack([counts.get(name, sums[name]) for name in SUMS], axis=1)
    # Fixed point rounds to a step, so 0 may come out a little below it.
    return [ErrorSums.from_array(np.where(row > -1e-3, row.clip(0), row)) for row in table[:rows]]


def _finite(values: FloatArray, limit: float) -> FloatArray:
    """Replace values that are not finite by the limit: a sum of them would reveal the vehicle."""
    return np.nan_to_num(values, nan=limit, posinf=limit, neginf=-limit)
