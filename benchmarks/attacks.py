"""Attacks on what leaves a vehicle under a plan: what each gains, on the built-in synthetic fleet.

    python -m benchmarks.attacks             measures and writes results/attacks.json; minutes
    python -m benchmarks.attacks --record    puts the record on docs/privacy.md

The attacker is the server. It chooses the weights that it sends; windows, steps and the number of
rounds are the plan's. Levels:

    reply        a single vehicle's reply, as under a plan without secure aggregation
    sum          the sum over all vehicles, by secure aggregation
    difference   two such sums of two rounds, with the victim and without
    noise        the difference in a private method, z = 1
    guess        the sum over the other vehicles, which holds nothing of the victim

Masks cancel out in a sum, so sums are made here as they are decoded, to the last bit (`add_up`).
"""

import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil, inf, sqrt
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.machine import machine
from benchmarks.marked import write_blocks
from fedwatt.deploy.server.limits import capped, shortened
from fedwatt.deploy.vehicle.answers import AFTER_LAST, MOST_SET_CHANGES
from fedwatt.federation import Federation, Loop, State, Training
from fedwatt.federation.evaluate import EVALUATION, evaluation_values
from fedwatt.federation.participation import Present
from fedwatt.federation.simulated import SimulatedBackend
from fedwatt.federation.work import Work
from fedwatt.files import write_text
from fedwatt.methods import Method, get
from fedwatt.metrics import Stopwatch
from fedwatt.metrics.sums import add_up
from fedwatt.models import Model
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.runs.config import Deployment
from fedwatt.synthetic import synthetic_fleet, synthetic_vehicles
from fedwatt.telemetry import Vehicle
from fedwatt.windows import Fleet

ROOT: Final = Path(__file__).parents[1]
RESULT: Final = ROOT / "results" / "attacks.json"
PAGE: Final = ROOT / "docs" / "privacy.md"
LEVELS: Final = ("reply", "sum", "difference", "noise", "guess")
VICTIMS: Final = 3
"""Vehicles over which figures are means."""
ROUNDS: Final = Training().rounds
EVALUATIONS: Final = ROUNDS + AFTER_LAST + 1
"""Of one plan and method, round 0 included."""
LEARNING_RATE: Final = 0.05
BATCH: Final = 64
STEPS: Final = 30
LIMIT: Final = SecureSettings().delta_limit
BIAS: Final = 30.0
SLOPE: Final = 1e-3
LIFT: Final = 32.0
"""Keeps crafted units positive."""
CELL_DEGREES: Final = 0.001
KM_PER_DEGREE: Final = 111.2
FloatArray = NDArray[np.float64]
Nodes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Target:
    """A fleet, the vehicle of it that is attacked, and the weights that the server sends."""

    fleet: Fleet
    victim: int
    crafted: Tensor | None = None
    """[D]; None: those of an honest first round."""

    @cached_property
    def local(self) -> Federation:
        """Return all vehicles, to evaluate models."""
        return Federation(self.fleet, device="cpu")

    @property
    def model(self) -> Model:
        """Return the default model."""
        return self.local.model

    @cached_property
    def sent(self) -> Tensor:
        """Return the weights that vehicles train, [D]."""
        rng = np.random.default_rng(1)
        return self.model.initial(rng).float() if self.crafted is None else self.crafted

    @cached_property
    def members(self) -> dict[str, list[int]]:
        """Return the vehicles of the two sums of a difference."""
        everyone = list(range(len(self.fleet.clients)))
        return {"with": everyone, "without": [k for k in everyone if k != self.victim]}

    def windows(self, vehicle: int, split: str = "train") -> Tensor:
        """Return the windows that a vehicle trains on, [STEPS · BATCH, inputs], or evaluates."""
        client = self.fleet.clients[vehicle]
        ends = client.ends[split]
        if split == "train":
            order = np.random.default_rng(vehicle).permutation(len(ends))
            ends = ends[order[np.arange(STEPS * BATCH) % len(ends)]]
        rows = [client.series[end - client.window + 1 : end + 1].ravel() for end in ends]
        return torch.from_numpy(np.stack(rows))

    def labels(self, vehicle: int) -> Tensor:
        """Return the labels of `windows`."""
        labels = self.fleet.clients[vehicle].labels["train"]
        order = np.random.default_rng(vehicle).permutation(len(labels))
        return torch.from_numpy(labels[order[np.arange(STEPS * BATCH) % len(labels)]])

    def gradient(self, weights: Tensor, windows: Tensor, labels: Tensor) -> Tensor:
        """Return the gradient of the mean squared error, [D]."""
        weights = weights.clone().requires_grad_()
        shaped = windows.view(len(windows), self.fleet.window, -1)
        loss = (self.model.predict(weights, shaped) - labels).square().mean()
        return torch.autograd.grad(loss, weights)[0]

    @cached_property
    def deltas(self) -> list[Tensor]:
        """Return Δ_k of every vehicle after the steps of one round."""
        deltas = []
        for vehicle in range(len(self.fleet.clients)):
            weights = self.sent.clone()
            batches = zip(
                torch.split(self.windows(vehicle), BATCH),
                torch.split(self.labels(vehicle), BATCH),
                strict=True,
            )
            for windows, labels in batches:
                weights -= LEARNING_RATE * self.gradient(weights, windows, labels)
            deltas.append(weights - self.sent)
        return deltas

    def total(self, members: str, noise: float = 0.0) -> Tensor:
        """Return Σ Δ_k as a secure sum has it, with noise of z times the longest Δ_k."""
        deltas = [self.deltas[k] for k in self.members[members]]
        values = [{"delta": delta.double().numpy()} for delta in deltas]
        total = add_up({"delta": (len(deltas[0]), LIMIT)}, len(deltas), values)["delta"]
        longest = max(float(delta.norm()) for delta in self.deltas)
        rng = np.random.default_rng([2, *members.encode()])
        return torch.from_numpy(total + noise * longest * rng.standard_normal(len(total)))

    def seen(self, level: str) -> Tensor:
        """Return the server's best estimate of the victim's Δ, [D]."""
        if level == "reply":
            return self.deltas[self.victim].double()
        if level == "sum":
            return self.total("with") / len(self.deltas)
        if level == "guess":
            return self.total("without") / len(self.members["without"])
        noise = 1.0 if level == "noise" else 0.0
        return self.total("with", noise) - self.total("without", noise)


