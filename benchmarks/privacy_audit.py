"""Is the stated ε true? Small trainings with and without a canary, and the best test between them.

    python benchmarks/privacy_audit.py

writes results/privacy_audit.json and the table of docs/privacy.md. A canary is a vehicle that moves
one weight as far as its clip norm allows, in every round that it is called for. Whoever sees all
models of a training guesses from them whether the canary was in the fleet, by the likelihood ratio,
which no other test beats. After N trainings of either kind, (ε, δ) differential privacy is refuted
with 95 % confidence if, for some threshold (Clopper-Pearson bounds, the threshold chosen on one
half of the trainings and judged on the other),

    ε_low = log( (lowest rate of true alarms - δ) / highest rate of false alarms )  >  ε stated

Three kinds of rounds: the server adds the noise; vehicles add it in shares, to words under masks;
and, as a check that the audit can find anything, rounds that count only with m replies, with the ε
that is stated for plain ones. About a minute.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from math import exp, inf, log, log1p
from pathlib import Path
from secrets import randbits
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import beta

from benchmarks.marked import write_blocks
from fedwatt.federation.participation import participants
from fedwatt.methods import Method, get
from fedwatt.methods.server import Replies
from fedwatt.models import Model, get_model
from fedwatt.noise import SystemNoise
from fedwatt.privacy import Budget
from fedwatt.privacy.secure.compose import means, reply_layout, reply_values
from fedwatt.privacy.secure_settings import SecureSettings

ROOT = Path(__file__).parents[1]
FloatArray = NDArray[np.float64]
TRAININGS = 1000
CONFIDENCE = 0.95
NEEDED = 5
"""Replies without which a round of the third kind does not count."""


@dataclass(frozen=True)
class Setting:
    """A small federation: K vehicles besides the canary, each called with probability q."""

    vehicles: int = 5
    probability: float = 0.5
    noise_multiplier: float = 1.0
    rounds: int = 4
    delta: float = 1e-2

    @property
    def method(self) -> Method:
        """FedAvg with clip norm 1 and noise."""
        return get("fedavg@private", noise_multiplier=self.noise_multiplier, clip_norm=1.0)

    @property
    def model(self) -> Model:
        """A network of a few weights; nothing of it is trained."""
        return get_model("mlp", window=1, features=2, hidden=(1,))

    @property
    def epsilon(self) -> float:
        """What is stated."""
        budget = Budget(self.noise_multiplier, self.probability, self.delta)
        return budget.epsilon(self.rounds)


Round = Callable[[Setting, FloatArray, list[int], int], FloatArray]
"""The noisy sum of a round [D], from all vehicles' Δ [K, D], who is called, and how many there are.
"""


def trained(setting: Setting, one_round: Round, canary: bool, others: float) -> float:
    """The likelihood ratio of one training's models, logarithm: canary against none.

    The canary moves the first weight by 1. Other vehicles move it by `others`.
    """
    size, count = setting.model.layout.size, setting.vehicles + canary
    deltas = np.zeros((count, size))
    deltas[: setting.vehicles, 0] = others
    deltas[setting.vehicles :, 0] = 1.0
    found = 0.0
    for round in range(setting.rounds):
        there, share = np.ones(count, dtype=bool), setting.probability
        called = participants(randbits(64), round, there, share, sampling="poisson")
        moved = one_round(setting, deltas, called.tolist(), setting.vehicles)
        found += ratio(setting, moved[0], others)
    return found


def ratio(setting: Setting, seen: float, others: float) -> float:
    """log P(seen | canary) - log P(seen | none) of the first weight of one round's noisy sum."""
    if others:
        # Rounds that need m replies: with the canary they are there, without it they are not.
        return seen
    q, z = setting.probability, setting.noise_multiplier
    exponent = (seen - 0.5) / z**2
    return log(q) + exponent if exponent > 700 else log1p(-q + q * exp(exponent))


def noise_of_server(
    setting: Setting, deltas: FloatArray, called: list[int], population: int
) -> FloatArray:
    """A round as a server does it that sees every reply; the sum, from the model that it makes."""
    return _updated(setting, deltas[called], population, noised=False)


def noise_in_shares(
    setting: Setting, deltas: FloatArray, called: list[int], population: int
) -> FloatArray:
    """A round under masks: all vehicles add shares of the noise, those called their Δ as well."""
    method, model = setting.method, setting.model
    layout = reply_layout(method, model, SecureSettings(), vehicles=len(deltas))
    survivors = SecureSettings().survivors_needed(len(deltas))
    words = np.zeros(layout.length, dtype=np.uint64)
    for vehicle, own in enumerate(deltas):
        delta = torch.from_numpy(own if vehicle in called else np.zeros_like(own))
        words += layout.encode(reply_values(method, model, delta, 1, {}, layout, survivors))
    mean, weight, _ = means(method, model, layout.decode(words))
    rows = np.tile(mean.numpy(), (int(weight), 1))
    return _updated(setting, rows, population, noised=True)


