"""How long a model takes for a window, in PyTorch and in onnxruntime, by the paper's protocol.

Paper, section on inference latency: one thread, gradients off, warm-up discarded, about 10,000
windows, batches of 1 and of 32 (contiguous, only the batch differs). A window's time is the
batch's over its size; median and p95 are over batches, throughput is the batch over its median.
"""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt import __version__
from fedwatt.edge.card import ModelCard
from fedwatt.edge.graph import build
from fedwatt.edge.session import EnergyModel
from fedwatt.fleet.features import FEATURE_SETS
from fedwatt.models import Model, get_model
from fedwatt.randomness import generator

WINDOW = 60
FEATURES = FEATURE_SETS["base"]
WARM_UP = 200


@dataclass(frozen=True)
class Latency:
    """Microseconds a window, over the batches of one measurement."""

    model: str
    engine: str
    batch: int
    median_us: float
    p95_us: float

    @property
    def throughput(self) -> float:
        """Windows a second at the median."""
        return 1e6 / self.median_us


def bench_backbones(
    backbones: Sequence[str] = ("mlp", "gru", "lstm"), *, windows: int = 10_000, repeats: int = 3
) -> list[Latency]:
    """Every backbone in PyTorch and onnxruntime at batches of 1 and 32."""
    found = []
    for name in backbones:
        model = get_model(name, window=WINDOW, features=len(FEATURES))
        weights = model.initial(generator(0, "latency", name)).float()
        found += bench_model(name, model, weights, windows=windows, repeats=repeats)
    return found


def bench_model(
    label: str, model: Model, weights: Tensor, *, windows: int, repeats: int
) -> list[Latency]:
    """One model in both engines, turn by turn, so that a busy moment hits both."""
    backbone = type(model).__name__.lower()
    parts = {name: part.numpy() for name, part in model.layout.split(weights).items()}
    card = ModelCard(
        features=FEATURES,
        units=("scaled",) * len(FEATURES),
        window=WINDOW,
        interval_s=1.0,
        method=label,
        run_hash="",
        library=__version__,
        backbone=backbone,
    )
    with TemporaryDirectory(prefix="fedwatt-") as folder:
        file = Path(folder) / "model.onnx"
        file.write_bytes(build(backbone, parts, card).SerializeToString())
        onnx = EnergyModel(file)

    def torch_forward(batch: NDArray[np.float32]) -> None:
        model.predict(weights, torch.from_numpy(batch))

    def onnx_forward(batch: NDArray[np.float32]) -> None:
        onnx.energy(batch)

    engines = {"PyTorch": torch_forward, "onnxruntime": onnx_forward}
    inputs = generator(0, "latency", "windows").standard_normal(
        (1024, WINDOW, len(FEATURES)), dtype=np.float32
    )
    found = []
    with one_thread(), torch.inference_mode():
        for batch in (1, 32):
            times: dict[str, list[NDArray[np.float64]]] = {name: [] for name in engines}
            for _ in range(repeats):
                for name, forward in engines.items():
                    times[name].append(_times(forward, inputs, batch, windows))
            for name, runs in times.items():
                # The repetition with the lowest median was disturbed least by other programs.
                quiet = min(runs, key=lambda run: float(np.median(run))) * 1e6 / batch
                median, p95 = (float(np.quantile(quiet, share)) for share in (0.5, 0.95))
                found.append(Latency(label, name, batch, median, p95))
    return found


def _times(
    forward: Callable[[NDArray[np.float32]], None],
    inputs: NDArray[np.float32],
    batch: int,
    windows: int,
) -> NDArray[np.float64]:
    """Seconds of each batch, [windows / batch]."""
    starts = np.arange(0, windows, batch) % (len(inputs) - batch + 1)
    batches = [inputs[start : start + batch] for start in starts.tolist()]
    for some in batches[:WARM_UP]:
        forward(some)
    gc.collect()
    gc.disable()
    seconds = np.empty(len(batches))
    try:
        for place, some in enumerate(batches):
            begin = time.perf_counter()
            forward(some)
            seconds[place] = time.perf_counter() - begin
    finally:
        gc.enable()
    return seconds


@contextmanager
def one_thread() -> Iterator[None]:
    """PyTorch on one thread, as onnxruntime is opened."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
