"""A cell: one method on one dataset, all seeds in one stack."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any, Final

from fedwatt.data import DataSettings
from fedwatt.federation import Availability, Training
from fedwatt.methods import RoughnessProximal, get
from fedwatt.runs.config import MethodChoice, ModelChoice, RunConfig, choose
from reproduction.scale import MANY, Scale

FORMAT: Final = 1
"""Goes up when the same cell would give other numbers."""

LATER: Final[Mapping[str, Any]] = {
    "target": "energy",
    "horizon": 0,
    "align": False,
    "probe_schedule": "age",
    "match_rate": False,
    "patience": 0,
    "own_deadline": 0.0,
    "deterministic": False,
}
"""Settings that are younger than records of this format, each with the value that does what was
done before it. They count only where they have another one, so that older records are found."""

CLASSES: Final = (1.0, 1 / 2, 1 / 3, 1 / 4)
"""Speeds of FedEL's device classes, as its authors simulate them. The paper names none, and with
equal computers FedEL is FedAvg; no other method is affected by them."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What is trained, on what, for how long. Hyperparameters are pairs, so that it can be hashed.

    work        "federated", "local" (every vehicle alone), "pooled" (all data in one place),
                "latency" (the network is timed, nothing is trained) or "turns" (rounds of several
                methods are timed in turns)
    follow      what is known only once other cells have run: "tuned" settings, the "matched rate"
                at which FedAvg's steps are as long as FO-FedAvg's, or the "matched pull" of RI
    purpose     "result", "trial" (of tuning, scored on validation) or "time"
    """

    dataset: str
    method: str
    settings: tuple[tuple[str, Any], ...] = ()
    vehicles: int = 10
    kind: str = "passenger"
    noisy: float = 0.0
    """Share of vehicles whose training labels are spoiled."""
    model: str = "mlp"
    participation: float = 0.3
    p_leave: float = 0.0
    p_join: float = 0.0
    work: str = "federated"
    follow: str = ""
    purpose: str = "result"
    rounds: int = 0
    """0: the scale's."""
    seeds: tuple[int, ...] = ()
    """Empty: the scale's."""

    def with_settings(self, values: Mapping[str, Any]) -> "Cell":
        """The cell with other hyperparameters, and nothing left to follow."""
        merged = dict(self.settings) | dict(values)
        return replace(self, settings=tuple(sorted(merged.items())), follow="")

    def choice(self, scale: Scale) -> MethodChoice:
        """The method with its hyperparameters and rate."""
        rough = any(isinstance(rule, RoughnessProximal) for rule in get(self.method).local)
        probe = dict(scale.probe) if rough else {}
        return choose({"name": self.method, **probe, **dict(self.settings)})


def trips_of(cell: Cell, scale: Scale) -> int:
    """Trips of a synthetic vehicle; 0 for recorded ones, which have those they have."""
    if not cell.dataset.startswith("synthetic"):
        return 0
    return scale.many_trips if cell.vehicles > MANY else scale.synthetic_trips


def data_settings(cell: Cell, scale: Scale) -> DataSettings:
    """How the telemetry of a cell becomes windows."""
    made = cell.dataset.startswith("synthetic")
    enriched = cell.dataset in ("synthetic-enriched", "eved")
    return DataSettings(
        features="enriched" if enriched else "base",
        stride=scale.synthetic_stride if made else scale.stride,
        evaluation_stride=scale.synthetic_evaluation_stride if made else scale.evaluation_stride,
    )


def run_config(cell: Cell, scale: Scale, device: str = "auto") -> RunConfig:
    """The cell as the configuration of a run; only its fleet is opened another way."""
    rounds = cell.rounds or (scale.rounds if cell.model == "mlp" else scale.recurrent_rounds)
    # Of trials, times and large fleets only the end is looked at.
    at_the_end = cell.purpose != "result" or cell.vehicles > MANY
    every = rounds if at_the_end else min(scale.evaluate_every, rounds)
    away = cell.p_leave / (cell.p_leave + cell.p_join) if cell.p_leave else 0.0
    symmetric = cell.p_leave == cell.p_join
    return RunConfig(
        methods=(cell.choice(scale),),
        seeds=cell.seeds or scale.seeds,
        device=device,
        data=data_settings(cell, scale),
        model=ModelChoice(name=cell.model),
        training=Training(rounds=rounds, participation=cell.participation, evaluate_every=every),
        availability=Availability(
            p_leave=cell.p_leave,
            p_join=cell.p_join,
            # The paper starts symmetric churn near its steady state; what loses or gains vehicles
            # starts with all, or with half of them.
            initially=1 - away if symmetric else (1.0 if cell.p_leave > cell.p_join else 0.5),
            speeds=CLASSES if "fedel" in cell.method else (1.0,),
        ),
    )


@cache
def key_of(cell: Cell, scale: Scale) -> str:
    """Hash of all that determines a cell's numbers, its telemetry and device apart."""
    assert not cell.follow, "a cell that follows others has no settings yet"
    config = run_config(cell, scale)
    (choice,) = config.methods
    content = {
        "format": FORMAT,
        # Settings stand in full below: a default that is written out is the same cell.
        "cell": asdict(cell) | {"rounds": 0, "seeds": (), "settings": ()},
        "seeds": config.seeds,
        "data": _counted(asdict(config.data)),
        "training": _counted(asdict(choice.training(config.training))),
        "availability": _counted(asdict(config.availability)),
        "method": _counted(choice.method.settings),
        "trips": trips_of(cell, scale),
        "windows": scale.latency_windows if cell.work == "latency" else 0,
    }
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _counted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings without those that came later and change nothing."""
    return {n: v for n, v in settings.items() if n not in LATER or v != LATER[n]}