def needing_replies(
    setting: Setting, deltas: FloatArray, called: list[int], population: int
) -> FloatArray:
    """As `noise_of_server`, but a round with fewer than `NEEDED` replies counts none of them."""
    counted = called if len(called) >= NEEDED else []
    return noise_of_server(setting, deltas, counted, population)


def _updated(setting: Setting, rows: FloatArray, population: int, *, noised: bool) -> FloatArray:
    size, share = setting.model.layout.size, setting.probability
    replies = Replies(
        torch.from_numpy(rows.reshape(-1, size)),
        torch.ones(len(rows), dtype=torch.float64),
        population,
        float(population),
        SystemNoise(),
        participation=share,
        noised=noised,
    )
    start = torch.zeros(size, dtype=torch.float64)
    _, weights = setting.method.update({}, start, replies)
    found: FloatArray = weights.numpy() * share * population
    return found


def refuted_up_to(present: FloatArray, absent: FloatArray, delta: float) -> float:
    """ε_low: statistics of trainings with and without the canary refute any smaller ε at δ.

    Alarms are more likely with the canary, and silence without it. Both comparisons are made from
    the same two bounds, on the rate of alarms with and without it, each of which is wrong in 2.5 %
    of all audits; so 95 % of them are right in both.
    """
    half = len(present) // 2
    best, chosen = -inf, 0.0
    for threshold in np.quantile(np.concatenate([present, absent]), np.linspace(0.02, 0.98, 49)):
        found = _ratio(*_rates(present[:half] > threshold, absent[:half] > threshold), delta)
        if found > best:
            best, chosen = found, threshold
    true, false = _rates(present[half:] > chosen, absent[half:] > chosen)
    return max(0.0, _ratio(true, false, delta), _ratio(1 - false, 1 - true, delta))


def _rates(alarms: NDArray[np.bool_], false_alarms: NDArray[np.bool_]) -> tuple[float, float]:
    """The lowest rate of true and the highest rate of false alarms (Clopper and Pearson)."""
    tail = (1 - CONFIDENCE) / 2
    hits, misses = int(alarms.sum()), int((~alarms).sum())
    lowest = float(beta.ppf(tail, hits, misses + 1)) if hits else 0.0
    wrong, right = int(false_alarms.sum()), int((~false_alarms).sum())
    return lowest, float(beta.ppf(1 - tail, wrong + 1, right)) if right else 1.0


def _ratio(true: float, false: float, delta: float) -> float:
    return log((true - delta) / false) if true > delta else -inf


def audit(
    one_round: Round, setting: Setting, trainings: int, others: float = 0.0
) -> dict[str, Any]:
    """ε as stated, and the ε that is refuted, of so many trainings of either kind."""
    present, absent = (
        np.array([trained(setting, one_round, canary, others) for _ in range(trainings)])
        for canary in (True, False)
    )
    return {
        "trainings": trainings,
        "epsilon": round(setting.epsilon, 3),
        "delta": setting.delta,
        "refuted_up_to": round(refuted_up_to(present, absent, setting.delta), 3),
    }


CERTAIN = Setting(vehicles=NEEDED - 1, probability=1.0, rounds=1)
"""Everybody is called: with the canary there are replies enough, without it there are not."""


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The table of docs/privacy.md."""
    lines = ["| noise | ε stated | ε refuted, up to |", "|---|---|---|"]
    lines += [f"| {n} | {row['epsilon']} | {row['refuted_up_to']} |" for n, row in rows.items()]
    return "\n".join(lines)


def main() -> None:
    """Audit all kinds of rounds."""
    rows = {
        "the server's": audit(noise_of_server, Setting(), TRAININGS),
        "in shares, under masks": audit(noise_in_shares, Setting(), TRAININGS),
        "the server's, one round of all": audit(noise_of_server, CERTAIN, TRAININGS),
        f"the server's, rounds that need {NEEDED} replies (refused by fedwatt)": audit(
            needing_replies, CERTAIN, TRAININGS, others=1.0
        ),
    }
    (ROOT / "results" / "privacy_audit.json").write_text(json.dumps(rows, indent=2) + "\n")
    write_blocks(ROOT / "docs" / "privacy.md", {"audit": table(rows)})
    print(table(rows))


if __name__ == "__main__":
    main()
