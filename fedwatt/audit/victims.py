"""The fleet under attack, and the vehicle of it that is attacked.

Masks cancel out in a sum, so sums are made here as they are decoded, to the last bit (`add_up`);
what a policy refuses is refused by `deploy.guard`, and tests hold the two to each other. Most
figures are measured on the fleet that is given. Those that follow from what a level is (`levels`),
without a measurement, are named in `card.SET`.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.federation import LocalFleet, Training
from fedwatt.federation.settings import Availability
from fedwatt.federation.terms import Terms
from fedwatt.methods.rule import Rows
from fedwatt.models import Model
from fedwatt.windows import Client, Fleet

FloatArray = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Victims:
    """A fleet, and the vehicle of it that is attacked."""

    fleet: Fleet
    victim: int = 0
    seed: int = 1
    noise: float = 1.0
    """z: noise on a sum of Δ has z times the length of the longest as its standard deviation."""

    @property
    def client(self) -> Client:
        """The vehicle that is attacked."""
        return self.fleet.clients[self.victim]

    @cached_property
    def model(self) -> Model:
        """The default model for the fleet's windows."""
        return self.local().model

    def local(
        self, vehicles: tuple[int, ...] | None = None, training: Training | None = None
    ) -> LocalFleet:
        """Some vehicles (all by default), to train and to judge models."""
        chosen = self.fleet.clients if vehicles is None else [
            self.fleet.clients[k] for k in vehicles
        ]  # fmt: skip
        fleet = replace(self.fleet, clients=tuple(chosen), mapped=None)
        terms = Terms(training or Training(), Availability(), (self.seed,))
        return LocalFleet(fleet, "mlp", terms, device="cpu")

    def only_window(self) -> LocalFleet:
        """The victim with a single test window, as strides chosen by a server can leave it."""
        return replace_client(self.local((self.victim,)), 0)

    def with_only_window(self) -> LocalFleet:
        """The whole fleet, the victim with a single test window."""
        return replace_client(self.local(), self.victim)

    @property
    def others(self) -> tuple[int, ...]:
        """All vehicles but the victim."""
        return tuple(k for k in range(len(self.fleet.clients)) if k != self.victim)

    def rng(self, purpose: str) -> np.random.Generator:
        """Draws of the attacker's and of the noise."""
        return np.random.default_rng([self.seed, *purpose.encode()])


def replace_client(local: LocalFleet, place: int) -> LocalFleet:
    """The same vehicles, the one at `place` with its first test window alone."""
    client = local.fleet.clients[place]
    ends = {**client.ends, "test": client.ends["test"][:1]}
    labels = {**client.labels, "test": client.labels["test"][:1]}
    strata = {kind: (names, codes[:1]) for kind, (names, codes) in client.strata.items()}
    known = {split: own[:1] if split == "test" else own for split, own in client.known.items()}
    one = replace(client, ends=ends, labels=labels, strata=strata, known=known)
    clients = (*local.fleet.clients[:place], one, *local.fleet.clients[place + 1 :])
    fleet = replace(local.fleet, clients=clients, mapped=None)
    return LocalFleet(fleet, local.model, local.terms, device="cpu")


def blank(model: Model) -> tuple[Tensor, Rows, list[str], str]:
    """Weights [D] of 0, their parts by name, and the names of the hidden layers and the last."""
    flat = torch.zeros(model.layout.size)
    parts = model.layout.split(flat)
    layers = [name.removesuffix(".weight") for name in parts if name.endswith(".weight")]
    return flat, parts, layers[:-1], layers[-1]


def windows_of(client: Client, split: str, most: int = 0) -> Tensor:
    """Scaled windows [W, window · features] of a vehicle; the first `most` if given."""
    return windows_at(client, client.ends[split][: most or None])


def windows_at(client: Client, ends: NDArray[np.int64]) -> Tensor:
    """Scaled windows [W, window · features] that end at the rows `ends` of a vehicle's series."""
    rows = [client.series[end - client.window + 1 : end + 1].ravel() for end in ends]
    return torch.from_numpy(np.stack(rows))


def explained(found: FloatArray, true: FloatArray) -> float:
    """Share of the variance about 0 that is recovered, 1 - Σ(x̂ - x)² / Σx²; not below 0.

    Scaled features have mean 0, so 0 is what a guess without messages scores.

    >>> explained(np.array([1.0, 2.0]), np.array([1.0, 2.0])), explained(np.zeros(2), np.ones(2))
    (1.0, 0.0)
    """
    missed = float(np.square(found - true).sum())
    return max(0.0, 1 - missed / float(np.square(true).sum())) if np.isfinite(missed) else 0.0
