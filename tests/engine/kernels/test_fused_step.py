"""Steps in C: what each rule says, and when torch does the work instead."""

from dataclasses import dataclass
from math import gamma, inf, nan

import pytest
import torch
from torch import Tensor

from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.engine.kernels.c_compiler import SlowerInTorch, compiled
from fedwatt.engine.kernels.fused_step import c_step, fused_step
from fedwatt.engine.pool import pool_fleet
from fedwatt.engine.step import move
from fedwatt.errors import SettingError
from fedwatt.methods import Fractional, Proximal, RoughnessProximal
from fedwatt.methods.dynamic import Dynamic
from fedwatt.methods.elastic import Elastic
from fedwatt.methods.experimental.sharpness import SharpnessProximal
from fedwatt.methods.momentum import ClientMomentum, FrozenMomentum, Momentum
from fedwatt.methods.personal import PersonalHead, Tether
from fedwatt.methods.rule import LocalRule, lifted
from fedwatt.methods.scaffold import ControlVariates
from fedwatt.models import MLP
from fedwatt.models.model import squared
from tests.engine.kernels.compilers import compiling_with
from tests.federation.toys import random_fleet

RULES = {
    "pull": [Proximal(mu=0.3)],
    "roughness": [RoughnessProximal()],
    "sharpness": [SharpnessProximal()],
    "power": [Fractional(alpha=0.6)],
    "wide clip": [Fractional(alpha=0.3, p_min=1e-4, p_max=inf)],
    "gate": [Fractional(beta_kappa=0.5)],
    "clip, then gate": [Fractional(beta_kappa=0.5, order="clip-then-gate")],
    "momentum": [Momentum(rho=0.7)],
    "client momentum": [ClientMomentum(alpha_cm=0.3)],
    "frozen momentum": [FrozenMomentum()],
    "scaffold": [ControlVariates()],
    "dynamic": [Dynamic()],
    "elastic": [Elastic()],
    "tether": [Tether(strength=0.3)],
    "head": [PersonalHead()],
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
    "fleet_momentum": torch.linspace(2, -1, 3 * 501).view(3, 501),
    "moving": torch.arange(3 * 501).view(3, 501) % 5 == 0,
    "broadcast": torch.linspace(-3, 1, 3 * 501).view(3, 501),
    "linear": torch.linspace(1, -2, 3 * 501).view(3, 501),
    "mask": torch.arange(3 * 501).view(3, 501) % 3 == 0,
}

needs_compiler = pytest.mark.skipif(
    compiled("int one(void) { return 1; }") is None, reason="no C compiler"
)


def a_job(rules, plans, anchor: Tensor, learning_rate: float | Tensor = 0.05) -> Job:
    """A job of which only the step is looked at."""
    fleet = random_fleet([20] * len(anchor))
    pool = pool_fleet(fleet, device=torch.device("cpu"), dtype=torch.float32)
    draws = [Draw(1, 0, c.name, windows=20, end=1, batch=4) for c in fleet.clients]
    batches = Batches(pool, range(len(anchor)), draws)
    return Job(tuple(rules), tuple(plans), MLP(4, 8, (3,)), squared, anchor, learning_rate, batches)


def plans_for(rules) -> list[dict[str, Tensor]]:
    """Return plans of rules: any number for their recorded columns besides `PLAN`.

    FedDyn plans its pull in the precision of the weights.
    """
    three = torch.tensor([0.3, 0.6, 0.2], dtype=torch.float64)
    plans = [{column.name: three for column in rule.records} | PLAN for rule in rules]
    return [
        plan | {"pull": PLAN["pull"].float()} if isinstance(rule, Dynamic) else plan
        for rule, plan in zip(rules, plans, strict=True)
    ]


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
    plans = plans_for(rules)
    looks_back = any(rule.looks_back for rule in rules)
    results = []
    for in_c in (True, False):
        gradient, weights, previous, anchor = stack()
        before = previous if looks_back else None
        if in_c:
            step = fused_step(a_job(rules, plans, anchor))
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
        step = fused_step(a_job([rule], [{}], torch.zeros_like(moved), -1.0))
        assert step is not None
        weights = torch.zeros_like(moved)
        previous = moved.clone()
        step(torch.ones_like(moved), weights, previous, first=False)
        exact = (moved.double() + 1e-12) ** (1 - alpha) / gamma(2 - alpha)
        # The logarithm is at most 40 in size and rounded to 2e-6 of itself there.
        assert ((previous.double() - exact) / exact).abs().max() < 3e-6


@needs_compiler
def test_order_one_is_exactly_plain() -> None:
    gradient, weights, previous, anchor = stack()
    step = fused_step(a_job([Fractional(alpha=1.0)], [{}], anchor))
    # A pull of 0 leaves the plain step in C: g + 0 is g.
    plain = fused_step(a_job([Proximal(mu=0.0)], [{}], anchor))
    assert step is not None and plain is not None
    step(gradient, weights, previous, first=False)
    plain(gradient, weights, None, first=False)
    assert previous.equal(weights)


@needs_compiler
def test_what_is_not_finite_stays_so() -> None:
    gradient, weights, previous, anchor = stack()
    gradient[0, 0] = inf
    weights[1, 1] = nan
    step = fused_step(a_job([Proximal(), Fractional()], [{}, {}], anchor))
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
    step = fused_step(a_job([lifted(Proximal(), columns)], [{}], anchor, rates))
    assert step is not None
    step(gradient, weights, None, first=False)
    torch.testing.assert_close(weights, expected, rtol=0, atol=5e-7)


