"""Time of a forward pass, by the paper's protocol: one thread, no gradients, warm-up discarded.

Every method deploys the same network, so what differs between them here is measurement noise; the
methods are timed turn by turn all the same, because the paper prints a row for each.
"""

import time

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.models import Model, get_model
from fedwatt.randomness import generator
from fedwatt.threads import threads
from reproduction.cell import METHODS

BATCHES = (1, 32)
WARM_UP = 20


def latencies(features: int, window: int, windows: int) -> list[dict[str, float | int | str]]:
    """Return median and 95th percentile in ms a window, and windows a second at the median."""
    model = get_model("mlp", window=window, features=features)
    draws = generator(0, "latency", "windows").standard_normal((32, window, features))
    inputs = torch.from_numpy(draws).float()
    rows: list[dict[str, float | int | str]] = []
    with threads(1), torch.inference_mode():
        for method in METHODS:
            weights = model.initial(generator(0, "latency", method)).float()
            for batch in BATCHES:
                seconds = _seconds(model, weights, inputs[:batch], max(windows // batch, 10))
                median, p95 = np.quantile(seconds / batch, (0.5, 0.95))
                rows.append(
                    {
                        "method": method,
                        "batch": batch,
                        "median_ms": float(median * 1e3),
                        "p95_ms": float(p95 * 1e3),
                        "throughput": float(1 / median),
                    }
                )
    return rows


def _seconds(model: Model, weights: Tensor, batch: Tensor, repeats: int) -> NDArray[np.float64]:
    """Time of each forward pass, [repeats], after those to warm up."""
    seconds = np.empty(WARM_UP + repeats)
    for repeat in range(len(seconds)):
        begin = time.perf_counter()
        model.predict(weights, batch)
        seconds[repeat] = time.perf_counter() - begin
    return seconds[WARM_UP:]
