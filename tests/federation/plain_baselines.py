"""The baselines once more, one vehicle at a time: what the stacked rules must agree with.

Ordinary torch.nn modules and autograd, plain loops, each method's equations as its authors wrote
them (with the n_k forms where averages are weighted by windows). Only the random draws are shared
with the library. Weights are flat vectors [D] in the library's order, so that they can be compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from benchmarks.networks import flat_weights, torch_module
from fedwatt.engine.batches import Draw
from fedwatt.federation import Training
from fedwatt.federation.participation import participants
from fedwatt.models import MLP
from fedwatt.randomness import generator
from fedwatt.windows import Client, Fleet
from tests.federation.reference import gathered

Table = dict[str, Tensor]
"""Something remembered for each vehicle, by its name."""


@dataclass
class Plain:
    """FedAvg; a method overrides how a vehicle trains and what the server does with it."""

    fleet: Fleet
    model: MLP
    training: Training
    seed: int

    def __post_init__(self) -> None:
        self.dtype = getattr(torch, self.training.precision)
        self.population = len(self.fleet.clients)
        self.all_windows = sum(self.windows(client) for client in self.fleet.clients)
        self.w = self.initial()
        self.prepare()

    def prepare(self) -> None:
        """Set the state of server and vehicles before the first round."""

    def initial(self) -> Tensor:
        return self.model.initial(generator(self.seed, "initial model")).to(self.dtype)

    def rounds(self) -> Iterator[Tensor]:
        """Global model [D] after each round."""
        everyone = np.ones(self.population, dtype=bool)
        for t in range(self.training.rounds):
            self.t = t
            called = participants(self.seed, self.t, everyone, self.training.participation)
            clients = [self.fleet.clients[k] for k in called]
            self.learning_rate = self.training.learning_rate / (self.t + 1) ** 0.5
            trained = [self.local(client) for client in clients]
            self.w = self.server(clients, trained).to(self.dtype)
            yield self.w

    def local(self, client: Client) -> Tensor:
        """w_k after its local steps."""
        w = self.w.clone()
        for x, y in self.batches(client):
            w = w - self.learning_rate * self.gradient(w, x, y)
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        """w_{t+1}, float64."""
        return self.w.double() + self.mean(clients, trained)

    def mean(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        """Σ (n_k / n_t) Δ_k."""
        n_t = sum(self.windows(client) for client in clients)
        return sum(
            (self.windows(client) / n_t * self.moved(w_k)
            for client, w_k in zip(clients, trained, strict=True)),
            start=torch.zeros_like(self.w, dtype=torch.float64),
        )  # fmt: skip

    def moved(self, w_k: Tensor) -> Tensor:
        return w_k.double() - self.w.double()

    def windows(self, client: Client) -> int:
        return len(client.ends["train"])

    def steps(self, client: Client) -> int:
        return self.training.epochs * -(-self.windows(client) // self.training.batch)

    def batches(self, client: Client) -> Iterator[tuple[Tensor, Tensor]]:
        draw = Draw(
            self.seed,
            self.t,
            client.name,
            windows=self.windows(client),
            end=self.steps(client),
            batch=self.training.batch,
        )
        for row in draw.order():
            yield gathered(client, row[row >= 0], self.dtype)

    def probe(
        self, client: Client, size: int, dtype: torch.dtype, purpose: str
    ) -> tuple[Tensor, Tensor]:
        """A batch of the vehicle's own besides those it trains on."""
        rng = generator(self.seed, purpose, self.t, client.name)
        count = self.windows(client)
        return gathered(client, rng.choice(count, size=min(size, count), replace=False), dtype)

    def gradient(self, w: Tensor, x: Tensor, y: Tensor) -> Tensor:
        """Of the mean squared error of a batch, [D]."""
        module = torch_module(self.model, w)
        ((module(x) - y) ** 2).mean().backward()
        return flat_weights(self.model, [p.grad for p in module.parameters()])


@dataclass
class Scaffold(Plain):
    option: int = 2
    uniform: bool = False

    def prepare(self) -> None:
        self.c = torch.zeros_like(self.w, dtype=torch.float64)
        self.own: Table = {k.name: torch.zeros_like(self.w) for k in self.fleet.clients}
        self.change: Table = {}

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        c = self.c.to(self.dtype)
        c_k = self.own[client.name]
        for x, y in self.batches(client):
            w = w - self.learning_rate * (self.gradient(w, x, y) - c_k + c)
        if self.option == 1:
            batch = self.probe(client, 1024, self.dtype, "control batch")
            fresh = self.gradient(self.w, *batch)
        else:
            fresh = c_k - c + (self.w - w) / (self.steps(client) * self.learning_rate)
        self.change[client.name] = fresh - c_k
        self.own[client.name] = fresh
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        for client in clients:
            share = 1 / self.population
            if not self.uniform:
                share = self.windows(client) / self.all_windows
            self.c = self.c + share * self.change[client.name].double()
        if self.uniform:
            return self.w.double() + sum(self.moved(w_k) for w_k in trained) / len(trained)
        return self.w.double() + self.mean(clients, trained)


