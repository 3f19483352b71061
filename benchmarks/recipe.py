"""The recipe that engines are compared on, and the plain client loop that everybody writes first.

K = 100 vehicles with 1,920 windows of 60 seconds by 8 features each, 30 of them a round, one epoch
of batches of 64, MLP 480-64-32-1: a round is 900 steps of one vehicle ("client-steps").
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from fedwatt.federation import Federation, State, Training
from fedwatt.methods import Method
from fedwatt.windows import Client, DataSettings, Fleet

FEATURES: Final = 8
WINDOW: Final = 60


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """Sizes of a round; the defaults are the recipe's."""

    vehicles: int = 100
    participants: int = 30
    windows: int = 1920
    """n_k"""
    batch: int = 64
    learning_rate: float = 0.05

    @property
    def steps(self) -> int:
        """H_k of one epoch."""
        return -(-self.windows // self.batch)

    @property
    def client_steps(self) -> int:
        """Steps of one vehicle in a round, over all participants."""
        return self.participants * self.steps

    @property
    def flops(self) -> int:
        """Operations of all products of a round of the MLP: forward, weights, errors."""
        wide = WINDOW * FEATURES * 64
        narrow = 64 * 32 + 32
        return self.client_steps * 2 * self.batch * (2 * (wide + narrow) + narrow)

    @property
    def training(self) -> Training:
        """The engine's terms, with more rounds than anybody measures and no evaluation."""
        many = 10**6
        return Training(
            rounds=many,
            evaluate_every=many,
            participation=self.participants / self.vehicles,
            batch=self.batch,
            learning_rate=self.learning_rate,
        )

    def fleet(self) -> Fleet:
        """Vehicles of noise: time does not depend on what is learned."""
        return noise_fleet(self.vehicles, self.windows)


def noise_fleet(vehicles: int, windows: int) -> Fleet:
    """`vehicles` with `windows` training windows of standard normal features and labels."""
    clients = []
    for k in range(vehicles):
        rng = np.random.default_rng(k)
        ends = {}
        begin = 0
        for split, count in (("train", windows), ("validation", 8), ("test", 8)):
            ends[split] = np.arange(count) + begin + WINDOW - 1
            begin += count + WINDOW - 1
        clients.append(
            Client(
                name=f"car-{k:05d}",
                features=("speed",) * FEATURES,
                window=WINDOW,
                series=rng.standard_normal((begin, FEATURES), dtype=np.float32),
                ends=ends,
                labels={s: rng.standard_normal(len(e), dtype=np.float32) for s, e in ends.items()},
                label_center_wh=0.0,
                label_scale_wh=1.0,
                strata={},
                trips={split: (split,) for split in ends},
            )
        )
    return Fleet(tuple(clients), DataSettings(window=WINDOW), "noise")


class Loop:
    """A loop over vehicles with an `nn.Module`, `torch.optim.SGD` and autograd, on any device."""

    def __init__(self, fleet: Fleet, recipe: Recipe, network: nn.Module, device: str) -> None:
        self.recipe = recipe
        self.network = network.to(device)
        self.series = [torch.from_numpy(c.series).to(device) for c in fleet.clients]
        self.labels = [torch.from_numpy(c.labels["train"]).to(device) for c in fleet.clients]
        self.loss = nn.MSELoss()

    def batches(self, vehicle: int) -> Iterator[tuple[Tensor, Tensor]]:
        """One epoch in a fresh order, gathered on the device as quickly as the engine does it."""
        series = self.series[vehicle]
        labels = self.labels[vehicle]
        rows = series.as_strided((len(labels), WINDOW * FEATURES), (FEATURES, 1))
        order = torch.randperm(len(labels), device=labels.device)
        for index in torch.split(order, self.recipe.batch):
            windows = rows.index_select(0, index).view(-1, WINDOW, FEATURES)
            yield windows, labels[index]

    def round(self, weights: list[Tensor], vehicles: Sequence[int]) -> list[Tensor]:
        """FedAvg: train every vehicle from `weights`, average."""
        parameters = list(self.network.parameters())
        total = [torch.zeros_like(w) for w in weights]
        for vehicle in vehicles:
            with torch.no_grad():
                for parameter, w in zip(parameters, weights, strict=True):
                    parameter.copy_(w)
            optimiser = torch.optim.SGD(parameters, lr=self.recipe.learning_rate)
            for windows, labels in self.batches(vehicle):
                optimiser.zero_grad()
                self.loss(self.network(windows), labels).backward()
                optimiser.step()
            with torch.no_grad():
                for mean, parameter in zip(total, parameters, strict=True):
                    mean.add_(parameter, alpha=1 / len(vehicles))
        return total

    def run(self, vehicles: Sequence[int]) -> Callable[[], None]:
        """Return a function that trains one more round."""
        weights = [p.detach().clone() for p in self.network.parameters()]

        def once() -> None:
            nonlocal weights
            weights = self.round(weights, vehicles)

        return once


def rounds_of(federation: Federation, method: Method) -> Callable[[], None]:
    """Return a function that trains one more round of vehicles that need no probe."""
    state = probed(federation.start(method)[0])

    def once() -> None:
        nonlocal state
        state, _ = federation.advance(method, state)

    return once


def probed(state: State) -> State:
    """Return the state of a run whose vehicles have just been probed, with an index of 0.1."""
    values = {"probed_in": state.round, "roughness": 0.1}
    for name in values.keys() & state.client_state.keys():
        table = state.client_state[name]
        assert isinstance(table, Tensor)  # one number a vehicle is never paged
        table.fill_(values[name])
    return state


def interleaved(
    ways: dict[str, Callable[[], None]],
    *,
    repeats: int,
    warm_up: int = 1,
    settle: Callable[[], None] = lambda: None,
) -> dict[str, float]:
    """Median seconds of each way, measured in turn so that a busy spell hits all of them alike.

    `settle` is called before the clock is read, to wait for a GPU.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for repeat in range(-warm_up, repeats):
        for name, way in ways.items():
            settle()
            begin = perf_counter()
            way()
            settle()
            if repeat >= 0:
                seconds[name].append(perf_counter() - begin)
    return {name: median(times) for name, times in seconds.items()}
