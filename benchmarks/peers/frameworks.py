"""The recipe of `task.py` in each framework, written as the framework's documentation shows.

    python frameworks.py NAME ROUNDS

Each function imports its framework, trains one round to warm up and `rounds` more, and returns the
version and the seconds of every round. Flower trains in processes of its own, whose code is in
`flower_round.py`.
"""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version as installed
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from task import BATCH, PARTICIPANTS, RATE, VEHICLES, WIDTHS, WINDOWS, report, torch_layers, vehicle

Timing = tuple[str, Sequence[float]]
"""Version of a framework, and seconds of each round."""


def fedwatt(rounds: int) -> Timing:
    """Train in fedwatt, by names alone."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from benchmarks.recipe import Recipe
    from fedwatt import __version__
    from fedwatt.federation import Federation
    from fedwatt.methods import get

    recipe = Recipe()
    method = get("fedavg")
    federation = Federation(recipe.fleet(), training=recipe.training, device="cpu")
    state, _ = federation.start(method)
    seconds = []
    for _ in range(rounds):
        begin = perf_counter()
        state, _ = federation.advance(method, state)
        seconds.append(perf_counter() - begin)
    return f"fedwatt {__version__}", seconds


def loop(rounds: int) -> Timing:
    """Train in a plain PyTorch loop over vehicles."""
    import torch
    from torch import nn

    network = nn.Sequential(*torch_layers())
    loss = nn.MSELoss()
    data = [tuple(map(torch.from_numpy, vehicle(number))) for number in range(VEHICLES)]
    rng = np.random.default_rng(0)
    seconds = []
    weights = [parameter.detach().clone() for parameter in network.parameters()]
    for _ in range(rounds):
        begin = perf_counter()
        total = [torch.zeros_like(w) for w in weights]
        for number in rng.choice(VEHICLES, PARTICIPANTS, replace=False):
            with torch.no_grad():
                for parameter, w in zip(network.parameters(), weights, strict=True):
                    parameter.copy_(w)
            optimiser = torch.optim.SGD(network.parameters(), lr=RATE)
            windows, labels = data[number]
            for index in torch.split(torch.randperm(WINDOWS), BATCH):
                optimiser.zero_grad()
                loss(network(windows[index]), labels[index]).backward()
                optimiser.step()
            with torch.no_grad():
                for mean, parameter in zip(total, network.parameters(), strict=True):
                    mean.add_(parameter, alpha=1 / PARTICIPANTS)
        weights = total
        seconds.append(perf_counter() - begin)
    return f"torch {torch.__version__}", seconds


def start_weights(rng: np.random.Generator) -> list[tuple[Any, Any]]:
    """Return random matrices and zero biases of the recipe's network."""
    return [
        (rng.uniform(-1, 1, (a, b)).astype(np.float32) / a**0.5, np.zeros(b, np.float32))
        for a, b in pairwise(WIDTHS)
    ]


def jax_loss(weights: Any, windows: Any, labels: Any) -> Any:
    """Return the mean squared error of the recipe's network."""
    import jax

    x = windows
    for matrix, bias in weights[:-1]:
        x = jax.nn.relu(x @ matrix + bias)
    matrix, bias = weights[-1]
    return (((x @ matrix + bias)[:, 0] - labels) ** 2).mean()


def jax(rounds: int) -> Timing:
    """Train in one jitted program of plain JAX, all vehicles side by side."""
    import jax
    import jax.numpy as jnp

    def train(weights: Any, windows: Any, labels: Any, order: Any) -> Any:
        def step(current: Any, index: Any) -> Any:
            slopes = jax.grad(jax_loss)(current, windows[index], labels[index])
            return jax.tree.map(lambda w, g: w - RATE * g, current, slopes), None

        return jax.lax.scan(step, weights, order)[0]

    @jax.jit
    def one_round(weights: Any, windows: Any, labels: Any, orders: Any) -> Any:
        trained = jax.vmap(train, in_axes=(None, 0, 0, 0))(weights, windows, labels, orders)
        return jax.tree.map(lambda w: w.mean(axis=0), trained)

    rng = np.random.default_rng(0)
    weights: Any = start_weights(rng)
    pairs = [vehicle(number) for number in range(VEHICLES)]
    windows, labels = (jnp.stack(arrays) for arrays in zip(*pairs, strict=True))
    seconds = []
    for _ in range(rounds):
        begin = perf_counter()
        participants = rng.choice(VEHICLES, PARTICIPANTS, replace=False)
        orders = np.stack([rng.permutation(WINDOWS) for _ in participants]).astype(np.int32)
        orders = orders.reshape(PARTICIPANTS, -1, BATCH)
        weights = one_round(weights, windows[participants], labels[participants], orders)
        jax.block_until_ready(weights)
        seconds.append(perf_counter() - begin)
    return f"JAX {jax.__version__}", seconds