@dataclass
class MomentumScaffold(Scaffold):
    """SCAFFOLD whose vehicles train with momentum; Δ_k then holds each gradient several times."""

    rho: float = 0.9

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        c = self.c.to(self.dtype)
        c_k = self.own[client.name]
        buffer = torch.zeros_like(w)
        counted = 0.0
        weight = 0.0
        for x, y in self.batches(client):
            buffer = self.rho * buffer + self.gradient(w, x, y) - c_k + c
            w = w - self.learning_rate * buffer
            weight = self.rho * weight + 1
            counted += weight
        fresh = c_k - c + (self.w - w) / (self.learning_rate * counted)
        self.change[client.name] = fresh - c_k
        self.own[client.name] = fresh
        return w


@dataclass
class Nova(Plain):
    """`a` is found by following what one unit of gradient a step adds up to."""

    mu: float = 0.0
    rho: float = 0.0

    def prepare(self) -> None:
        self.a: dict[str, float] = {}

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        buffer = torch.zeros_like(self.w)
        reached = 0.0
        speed = 0.0
        for x, y in self.batches(client):
            buffer = self.rho * buffer + self.gradient(w, x, y) + self.mu * (w - self.w)
            w = w - self.learning_rate * buffer
            speed = self.rho * speed + 1 - self.mu * self.learning_rate * reached
            reached += speed
        self.a[client.name] = reached
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        n_t = sum(self.windows(client) for client in clients)
        shares = [self.windows(client) / n_t for client in clients]
        a = [self.a[client.name] for client in clients]
        tau = sum(p * a_k for p, a_k in zip(shares, a, strict=True))
        directions = [-self.moved(w_k) / a_k for w_k, a_k in zip(trained, a, strict=True)]
        return self.w.double() - tau * sum(p * d for p, d in zip(shares, directions, strict=True))


@dataclass
class Adaptive(Plain):
    kind: str = "adam"
    rate_s: float = 0.01
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def prepare(self) -> None:
        self.m = torch.zeros_like(self.w, dtype=torch.float64)
        self.v = torch.full_like(self.m, self.tau**2)

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        delta = self.mean(clients, trained)
        self.m = self.beta1 * self.m + (1 - self.beta1) * delta
        if self.kind == "adam":
            self.v = self.beta2 * self.v + (1 - self.beta2) * delta * delta
        elif self.kind == "yogi":
            sign = torch.where(self.v > delta**2, 1.0, -1.0)
            self.v = self.v - (1 - self.beta2) * delta**2 * sign
        else:
            self.v = self.v + delta * delta
        return self.w.double() + self.rate_s * self.m / (torch.sqrt(self.v) + self.tau)


@dataclass
class ServerMomentum(Plain):
    rate_s: float = 1.0
    gamma: float = 0.0

    def prepare(self) -> None:
        self.m = torch.zeros_like(self.w, dtype=torch.float64)

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        self.m = self.gamma * self.m + self.mean(clients, trained)
        return self.w.double() + self.rate_s * self.m


@dataclass
class Moon(Plain):
    mu: float = 0.1
    temperature: float = 0.5

    def prepare(self) -> None:
        self.last: Table = {}

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        for x, y in self.batches(client):
            module = torch_module(self.model, w)
            body = module[:-2]
            head = module[-2:]
            z = body(x)
            loss = ((head(z) - y) ** 2).mean()
            if client.name in self.last:
                with torch.no_grad():
                    z_g = torch_module(self.model, self.w)[:-2](x)
                    z_p = torch_module(self.model, self.last[client.name])[:-2](x)
                near = torch.exp(cosine_similarity(z, z_g, dim=1) / self.temperature)
                far = torch.exp(cosine_similarity(z, z_p, dim=1) / self.temperature)
                loss = loss + self.mu * -torch.log(near / (near + far)).mean()
            loss.backward()
            w = w - self.learning_rate * flat_weights(
                self.model, [p.grad for p in module.parameters()]
            )
        self.last[client.name] = w
        return w


