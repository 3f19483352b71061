"""One training whose participants train in shares."""

import pickle

import pytest
import torch

from fedwatt.federation import Availability, Federation, Training
from fedwatt.federation.dealing import adds_up, dealt_federation, train_share
from fedwatt.methods import get
from fedwatt.synthetic import synthetic_fleet
from fedwatt.synthetic.fleet import TownVehicles

TRAINING = Training(rounds=2, participation=0.7, steps=4, batch=16)
LOSSY = Availability(reply_loss=0.2, speeds=(1.0, 0.5), deadline=3)
FLEET = synthetic_fleet(9, trips=3)


def federation(fleet=FLEET) -> Federation:
    return Federation(fleet, training=TRAINING, availability=LOSSY, seeds=(1, 2), device="cpu")


def dealt(method: str, shares: int, fleet=FLEET) -> Federation:
    """Shares are trained one after the other, by a federation of their own."""
    other = federation(fleet)
    return dealt_federation(
        federation(fleet),
        lambda start, own: [train_share(other, get(method), start, one) for one in own],
        shares,
    )


def columns(trained, name: str) -> list[float]:
    return [row[name] for row in trained.history.rounds]


@pytest.mark.parametrize("method", ["fo-ri-fedavg", "scaffold", "fednova", "fedel", "ifca"])
def test_shares_make_the_model_of_one_stack(method):
    whole = federation().train(method)
    parts = dealt(method, 4).train(method)
    # Sums in float64 in another order; a model is float32, so all but a few last bits agree.
    torch.testing.assert_close(parts.state.weights, whole.state.weights, rtol=1e-5, atol=1e-6)
    assert columns(parts, "replies") == columns(whole, "replies")
    agreed = columns(whole, "agreement")
    assert columns(parts, "agreement") == pytest.approx(agreed, abs=1e-6, nan_ok=True)
    for one, other in zip(whole.history.clients, parts.history.clients, strict=True):
        assert one["vehicle"] == other["vehicle"] and one["steps"] == other["steps"]
        assert one["drift"] == pytest.approx(other["drift"], rel=1e-4, nan_ok=True)


def test_a_server_that_must_see_every_reply_does():
    method = "fedavg@median"
    assert not adds_up(get(method)) and adds_up(get("scaffold"))
    whole = federation().train(method)
    parts = dealt(method, 3).train(method)
    # Steps in C have the same bits whoever shares a stack.
    assert torch.equal(parts.state.weights, whole.state.weights)


def test_vehicles_on_demand_are_made_by_the_workers_alone():
    fleet = TownVehicles(9, 0, 3).lazy_fleet()
    whole = federation().train("fedavg")
    parts = dealt("fedavg", 2, fleet).train("fedavg")
    torch.testing.assert_close(parts.state.weights, whole.state.weights, rtol=1e-5, atol=1e-6)
    assert [row["windows"] for row in parts.history.clients] == [
        row["windows"] for row in whole.history.clients
    ]


def test_what_comes_back_is_two_sums_and_no_reply():
    other = federation()
    method = get("fedavg")
    sizes = []

    def deal(start, shares):
        parts = [train_share(other, method, start, one) for one in shares]
        sizes.extend((len(pickle.dumps(part)), len(part.sums)) for part in parts)
        return parts

    model = other.model.layout.size
    dealt_federation(federation(), deal, 2).train("fedavg")
    for size, runs in sizes:  # two sums in float64 for each run, and a few numbers a vehicle
        assert 2 * 8 * model * runs <= size < 2 * 8 * model * runs + 20_000


def test_the_order_in_which_shares_are_finished_changes_no_bit():
    other = federation()
    method = get("scaffold")

    def backwards(start, shares):
        return [train_share(other, method, start, one) for one in reversed(shares)][::-1]

    forwards = dealt("scaffold", 4).train(method).state.weights
    assert torch.equal(
        dealt_federation(federation(), backwards, 4).train(method).state.weights, forwards
    )
