"""ε by the accountant: published vectors, closed forms, the ε of a run."""

from dataclasses import replace
from math import comb, exp, inf, log

import dp_accounting
import pytest
from dp_accounting.rdp import RdpAccountant

from fedwatt.errors import SettingError
from fedwatt.methods import get
from fedwatt.privacy import Budget, budget
from fedwatt.privacy.accounting import ORDERS


@pytest.mark.parametrize(
    ("q", "z", "rounds", "delta", "epsilon"),
    [
        (0.01, 1.0, 1000, 1e-5, 2.1078),
        (1.0, 1.0, 1, 1e-5, 4.7527),
        (0.3, 4.0, 300, 1e-3, 5.1225),
        (0.3, 8.0, 300, 1e-3, 2.1327),
        (0.3, 1.0, 300, 1e-3, 48.66),
    ],
)
def test_known_budgets(q: float, z: float, rounds: int, delta: float, epsilon: float) -> None:
    assert Budget(z, q, delta).epsilon(rounds) == pytest.approx(epsilon, rel=3e-5)


def test_the_accountant_itself_meets_the_vector_of_two_mechanisms() -> None:
    accountant = RdpAccountant(range(2, 33))
    for q, z, rounds in ((1e-5, 1.0, 10), (1e-4, 3.0, 4)):
        event = dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(z))
        accountant.compose(event, rounds)
    epsilon, order = accountant.get_epsilon_and_optimal_order(1e-5)
    assert (round(float(epsilon), 5), order) == (0.33634, 23)


def independent(q: float, z: float, rounds: int, delta: float) -> float:
    """ε by Google's accountant."""
    accountant = RdpAccountant(ORDERS)
    noise = dp_accounting.GaussianDpEvent(z)
    accountant.compose(dp_accounting.PoissonSampledDpEvent(q, noise), rounds)
    return float(accountant.get_epsilon(delta))


@pytest.mark.parametrize("q", [0.2, 1.0, 1e-4])
@pytest.mark.parametrize("z", [0.2, 1.3, 20.0])
def test_epsilon_is_that_of_an_independent_accountant(q: float, z: float) -> None:
    for rounds in (1, 7, 40):
        expected = independent(q, z, rounds, 1e-3)
        # Sums of logarithms, added in another order.
        assert Budget(z, q, 1e-3).epsilon(rounds) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_forty_rounds() -> None:
    """K = 200, q = 0.3, z = 1."""
    assert Budget(1.0, 0.3, 200**-1.1).epsilon(40) == pytest.approx(10.194, abs=1e-3)


def test_repeated_rounds_and_what_a_server_sees() -> None:
    local = Budget(2.0, 0.3, 1e-3)
    assert replace(local, repeated=2).epsilon(5) == local.epsilon(7)
    assert replace(local, repeated=1).epsilon(0) == local.epsilon(1)
    assert local.seen_by_server.epsilon(5) == pytest.approx(
        independent(1.0, 2.0, 5, 1e-3), rel=1e-9
    )


def test_epsilon_is_the_formula_s() -> None:
    q = 0.3
    z = 4.0
    rounds = 25
    delta = 1e-3

    def term(a: int) -> float:
        terms = (
            comb(a, i) * (1 - q) ** (a - i) * q**i * exp(i * (i - 1) / (2 * z**2))
            for i in range(a + 1)
        )
        moment = log(sum(terms)) / (a - 1)
        return rounds * moment + log((a - 1) / a) - (log(delta) + log(a)) / (a - 1)

    # Orders above 60 are far from the best one here, and their terms overflow a float.
    expected = min(term(a) for a in range(2, 61))
    assert Budget(z, q, delta).epsilon(rounds) == pytest.approx(expected, rel=1e-9)


def test_more_rounds_cost_more_and_more_noise_costs_less() -> None:
    local = Budget(2.0, 0.3, 1e-3)
    spent = [local.epsilon(t) for t in range(6)]
    assert spent[0] == 0.0
    assert spent == sorted(spent)
    assert Budget(3.0, 0.3, 1e-3).epsilon(5) < spent[5] < Budget(2.0, 1.0, 1e-3).epsilon(5)


def test_without_noise_there_is_no_privacy() -> None:
    assert Budget(0.0, 0.3, 1e-3).epsilon(1) == inf
    assert Budget(0.0, 0.3, 1e-3).epsilon(0) == 0.0
    assert Budget(1.0, 0.0, 1e-3).epsilon(9) == 0.0


def test_the_budget_of_a_method() -> None:
    def of(name: str, **settings) -> Budget | None:
        return budget(get(name, **settings), participation=0.3, population=100)

    assert of("fedavg") is None
    assert of("fedavg@private") == Budget(1.0, 0.3, 100**-1.1)
    assert of("fedavg@private", amplified=False, privacy_delta=1e-4) == Budget(1.0, 1.0, 1e-4)
    with pytest.raises(SettingError, match=r"privacy_delta must be below 1/K = 1/100, got 0.01"):
        of("fedavg@private", privacy_delta=0.01)
