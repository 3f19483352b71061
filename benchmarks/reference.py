"""A plain federation, one vehicle at a time: what the stacked engine must agree with and outrun.

Ordinary `torch.nn` modules, ordinary autograd, a loop over vehicles, batches and tensors, and every
formula written out once more without regard to speed. It shares only the random draws with the
engine, so that both train on the same participants and batches.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import gamma, nan
from statistics import median
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from fedwatt.data import Client, Fleet
from fedwatt.engine.batches import Draw
from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.federation.participation import participants
from fedwatt.methods import Fractional, Method, Proximal, RoughnessProximal, get
from fedwatt.methods.rule import LocalRule
from fedwatt.methods.schedule import scheduled
from fedwatt.methods.server import Average
from fedwatt.models import GRU, LSTM, MLP, Model, get_model
from fedwatt.randomness import generator

KNOWN: Final[tuple[type[LocalRule], ...]] = (Proximal, RoughnessProximal, Fractional)
"""The local rules written out here."""


class Recurrent(nn.Module):
    """torch.nn.GRU or LSTM with a linear head on its last output."""

    def __init__(self, model: GRU | LSTM) -> None:
        super().__init__()
        kind = nn.GRU if isinstance(model, GRU) else nn.LSTM
        self.layer = kind(model.features, model.hidden, batch_first=True)
        self.out = nn.Linear(model.hidden, 1)

    def forward(self, windows: Tensor) -> Tensor:
        """[batch, window, features] to [batch]."""
        out: Tensor = self.out(self.layer(windows)[0][:, -1])
        return out.squeeze(-1)


def torch_module(model: Model, weights: Tensor) -> nn.Module:
    """The same network from torch.nn with the same weights [D]."""
    module: nn.Module
    if isinstance(model, MLP):
        widths = (model.window * model.features, *model.hidden)
        layers: list[nn.Module] = [nn.Flatten()]
        for fan_in, fan_out in pairwise(widths):
            layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
        module = nn.Sequential(*layers, nn.Linear(widths[-1], 1), nn.Flatten(0))
    elif isinstance(model, GRU | LSTM):
        module = Recurrent(model)
    else:
        raise SettingError(f"The reference knows MLP, GRU and LSTM, not {type(model).__name__}.")
    module = module.to(weights.dtype)
    _load(module, model, weights)
    return module


def _load(module: nn.Module, model: Model, weights: Tensor) -> None:
    """Put `weights` [D] into the parameters of `module`."""
    parts = model.layout.split(weights)
    with torch.no_grad():
        for name, parameter in zip(_torch_order(model), module.parameters(), strict=True):
            parameter.copy_(parts[name].mT if parameter.dim() == 2 else parts[name])


def flat_weights(model: Model, tensors: Sequence[Tensor]) -> Tensor:
    """Tensors in torch.nn's order and orientation as the model's flat vector [D]."""
    named = dict(zip(_torch_order(model), tensors, strict=True))
    parts = [
        named[name].mT if named[name].dim() == 2 else named[name] for name in model.layout.shapes
    ]
    return torch.cat([part.detach().flatten() for part in parts])


def _torch_order(model: Model) -> list[str]:
    if isinstance(model, MLP):
        return list(model.layout.shapes)
    first = ["input.weight", "recurrent.weight", "input.bias", "recurrent.bias"]
    return [*first, "output.weight", "output.bias"]


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
        known = ", ".join(rule.__name__ for rule in KNOWN)
        raise SettingError(
            f"The plain reference of '{method.name}' would leave out {' and '.join(unknown)}: "
            f"it knows the local rules {known}, averaging by windows and MSE, with all vehicles "
            "training. Choose a method such as 'fedavg' or 'fo-ri-fedavg'."
        )


def train_plainly(
    fleet: Fleet, model: Model, method: Method, training: Training, seed: int
) -> Iterator[Tensor]:
    """Global model [D] after each round. Full availability, MSE, averaging by windows."""
    refuse_unknown(fleet, method, training)
    dtype = getattr(torch, training.precision)
    weights = model.initial(generator(seed, "initial model")).to(dtype)
    remembered: dict[str, tuple[int, float]] = {}
    everyone = np.ones(len(fleet.clients), dtype=bool)
    for t in range(training.rounds):
        total = torch.zeros(len(weights), dtype=torch.float64)
        called = participants(seed, t, everyone, training.participation)
        n_t = sum(len(fleet.clients[k].ends["train"]) for k in called)
        for k in called:
            client = fleet.clients[k]
            local = _train_vehicle(client, model, method, training, seed, t, weights, remembered)
            total += len(client.ends["train"]) / n_t * (local.double() - weights.double())
        weights = (weights.double() + total).to(dtype)
        yield weights


def _train_vehicle(
    client: Client,
    model: Model,
    method: Method,
    training: Training,
    seed: int,
    t: int,
    broadcast: Tensor,
    remembered: dict[str, tuple[int, float]],
) -> Tensor:
    rules = {type(rule): rule for rule in method.local}
    mu = 0.0
    if Proximal in rules:
        mu = rules[Proximal].mu  # type: ignore[attr-defined]
    if RoughnessProximal in rules:
        rule = rules[RoughnessProximal]
        assert isinstance(rule, RoughnessProximal)
        probed_in, index = remembered.get(client.name, (-1, nan))
        if probed_in < 0 or t - probed_in >= rule.probe_every:
            index = _probe(client, model, rule, seed, t, broadcast)
            remembered[client.name] = (t, index)
        r = index / (index + rule.tau_i)
        if rule.response == "clipped":
            r = min(max(index, rule.i_min), rule.i_max)
        mu += scheduled(rule.lam, rule.lam_schedule, t) * r
    fractional = rules.get(Fractional)
    gate = 1.0
    if isinstance(fractional, Fractional) and fractional.beta_kappa > 0:
        matrix = model.layout.split(broadcast)[fractional.matrix or model.spectral_matrix]
        values = torch.linalg.svdvals(matrix.double())
        gate = 1 + fractional.beta_kappa * float(values[0] / values.norm())

    eta = scheduled(training.rate, training.schedule, t)
    module = torch_module(model, broadcast)
    anchor = [p.detach().clone() for p in module.parameters()]
    previous = [p.detach().clone() for p in module.parameters()]
    for step, (windows, labels) in enumerate(_batches(client, training, seed, t)):
        loss = ((module(windows) - labels) ** 2).mean()
        module.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p, w_t, before in zip(module.parameters(), anchor, previous, strict=True):
                assert p.grad is not None
                direction = p.grad + mu * (p - w_t)
                if isinstance(fractional, Fractional) and step > 0:
                    scale = (p - before).abs() + fractional.delta
                    scale = scale ** (1 - fractional.alpha) / gamma(2 - fractional.alpha)
                    if fractional.order == "gate-then-clip":
                        scale = (scale / gate).clamp(fractional.p_min, fractional.p_max)
                    else:
                        scale = scale.clamp(fractional.p_min, fractional.p_max) / gate
                    direction = direction * scale
                before.copy_(p)
                p.sub_(eta * direction)
    return flat_weights(model, list(module.parameters()))


def _batches(
    client: Client, training: Training, seed: int, t: int
) -> Iterator[tuple[Tensor, Tensor]]:
    count = len(client.ends["train"])
    steps = training.steps or training.epochs * -(-count // training.batch)
    draw = Draw(seed, t, client.name, windows=count, end=steps, batch=training.batch)
    for row in draw.order():
        yield _gather(client, row[row >= 0], getattr(torch, training.precision))


def _gather(client: Client, index: np.ndarray, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    ends = client.ends["train"][index]
    windows = np.stack([client.series[end - client.window + 1 : end + 1] for end in ends])
    return torch.from_numpy(windows).to(dtype), torch.from_numpy(client.labels["train"][index]).to(
        dtype
    )


def _probe(
    client: Client, model: Model, rule: RoughnessProximal, seed: int, t: int, broadcast: Tensor
) -> float:
    count = len(client.ends["train"])
    rng = generator(seed, "probe batch", t, client.name)
    chosen = rng.choice(count, size=min(rule.probe_batch, count), replace=False)
    windows, labels = _gather(client, chosen, torch.float64)
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
            _load(module, model, broadcast.double() + s * unit)
            with torch.no_grad():
                slice_.append(float(((module(windows) - labels) ** 2).mean()))
        amplitude = max(slice_) - min(slice_) + rule.epsilon_a
        variation.append(np.abs(np.diff(slice_)).sum() / (2 * rule.radius * amplitude))
    return float(np.std(variation) / (np.mean(variation) + rule.epsilon_t))


@dataclass(frozen=True)
class Comparison:
    """Seconds for the same work, done both ways in one process."""

    method: str
    stacked_s: float
    plain_s: float

    @property
    def ratio(self) -> float:
        """Stacked time as a share of the plain loop's."""
        return self.stacked_s / self.plain_s