@dataclass
class Dyn(Plain):
    alpha: float = 0.1
    uniform: bool = False

    def prepare(self) -> None:
        self.h: Table = {k.name: torch.zeros_like(self.w) for k in self.fleet.clients}

    def local(self, client: Client) -> Tensor:
        alpha = self.alpha
        if not self.uniform:
            omega = self.population * self.windows(client) / self.all_windows
            alpha = self.alpha / min(max(omega, 0.1), 10)
        w = self.w.clone()
        for x, y in self.batches(client):
            pull = alpha * (w - self.w) + alpha * self.h[client.name]
            w = w - self.learning_rate * (self.gradient(w, x, y) + pull)
        self.h[client.name] = self.h[client.name] + w - self.w
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        # Not the running sum of the method but what it must equal: the mean over all vehicles.
        mean_h = sum(h.double() for h in self.h.values()) / self.population
        return sum(w_k.double() for w_k in trained) / len(trained) + mean_h


@dataclass
class ExP(Plain):
    """FedExP with ε relative to the mean squared length."""

    epsilon_relative: float = 0.05

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        n_t = sum(self.windows(client) for client in clients)
        lengths = sum(
            self.windows(client) / n_t * float(self.moved(w_k).norm()) ** 2
            for client, w_k in zip(clients, trained, strict=True)
        )
        step = self.mean(clients, trained)
        below = float(step.norm()) ** 2 + self.epsilon_relative * lengths
        return self.w.double() + max(1.0, lengths / (2 * below)) * step


@dataclass
class CM(Plain):
    """FedCM: the server's m is a mean of directions."""

    alpha: float = 0.1

    def prepare(self) -> None:
        self.m = torch.zeros_like(self.w, dtype=torch.float64)

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        m = self.m.to(self.dtype)
        for x, y in self.batches(client):
            w = w - self.learning_rate * (
                self.alpha * self.gradient(w, x, y) + (1 - self.alpha) * m
            )
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        n_t = sum(self.windows(client) for client in clients)
        steps = sum(self.windows(client) / n_t * self.steps(client) for client in clients)
        step = self.mean(clients, trained)
        self.m = -step / (self.learning_rate * steps)
        return self.w.double() + step


@dataclass
class MimeLite(Plain):
    beta: float = 0.9

    def prepare(self) -> None:
        self.m = torch.zeros_like(self.w, dtype=torch.float64)

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        m = self.m.to(self.dtype)
        for x, y in self.batches(client):
            w = w - self.learning_rate * ((1 - self.beta) * self.gradient(w, x, y) + self.beta * m)
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        n_t = sum(self.windows(client) for client in clients)
        fresh = sum(
            self.windows(k) / n_t
            * self.gradient(self.w, *self.probe(k, 1024, self.dtype, "mime batch")).double()
            for k in clients
        )  # fmt: skip
        self.m = (1 - self.beta) * fresh + self.beta * self.m
        return self.w.double() + self.mean(clients, trained)


@dataclass
class Sam(Plain):
    rho: float = 0.05

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        for x, y in self.batches(client):
            g = self.gradient(w, x, y)
            w = w - self.learning_rate * self.gradient(w + self.rho * g / g.norm(), x, y)
        return w


@dataclass
class Lesam(Plain):
    """The gradient of every step at w + o, with the weights themselves kept where they are."""

    rho: float = 0.05

    def prepare(self) -> None:
        self.old: Table = {}

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        back = torch.zeros_like(self.w)
        if client.name in self.old:
            back = self.old[client.name] - self.w
            back = self.rho * back / back.norm()
        for x, y in self.batches(client):
            w = w - self.learning_rate * self.gradient(w + back, x, y)
        self.old[client.name] = self.w
        return w


@dataclass
class AdaptiveProx(Plain):
    step: float = 0.1
    patience: int = 5

    def prepare(self) -> None:
        self.mu = 0.0
        self.before = None
        self.falls = 0

    def local(self, client: Client) -> Tensor:
        w = self.w.clone()
        for x, y in self.batches(client):
            w = w - self.learning_rate * (self.gradient(w, x, y) + self.mu * (w - self.w))
        return w

    def server(self, clients: list[Client], trained: list[Tensor]) -> Tensor:
        n_t = sum(self.windows(client) for client in clients)
        loss = 0.0
        for client in clients:
            x, y = self.probe(client, 128, self.dtype, "loss batch")
            loss_here = ((torch_module(self.model, self.w)(x) - y) ** 2).mean().item()
            loss += self.windows(client) / n_t * loss_here
        following = self.w.double() + self.mean(clients, trained)
        if self.before is not None and loss >= self.before:
            self.mu, self.falls = min(1.0, self.mu + self.step), 0
        elif self.before is not None:
            self.falls += 1
            if self.falls == self.patience:
                self.mu, self.falls = max(0.0, self.mu - self.step), 0
        self.before = loss
        return following
