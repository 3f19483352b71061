"""A cell: one method on one dataset, all seeds in one stack."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from hashlib import sha256
from typing import Any, Final

from fedwatt.federation import Availability, Training
from fedwatt.methods import RoughnessProximal, get
from fedwatt.runs.config import MethodChoice, ModelChoice, RunConfig, choose
from fedwatt.windows import DataSettings
from reproduction.scale import MANY, Scale

FORMAT: Final = 2
"""Goes up when the same cell would give other numbers, as when a default changes: a key holds what
departs from the library's defaults, so that a setting that is added later hides no record."""

METHODS: Final = (
    "fedavg",
    "fedprox",
    "scaffold",
    "fednova",
    "fedadam",
    "moon",
    "feddyn",
    "fedel",
    "ri-fedavg",
    "fo-fedavg",
    "fo-ri-fedavg",
)
"""In the order of the paper's tables."""

OURS: Final = ("fedavg", "ri-fedavg", "fo-fedavg", "fo-ri-fedavg")
"""FedAvg and the paper's three."""

CLASSES: Final = (1.0, 1 / 2, 1 / 3, 1 / 4)
"""Speeds of FedEL's device classes, as its authors simulate them. The paper names none, and with
equal computers FedEL is FedAvg. Other methods wait for slow vehicles, so that their speed makes no
difference to them, except in cells with `slow` devices, in which nobody waits."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A training: method, data, length. Hyperparameters are pairs, so that it can be hashed.

    partition   who has which trips: "natural" (each vehicle its own), or a recipe of
                `fedwatt.windows.experiments` that deals them to ten clients
    work        "federated", "local" (every vehicle alone), "pooled" (all data in one place),
                "latency" (the network is timed, nothing is trained) or "turns" (rounds of several
                methods are timed in turns)
    follow      what is known only once other cells have run (`reproduction.tuning`): "tuned"
                settings, its "own rate" under its own conditions, the rate that these give to
                FedAvg ("tuned:fedavg", "own rate:fedavg"), the "matched rate" at which FedAvg's
                steps are as long as FO-FedAvg's, whose own rate may be one of these ("matched
                rate:own rate:fedavg"), or the "matched pull" of RI
    purpose     "result", "trial" (of tuning, scored on validation) or "time"
    """

    dataset: str
    method: str
    settings: tuple[tuple[str, Any], ...] = ()
    vehicles: int = 0
    """0: all that qualify of a recorded fleet, ten of any other."""
    partition: str = "natural"
    split: int = 0
    """Seed of the split of trips into training, validation and test."""
    kind: str = "passenger"
    noisy: float = 0.0
    """Share of vehicles whose training labels are spoiled."""
    model: str = "mlp"
    stride: int = 0
    """Seconds between training windows; 0: the scale's."""
    epochs: int = 1
    """E"""
    participation: float = 0.3
    causal: bool = False
    """Whether acceleration is taken from seconds of the window alone."""
    slow: bool = False
    """Whether vehicles have the time that a fast device needs for their work, and no more."""
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
        """Return the cell with other hyperparameters, and nothing left to follow."""
        merged = dict(self.settings) | dict(values)
        return replace(self, settings=tuple(sorted(merged.items())), follow="")

    def choice(self, scale: Scale) -> MethodChoice:
        """Return the method with its hyperparameters and rate."""
        rough = any(isinstance(rule, RoughnessProximal) for rule in get(self.method).local)
        probe = {"probe_schedule": "global", **dict(scale.probe)} if rough else {}
        return choose({"name": self.method, **probe, **dict(self.settings)})


def trips_of(cell: Cell, scale: Scale) -> int:
    """Return trips of a synthetic vehicle; 0 for recorded ones, which have those they have."""
    if not cell.dataset.startswith("synthetic"):
        return 0
    return scale.many_trips if cell.vehicles > MANY else scale.synthetic_trips


FEATURES: Final = {
    "ved-enriched": "base, ascent, descent",
    "eved": "enriched",
    "synthetic-enriched": "enriched",
}
"""Datasets that know the road, and which of it they know; the others have the base features."""
CAUSAL: Final = {
    "base": "causal",
    "base, ascent, descent": "causal, ascent, descent",
    "enriched": "causal, road",
}
"""The same features without a look at the two seconds after a window."""


def data_settings(cell: Cell, scale: Scale) -> DataSettings:
    """Return how the telemetry of a cell becomes windows."""
    made = cell.dataset.startswith("synthetic")
    stride = dict(scale.strides).get(cell.dataset, scale.stride)
    features = FEATURES.get(cell.dataset, "base")
    return DataSettings(
        features=CAUSAL[features] if cell.causal else features,
        stride=cell.stride or (scale.synthetic_stride if made else stride),
        evaluation_stride=scale.synthetic_evaluation_stride if made else scale.evaluation_stride,
        split_seed=cell.split,
    )


def training_of(cell: Cell, scale: Scale) -> Training:
    """Return the rounds of a cell, as they are before its method's own settings."""
    rounds = cell.rounds or (scale.rounds if cell.model == "mlp" else scale.recurrent_rounds)
    # Of trials, times and large fleets only the end is looked at.
    at_the_end = cell.purpose != "result" or cell.vehicles > MANY
    return Training(
        rounds=rounds,
        participation=cell.participation,
        epochs=cell.epochs,
        evaluate_every=rounds if at_the_end else min(scale.evaluate_every, rounds),
    )


def run_config(cell: Cell, scale: Scale, device: str = "auto") -> RunConfig:
    """Return the cell as the configuration of a run; only its fleet is opened another way."""
    away = cell.p_leave / (cell.p_leave + cell.p_join) if cell.p_leave else 0.0
    symmetric = cell.p_leave == cell.p_join
    return RunConfig(
        methods=(cell.choice(scale),),
        seeds=cell.seeds or scale.seeds,
        device=device,
        data=data_settings(cell, scale),
        model=ModelChoice(name=cell.model),
        training=training_of(cell, scale),
        availability=Availability(
            p_leave=cell.p_leave,
            p_join=cell.p_join,
            # The paper starts symmetric churn near its steady state; what loses or gains vehicles
            # starts with all, or with half of them.
            initially=1 - away if symmetric else (1.0 if cell.p_leave > cell.p_join else 0.5),
            speeds=CLASSES if cell.slow or "fedel" in cell.method else (1.0,),
            relative_deadline=1.0 if cell.slow and "fedel" not in cell.method else 0.0,
        ),
    )


@cache
def key_of(cell: Cell, scale: Scale) -> str:
    """Return hash of all that determines a cell's numbers, its telemetry and device apart."""
    assert not cell.follow, "a cell that follows others has no settings yet"
    config = run_config(cell, scale)
    (choice,) = config.methods
    content = {
        "format": FORMAT,
        "dataset": cell.dataset,
        "cell": _departures(
            # Settings stand in full below: a default that is written out is the same cell.
            asdict(cell) | {"rounds": 0, "seeds": (), "settings": (), "stride": 0},
            asdict(Cell(dataset=cell.dataset, method="")),
        ),
        "seeds": config.seeds,
        "data": _departures(asdict(config.data), asdict(DataSettings())),
        "training": _departures(asdict(choice.training(config.training)), asdict(Training())),
        "availability": _departures(asdict(config.availability), asdict(Availability())),
        "method": _departures(choice.method.settings, get(cell.method).settings),
        "trips": trips_of(cell, scale),
        "windows": scale.latency_windows if cell.work == "latency" else 0,
    }
    return sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _departures(settings: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that are not at their defaults."""
    return {n: v for n, v in settings.items() if n not in defaults or v != defaults[n]}