def bench_reference(
    fleet: Fleet, methods: Sequence[str], *, rounds: int, seeds: Sequence[int], repeats: int = 3
) -> list[Comparison]:
    """Train each method `repeats` times with both engines, in turn; medians.

    Neither is evaluated after its rounds: this is about training.
    """
    model = get_model("mlp", window=fleet.window, features=len(fleet.features))
    training = Training(rounds=rounds, evaluate_every=rounds)
    federation = Federation(fleet, model, training=training, seeds=seeds, device="cpu")
    for name in methods:
        refuse_unknown(fleet, get(name), training)
    results = []
    for name in methods:
        stacked, plain = [], []
        for _ in range(repeats):
            stacked.append(_stacked_seconds(federation, get(name)))
            plain.append(_plain_seconds(federation, get(name)))
        results.append(Comparison(name, median(stacked), median(plain)))
    return results


def _stacked_seconds(federation: Federation, method: Method) -> float:
    state, _ = federation.start(method)
    seconds = 0.0
    while not federation.finished(state):
        begin = time.perf_counter()
        state, record = federation.advance(method, state)
        # All of it, also what no section counts, as in the plain loop.
        seconds += time.perf_counter() - begin - record.seconds["evaluation"]
    return seconds


def _plain_seconds(federation: Federation, method: Method) -> float:
    begin = time.perf_counter()
    for seed in federation.seeds:
        for _ in train_plainly(
            federation.fleet, federation.model, method, federation.training, seed
        ):
            pass
    return time.perf_counter() - begin
