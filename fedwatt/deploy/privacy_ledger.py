"""What a vehicle has spent of its privacy in its lifetime, on its own disk: STATE/privacy.json.

    {"trainings": {"RUN METHOD": {"noise_multiplier": 1.0, "probability": 0.3,
                                  "rounds": 40, "repeated": 1, "last": 39}}}

An entry is a method of a run. Rounds that passed while the vehicle was not asked count like those
in which it was, since its ε rests on nobody knowing which is which; a round that it was asked for
twice counts twice. Where the server changes noise or sampling within a run, all of its rounds count
with the least noise and the largest share, so that ε is never understated. Trainings add up at
every order of Rényi (`privacy.accounting`), and one without noise makes the whole infinite. The
file is written before a reply is sent.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fedwatt.files import write_text
from fedwatt.privacy.accounting import Rounds, composed_epsilon

if TYPE_CHECKING:  # torch is not needed to look at the ledger
    from fedwatt.methods import Method

log = logging.getLogger("fedwatt.deploy")

LIFETIME_DELTA: Final = 1e-5
"""δ at which a vehicle's lifetime ε is shown, and held to its policy."""


@dataclass(frozen=True)
class Spent:
    """One method of one run."""

    noise_multiplier: float
    """z; 0: no noise."""
    probability: float
    """q"""
    rounds: int = 0
    repeated: int = 0
    last: int = -1
    """The round that was asked for last."""

    def after(self, round: int, noise_multiplier: float, probability: float) -> "Spent":
        """With one more question, about `round`, on these terms."""
        return replace(
            self,
            noise_multiplier=min(self.noise_multiplier, noise_multiplier),
            probability=max(self.probability, probability),
            rounds=max(self.rounds, round + 1),
            repeated=self.repeated + (round <= self.last),
            last=max(round, self.last),
        )


@dataclass(frozen=True)
class PrivacyLedger:
    """The file of a vehicle."""

    path: Path

    @classmethod
    def of(cls, state: Path) -> "PrivacyLedger":
        """In the vehicle's state folder."""
        return cls(state / "privacy.json")

    def spend(self, run: str, label: str, method: "Method", probability: float, round: int) -> None:
        """Count a question about a round of a method, before it is answered."""
        known = self.after(run, label, method, probability, round)
        table = {"trainings": {name: asdict(own) for name, own in known.items()}}
        write_text(self.path, json.dumps(table) + "\n")

    def after(
        self, run: str, label: str, method: "Method", probability: float, round: int
    ) -> dict[str, Spent]:
        """The entries as `spend` would leave them."""
        mechanism = method.server.mechanism
        noise = 0.0 if mechanism is None else mechanism.noise_multiplier
        share = probability if mechanism is not None and mechanism.amplified else 1.0
        key, known = f"{run} {label}", self.entries()
        return known | {key: known.get(key, Spent(noise, share)).after(round, noise, share)}

    def epsilon(self, delta: float, *, sampled: bool = True) -> float:
        """ε at δ of all that was ever asked of this vehicle; infinite if anything had no noise."""
        return epsilon_of(self.entries(), delta, sampled=sampled)

    def entries(self) -> dict[str, Spent]:
        """By run and method; what cannot be read counts as a training without noise."""
        if not self.path.exists():
            return {}
        try:
            table = json.loads(self.path.read_text(encoding="utf-8"))["trainings"]
            return {str(name): Spent(**own) for name, own in table.items()}
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            log.error("%s is damaged (%s); what was spent before is unknown", self.path, error)
            return {"unknown": Spent(0.0, 1.0, 1)}


def epsilon_of(trainings: Mapping[str, Spent], delta: float, *, sampled: bool = True) -> float:
    """ε at δ of trainings together; infinite if one of them had no noise.

    Against those who see the models it counts that rounds are `sampled`. A server may tell from how
    long a reply took who trained, so against it every round counts as one that the vehicle was in.
    """
    rounds = (
        Rounds(own.noise_multiplier, own.probability if sampled else 1.0, own.rounds + own.repeated)
        for own in trainings.values()
    )
    return composed_epsilon(rounds, delta)


def shown(epsilon: float) -> str:
    """An ε for people."""
    return "∞" if epsilon == inf else f"{epsilon:.3g}"