def fedjax(rounds: int) -> Timing:
    """Train by fedjax's federated averaging, jitted client by client."""
    import fedjax
    import jax
    from fedjax.algorithms import fed_avg

    def gradient(weights: Any, batch: Any, key: Any) -> Any:
        return jax.grad(jax_loss)(weights, batch["x"], batch["y"])

    rng = np.random.default_rng(0)
    algorithm = fed_avg.federated_averaging(
        grad_fn=gradient,
        client_optimizer=fedjax.optimizers.sgd(learning_rate=RATE),
        server_optimizer=fedjax.optimizers.sgd(learning_rate=1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=BATCH, num_epochs=1),
    )
    state = algorithm.init(start_weights(rng))
    pairs = [vehicle(number) for number in range(VEHICLES)]
    fleet = [fedjax.ClientDataset({"x": x, "y": y}) for x, y in pairs]
    seconds = []
    key = jax.random.PRNGKey(0)
    for _ in range(rounds):
        begin = perf_counter()
        key, *keys = jax.random.split(key, PARTICIPANTS + 1)
        participants = rng.choice(VEHICLES, PARTICIPANTS, replace=False)
        clients = [(str(k), fleet[k], draw) for k, draw in zip(participants, keys, strict=True)]
        state, _ = algorithm.apply(state, clients)
        jax.block_until_ready(state.params)
        seconds.append(perf_counter() - begin)
    return f"fedjax {installed('fedjax')}, JAX {jax.__version__}", seconds


def pfl(rounds: int) -> Timing:
    """Train by pfl-research's federated averaging on its simulated backend, in one process."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.callback.base import TrainingProcessCallback
    from pfl.data.dataset import Dataset
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
    from pfl.metrics import Metrics
    from pfl.model.pytorch import PyTorchModel

    class Trained(torch.nn.Sequential):
        """The network with the loss and metrics that pfl calls."""

        def loss(self, windows: Any, labels: Any, eval: bool = False) -> torch.Tensor:
            """Return the mean squared error."""
            self.train(not eval)
            targets = torch.as_tensor(labels)
            return torch.nn.functional.mse_loss(self(torch.as_tensor(windows)), targets)

        def metrics(self, windows: Any, labels: Any, eval: bool = True) -> dict[str, Any]:
            """Return none: nothing is evaluated."""
            return {}

    class Timed(TrainingProcessCallback):
        """A clock of central iterations."""

        def __init__(self) -> None:
            self.begin = perf_counter()
            self.seconds = []

        def after_central_iteration(
            self, aggregate_metrics: Metrics, model: Any, *, central_iteration: int
        ) -> tuple[bool, Metrics]:
            """Note the end of a round."""
            now = perf_counter()
            self.seconds.append(now - self.begin)
            self.begin = now
            return False, Metrics()

    data = [vehicle(number) for number in range(VEHICLES)]
    rng = np.random.default_rng(0)

    def shuffled(number: int) -> Dataset:
        windows, labels = data[number]
        order = rng.permutation(WINDOWS)  # pfl takes windows as they come
        return Dataset([torch.from_numpy(windows[order]), torch.from_numpy(labels[order])])

    network = Trained(*torch_layers())
    fleet = FederatedDataset(shuffled, get_user_sampler("random", list(range(VEHICLES))))
    model = PyTorchModel(network, torch.optim.SGD, torch.optim.SGD(network.parameters(), lr=1.0))
    clock = Timed()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=rounds,
            evaluation_frequency=rounds + 1,
            train_cohort_size=PARTICIPANTS,
            val_cohort_size=0,
        ),
        SimulatedBackend(training_data=fleet, val_data=None),
        model,
        NNTrainHyperParams(local_num_epochs=1, local_learning_rate=RATE, local_batch_size=BATCH),
        NNEvalHyperParams(local_batch_size=BATCH),
        [clock],
    )
    return f"pfl {installed('pfl')}, torch {torch.__version__}", clock.seconds


def flower(rounds: int) -> Timing:
    """Train in Flower's Ray simulation."""
    from flower_round import simulate

    return f"Flower {installed('flwr')}, torch {installed('torch')}", simulate(rounds)


FRAMEWORKS: dict[str, Callable[[int], Timing]] = {
    "fedwatt": fedwatt,
    "loop": loop,
    "jax": jax,
    "fedjax": fedjax,
    "pfl": pfl,
    "flower": flower,
}

if __name__ == "__main__":
    report(*FRAMEWORKS[sys.argv[1]](int(sys.argv[2]) + 1))
