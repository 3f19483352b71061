"""Time of a model per window, in PyTorch and in onnxruntime, by the paper's protocol.

Paper, section on inference latency: one thread, gradients off, warm-up discarded, about 10,000
windows, batches of 1 and of 32 (contiguous, only the batch differs). A window's time is the
batch's over its size; median and p95 are over batches, throughput is the batch over its median.

All models and both engines take turns, a block of windows each, so that a busy moment of the
machine hits all of them. A turn ends early where a limit on its seconds is reached; the record says
how many windows were measured.
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
from fedwatt.edge.energy_model import EnergyModel
from fedwatt.edge.graph import Network, build
from fedwatt.models import Model, get_model
from fedwatt.randomness import generator
from fedwatt.threads import threads
from fedwatt.windows.features import FEATURE_SETS

WINDOW = 60
FEATURES = FEATURE_SETS["base"]
BACKBONES = ("mlp", "gru", "lstm")
BATCHES = (1, 32)
WARM_UP = 200
BLOCKS = 20
LONGEST_S = 3.0

FloatArray = NDArray[np.float64]
Windows = NDArray[np.float32]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Latency:
    """Microseconds a window, over the batches of one measurement."""

    model: str
    engine: str
    batch: int
    windows: int
    median_us: float
    p95_us: float

    @property
    def throughput(self) -> float:
        """Windows a second at the median."""
        return 1e6 / self.median_us


@dataclass(frozen=True, eq=False)
class Subject:
    """A model under a label and its forward pass in each engine."""

    label: str
    engines: dict[str, Callable[[Windows], object]]


def backbone_subjects(backbones: Sequence[str] = BACKBONES) -> list[Subject]:
    """Every backbone as it starts: latency does not depend on what the weights are."""
    made = []
    for name in backbones:
        model = get_model(name, window=WINDOW, features=len(FEATURES))
        made.append(subject(name, model, model.initial(generator(0, "latency", name)).float()))
    return made


def subject(label: str, model: Model, weights: Tensor) -> Subject:
    """Return a model of `weights` [D] in PyTorch and as an exported file."""
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
        file.write_bytes(build(card, Network(parts)).SerializeToString())
        onnx = EnergyModel(file)
    return Subject(
        label,
        {
            "PyTorch": lambda batch: model.predict(weights, torch.from_numpy(batch)),
            "onnxruntime": onnx.energy,
        },
    )


def measure(
    subjects: Sequence[Subject],
    *,
    windows: int = 10_000,
    longest_s: float = LONGEST_S,
    features: int = len(FEATURES),
    progress: Progress = lambda done, of: None,
) -> list[Latency]:
    """Latencies of all subjects in both engines at batches of 1 and 32, taking turns."""
    inputs = generator(0, "latency", "windows").standard_normal(
        (1024, WINDOW, features), dtype=np.float32
    )
    turns = [
        (subject.label, name, f) for subject in subjects for name, f in subject.engines.items()
    ]
    latencies: dict[tuple[str, str, int], Latency] = {}
    with threads(1), torch.inference_mode(), no_collection():
        for at, batch in enumerate(BATCHES):
            starts = np.arange(0, windows, batch) % (len(inputs) - batch + 1)
            batches = [inputs[start : start + batch] for start in starts.tolist()]
            blocks = [batches[block::BLOCKS] for block in range(min(BLOCKS, len(batches)))]
            seconds: list[list[FloatArray]] = [[] for _ in turns]
            for _, _, forward in turns:
                _times(forward, batches[:WARM_UP], longest_s / BLOCKS)
            for number, block in enumerate(blocks):
                for subject, (_, _, forward) in zip(seconds, turns, strict=True):
                    subject.append(_times(forward, block, longest_s / len(blocks)))
                progress(at * len(blocks) + number + 1, len(BATCHES) * len(blocks))
            for subject, (label, engine, _) in zip(seconds, turns, strict=True):
                latencies[label, engine, batch] = _latency(label, engine, batch, subject)
    return [latencies[label, engine, batch] for label, engine, _ in turns for batch in BATCHES]


def _latency(label: str, engine: str, batch: int, blocks: list[FloatArray]) -> Latency:
    each_us = [block * 1e6 / batch for block in blocks]
    together = np.concatenate(each_us)
    median, p95 = (float(np.quantile(together, share)) for share in (0.5, 0.95))
    return Latency(label, engine, batch, batch * len(together), median, p95)


def _times(
    forward: Callable[[Windows], object], batches: Sequence[Windows], longest_s: float
) -> FloatArray:
    """Seconds of each batch, [batches]; fewer where `longest_s` is over, at least one."""
    seconds = []
    end = time.perf_counter() + longest_s
    for some in batches:
        begin = time.perf_counter()
        forward(some)
        now = time.perf_counter()
        seconds.append(now - begin)
        if now > end:
            break
    return np.array(seconds)


@contextmanager
def no_collection() -> Iterator[None]:
    """No garbage collection, which would fall on some window."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
