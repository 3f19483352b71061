"""Candidates: every method of the catalogue, baselines, and compositions of rules."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from fedwatt.methods import METHODS, Method, get
from fedwatt.methods.clusters import ChooseCentre
from fedwatt.methods.personal import PersonalHead
from fedwatt.settings import Range
from fedwatt.tuning.tune import ranges_of

OURS: Final = (
    "si-fedavg",
    "ti-fedavg",
    "fo-fedavg",
    "ri-fedavg",
    "fo-ri-fedavg",
)
"""Methods of the catalogue that the paper or this library brought; all others were published by
somebody else."""


@dataclass(frozen=True)
class Candidate:
    """A method under the name that the page gives it, with what of it is not tuned."""

    name: str
    method: str = ""
    """As `fedwatt.methods.get` knows it; empty: as the candidate is called."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Hyperparameters that keep these values."""
    ours: bool = False
    """Whether nobody published it as a method of its own."""

    def made(self, settings: Mapping[str, Any] | None = None) -> Method:
        """Return the method with the `settings` of a trial, of which the rate is the training's."""
        method_settings = {n: v for n, v in (settings or {}).items() if n != "learning_rate"}
        return get(self.method or self.name, **{**method_settings, **self.settings})

    @cached_property
    def ranges(self) -> dict[str, Range]:
        """Return the tuned hyperparameters with their ranges."""
        tuned = ranges_of(self.made())
        return {name: span for name, span in tuned.items() if name not in self.settings}

    @cached_property
    def no_global_model(self) -> str:
        """Return the reason why the candidate has no single model for all vehicles; empty where it
        has one.
        """
        for rule in self.made().local:
            if isinstance(rule, PersonalHead):
                return "its last layer belongs to each vehicle"
            if isinstance(rule, ChooseCentre):
                return "its server has several models"
        return "vehicles share nothing" if self.name == ALONE else ""


PROBE: Final = {"directions": 5, "points": 20, "probe_every": 10}
CHEAPER: Final = {"ri-fedavg": PROBE, "fo-ri-fedavg": PROBE}
"""Roughness probes of 105 evaluations, not 1,010: both indices are nearly always 0."""
ALONE: Final = "alone"
"""Every vehicle trains by itself, in the rounds in which it would have taken part."""
TWINS: Final = ("fedavg", "fednova", "fedel")
"""FedAvg, and what is FedAvg where all vehicles take as many steps."""

CANDIDATES: Final[dict[str, Candidate]] = {
    candidate.name: candidate
    for candidate in (
        *(Candidate(name, settings=CHEAPER.get(name, {}), ours=name in OURS) for name in METHODS),
        Candidate("fedavgm", "fedavg@sgd"),
        Candidate("fedyogi", "fedavg@yogi"),
        Candidate("mofedsam", "fedcm+sharpness-aware"),
        Candidate(ALONE, "ditto", {"lam_personal": 0.0}),
        Candidate("scaffold+fractional", settings={"match_rate": True}, ours=True),
        Candidate("scaffold+sharpness", ours=True),
        Candidate("scaffold+momentum", ours=True),
        Candidate("scaffold+global-shift", ours=True),
        Candidate("scaffold+personal-model", ours=True),
        Candidate("fedcm+personal-model", ours=True),
        Candidate("fedcm+sharpness", ours=True),
    )
}
