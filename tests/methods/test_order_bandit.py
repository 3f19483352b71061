"""The bandit over the order of fractional steps: its golden sequence, its rewards, its identity."""

from math import log

import numpy as np
import pytest
import torch
from pytest import approx

from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.methods.order_bandit import REFERENCE, OrderBandit
from fedwatt.methods.rule import Rows
from fedwatt.methods.server import Replies
from fedwatt.models import MLP
from tests.federation.toys import random_fleet

MODEL = MLP(4, 8, (6, 5))
pytestmark = pytest.mark.filterwarnings("ignore:The steps of .* run in torch")  # p has a mean


def told(rule: OrderBandit, state: Rows, *losses: float) -> Rows:
    """The state after rounds in which the one reply has these losses."""
    for loss in losses:
        uploads = {"loss_before": torch.tensor([loss], dtype=torch.float64)}
        rng = np.random.default_rng(0)
        replies = Replies(torch.zeros(1, 3), torch.ones(1).double(), 1, 1.0, rng, uploads)
        state, _ = rule.update(state, torch.zeros(3), replies)
    return state


def order(rule: OrderBandit, state: Rows) -> float:
    return rule.broadcast(state)["alpha"].item()


def test_the_golden_sequence_of_arms() -> None:
    rule = OrderBandit()
    rewards = (0.004, 0.006, -0.01)
    state = rule.state(MODEL)
    arms = []
    for _ in range(14):
        arm = rule.chosen(state)
        state = rule.credited(state, arm, rewards[arm])
        arms.append(rule.arms[arm])
    expected = "0.9 0.8 0.7 0.8 0.9 0.8 0.9 0.8 0.8 0.9 0.8 0.8 0.9 0.8"
    assert arms == [float(one) for one in expected.split()]
    known = [3.6064350391, 6.0712652863, 0.5688000923]
    assert state["weights"].tolist() == approx(known, abs=1e-9)


def test_a_reward_is_held_against_the_blocks_around_it() -> None:
    rule = OrderBandit(arms=(0.8, 0.6), block=2)
    state = rule.state(MODEL)
    assert order(rule, state) == 1.0
    # Means of losses: 8, 6 | 5, 4 | 4, 3.1: each is half the last and half the new.
    state = told(rule, state, 8.0, 4.0)
    assert order(rule, state) == 0.8
    state = told(rule, state, 4.0, 3.0)
    assert order(rule, state) == 1.0
    state = told(rule, state, 4.0, 2.2)
    reward = log(5 / 4) - (log(8 / 6) + log(4 / 3.1)) / 2
    assert abs(reward) < 0.05
    assert state["sums"].tolist() == approx([reward, 0.0], abs=1e-12)
    assert order(rule, state) == 0.6  # untried


def test_a_block_in_which_the_loss_rises_is_punished_and_rested_from() -> None:
    rule = OrderBandit(arms=(0.8, 0.6), block=2)
    state = told(rule, rule.state(MODEL), 8.0, 8.0, 8.0, 12.0)  # means 8, 8 | 8, 10
    assert state["sums"].tolist() == approx([-0.05, 0.0])
    for losses in ((10.0, 10.0), (10.0, 10.0)):
        assert order(rule, state) == 1.0
        state = told(rule, state, *losses)
    assert order(rule, state) == 0.6


def test_after_twelve_arm_blocks_the_best_arm_stays_only_if_it_is_clearly_better() -> None:
    rule = OrderBandit(arms=(0.8, 0.6))
    state = rule.state(MODEL)
    for reward in (0.010, 0.012, 0.011):
        state = rule.credited(state, 1, reward)
    assert rule.verdict(rule.credited(state, 0, 0.0)) == 1
    for reward in (-0.02, 0.03):
        state = rule.credited(state, 1, reward)  # mean 0.0086, standard error 0.0082
    assert rule.verdict(rule.credited(state, 0, 0.0)) == REFERENCE


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_one_arm_without_reference_is_a_fixed_order_bit_for_bit(precision: str) -> None:
    def trained(method: str, **settings: object) -> torch.Tensor:
        training = Training(rounds=4, participation=0.75, batch=16, precision=precision)
        federation = Federation(random_fleet(), MODEL, training=training, device="cpu")
        return federation.train(get(method, **settings)).state.weights

    chosen = trained("chosen-order@bandit", arms=(0.7,), reference=False, block=2)
    assert torch.equal(chosen, trained("fo-fedavg", alpha=0.7, match_rate=True))


def test_orders_are_recorded_and_the_reference_comes_first() -> None:
    training = Training(rounds=8, participation=1.0, batch=16)
    federation = Federation(random_fleet(), MODEL, training=training, device="cpu")
    rows = federation.train(get("chosen-order@bandit", block=2)).history.clients
    by_round = {row["round"]: row["alpha"] for row in rows}
    # Told in the precision of training.
    assert [by_round[at] for at in range(1, 7)] == approx([1.0, 1.0, 0.9, 0.9, 1.0, 1.0])


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [({"arms": ()}, "arms"), ({"arms": (1.5,)}, "arms"), ({"block": 1}, "block")],
)
def test_what_is_refused(settings: dict[str, object], wrong: str) -> None:
    with pytest.raises(SettingError, match=wrong):
        get("chosen-order@bandit", **settings)


def test_both_halves_are_needed() -> None:
    with pytest.raises(SettingError, match="halves of one mechanism"):
        get("chosen-order")
