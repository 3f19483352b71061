"""Calls of a round and their steps follow from terms and names alone."""

import pytest
import torch

from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Training
from fedwatt.federation.participation import (
    Members,
    Terms,
    checked_seeds,
    lost_replies,
    participants,
)
from tests.federation.toys import random_fleet

MEMBERS = Members(random_fleet((70, 33, 128, 5, 60), held_out=(1,)), 0)
EVERYBODY = torch.ones(2, 4, dtype=torch.bool)


def test_all_vehicles_that_may_train_take_an_epoch() -> None:
    terms = Terms(Training(participation=1.0, batch=16), Availability(), (1, 2))
    calls = terms.calls(0, MEMBERS, EVERYBODY, live=[1])
    # ⌈70/16⌉, ⌈128/16⌉, ⌈5/16⌉ and ⌈60/16⌉ batches; vehicle 1 is held out.
    assert [(c.run, c.vehicle, c.steps) for c in calls] == [
        (1, 0, 5), (1, 2, 8), (1, 3, 1), (1, 4, 4)
    ]  # fmt: skip


def test_a_secret_seed_draws_other_participants_and_loses_the_same_replies() -> None:
    availability = Availability(reply_loss=0.5)
    terms = Terms(Training(participation=0.5), availability, (1, 2))
    lost = lost_replies(2, 7, 4, availability)
    for seed in (None, 11, 12, 13):
        drawn = participants(2 if seed is None else seed, 7, EVERYBODY[1].numpy(), 0.5)
        calls = terms.calls(7, MEMBERS, EVERYBODY, live=[1], calling_seed=seed)
        assert [call.vehicle for call in calls] == MEMBERS.population[drawn].tolist()
        assert [call.steps == 0 for call in calls] == lost[drawn].tolist()


def test_members_are_those_that_may_train() -> None:
    assert MEMBERS.population.tolist() == [0, 2, 3, 4]
    assert MEMBERS.population_windows == 70 + 128 + 5 + 60
    assert [MEMBERS.held_out(k) for k in range(5)] == [False, True, False, False, False]


@pytest.mark.parametrize("seeds", [(), (1, 1), 3])
def test_seeds_must_differ(seeds: object) -> None:
    with pytest.raises(SettingError, match="one or more different numbers"):
        checked_seeds(seeds)
