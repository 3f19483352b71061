"""Models are evaluated on a sample of the vehicles."""

import numpy as np
import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, Training
from fedwatt.models import MLP
from fedwatt.windows import Fleet
from tests.federation.toys import random_fleet


def federation(fleet: Fleet, **training) -> Federation:
    terms = {"rounds": 3, "participation": 0.5, "batch": 16} | training
    return Federation(
        fleet,
        MLP(4, 8, (6, 5)),
        training=Training(**terms),
        availability=Availability(reply_loss=0.2, p_leave=0.2, p_join=0.5),
        seeds=(1, 2),
        device="cpu",
    )


def test_a_sample_of_vehicles_is_evaluated() -> None:
    fleet = random_fleet((20, 30, 40, 50, 60, 70), held_out=(1, 4))
    every = federation(fleet)
    some = federation(fleet, evaluate_vehicles=2)
    assert every.members.evaluated == [0, 1, 2, 3, 4, 5]
    assert len(some.members.evaluated) == 4 and {1, 4} < set(some.members.evaluated)
    weights = torch.stack([some.model.initial(np.random.default_rng(0))]).float()
    (complete,) = every.evaluate(weights)
    (part,) = some.evaluate(weights)
    assert part.test == [complete.test[k] for k in some.members.evaluated]
    assert part.validation == [complete.validation[k] for k in some.members.evaluated]
    # Training itself does not know who is looked at.
    full_evaluation = every.train("fedavg")
    other = some.train("fedavg")
    assert torch.equal(full_evaluation.state.weights, other.state.weights)
    assert full_evaluation.history.clients == other.history.clients
    assert full_evaluation.history.last("test_rmse") != other.history.last("test_rmse")


def test_the_sample_depends_on_names_alone() -> None:
    fleet = random_fleet((20,) * 12)
    three, four = ({fleet.clients[k].name for k in fleet.sample(count)} for count in (3, 4))
    assert len(three) == 3 and three < four
    turned = Fleet(fleet.clients[::-1], fleet.settings, fleet.source)
    assert three == {turned.clients[k].name for k in turned.sample(3)}
    assert fleet.sample(0) == fleet.sample(12) == list(range(12))


def test_a_negative_sample_is_refused() -> None:
    with pytest.raises(SettingError, match=r"evaluate_vehicles must be at least 0"):
        Training(evaluate_vehicles=-1)
