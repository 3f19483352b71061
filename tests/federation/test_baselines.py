"""The stacked rules of the baselines against plain loops, on an MLP with ragged vehicles."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from fedwatt.federation import Availability, Federation, RoundRecord, Training
from fedwatt.methods import get
from fedwatt.models import MLP
from tests.federation import plain_baselines as plain
from tests.federation.plain_elastic import FedEL
from tests.federation.toys import random_fleet

# float32 sums in another order differ by rounding, which some sixty steps spread a little.
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
SIZES = (70, 33, 128, 5, 47)
SLOW = Availability(speeds=(1.0, 0.7, 0.45, 0.3))
Variant = tuple[str, dict[str, Any], type[plain.Plain], dict[str, Any]]
"""The library's method and settings, and the plain one's."""

VARIANTS: dict[str, Variant] = {
    "scaffold": ("scaffold", {}, plain.Scaffold, {}),
    "scaffold, uniform": ("scaffold", {"weighting": "uniform"}, plain.Scaffold, {"uniform": True}),
    "scaffold, option 1": ("scaffold", {"option": 1}, plain.Scaffold, {"option": 1}),
    "scaffold, option 1, uniform": (
        "scaffold",
        {"option": 1, "weighting": "uniform"},
        plain.Scaffold,
        {"option": 1, "uniform": True},
    ),
    "scaffold, momentum": ("momentum+scaffold", {}, plain.MomentumScaffold, {}),
    "fednova": ("fednova", {}, plain.Nova, {}),
    "fednova, proximal": ("proximal@nova", {"mu": 0.5}, plain.Nova, {"mu": 0.5}),
    "fednova, momentum": ("momentum@nova", {"rho": 0.7}, plain.Nova, {"rho": 0.7}),
    "fedadam": ("fedadam", {}, plain.Adaptive, {}),
    "fedyogi": ("fedavg@yogi", {}, plain.Adaptive, {"kind": "yogi"}),
    "fedadagrad": ("fedavg@adagrad", {}, plain.Adaptive, {"kind": "adagrad", "beta1": 0.0}),
    "server sgd": (
        "fedavg@sgd",
        {"server_learning_rate": 0.8, "server_momentum": 0.5},
        plain.ServerMomentum,
        {"rate_s": 0.8, "gamma": 0.5},
    ),
    "moon": ("moon", {"contrast_weight": 1.0}, plain.Moon, {"mu": 1.0}),
    "fedexp": ("fedexp", {}, plain.ExP, {}),
    "fedcm": ("fedcm", {}, plain.CM, {}),
    "mimelite": ("mimelite", {}, plain.MimeLite, {}),
    "sam": ("sam", {}, plain.Sam, {}),
    "lesam": ("lesam", {}, plain.Lesam, {}),
    "adaptive pull": (
        "fedprox-adaptive",
        {"patience": 1},
        plain.AdaptiveProx,
        {"patience": 1},
    ),
    "feddyn": ("feddyn", {}, plain.Dyn, {}),
    "feddyn, uniform": ("feddyn", {"weighting": "uniform"}, plain.Dyn, {"uniform": True}),
}


ELASTIC: dict[str, Variant] = {
    "fedel": ("fedel", {}, FedEL, {}),
    "fedel, uniform": ("fedel", {"weighting": "uniform"}, FedEL, {"uniform": True}),
    "fedel, roomy": ("fedel", {"budget": 1.7}, FedEL, {"budget": 1.7}),
}


def agree(
    variant: Variant, model: MLP, precision: str, availability: Availability | None = None
) -> Iterator[tuple[list[plain.Plain], RoundRecord]]:
    name, settings, kind, options = variant
    training = Training(rounds=5, participation=0.6, batch=16, precision=precision)
    fleet = random_fleet(SIZES)
    method = get(name, **settings)
    federation = Federation(
        fleet, model, training=training, availability=availability, seeds=(3, 4), device="cpu"
    )
    loops = [kind(fleet, model, training, seed, **options) for seed in federation.seeds]
    rounds = [loop.rounds() for loop in loops]
    state, _ = federation.start(method)
    for t in range(training.rounds):
        state, record = federation.advance(method, state)
        expected = torch.stack([next(round_rows) for round_rows in rounds])
        torch.testing.assert_close(
            state.weights, expected, rtol=0, atol=TOLERANCE[precision], msg=f"round {t + 1}"
        )
        yield loops, record


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", VARIANTS)
def test_agrees_with_one_vehicle_at_a_time(name: str, precision: str) -> None:
    assert len(list(agree(VARIANTS[name], MLP(4, 8, (7, 5)), precision))) == 5


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize(
    ("name", "hidden"), [("fedel", (7, 5)), *((name, (24, 24, 24, 24)) for name in ELASTIC)]
)
def test_fedel_agrees_on_computers_of_four_speeds(
    name: str, hidden: tuple[int, ...], precision: str
) -> None:
    method, settings, kind, options = ELASTIC[name]
    variant = (method, settings, kind, options | {"availability": SLOW})
    windows = set()
    choices = set()
    runtimes = []
    for loops, record in agree(variant, MLP(4, 8, hidden), precision, SLOW):
        by_seed = dict(zip((3, 4), loops, strict=True))
        for row in record.clients:
            loop = by_seed[row["seed"]]
            assert isinstance(loop, FedEL)
            assert row["runtime"] == pytest.approx(loop.runtime[row["vehicle"]])
            runtimes.append(row["runtime"])
            windows.add(loop.window[row["vehicle"]])
            choices.add(frozenset(loop.chosen[row["vehicle"]]))
    # It was worth comparing: several windows, several sets of tensors, and budgets too small.
    assert len(windows) >= 2
    assert len(choices) >= 5
    assert (max(runtimes) > 1) == (name != "fedel, roomy")
