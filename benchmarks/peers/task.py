"""The recipe that all frameworks train: data, network and the format of times.

100 vehicles with 1,920 windows of 60 seconds by 8 features each, 30 of them a round, one epoch of
batches of 64 in a fresh order, plain SGD, mean squared error, MLP 480-64-32-1: `benchmarks.recipe`
without fedwatt, so that an environment needs nothing but its framework.
"""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

VEHICLES = 100
PARTICIPANTS = 30
WINDOWS = 1920
BATCH = 64
RATE = 0.05
WINDOW = 60
FEATURES = 8
WIDTHS = (WINDOW * FEATURES, 64, 32, 1)

Floats = NDArray[np.float32]


def vehicle(number: int) -> tuple[Floats, Floats]:
    """Return (windows [1920, 480], labels [1920]) of noise; time does not depend on the data.

    Windows overlap, as those of a drive do; they are laid out one by one, which is what every
    framework here expects and quicker to read than to gather.
    """
    rng = np.random.default_rng(number)
    series = rng.standard_normal((WINDOWS + WINDOW - 1, FEATURES), dtype=np.float32)
    view = np.lib.stride_tricks.sliding_window_view(series.reshape(-1), WINDOW * FEATURES)
    windows = np.ascontiguousarray(view[::FEATURES])
    return windows, rng.standard_normal(WINDOWS, dtype=np.float32)


def report(version: str, seconds: Sequence[float]) -> None:
    """Print the measurement, without the first round, on the last line."""
    print(json.dumps({"version": version, "seconds": list(seconds[1:])}), flush=True)


def torch_layers() -> list[Any]:
    """Return the layers of MLP 480-64-32-1 in PyTorch, which give predictions [batch]."""
    from torch import nn

    layers: list[Any] = []
    for inputs, outputs in pairwise(WIDTHS):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return [*layers[:-1], nn.Flatten(0)]
