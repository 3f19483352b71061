"""Hyperparameters: which values are refused, and in which ranges they are tuned."""

from dataclasses import dataclass, fields
from math import inf, nan

import pytest

from fedwatt.errors import SettingError
from fedwatt.methods import METHODS, Method, Proximal, get
from fedwatt.methods.catalogue import DEFENCES, LOCAL_RULES, SERVERS
from fedwatt.settings import Range, Tunable, choice, number

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
    ("scaffold", "server_learning_rate"),
    ("fedadam", "server_learning_rate"),
    ("fedadam", "tau"),
    ("fedavg@sgd", "server_learning_rate"),
    ("fedavg@geometric", "smoothing"),
    ("fedavg@geometric", "tolerance"),
    ("fedavg+examples.faulty_vehicles:LabelShift", "fault_scale"),
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
    for name, expected in rule.ranges.items():
        assert getattr(rule, name) in expected
        assert 0 < expected.low < expected.high or not expected.log


def test_another_default_leaves_a_hyperparameter_as_it_was_declared() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Harder(Proximal):
        mu: float = 0.5

    assert Harder().ranges == Proximal().ranges == {"mu": Range(1e-3, 1.0)}
    with pytest.raises(SettingError, match=r"Harder\(mu=-1\): mu must be at least 0 and finite"):
        Harder(mu=-1)


@dataclass(frozen=True, kw_only=True)
class Mixed(Proximal):
    """An inherited hyperparameter, one that is tuned and one that is not."""

    decay: float = number(0.1, "[0, 1]", tuned=Range(0.01, 1.0))
    floor: float = number(0.0, "[0, 1]", fixed="a safeguard")


@dataclass(frozen=True, kw_only=True)
class Settled(Mixed):
    """Leaves alone what its parent tunes."""

    floor: float = number(0.1, "[0, 1]")
    decay: float = number(0.1, "[0, 1]", fixed="known")


def test_declarations_of_a_class_replace_its_parents() -> None:
    tuned = {"decay": Range(0.01, 1.0), "mu": Range(1e-3, 1.0)}
    assert Mixed().ranges == tuned
    assert list(Mixed().ranges) == sorted(tuned)
    assert Mixed().fixed == {"floor": "a safeguard"}
    assert Settled().ranges == {"mu": Range(1e-3, 1.0)}
    assert Settled().fixed == {"decay": "known"}


def test_a_rule_that_forgets_its_parents_check_is_refused_in_a_method() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Forgetful(Proximal):
        def __post_init__(self) -> None:
            pass

    with pytest.raises(SettingError, match=r"Forgetful\(mu=-1\): mu must be at least 0"):
        Method("own", (Forgetful(mu=-1),))


@pytest.mark.parametrize(
    ("declared", "wrong", "allowed"),
    [
        (lambda: number(-1.0, "(-inf, 0]"), 1.0, r"in \(-inf, 0\]"),
        (lambda: number(-1.0, "[-inf, inf]"), nan, r"in \[-inf, inf\]"),
        (lambda: number(0.0, "(-inf, inf)"), inf, "finite"),
        (lambda: number(2_000_000, "[1234567, inf]"), 0, "at least 1234567"),
        (lambda: number(1.0, "(0.001, inf)"), 0.0, "above 0.001 and finite"),
        (lambda: choice("a"), "b", "'a'"),
        (lambda: choice("a", "b", "c"), "d", "'a', 'b' or 'c'"),
    ],
)
def test_a_refusal_says_what_is_allowed(declared, wrong, allowed) -> None:
    @dataclass(frozen=True)
    class Declared(Tunable):
        value: object = declared()

    Declared()
    with pytest.raises(SettingError, match=f"value must be {allowed}\\.$"):
        Declared(wrong)


def test_a_number_is_tuned_or_fixed() -> None:
    with pytest.raises(SettingError, match=r"number\(0.5, ...\) is both tuned and fixed"):
        number(0.5, "[0, 1]", tuned=Range(0.1, 1.0), fixed="known")
    with pytest.raises(TypeError, match="tunned"):
        number(0.5, "[0, 1]", tunned=Range(0.1, 1.0))
