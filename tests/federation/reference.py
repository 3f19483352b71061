"""A plain federation, one vehicle at a time: what the stacked engine must agree with.

Ordinary `torch.nn` modules, ordinary autograd, a loop over vehicles, batches and tensors, and every
formula written out once more without regard to speed. It shares only the random draws with the
engine, so that both train on the same participants and batches.
"""

from collections.abc import Iterator
from math import gamma, nan
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.networks import flat_weights, load, torch_module
from fedwatt.engine.batches import Draw
from fedwatt.errors import SettingError
from fedwatt.federation import Training
from fedwatt.federation.participation import participants
from fedwatt.methods import Fractional, Method, Proximal, RoughnessProximal
from fedwatt.methods.rule import LocalRule, scheduled
from fedwatt.methods.server import Average
from fedwatt.models import Model
from fedwatt.randomness import generator
from fedwatt.windows import Client, Fleet

KNOWN: Final[tuple[type[LocalRule], ...]] = (Proximal, RoughnessProximal, Fractional)
"""The local rules written out here."""


def refuse_unknown(fleet: Fleet, method: Method, training: Training) -> None:
    """Raise unless everything that is asked for is written out here."""
    rules = [*method.local, *([] if method.defence is None else [method.defence])]
    unknown = [type(rule).__name__ for rule in rules if type(rule) not in KNOWN]
    if method.server != Average():
        unknown.append(type(method.server).__name__)
    if training.loss != "mse":
        unknown.append(f"the loss '{training.loss}'")
    if training.sampling != "fixed":
        unknown.append(f"'{training.sampling}' sampling")
    if any(client.held_out for client in fleet.clients):
        unknown.append("held-out vehicles")
    if unknown:
        words = ", ".join(rule.__name__ for rule in KNOWN)
        raise SettingError(
            f"The plain reference of '{method.name}' would leave out {' and '.join(unknown)}: "
            f"it knows the local rules {words}, averaging by windows and MSE, with all vehicles "
            "training. Choose a method such as 'fedavg' or 'fo-ri-fedavg'."
        )


def train_plainly(
    fleet: Fleet, model: Model, method: Method, training: Training, seed: int
) -> Iterator[Tensor]:
    """Global model [D] after each round. Full availability, MSE, averaging by windows."""
    refuse_unknown(fleet, method, training)
    run = PlainRun(fleet, model, method, training, seed)
    for t in range(training.rounds):
        yield run.advance(t)


