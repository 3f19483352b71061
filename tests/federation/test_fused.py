"""Steps in C: what each rule says, and when torch does the work instead."""

from dataclasses import dataclass
from math import gamma, inf, nan

import pytest
import torch
from torch import Tensor

from fedwatt.federation.fused import fused_step
from fedwatt.federation.local import move
from fedwatt.methods import Fractional, Proximal, RoughnessProximal
from fedwatt.methods.dynamic import Dynamic
from fedwatt.methods.elastic import Elastic
from fedwatt.methods.momentum import Momentum
from fedwatt.methods.rule import LocalRule, lifted
from fedwatt.methods.scaffold import ControlVariates
from tests.compilers import compiling_with

RULES = {
    "pull": [Proximal(mu=0.3)],
    "roughness": [RoughnessProximal()],
    "power": [Fractional(alpha=0.6)],
    "wide clip": [Fractional(alpha=0.3, p_min=1e-4, p_max=inf)],
    "gate": [Fractional(beta_kappa=0.5)],
    "clip, then gate": [Fractional(beta_kappa=0.5, order="clip-then-gate")],
    "momentum": [Momentum(rho=0.7)],
    "scaffold": [ControlVariates()],
    "dynamic": [Dynamic()],
    "elastic": [Elastic()],
    "all": [
        Proximal(mu=0.3),
        ControlVariates(),
        RoughnessProximal(),
        Elastic(),
        Fractional(),
        Momentum(),
    ],
}
PLAN = {
    "pull": torch.tensor([0.2, 0.0, 0.7], dtype=torch.float64),
    "kappa": torch.tensor([0.1, 0.9, 0.4], dtype=torch.float64),
    "momentum_rate": torch.full((3,), 0.05, dtype=torch.float64),
    "correction": torch.linspace(-1, 1, 3 * 501).view(3, 501),
    "linear": torch.linspace(1, -2, 3 * 501).view(3, 501),
    "mask": torch.arange(3 * 501).view(3, 501) % 3 == 0,
}

needs_compiler = pytest.mark.skipif(
    fused_step([Proximal()], [{}], 0.1, torch.zeros(1, 1)) is None, reason="no C compiler"
)


def stack(seed: int = 0) -> list[Tensor]:
    """(gradient, weights, weights a step ago, anchor), [3, 501]; moves of all sizes."""
    rng = torch.Generator().manual_seed(seed)
    gradient, weights, anchor = (torch.randn(3, 501, generator=rng) for _ in range(3))
    size = torch.logspace(-9, 1, 501)
    moved = size * torch.randn(3, 501, generator=rng).sign()
    moved[:, :7] = 0
    return [gradient, weights, weights - moved, anchor]


@needs_compiler
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("name", RULES)
def test_c_does_what_torch_does(name: str, first: bool) -> None:
    rules = RULES[name]
    plans: list[dict[str, Tensor]] = [PLAN] * len(rules)
    looks_back = any(rule.looks_back for rule in rules)
    results = []
    for in_c in (True, False):
        gradient, weights, previous, anchor = stack()
        before = previous if looks_back else None
        if in_c:
            step = fused_step(rules, plans, 0.05, anchor)
            assert step is not None
            step(gradient, weights, before, first=first)
        else:
            move(rules, plans, gradient, weights, before, anchor, 0.05, first=first)
        results.append(previous if looks_back else weights)
    # A few roundings of weights of about 1, and of powers good to some 3e-7 times steps of 0.05.
    torch.testing.assert_close(*results, rtol=1e-6, atol=3e-7)


@needs_compiler
def test_the_power_is_good_to_a_few_roundings() -> None:
    moved = torch.logspace(-12, 12, 4001)[None]
    for alpha in (0.2, 0.5, 0.8):
        rule = Fractional(alpha=alpha, p_min=1e-30, p_max=inf, delta=1e-12)
        step = fused_step([rule], [{}], -1.0, torch.zeros_like(moved))
        assert step is not None
        weights, previous = torch.zeros_like(moved), moved.clone()
        step(torch.ones_like(moved), weights, previous, first=False)
        exact = (moved.double() + 1e-12) ** (1 - alpha) / gamma(2 - alpha)
        # The logarithm is at most 40 in size and rounded to 2e-6 of itself there.
        assert ((previous.double() - exact) / exact).abs().max() < 3e-6


@needs_compiler
def test_order_one_is_exactly_plain() -> None:
    gradient, weights, previous, anchor = stack()
    step = fused_step([Fractional(alpha=1.0)], [{}], 0.05, anchor)
    # A pull of 0 leaves the plain step in C: g + 0 is g.
    plain = fused_step([Proximal(mu=0.0)], [{}], 0.05, anchor)
    assert step is not None and plain is not None
    step(gradient, weights, previous, first=False)
    plain(gradient, weights, None, first=False)
    assert previous.equal(weights)


@needs_compiler
def test_what_is_not_finite_stays_so() -> None:
    gradient, weights, previous, anchor = stack()
    gradient[0, 0] = inf
    weights[1, 1] = nan
    step = fused_step([Proximal(), Fractional()], [{}, {}], 0.05, anchor)
    assert step is not None
    step(gradient, weights, previous, first=False)
    assert not previous[0].isfinite().all() and not previous[1].isfinite().all()
    assert previous[2].isfinite().all()


@needs_compiler
def test_rows_may_differ_in_their_numbers() -> None:
    columns = {"mu": torch.tensor([[0.0], [0.5], [1.0]])}
    rates = torch.tensor([[0.1], [0.2], [0.0]])
    gradient, weights, _, anchor = stack()
    expected = weights - rates * (gradient + columns["mu"] * (weights - anchor))
    step = fused_step([lifted(Proximal(), columns)], [{}], rates, anchor)
    assert step is not None
    step(gradient, weights, None, first=False)
    torch.testing.assert_close(weights, expected, rtol=0, atol=5e-7)


@dataclass(frozen=True, kw_only=True)
class Doubled(Fractional):
    def direction(self, gradient, weights, previous, plan):
        return 2 * gradient


@dataclass(frozen=True, kw_only=True)
class Shifted(LocalRule):
    def gradient(self, gradient, weights, anchor, plan):
        return gradient + 1


@pytest.mark.parametrize("rule", [Doubled(), Shifted()], ids=["departs", "new"])
def test_a_rule_without_c_of_its_own_is_left_to_torch(rule: LocalRule) -> None:
    assert fused_step([Proximal(), rule], [{}, {}], 0.1, torch.zeros(2, 3)) is None


def test_torch_steps_in() -> None:
    anchor = torch.zeros(2, 3)
    assert fused_step([], [], 0.1, anchor) is None  # nothing to put together
    assert fused_step([Proximal()], [{}], 0.1, anchor.double()) is None
    with compiling_with("no-such-compiler"):
        assert fused_step([Proximal()], [{}], 0.1, anchor) is None
