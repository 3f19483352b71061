"""Error sums as they travel: all that a vehicle says of how well a model does on its windows."""

import numpy as np
from numpy.typing import NDArray

from fedwatt.deploy.messages import SUMS, Content
from fedwatt.errors import DataError
from fedwatt.federation import LocalFleet
from fedwatt.federation.evaluate import stratum_errors, vehicle_errors
from fedwatt.metrics import ErrorSums


def sums_by_stratum(local: LocalFleet, predictions: NDArray[np.float64]) -> Content:
    """Error sums of a vehicle's test windows, all and by stratum, from scaled predictions [W]."""
    clients, windows = local.fleet.clients, local.pool.test
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
