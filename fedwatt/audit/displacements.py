"""What a displacement Δ gives away: windows, membership, and one vehicle's Δ out of two sums.

Inversion: the first layer's gradient of one window is δ xᵀ and its bias' is δ, so their quotient is
the window (Phong et al., 2018), and for several windows a mean of them. Meerza et al., TS-Inverse
(2025), match gradients of time-series regressors by descent; started from that quotient it is the
refinement here. Membership: a window that was trained on moves the model along its own gradient
(Nasr et al., S&P 2019). Differencing: a server that asks for a round twice, the second time without
one vehicle, under another name. The policy refuses a Δ of few windows, but the Δ of n + 1 windows
and that of n would give the last window's:

    (n + 1) Δ_{n+1} - n Δ_n = -η ∇ℓ(x_{n+1})                          from four sums

Vehicles with the default policy hide their replies, so that every sum is asked for again and again
(`hidden_sums`). That they also draw their own batches is left out here, which favours the server.

What fleets these were measured on is said beside the figures in docs/privacy.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.audit import levels
from fedwatt.audit.hidden_sums import differenced
from fedwatt.audit.victims import FloatArray, Victims, explained, windows_at, windows_of
from fedwatt.deploy.policy import Policy
from fedwatt.privacy.fixed_point import add_up

RATE, BATCH = 0.05, 64
LIMIT = 16.0
"""Of a coordinate of Δ in a secure sum."""
PAIRS = Policy().answers_a_day // 2
"""Of sums, with the victim and without it, that a day has at most."""
REFINEMENTS = 150
MOST_STEPS = 300
"""Of a vehicle's epoch, where membership is attacked."""


@dataclass(frozen=True, eq=False)
class Displacements:
    """Δ of every vehicle after a few steps from the same model."""

    victims: Victims
    batch: int
    steps: int
    sent: Tensor | None = None
    """The model that the server made for the attack, [D]; None: an honest one."""

    @cached_property
    def start(self) -> Tensor:
        """w, [D]."""
        if self.sent is not None:
            return self.sent
        return self.victims.model.initial(self.victims.rng("start")).float()

    def of(self, vehicle: int) -> Tensor:
        """Δ_k [D], by plain steps on windows drawn at random."""
        client = self.victims.fleet.clients[vehicle]
        labels = torch.from_numpy(client.labels["train"])
        weights = self.start.clone()
        for chosen in np.split(self.drawn(vehicle), self.steps):
            windows = windows_at(client, client.ends["train"][chosen])
            weights = weights - RATE * self.gradient(weights, windows, labels[chosen])
        return weights - self.start

    def drawn(self, vehicle: int) -> NDArray[np.int64]:
        """Places of the training windows of a vehicle's steps, [steps · batch]."""
        rng = np.random.default_rng([self.victims.seed, vehicle])
        order = rng.permutation(len(self.victims.fleet.clients[vehicle].ends["train"]))
        return order[np.arange(self.steps * self.batch) % len(order)]

    def gradient(
        self, weights: Tensor, windows: Tensor, labels: Tensor, *, twice: bool = False
    ) -> Tensor:
        """Of the mean squared error on flat windows [B, window · features], [D].

        One that can be differentiated `twice` depends on windows and labels.
        """
        own, model = weights.clone().requires_grad_(), self.victims.model
        shaped = windows.view(len(windows), self.victims.client.window, -1)
        loss = (model.predict(own, shaped) - labels).square().mean()
        return torch.autograd.grad(loss, own, create_graph=twice)[0]

    @cached_property
    def all(self) -> list[Tensor]:
        """Δ of every vehicle, the same number of windows each."""
        return [self.of(vehicle) for vehicle in range(len(self.victims.fleet.clients))]

    def total(self, vehicles: Sequence[int], noise: float, draw: str) -> Tensor:
        """Σ Δ_k over some vehicles, with noise of z times the longest of all; `draw` names it."""
        total = _sum([self.all[k] for k in vehicles])
        # A clip norm that shortens nobody's Δ.
        longest = max(float(own.norm()) for own in self.all)
        drawn = torch.from_numpy(self.victims.rng(draw).standard_normal(len(total)))
        return total + noise * longest * drawn

    def seen(self, level: str, pairs: int = PAIRS) -> Tensor:
        """What the server makes of the victim's Δ [D] at a level; of `pairs` of hidden sums."""
        mine = self.all[self.victims.victim]
        if level == levels.PLAIN:
            return mine
        if level == levels.POLICY:
            rng = self.victims.rng(f"hiding {self.batch}")
            return differenced(torch.stack(self.all), self.victims.victim, pairs, rng)
        noise = self.victims.noise if level == levels.NOISE else 0.0
        everybody = self.total(range(len(self.all)), noise, f"all {self.batch}")
        if level == levels.CURIOUS:
            return everybody / len(self.all)
        return everybody - self.total(self.victims.others, noise, f"others {self.batch}")