@dataclass(frozen=True, kw_only=True)
class TwoPowers(LocalRule):
    """|w|^0.3 + |w|^0.7 times the gradient, as e to multiples of one logarithm."""

    low: float = 0.3
    high: float = 0.7

    def direction(self, gradient, weights, previous, plan):
        logarithm = torch.log(weights.abs())
        return gradient * (torch.exp(self.low * logarithm) + torch.exp(self.high * logarithm))


@needs_compiler
def test_two_powers_of_one_number() -> None:
    gradient, weights, _, anchor = stack()
    job = a_job([TwoPowers()], [{}], anchor)
    size = weights.abs()
    expected = weights - 0.05 * gradient * (size**0.3 + size**0.7)
    step = fused_step(job)
    assert step is not None
    step(gradient, weights, None, first=False)
    torch.testing.assert_close(weights, expected, rtol=0, atol=5e-7)


def changed(kind: type[LocalRule], hook: str) -> type[LocalRule]:
    """A subclass whose `hook`, a function of tensors, gives three times as much."""

    def three_times(self: LocalRule, *inputs, **more):
        result = getattr(super(type(self), self), hook)(*inputs, **more)
        return 3 * result

    return dataclass(frozen=True, kw_only=True)(
        type(f"Changed{kind.__name__}", (kind,), {hook: three_times})
    )


def subclasses(kind: type) -> set[type]:
    """Return all classes below `kind` that belong to fedwatt."""
    below = {
        subclass for child in kind.__subclasses__() for subclass in (child, *subclasses(child))
    }
    return {subclass for subclass in below if subclass.__module__.startswith("fedwatt.")}


FORMULAS = [
    (kind, hook)
    for kind in sorted(subclasses(LocalRule), key=lambda kind: kind.__name__)
    for hook in ("gradient", "direction")
    if getattr(kind, hook) is not getattr(LocalRule, hook)
]
"""Every formula of fedwatt's rules. What a hook reads of its plan and does not record is in `PLAN`.
"""


@needs_compiler
@pytest.mark.parametrize(("kind", "hook"), [*FORMULAS, (Fractional, "scale")], ids=str)
def test_a_changed_formula_is_changed_in_c(kind: type[LocalRule], hook: str) -> None:
    settings = {}
    if issubclass(kind, Fractional):
        settings = {"p_max": inf, "p_min": 1e-6, "match_rate": False}
    rules = [changed(kind, hook)(**settings)]
    results = []
    for rule, fast in ((rules[0], True), (rules[0], False), (kind(**settings), True)):
        gradient, weights, previous, anchor = stack()
        before = previous if rule.looks_back else None
        job = a_job([rule], plans_for([rule]), anchor)
        if fast:
            step = fused_step(job)
            assert step is not None
            step(gradient, weights, before, first=False)
        else:
            move(job.rules, job.plans, gradient, weights, before, anchor, 0.05, first=False)
        results.append(previous if rule.looks_back else weights)
    in_c, in_torch, unchanged = results
    torch.testing.assert_close(in_c, in_torch, rtol=1e-6, atol=1e-6)
    assert (in_c - unchanged).abs().max() > 0.01  # the change is one that would be seen


def test_the_formulas_are_those_of_all_rules() -> None:
    assert {(Proximal, "gradient"), (Fractional, "direction"), (Tether, "gradient")} < {*FORMULAS}
    assert len(FORMULAS) >= 16


@needs_compiler
def test_other_numbers_compile_nothing() -> None:
    anchor = stack()[3]
    sources = {
        c_step(
            a_job([Proximal(mu=mu), Fractional(alpha=alpha)], [{}, {}], anchor, learning_rate)
        ).source
        for mu, alpha, learning_rate in ((0.1, 0.8, 0.05), (0.3, 0.3, 0.01))
    }
    assert len(sources) == 1


@dataclass(frozen=True, kw_only=True)
class Shifted(LocalRule):
    def gradient(self, gradient, weights, anchor, plan):
        return gradient + 1


@needs_compiler
def test_a_rule_of_ones_own_is_compiled_too() -> None:
    gradient, weights, _, anchor = stack()
    step = fused_step(a_job([Shifted()], [{}], anchor, 0.5))
    assert step is not None
    expected = weights - 0.5 * (gradient + 1)
    step(gradient, weights, None, first=True)
    torch.testing.assert_close(weights, expected, rtol=0, atol=5e-7)


@dataclass(frozen=True, kw_only=True)
class UnitLength(LocalRule):
    def gradient(self, gradient, weights, anchor, plan):
        return gradient / gradient.norm(dim=-1, keepdim=True)


def test_a_rule_that_cannot_be_traced_says_so_once() -> None:
    job = a_job([Proximal(), UnitLength()], [{}, {}], torch.zeros(2, 3))
    with pytest.warns(SlowerInTorch, match=r"Proximal \+ UnitLength run in torch.*norm"):
        assert fused_step(job) is None
    assert fused_step(job) is None  # a second warning would be an error here


@dataclass(frozen=True, kw_only=True)
class Mixed(LocalRule):
    def gradient(self, gradient, weights, anchor, plan):
        return gradient / gradient.norm()  # of all vehicles together


def test_a_rule_that_mixes_vehicles_is_refused() -> None:
    with pytest.raises(SettingError, match=r"by Mixed depends on the others.*dim=-1"):
        fused_step(a_job([Mixed()], [{}], torch.zeros(2, 3)))


def test_float64_is_left_to_torch() -> None:
    assert fused_step(a_job([Proximal()], [{}], torch.zeros(2, 3).double())) is None


def test_without_a_compiler_torch_does_it() -> None:
    with compiling_with("no-such-compiler"):
        assert fused_step(a_job([Proximal()], [{}], torch.zeros(2, 3))) is None
