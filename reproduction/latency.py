"""Time of a forward pass, by the paper's protocol: one thread, no gradients, warm-up discarded.

Every method deploys the same network, so what differs between them here is measurement noise; the
methods are timed turn by turn all the same, because the paper prints a row for each.
"""

import time

import numpy as np
import torch

from fedwatt.methods import METHODS
from fedwatt.models import get_model
from fedwatt.randomness import generator

BATCHES = (1, 32)
WARM_UP = 20


def latencies(features: int, window: int, windows: int) -> list[dict[str, float | int | str]]:
    """Median and 95th percentile in ms a window, and windows a second at the median."""
    model = get_model("mlp", window=window, features=features)
    draws = generator(0, "latency", "windows").standard_normal((32, window, features))
    inputs = torch.from_numpy(draws).float()
    found: list[dict[str, float | int | str]] = []
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            for method in METHODS:
                weights = model.initial(generator(0, "latency", method)).float()
                for batch in BATCHES:
                    some, repeats = inputs[:batch], max(windows // batch, 10)
                    seconds = np.empty(repeats)
                    for turn in range(-WARM_UP, repeats):
                        begin = time.perf_counter()
                        model.predict(weights, some)
                        if turn >= 0:
                            seconds[turn] = time.perf_counter() - begin
                    median, p95 = np.quantile(seconds / batch, (0.5, 0.95))
                    found.append(
                        {
                            "method": method,
                            "batch": batch,
                            "median_ms": float(median * 1e3),
                            "p95_ms": float(p95 * 1e3),
                            "throughput": float(1 / median),
                        }
                    )
    finally:
        torch.set_num_threads(threads)
    return found