class PlainRun:
    """One seed of a training: the global model and what each vehicle remembers of its probe."""

    def __init__(
        self, fleet: Fleet, model: Model, method: Method, training: Training, seed: int
    ) -> None:
        self.fleet = fleet
        self.model = model
        self.training = training
        self.seed = seed
        self.rules = {type(rule): rule for rule in method.local}
        self.dtype = getattr(torch, training.precision)
        self.weights = model.initial(generator(seed, "initial model")).to(self.dtype)
        self.probes: dict[str, tuple[int, float]] = {}
        """Vehicle → (round of its last probe, the roughness index found)."""

    def advance(self, t: int) -> Tensor:
        """The global model [D] after round t: w + Σ_k n_k / n_t · (w_k - w)."""
        everyone = np.ones(len(self.fleet.clients), dtype=bool)
        called = participants(self.seed, t, everyone, self.training.participation)
        clients = [self.fleet.clients[k] for k in called]
        n_t = sum(len(client.ends["train"]) for client in clients)
        total = torch.zeros(len(self.weights), dtype=torch.float64)
        for client in clients:
            moved = self.train_vehicle(client, t).double() - self.weights.double()
            total += len(client.ends["train"]) / n_t * moved
        self.weights = (self.weights.double() + total).to(self.dtype)
        return self.weights

    def train_vehicle(self, client: Client, t: int) -> Tensor:
        """w_k [D]: p ⊙ (∇loss + μ (w - w_t)) in every step, with p = 1 in the first."""
        mu = self.pull(client, t)
        gate = self.gate()
        fractional = self.rules.get(Fractional)
        eta = scheduled(self.training.learning_rate, self.training.schedule, t)
        module = torch_module(self.model, self.weights)
        anchor = [p.detach().clone() for p in module.parameters()]
        previous = [p.detach().clone() for p in module.parameters()]
        for step, (windows, labels) in enumerate(self.batches(client, t)):
            loss = ((module(windows) - labels) ** 2).mean()
            module.zero_grad()
            loss.backward()
            with torch.no_grad():
                for p, w_t, before in zip(module.parameters(), anchor, previous, strict=True):
                    assert p.grad is not None
                    direction = p.grad + mu * (p - w_t)
                    if isinstance(fractional, Fractional) and step > 0:
                        direction = direction * _scale(fractional, p - before, gate)
                    before.copy_(p)
                    p.sub_(eta * direction)
        return flat_weights(self.model, list(module.parameters()))

    def pull(self, client: Client, t: int) -> float:
        """μ: that of FedProx, and λ_t · r(index) of a vehicle's roughness."""
        mu = 0.0
        fixed = self.rules.get(Proximal)
        if isinstance(fixed, Proximal):
            mu = fixed.mu
        rule = self.rules.get(RoughnessProximal)
        if not isinstance(rule, RoughnessProximal):
            return mu
        probed_in, index = self.probes.get(client.name, (-1, nan))
        if probed_in < 0 or t - probed_in >= rule.probe_every:
            index = _probe(client, self.model, rule, self.seed, t, self.weights)
            self.probes[client.name] = (t, index)
        r = index / (index + rule.tau_i)
        if rule.response == "clipped":
            r = min(max(index, rule.i_min), rule.i_max)
        return mu + scheduled(rule.lam, rule.lam_schedule, t) * r

    def gate(self) -> float:
        """1 + β_κ κ of the broadcast model, κ = σ_max / ‖W‖_F by a whole decomposition."""
        rule = self.rules.get(Fractional)
        if not isinstance(rule, Fractional) or rule.beta_kappa == 0:
            return 1.0
        matrix = self.model.layout.split(self.weights)[rule.matrix or self.model.spectral_matrix]
        values = torch.linalg.svdvals(matrix.double())
        return 1 + rule.beta_kappa * float(values[0] / values.norm())

    def batches(self, client: Client, t: int) -> Iterator[tuple[Tensor, Tensor]]:
        """(windows, labels) of each step of a vehicle's round."""
        count = len(client.ends["train"])
        steps = self.training.steps or self.training.epochs * -(-count // self.training.batch)
        size = self.training.batch
        for row in Draw(self.seed, t, client.name, windows=count, end=steps, batch=size).order():
            yield gathered(client, row[row >= 0], self.dtype)


def _scale(rule: Fractional, moved: Tensor, gate: float) -> Tensor:
    """p for a displacement: (|moved| + δ)^(1-α) / Γ(2-α), gated and clipped."""
    p = (moved.abs() + rule.delta) ** (1 - rule.alpha) / gamma(2 - rule.alpha)
    if rule.order == "gate-then-clip":
        return (p / gate).clamp(rule.p_min, rule.p_max)
    return p.clamp(rule.p_min, rule.p_max) / gate


def gathered(
    client: Client, index: NDArray[np.integer], dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """(windows [batch, window, features], labels [batch]) of a vehicle's training windows."""
    ends = client.ends["train"][index]
    windows = np.stack([client.series[end - client.window + 1 : end + 1] for end in ends])
    labels = client.labels["train"][index]
    return torch.from_numpy(windows).to(dtype), torch.from_numpy(labels).to(dtype)


def _probe(
    client: Client, model: Model, rule: RoughnessProximal, seed: int, t: int, broadcast: Tensor
) -> float:
    count = len(client.ends["train"])
    rng = generator(seed, "probe batch", t, client.name)
    chosen = rng.choice(count, size=min(rule.probe_batch, count), replace=False)
    windows, labels = gathered(client, chosen, torch.float64)
    normal = generator(seed, "probe directions", t).standard_normal(
        (rule.directions, len(broadcast))
    )
    module = torch_module(model, broadcast.double())
    variation = []
    for direction in normal:
        unit = torch.from_numpy(direction / np.linalg.norm(direction))
        slice_ = []
        for j in range(rule.points + 1):
            s = -rule.radius + 2 * rule.radius * j / rule.points
            load(module, model, broadcast.double() + s * unit)
            with torch.no_grad():
                slice_.append(float(((module(windows) - labels) ** 2).mean()))
        amplitude = max(slice_) - min(slice_) + rule.epsilon_a
        variation.append(np.abs(np.diff(slice_)).sum() / (2 * rule.radius * amplitude))
    return float(np.std(variation) / (np.mean(variation) + rule.epsilon_t))
