"""The recipe's round in JAX as fedjax does it: one jitted program, a loop over vehicles inside.

    python -m benchmarks.jax_round

is a program of its own, so that JAX's threads stay out of everybody else's way. It trains a round
for each line that it reads and answers with the seconds that the round took.
"""

import sys
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.recipe import FEATURES, WINDOW, Recipe


def program(recipe: Recipe) -> Any:
    """A jitted round: (weights, series, labels, batch orders of all participants) → weights."""
    import jax
    import jax.numpy as jnp

    def loss(weights: Any, windows: Any, labels: Any) -> Any:
        x = windows
        for matrix, bias in weights[:-1]:
            x = jax.nn.relu(x @ matrix + bias)
        matrix, bias = weights[-1]
        return jnp.mean(((x @ matrix + bias)[:, 0] - labels) ** 2)

    def vehicle(weights: Any, data: Any) -> Any:
        series, labels, order = data

        def step(now: Any, index: Any) -> Any:
            rows = series[index[:, None] + jnp.arange(WINDOW)]
            slopes = jax.grad(loss)(now, rows.reshape(len(index), -1), labels[index])
            return jax.tree.map(lambda w, g: w - recipe.learning_rate * g, now, slopes), None

        return jax.lax.scan(step, weights, order)[0]

    def one_round(weights: Any, series: Any, labels: Any, orders: Any) -> Any:
        trained = jax.lax.map(lambda data: vehicle(weights, data), (series, labels, orders))
        return jax.tree.map(lambda w: w.mean(axis=0), trained)

    return jax.jit(one_round)


def main() -> None:
    """Answer each line of the input with the seconds of one more round."""
    import jax

    recipe = Recipe()
    rng = np.random.default_rng(1)
    fleet = recipe.fleet()
    clients = fleet.clients[: recipe.participants]
    series = np.stack([client.series for client in clients])
    labels = np.stack([client.labels["train"] for client in clients])
    widths = (WINDOW * FEATURES, 64, 32, 1)
    weights = [
        (rng.uniform(-1, 1, (a, b)).astype(np.float32) / a**0.5, np.zeros(b, np.float32))
        for a, b in pairwise(widths)
    ]
    advance = program(recipe)
    print("ready", jax.__version__, flush=True)
    for _ in sys.stdin:
        begin = perf_counter()
        orders = np.stack([rng.permutation(recipe.windows) for _ in clients]).astype(np.int32)
        batches = orders[:, : recipe.steps * recipe.batch].reshape(len(clients), -1, recipe.batch)
        weights = advance(weights, series, labels, batches)
        weights[0][0].block_until_ready()
        print(perf_counter() - begin, flush=True)


if __name__ == "__main__":
    main()
