"""Hyperparameters: which values are refused, and in which ranges they are tuned."""

from dataclasses import dataclass, fields
from math import inf, nan

import pytest

from fedwatt.errors import SettingError
from fedwatt.methods import METHODS, Proximal, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS
from fedwatt.methods.ranges import Tunable

FINITE = [
    ("fedprox", "mu"),
    ("ri-fedavg", "lam"),
    ("ri-fedavg", "radius"),
    ("ri-fedavg", "tau_i"),
    ("ri-fedavg", "epsilon_a"),
    ("ri-fedavg", "epsilon_t"),
    ("fo-fedavg", "delta"),
    ("fo-fedavg", "beta_kappa"),
    ("fo-fedavg", "epsilon_f"),
    ("moon", "contrast_weight"),
    ("moon", "temperature"),
    ("feddyn", "alpha_dyn"),
    ("scaffold", "server_rate"),
    ("fedadam", "server_rate"),
    ("fedadam", "tau"),
    ("fedavg@sgd", "server_rate"),
    ("fedavg@geometric", "smoothing"),
    ("fedavg@geometric", "tolerance"),
    ("label-shift", "fault_scale"),
]


@pytest.mark.parametrize("value", [inf, nan])
@pytest.mark.parametrize(("method", "name"), FINITE)
def test_only_finite_numbers(method: str, name: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"{name} must be .*finite"):
        get(method, **{name: value})


@pytest.mark.parametrize(
    ("method", "wrong", "message"),
    [
        ("fo-fedavg", {"p_max": -1.0}, r"\(p_max=-1.0\): p_max must be above 0"),
        ("fo-fedavg", {"p_max": nan}, "p_max must be above 0"),
        ("fo-fedavg", {"p_min": 9.0}, r"p_min must be in \(0, p_max=5.0\]"),
        ("fo-fedavg", {"p_min": inf, "p_max": inf}, "p_min must be .* finite"),
        ("ri-fedavg", {"i_max": -1.0}, r"\(i_max=-1.0\): i_max must be at least 0"),
        ("ri-fedavg", {"i_min": inf, "i_max": inf}, "i_min must be .* finite"),
    ],
)
def test_limits_are_named_themselves(method: str, wrong: dict[str, float], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        get(method, **wrong)


def test_an_upper_limit_may_be_off() -> None:
    assert get("fo-fedavg", p_max=inf).settings["p_max"] == inf
    assert get("ri-fedavg", i_max=inf).settings["i_max"] == inf


RULES = {
    type(rule).__name__: rule
    for rule in [
        *LOCAL_RULES.values(),
        *SERVERS.values(),
        *DEFENCES.values(),
        *(rule for recipe in METHODS.values() for rule in (*recipe.local, recipe.server)),
    ]
}


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_every_float_is_tuned_or_left_alone_for_a_reason(rule: Tunable) -> None:
    floats = [field.name for field in fields(rule) if field.type is float]
    assert sorted(floats) == sorted([*rule.ranges, *rule.fixed])
    assert all(rule.fixed.values())
    for name, wanted in rule.ranges.items():
        assert getattr(rule, name) in wanted
        assert 0 < wanted.low < wanted.high or not wanted.log


def test_another_default_leaves_a_hyperparameter_as_it_was_declared() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Harder(Proximal):
        mu: float = 0.5

    assert Harder().ranges == Proximal().ranges
    with pytest.raises(SettingError, match=r"Harder\(mu=-1\): mu must be at least 0 and finite"):
        Harder(mu=-1)
