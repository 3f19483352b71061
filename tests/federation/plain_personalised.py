"""The personalised methods once more, one vehicle at a time, as in `plain_baselines`.

`vehicle_model(client)` is the model that a vehicle uses after the last round, a flat vector [D].
"""

from dataclasses import dataclass
from math import ceil

from torch import Tensor

from benchmarks.networks import torch_module
from fedwatt.engine.batches import Draw
from fedwatt.randomness import generator
from fedwatt.windows import Client
from tests.federation.plain_baselines import Plain, Table
from tests.federation.reference import gathered


@dataclass
class Ditto(Plain):
    lam: float = 0.1
    rate_personal: float = 1.0

    def prepare(self) -> None:
        self.v: Table = {}

    def local(self, client: Client) -> Tensor:
        v = self.v.get(client.name, self.w).clone()
        for x, y in self.batches(client):
            pull = self.lam * (v - self.w)
            v = v - self.rate_personal * self.learning_rate * (self.gradient(v, x, y) + pull)
        self.v[client.name] = v
        return super().local(client)

    def vehicle_model(self, client: Client) -> Tensor:
        return self.v.get(client.name, self.w)


@dataclass
class SharedBody(Plain):
    """FedRep, FedPer and FedBABU; the head is an MLP's last width + 1 numbers."""

    training_of_head: str = "first"
    share: float = 0.1
    new: int = 100

    def prepare(self) -> None:
        self.size = self.model.hidden[-1] + 1
        self.heads: Table = {}

    def local(self, client: Client) -> Tensor:
        batches = list(self.batches(client))
        w = self.with_head(client)
        if self.training_of_head == "never":
            return self.body_steps(w, batches)
        if self.training_of_head == "together":
            for x, y in batches:
                w = w - self.learning_rate * self.gradient(w, x, y)
        else:
            first = min(ceil(self.share * len(batches)), len(batches) - 1)
            w = self.head_steps(w, batches[:first], self.learning_rate)
            w = self.body_steps(w, batches[first:])
        self.heads[client.name] = w[-self.size :].clone()
        w[-self.size :] = self.w[-self.size :]
        return w

    def with_head(self, client: Client) -> Tensor:
        w = self.w.clone()
        if client.name in self.heads:
            w[-self.size :] = self.heads[client.name]
        return w

    def head_steps(self, w: Tensor, batches: list, learning_rate: float) -> Tensor:
        for x, y in batches:
            w = w.clone()
            w[-self.size :] -= learning_rate * self.gradient(w, x, y)[-self.size :]
        return w

    def body_steps(self, w: Tensor, batches: list) -> Tensor:
        for x, y in batches:
            w = w.clone()
            w[: -self.size] -= self.learning_rate * self.gradient(w, x, y)[: -self.size]
        return w

    def vehicle_model(self, client: Client) -> Tensor:
        if client.name in self.heads or self.training_of_head == "never":
            return self.with_head(client)
        # The next round's rate and batches, as many epochs as it takes.
        windows = self.windows(client)
        batch = self.training.batch
        draw = Draw(self.seed, self.t + 1, client.name, windows=windows, end=self.new, batch=batch)
        batches = [gathered(client, row[row >= 0], self.dtype) for row in draw.order()]
        return self.head_steps(self.w, batches, self.training.learning_rate / (self.t + 2) ** 0.5)


@dataclass
class Ifca(Plain):
    count: int = 2

    def prepare(self) -> None:
        rngs = [generator(self.seed, "initial model", j) for j in range(1, self.count)]
        drawn = [self.model.initial(rng).to(self.dtype) for rng in rngs]
        self.centres, self.chosen_windows = [self.w, *drawn], [0] * self.count
        self.choice: dict[str, int] = {}

    def choose(self, client: Client) -> int:
        x, y = self.probe(client, 1024, self.dtype, "centre batch")
        losses = [((torch_module(self.model, c)(x) - y) ** 2).mean().item() for c in self.centres]
        return losses.index(min(losses))

    def local(self, client: Client) -> Tensor:
        self.choice[client.name] = chosen = self.choose(client)
        w = self.centres[chosen].clone()
        for x, y in self.batches(client):
            w = w - self.learning_rate * self.gradient(w, x, y)
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        for j, centre in enumerate(self.centres):
            vehicle_heads = [
                (self.windows(client), w_k)
                for client, w_k in zip(clients, trained, strict=True)
                if self.choice[client.name] == j
            ]
            total = sum(n for n, _ in vehicle_heads)
            if vehicle_heads:
                mean = sum(n / total * (w_k.double() - centre.double()) for n, w_k in vehicle_heads)
                self.centres[j] = (centre.double() + mean).to(self.dtype)
                self.chosen_windows[j] += total
        return self.centres[self.chosen_windows.index(max(self.chosen_windows))]

    def vehicle_model(self, client: Client) -> Tensor:
        self.t += 1  # chosen as in the next round
        chosen = self.choose(client)
        self.t -= 1
        return self.centres[chosen]
