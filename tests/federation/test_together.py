"""Several trainings in one stack are each what they are alone."""

from dataclasses import dataclass, replace
from math import exp

import pytest
import torch

from fedwatt.engine.together import train_together
from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.federation.federation import train_side_by_side
from fedwatt.federation.loop import TrainingResult
from fedwatt.methods import LocalRule, Method, get
from tests.federation.toys import random_fleet

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")
FLEET = random_fleet([40, 9, 33, 70])
TRAINING = Training(rounds=3, participation=0.75, batch=8, precision="float64", learning_rate=0.02)

GRIDS = {
    "rates": [("fedavg", {}, 0.01), ("fedavg", {}, 0.05)],
    "servers": [("fedavg", {}, 0.02), ("fednova", {}, 0.02), ("fedadam", {}, 0.01)],
    "pulls": [("fedprox", {"mu": 0.1}, 0.02), ("fedprox", {"mu": 1.0}, 0.03)],
    "orders": [
        ("fo-ri-fedavg", {"alpha": 0.7, "lam": 0.5}, 0.02),
        ("fo-ri-fedavg", {"alpha": 0.9, "p_min": 0.3}, 0.05),
        ("fo-ri-fedavg", {"alpha": 1.0, "radius": 0.5}, 0.02),
    ],
    "gates": [("fo-fedavg", {"beta_kappa": beta}, 0.02) for beta in (0.0, 0.5, 2.0)],
    "contrasts": [
        ("moon", {"contrast_weight": 1.0}, 0.02),
        ("moon", {"contrast_weight": 0.0}, 0.02),
        ("moon", {"temperature": 0.1}, 0.02),
    ],
    "all kinds": [(name, {}, 0.02) for name in ("fedavg", "scaffold", "feddyn", "fedel", "moon")],
}


@pytest.mark.parametrize("grid", GRIDS)
def test_side_by_side_is_one_after_the_other(grid: str) -> None:
    def trainings():
        return [
            (
                Federation(
                    FLEET, training=replace(TRAINING, learning_rate=learning_rate), seeds=(1, 2)
                ),
                get(name, **settings),
            )
            for name, settings, learning_rate in GRIDS[grid]
        ]

    side_by_side = train_side_by_side(trainings())
    for (federation, method), trained in zip(trainings(), side_by_side, strict=True):
        alone = federation.train(method)
        torch.testing.assert_close(
            trained.state.weights, alone.state.weights, rtol=0, atol=1e-13, msg=method.name
        )
        assert trained.history.last("test_rmse") == pytest.approx(alone.history.last("test_rmse"))


@dataclass(frozen=True, kw_only=True)
class Deciding(LocalRule):
    """Shrinks gradients by a number that it works out, where another one is large."""

    nu: float = 0.1

    def gradient(self, gradient, weights, anchor, plan):
        return gradient * exp(-self.nu) if self.nu > 0.2 else gradient


@dataclass(frozen=True, kw_only=True)
class Prepared(LocalRule):
    """A rule that stores derived values beside its fields."""

    nu: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "factor", exp(-self.nu) if self.nu > 0.2 else 1.0)

    def gradient(self, gradient, weights, anchor, plan):
        return gradient * self.factor


@pytest.mark.filterwarnings("ignore::fedwatt.engine.kernels.c_compiler.SlowerInTorch")
@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("kind", [Deciding, Prepared])
def test_numbers_of_ones_own_rule_are_each_trainings_own(kind: type, precision: str) -> None:
    def trained(nu: float) -> tuple[Federation, Method]:
        terms = replace(TRAINING, precision=precision)
        return Federation(FLEET, training=terms), Method("own", (kind(nu=nu),))

    small, large = train_side_by_side([trained(0.1), trained(3.0)])
    # A step of e^-3 times the gradient is one at e^-3 times the rate.
    slow = replace(TRAINING, precision=precision, learning_rate=TRAINING.learning_rate * exp(-3.0))
    for result, terms in ((small, TRAINING), (large, slow)):
        plain = Federation(FLEET, training=replace(terms, precision=precision)).train("fedavg")
        torch.testing.assert_close(result.state.weights, plain.state.weights, rtol=0, atol=1e-6)
    for nu, result in ((0.1, small), (3.0, large)):
        federation, method = trained(nu)
        alone = federation.train(method).state.weights
        torch.testing.assert_close(result.state.weights, alone, rtol=0, atol=1e-6)


def test_rows_of_one_kind_share_their_steps(monkeypatch) -> None:
    sizes = []

    def counted(jobs, watch):
        sizes.append(len(jobs))
        return train_together(jobs, watch)

    monkeypatch.setattr("fedwatt.federation.federation.train_together", counted)
    fleet = random_fleet([20, 20])
    train_side_by_side(
        [
            (Federation(fleet, training=replace(TRAINING, rounds=1)), get(name))
            for name in ("fedavg", "fedprox", "fednova")
        ]
    )
    assert sizes == [2, 1]  # FedAvg and FedNova differ on the server only


def test_one_that_diverges_leaves_the_others_alone() -> None:
    rates = (0.02, 1e300)
    trainings = [
        (Federation(FLEET, training=replace(TRAINING, learning_rate=learning_rate)), get("fedavg"))
        for learning_rate in rates
    ]
    calm, wild = train_side_by_side(trainings)
    alone = Federation(FLEET, training=TRAINING).train("fedavg")
    assert wild.state.diverged.all() and not calm.state.diverged.any()
    torch.testing.assert_close(calm.state.weights, alone.state.weights, rtol=0, atol=1e-13)


def test_other_fleets_are_refused() -> None:
    other = random_fleet([20, 20])
    with pytest.raises(SettingError, match="one fleet object"):
        train_side_by_side(
            [(Federation(fleet, training=TRAINING), get("fedavg")) for fleet in (FLEET, other)]
        )


@pytest.mark.parametrize("name", ["fo-ri-fedavg", "scaffold", "moon"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_a_gpu)])
def test_deterministic_seeds_have_the_same_bits_whoever_is_in_their_stack(name, device) -> None:
    training = Training(
        rounds=3, participation=0.75, batch=8, learning_rate=0.02, deterministic=True
    )

    def federation(*seeds: int, **other: bool) -> Federation:
        changed = replace(training, **other)
        return Federation(FLEET, training=changed, seeds=seeds, device=device)

    def errors_and_weights(trained: TrainingResult, place: int) -> tuple[list[float], list[float]]:
        rows = [row["test_rmse"] for row in trained.history.rounds if row["seed"] == 2]
        return trained.state.weights[place].tolist(), rows

    alone = errors_and_weights(federation(2).train(get(name)), 0)
    remaining = range(3, 30 if device == "cuda" else 6)  # on a GPU more than one slab
    beside = [(federation(*remaining), get(name)), (federation(5, 2), get(name))]
    assert errors_and_weights(train_side_by_side(beside)[1], 1) == alone
    if device == "cpu" and name != "moon":  # steps in C do not depend on others in any mode
        assert (
            errors_and_weights(federation(5, 2, deterministic=False).train(get(name)), 1) == alone
        )