def _sum(deltas: list[Tensor]) -> Tensor:
    """Σ Δ_k as a secure sum has it."""
    fields = {"delta": (len(deltas[0]), LIMIT)}
    answers = ({"delta": own.double().numpy()} for own in deltas)
    return torch.from_numpy(add_up(fields, len(deltas), answers)["delta"])


def inverted(seen: Displacements, delta: Tensor) -> FloatArray:
    """A window [window · features] from Δ of one step."""
    parts = seen.victims.model.layout.split(delta.double())
    weight, bias = parts["hidden1.weight"], parts["hidden1.bias"]
    unit = int(bias.abs().argmax())
    quotient = (weight[:, unit] / bias[unit]).numpy() if bias[unit] else np.zeros(len(weight))
    guess = torch.from_numpy(np.clip(np.nan_to_num(quotient), -10, 10)).float().requires_grad_()
    label = torch.zeros(1, requires_grad=True)
    wanted = -delta.float() / RATE
    optimiser = torch.optim.Adam([guess, label], lr=0.01)
    best, found = np.inf, guess.detach().clone()
    for _ in range(REFINEMENTS):
        gradient = seen.gradient(seen.start, guess[None], label, twice=True)
        distance = (gradient - wanted).abs().sum() / wanted.abs().sum()
        if float(distance.detach()) < best:
            best, found = float(distance.detach()), guess.detach().clone()
        optimiser.zero_grad()
        distance.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return found.double().numpy()


def inversion(victims: Victims, at: tuple[str, ...], *, batch: int, steps: int) -> dict[str, float]:
    """Share of the victim's best-matching training window that each level gives away."""
    seen = Displacements(victims, batch, steps)
    drawn = victims.client.ends["train"][np.unique(seen.drawn(victims.victim))]
    true = windows_at(victims.client, drawn).double().numpy()
    scores = {level: _best(inverted(seen, seen.seen(level)), true) for level in at}
    others = [windows_of(victims.fleet.clients[k], "train", 500) for k in victims.others]
    return scores | {levels.GUESS: _best(torch.cat(others).double().mean(dim=0).numpy(), true)}


def inversion_of_one(victims: Victims) -> dict[str, float]:
    """Share of a single training window that each level gives away.

    Without a policy it is asked for by itself; with one, by the Δ of its fewest windows and of one
    window more.
    """
    unhidden = (levels.PLAIN, levels.CURIOUS, levels.MASKS)
    scores = inversion(victims, unhidden, batch=1, steps=1)
    few = min(Policy().fewest_trained, len(victims.client.ends["train"]) - 1)
    less, more = Displacements(victims, few, 1), Displacements(victims, few + 1, 1)
    last = victims.client.ends["train"][more.drawn(victims.victim)[-1:]]
    true = windows_at(victims.client, last).double().numpy()
    for level in (levels.POLICY, levels.NOISE):
        # Half a day for each of the two.
        one, other = (seen.seen(level, PAIRS // 2).double() for seen in (more, less))
        delta = (few + 1) * one - few * other
        scores[level] = _best(inverted(more, delta), true)
    return scores


def _best(found: FloatArray, true: FloatArray) -> float:
    return max(explained(found, own) for own in true)


def membership(victims: Victims, at: tuple[str, ...], *, windows: int) -> dict[str, float]:
    """Area under the curve of telling trained windows from others of the victim; 0.5 is a guess."""
    steps = max(1, min(MOST_STEPS, len(victims.client.ends["train"]) // BATCH))
    seen = Displacements(victims, BATCH, steps)
    client = victims.client
    gradients = []
    for split in ("train", "test"):
        ends, labels = client.ends[split], torch.from_numpy(client.labels[split])
        chosen = victims.rng(split).choice(len(ends), min(windows, len(ends)), replace=False)
        rows = windows_at(client, ends[chosen])
        gradients.append(
            [
                seen.gradient(seen.start, rows[[place]], labels[[k]]).double()
                for place, k in enumerate(chosen)
            ]
        )
    scores = {}
    for level in at:
        delta = seen.seen(level).double()
        inside, outside = ([-float(g @ delta / g.norm()) for g in own] for own in gradients)
        wins = np.mean([[a > b for b in outside] for a in inside])
        scores[level] = float(wins)
    return scores | {levels.GUESS: 0.5}


def differencing(victims: Victims, *, steps: int) -> dict[str, float]:
    """‖Δ̂ - Δ_u‖ / ‖Δ_u‖ of the victim's reply; a guess of 0 is off by 1.

    A curious server guesses the fleet's mean: what is off by less says more of the victim.
    """
    seen = Displacements(victims, BATCH, steps)
    mine = seen.all[victims.victim].double()

    def missed(found: Tensor) -> float:
        return float((found.double() - mine).norm() / mine.norm())

    found = {level: missed(seen.seen(level)) for level in levels.LEVELS}
    return found | {levels.GUESS: 1.0}
