"""The recipe in fedjax: its federated averaging, jitted client by client."""

from importlib.metadata import version as installed
from itertools import pairwise
from time import perf_counter
from typing import Any

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms import fed_avg
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, WIDTHS, rounds_asked, tell, vehicle


def loss(weights: Any, batch: Any) -> Any:
    """Mean squared error."""
    x = batch["x"]
    for matrix, bias in weights[:-1]:
        x = jax.nn.relu(x @ matrix + bias)
    matrix, bias = weights[-1]
    return jnp.mean(((x @ matrix + bias)[:, 0] - batch["y"]) ** 2)


rng = np.random.default_rng(0)
start = [
    (rng.uniform(-1, 1, (a, b)).astype(np.float32) / a**0.5, np.zeros(b, np.float32))
    for a, b in pairwise(WIDTHS)
]
algorithm = fed_avg.federated_averaging(
    grad_fn=lambda weights, batch, key: jax.grad(loss)(weights, batch),
    client_optimizer=fedjax.optimizers.sgd(learning_rate=RATE),
    server_optimizer=fedjax.optimizers.sgd(learning_rate=1.0),
    client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
)
pairs = [vehicle(number) for number in range(VEHICLES)]
fleet = [fedjax.ClientDataset({"x": x, "y": y}) for x, y in pairs]
state = algorithm.init(start)
seconds = []
key = jax.random.PRNGKey(0)
for _ in range(rounds_asked() + 1):
    begin = perf_counter()
    key, *keys = jax.random.split(key, PARTICIPANTS + 1)
    asked = rng.choice(VEHICLES, PARTICIPANTS, replace=False)
    clients = [(str(k), fleet[k], own) for k, own in zip(asked, keys, strict=True)]
    state, _ = algorithm.apply(state, clients)
    jax.block_until_ready(state.params)
    seconds.append(perf_counter() - begin)
tell(f"fedjax {installed('fedjax')}, JAX {jax.__version__}", seconds)
