"""The server's work for one reply: unpack the message and take it into the next model.

Processor time of one thread, the methods in turns, so that a busy moment hits all of them.
"""

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch
from safetensors.torch import load, save

from benchmarks.traffic import Load
from fedwatt.methods import get
from fedwatt.methods.method import costs
from fedwatt.methods.rule import Rows
from fedwatt.methods.server import Replies
from fedwatt.models import get_model
from fedwatt.randomness import generator

WINDOW = 60
FEATURES = 8

Update = Callable[[Sequence[Rows]], object]
"""Makes the next model of the unpacked messages."""


def seconds_per_reply(
    methods: Sequence[str], *, model: str = "mlp", replies: int = 200, repeats: int = 9
) -> dict[str, float]:
    """Median processor time of the server for one of `replies` replies, by method."""
    jobs = {name: _job(name, model, replies) for name in methods}
    found: dict[str, list[float]] = {name: [] for name in methods}
    for _ in range(repeats):
        for name, (messages, update) in jobs.items():
            begun = time.process_time()
            update([load(message) for message in messages])
            found[name].append((time.process_time() - begun) / replies)
    return {name: median(own) for name, own in found.items()}


def method_loads(methods: Sequence[str], *, model: str = "mlp") -> dict[str, Load]:
    """Bytes of a round's messages in float32, and the measured time of the server, by method."""
    seconds = seconds_per_reply(methods, model=model)
    loads = {}
    for name in methods:
        base = get_model(model, window=WINDOW, features=FEATURES)
        own = costs(get(name), base)
        loads[name] = Load(4 * own.down, 4 * own.up, seconds[name])
    return loads


def _job(name: str, model_name: str, replies: int) -> tuple[list[bytes], Update]:
    """Messages of `replies` vehicles, and what turns them into a model."""
    method = get(name)
    model = method.adapted(get_model(model_name, window=WINDOW, features=FEATURES))
    rng = generator(0, "server bench", name)
    up = {"delta": torch.zeros(1, model.layout.size)}
    up |= {part: row[None] for part, row in method.uploads(model).items()}

    def message() -> bytes:
        noise = {part: 1e-3 * rng.standard_normal(tuple(value.shape)) for part, value in up.items()}
        return save({part: torch.from_numpy(n).to(up[part].dtype) for part, n in noise.items()})

    weights = torch.zeros(model.layout.size)
    state = method.server.state(model)
    ones = torch.ones(replies, dtype=torch.float64)

    def update(unpacked: Sequence[Rows]) -> object:
        rows = {part: torch.cat([one[part] for one in unpacked]) for part in up}
        deltas = rows.pop("delta")
        if method.server.normalises:
            rows["accumulation"] = ones
        known = Replies(deltas, ones, replies, float(replies), rng, rows)
        return method.update(state, weights, known)

    return [message() for _ in range(replies)], update
