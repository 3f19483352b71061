"""Error sums as they travel: all that a vehicle says of how well a model does on its windows."""

import numpy as np
from numpy.typing import NDArray

from fedwatt.deploy.messages import Content
from fedwatt.federation import LocalFleet
from fedwatt.federation.evaluate import stratum_errors


def sums_by_stratum(local: LocalFleet, predictions: NDArray[np.float64]) -> Content:
    """Error sums of a vehicle's test windows, all and by stratum, from scaled predictions [W]."""
    parts = stratum_errors(local.fleet.clients, local.pool.test, predictions)[0]
    return Content(
        {"strata": list(parts)}, {"sums": np.stack([sums.as_array() for sums in parts.values()])}
    )
