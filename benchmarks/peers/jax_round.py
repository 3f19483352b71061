"""The recipe in plain JAX: one jitted program a round, vehicles side by side or in a loop."""

import sys
from itertools import pairwise
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, WIDTHS, WINDOWS, rounds_asked, tell, vehicle

SIDE_BY_SIDE = "vmap" in sys.argv[2:]


def loss(weights: Any, windows: Any, labels: Any) -> Any:
    """Mean squared error."""
    x = windows
    for matrix, bias in weights[:-1]:
        x = jax.nn.relu(x @ matrix + bias)
    matrix, bias = weights[-1]
    return jnp.mean(((x @ matrix + bias)[:, 0] - labels) ** 2)


def train(weights: Any, windows: Any, labels: Any, order: Any) -> Any:
    """One vehicle's epoch; `order` is [steps, batch]."""

    def step(now: Any, index: Any) -> Any:
        slopes = jax.grad(loss)(now, windows[index], labels[index])
        return jax.tree.map(lambda w, g: w - RATE * g, now, slopes), None

    return jax.lax.scan(step, weights, order)[0]


@jax.jit
def one_round(weights: Any, windows: Any, labels: Any, orders: Any) -> Any:
    """Train all participants from `weights` and average."""
    if SIDE_BY_SIDE:
        trained = jax.vmap(train, in_axes=(None, 0, 0, 0))(weights, windows, labels, orders)
    else:
        trained = jax.lax.map(lambda own: train(weights, *own), (windows, labels, orders))
    return jax.tree.map(lambda w: w.mean(axis=0), trained)


rng = np.random.default_rng(0)
weights: Any = [
    (rng.uniform(-1, 1, (a, b)).astype(np.float32) / a**0.5, np.zeros(b, np.float32))
    for a, b in pairwise(WIDTHS)
]
pairs = [vehicle(number) for number in range(VEHICLES)]
windows, labels = (jnp.stack(part) for part in zip(*pairs, strict=True))
seconds = []
for _ in range(rounds_asked() + 1):
    begin = perf_counter()
    asked = rng.choice(VEHICLES, PARTICIPANTS, replace=False)
    orders = np.stack([rng.permutation(WINDOWS) for _ in asked]).astype(np.int32)
    orders = orders.reshape(PARTICIPANTS, -1, BATCH)
    weights = one_round(weights, windows[asked], labels[asked], orders)
    jax.block_until_ready(weights)
    seconds.append(perf_counter() - begin)
tell(f"JAX {jax.__version__}", seconds)
