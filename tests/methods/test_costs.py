"""Traffic and memory of the methods, in numbers of weights."""

import pytest

from fedwatt.methods import METHODS, get
from fedwatt.methods.costs import costs
from fedwatt.models import MLP

MODEL = MLP(6, 3, (5, 4))
D = 18 * 5 + 5 + 5 * 4 + 4 + 4 + 1


@pytest.mark.parametrize(
    ("name", "down", "up", "vehicle", "server"),
    [
        ("fedavg", D, D, 0, 0),
        ("fedprox", D, D, 0, 0),
        ("scaffold", 2 * D, 2 * D, D, D),
        ("fednova", D, D + 1, 0, 0),
        ("fedadam", D, D, 0, 2 * D),
        ("moon", D, D, D + 1, 0),
        ("feddyn", D, D, D, D),
        ("fo-ri-fedavg", D, D, 2, 0),
        ("ditto", D, D, D + 1, 0),
        ("fedrep", D, D, (4 + 1) + 1, 0),  # the head, and whether there is one
        ("fedbabu", D, D, 0, 0),
        ("ifca", 2 * D + 1, D + 2, 0, 2 * D + 2 + 1),  # two centres
    ],
)
def test_costs_of_named_methods(name: str, down: int, up: int, vehicle: int, server: int) -> None:
    cost = costs(get(name), MODEL)
    assert (cost.down, cost.up, cost.vehicle, cost.server) == (down, up, vehicle, server)


@pytest.mark.parametrize("name", METHODS)
def test_no_method_sends_less_than_a_model(name: str) -> None:
    cost = costs(get(name), MODEL)
    assert cost.weights == D
    assert cost.down >= D
    assert cost.up >= D