def explained(estimate: FloatArray, true: FloatArray) -> float:
    """Return the share of the variance about 0 that is recovered; scaled features have mean 0.

    >>> explained(np.array([1.0, 2.0]), np.array([1.0, 2.0])), explained(np.zeros(2), np.ones(2))
    (1.0, 0.0)
    """
    missed = float(np.square(estimate - true).sum())
    return max(0.0, 1 - missed / float(np.square(true).sum())) if np.isfinite(missed) else 0.0


def blank(model: Model) -> tuple[Tensor, dict[str, Tensor], list[str]]:
    """Return weights [D] of 0, their parts by name, and the names of the layers."""
    flat = torch.zeros(model.layout.size)
    parts = model.layout.split(flat)
    return flat, parts, [n.removesuffix(".weight") for n in parts if n.endswith(".weight")]


def crafted_evaluation(target: Target) -> dict[str, float]:
    """Read the mean of the victim's test windows through error sums of crafted models.

    One unit looks at input j, so a model predicts p = g x_j + b. Squared errors with g and with -g
    differ by 4 s g Σ_i x_ij (s b + r_i), with labels scaled by s and residuals r_i. Two evaluations
    read one input, and three the scale, so a plan's evaluations bound what is read.
    """
    true = target.windows(target.victim, "test").double().numpy().mean(axis=0)
    sums = {"reply": [target.victim], **target.members}

    def squared(weights: Tensor, vehicles: Sequence[int]) -> tuple[float, float]:
        test = target.local.evaluate(weights[None])[0].test
        values = [evaluation_values(test[k], test[k], 1) for k in vehicles]
        total = add_up(EVALUATION, len(values), values)
        return float(total["squared_wh2"][1]), float(total["windows"][1])

    def read(answer: Callable[[Tensor], tuple[float, float]], evaluations: int) -> FloatArray:
        (zero, count), (up, _), (down, _) = (
            answer(probe(target.model, None, bias)) for bias in (0.0, BIAS, -BIAS)
        )
        scale = sqrt(max((up + down - 2 * zero) / (2 * count * BIAS**2), 1e-12))
        residual = (up - down) / (4 * scale * BIAS * count)
        estimate = np.zeros(len(true))
        for place in range(max(0, evaluations - 3) // 2):
            more, less = (answer(probe(target.model, place, g))[0] for g in (1.0, -1.0))
            estimate[place] = (more - less) / (4 * scale * count * (scale * BIAS + residual))
        return estimate

    def difference(weights: Tensor) -> tuple[float, float]:
        with_victim = squared(weights, sums["with"])
        without = squared(weights, sums["without"])
        return with_victim[0] - without[0], with_victim[1] - without[1]

    scores = {
        "reply": explained(read(lambda w: squared(w, sums["reply"]), EVALUATIONS), true),
        "sum": explained(read(lambda w: squared(w, sums["with"]), EVALUATIONS), true),
        "difference": explained(read(difference, EVALUATIONS // 2), true),
        "guess": explained(read(lambda w: squared(w, sums["without"]), EVALUATIONS), true),
    }
    return scores | {"noise": scores["difference"]}  # errors carry no noise


def probe(model: Model, place: int | None, number: float) -> Tensor:
    """Return a model [D] that predicts number · x_place + BIAS, or `number` alone."""
    flat, parts, (first, *hidden, output) = blank(model)
    bias = number
    if place is not None:
        parts[f"{first}.weight"][place, 0] = 1.0
        parts[f"{first}.bias"][0] = LIFT
        for name in hidden:
            parts[f"{name}.weight"][0, 0] = 1.0
        parts[f"{output}.weight"][0, 0] = number
        bias = BIAS - number * LIFT
    parts[f"{output}.bias"][0] = bias
    return flat


def inversion(target: Target) -> dict[str, float]:
    """Read a training window from Δ: the first layer's update of a unit by that of its bias.

    Phong et al., 2018. For several windows the quotient is a mean of them; the score is that of the
    best of all units for the training window that it fits best.
    """
    true = target.windows(target.victim).double().numpy()
    scores = {}
    for level in LEVELS:
        parts = target.model.layout.split(target.seen(level))
        quotients = (parts["hidden1.weight"] / parts["hidden1.bias"]).numpy().T
        usable = [q for q in quotients if np.isfinite(q).all() and np.abs(q).max() < 10]
        scores[level] = max((_best(q, true) for q in usable), default=0.0)
    return scores


def _best(estimate: FloatArray, true: FloatArray) -> float:
    return max(explained(estimate, window) for window in true)


def imprint(target: Target) -> dict[str, float]:
    """Read the victim's fastest training window by weights made for it (Fowl et al., ICLR 2022).

    All units of the first layer look at the mean speed, each above its own threshold; the update of
    the highest unit that any window reaches, by that of its bias, is a mean of those windows.
    """
    flat, parts, (first, *hidden, output) = blank(target.model)
    client = target.fleet.clients[target.victim]
    speed = torch.zeros(client.window, len(client.features))
    speed[:, 0] = 1 / client.window
    parts[f"{first}.weight"][:] = speed.ravel()[:, None]
    parts[f"{first}.bias"][:] = -torch.linspace(-1.0, 4.0, parts[f"{first}.bias"].numel())
    for name in hidden:
        parts[f"{name}.weight"][:, 0] = 1.0
    parts[f"{output}.weight"][0, 0] = SLOPE
    parts[f"{output}.bias"][0] = BIAS
    attacked = replace(target, crafted=flat)

    def fastest(vehicle: int) -> FloatArray:
        windows = attacked.windows(vehicle)
        return windows[int((windows @ speed.ravel()).argmax())].double().numpy()

    true = fastest(target.victim)
    scores = {}
    for level in LEVELS:
        update = target.model.layout.split(attacked.seen(level))
        reached = np.flatnonzero(-update[f"{first}.bias"].numpy() > 1e-6)
        top = int(reached[-1]) if len(reached) else 0
        quotient = update[f"{first}.weight"][:, top] / update[f"{first}.bias"][top]
        scores[level] = explained(np.nan_to_num(quotient.numpy()), true)
    return scores


def membership(target: Target, windows: int = 100) -> dict[str, float]:
    """Tell trained windows from others of the victim (Nasr et al., S&P 2019); 0.5 is a guess."""
    client = target.fleet.clients[target.victim]
    labels = torch.from_numpy(client.labels["test"])
    trained = target.windows(target.victim)[:windows]
    unseen = target.windows(target.victim, "test")
    count = min(windows, len(unseen))
    pairs = [
        (trained, target.labels(target.victim)[:windows]),
        (unseen[:count], labels[:count]),
    ]
    gradients = [
        torch.stack([target.gradient(target.sent, rows[[n]], y[[n]]) for n in range(len(rows))])
        for rows, y in pairs
    ]
    scores = {}
    for level in LEVELS:
        delta = target.seen(level)
        inside, outside = (-(g.double() @ delta / g.double().norm(dim=1)) for g in gradients)
        scores[level] = float((inside[:, None] > outside[None]).double().mean())
    return scores


def home_position(vehicles: Sequence[Vehicle]) -> dict[str, float]:
    """Guess where vehicles live from counts of the nodes they drive; median distance in km.

    A sum counts the vehicles at each node, and the busiest node is the best guess. Two sums, with
    the victim and without, differ by its nodes; a plan allows `MOST_SET_CHANGES` such changes.
    """
    driven = []
    homes = []
    for vehicle in vehicles:
        cells = [_cells(trip.channels) for trip in vehicle.trips]
        driven.append(np.unique(np.concatenate(cells), axis=0))
        homes.append(np.array(Counter(tuple(trip[0]) for trip in cells).most_common(1)[0][0]))
    nodes, counts = np.unique(np.concatenate(driven), axis=0, return_counts=True)
    guesses = {
        "reply": [np.median(cells, axis=0) for cells in driven],
        "sum": [nodes[counts.argmax()]] * len(driven),
        "guess": [np.median(nodes, axis=0)] * len(driven),
    }
    guesses["difference"] = guesses["noise"] = guesses["reply"]
    return {
        level: float(np.median([_km(a, b) for a, b in zip(points, homes, strict=True)]))
        for level, points in guesses.items()
    }


def _cells(channels: Any) -> Nodes:
    points = np.stack([channels["latitude_deg"], channels["longitude_deg"]], axis=1)
    cells: Nodes = np.floor(points[np.isfinite(points).all(axis=1)] / CELL_DEGREES).astype(np.int64)
    return cells


def _km(guess: Any, home: Nodes) -> float:
    north, east = (np.asarray(guess, float) - home) * CELL_DEGREES * KM_PER_DEGREE
    return float(np.hypot(north, east * np.cos(np.radians(float(home[0]) * CELL_DEGREES))))


Lie = tuple[Callable[[Tensor], Tensor], float, float]
LIES: Final[dict[str, Lie]] = {
    "n_k = 4,000,000, Δ = 1": (torch.ones_like, 4e6, 0.0),
    "Δ = 1e30": (lambda delta: torch.full_like(delta, 1e30), 0.0, 0.0),
    "one sign flipped, 5 times as long": (lambda delta: -5 * delta, 0.0, 0.0),
    "a tenth flipped, 5 times as long": (lambda delta: -5 * delta, 0.0, 0.1),
}
"""The update of a malicious vehicle, its weight (0: its own), and the share of them (0: one)."""
LIMITS: Final = ("no limits", "single replies", "sums")


@dataclass(frozen=True)
class Poisoned(SimulatedBackend):
    """A simulated fleet some vehicles of which are malicious, behind the server's limits."""

    lie: Lie | None = None
    limits: str = LIMITS[0]

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """Return the round's updates as the server takes them in."""
        work = super().work(method, state, present, watch)
        if self.lie is None:
            return work
        change, weight, share = self.lie
        liars = range(max(1, ceil(share * len(present.members.population))))
        deltas = work.deltas.clone()
        weights = work.weights.copy()
        for row, call in enumerate(work.calls):
            if call.vehicle in liars:
                deltas[row] = change(deltas[row])
                weights[row] = weight or weights[row]
        counted = work.counted & deltas.isfinite().all(dim=-1).numpy()
        if self.limits == "single replies":
            sizes = [present.members.windows(int(k)) for k in present.members.population]
            deltas, _ = shortened(deltas, counted, Deployment().norm_bound)
            weights = capped(weights.tolist(), sizes, Deployment().weight_cap)
        elif self.limits == "sums":
            settings = SecureSettings()
            weights = np.minimum(weights, settings.windows_limit)
            deltas = deltas.clamp(-settings.delta_limit, settings.delta_limit)
            shares = torch.from_numpy(weights / weights.sum())
            if float((shares[:, None] * deltas.double()).sum(dim=0).norm()) > settings.norm_limit:
                counted = np.zeros_like(counted)
        return replace(work, deltas=deltas, weights=weights, counted=counted)


def poisoning(fleet: Fleet, rounds: int = 5) -> dict[str, dict[str, float]]:
    """Return the test RMSE in Wh after `rounds` of FedAvg, by lie and limits; inf: diverged."""
    training = Training(rounds=rounds, participation=1.0, evaluate_every=rounds)
    federation = Federation(fleet, training=training, device="cpu")

    def error(lie: Lie | None, limits: str) -> float:
        backend = Poisoned(federation, lie, limits)
        loop = Loop(lambda _: backend, federation.terms, federation.model, federation.device)
        row = loop.train(get("fedavg")).history.rounds[-1]
        value = float(row["test_rmse"])
        return inf if row["diverged"] or not np.isfinite(value) else value

    honest = error(None, LIMITS[0])
    return {
        name: {limits: error(lie, limits) for limits in LIMITS} | {"honest": honest}
        for name, lie in LIES.items()
    }


ATTACKS: Final[dict[str, Callable[[Target], dict[str, float]]]] = {
    "mean test window, by crafted evaluations": crafted_evaluation,
    "a training window, from Δ": inversion,
    "the fastest training window, by crafted weights": imprint,
    "membership of a window, area under the curve": membership,
}


def measure() -> dict[str, Any]:
    """Return figures of all attacks, means over the first vehicles of the fleet."""
    fleet = synthetic_fleet()
    attacks = {}
    for name, attack in ATTACKS.items():
        print(name, flush=True)
        scores = [attack(Target(fleet, victim)) for victim in range(VICTIMS)]
        attacks[name] = {level: float(np.mean([s[level] for s in scores])) for level in LEVELS}
    attacks["home, km"] = home_position(list(synthetic_vehicles(len(fleet.clients), 0)))
    return {
        "machine": machine(),
        "vehicles": len(fleet.clients),
        "victims": VICTIMS,
        "evaluations": EVALUATIONS,
        "set_changes": MOST_SET_CHANGES,
        "attacks": attacks,
        "poisoning": poisoning(fleet),
    }


def blocks(record: dict[str, Any]) -> dict[str, str]:
    """Return the blocks of the page."""
    head = "| attack | " + " | ".join(LEVELS) + " |\n|---|" + "--:|" * len(LEVELS)
    lines = [
        f"| {name} | " + " | ".join(f"{scores[level]:.2f}" for level in LEVELS) + " |"
        for name, scores in record["attacks"].items()
    ]
    lies = "| lie | honest | " + " | ".join(LIMITS) + " |\n|---|" + "--:|" * 4
    rows = [
        f"| {name} | " + " | ".join(_error(scores[n]) for n in ("honest", *LIMITS)) + " |"
        for name, scores in record["poisoning"].items()
    ]
    return {"attacks": "\n".join((head, *lines)), "poisoning": "\n".join((lies, *rows))}


def _error(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.1f}"


def main() -> None:
    """Measure, or put the record on its page."""
    if "--record" not in sys.argv:
        record = measure()
        for scores in record["poisoning"].values():
            diverged = {n: "diverged" for n, value in scores.items() if value == inf}
            scores |= diverged
        write_text(RESULT, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    write_blocks(PAGE, blocks(json.loads(RESULT.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
