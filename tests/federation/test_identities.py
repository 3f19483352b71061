"""Methods that must be the same method, bit for bit, on a fleet of unequal vehicles."""

import pytest
import torch

from fedwatt.federation import Federation, Training
from fedwatt.methods import Method, get
from fedwatt.models import MLP
from fedwatt.windows import Fleet
from tests.federation.toys import random_fleet

SMALL_PROBE = {"directions": 2, "points": 4, "probe_batch": 16, "radius": 0.5}


def weights(method: Method | str, *, fleet: Fleet | None = None, **training) -> torch.Tensor:
    settings = {"rounds": 4, "participation": 0.5, "batch": 16} | training
    federation = Federation(
        fleet or random_fleet(),
        MLP(4, 8, (6, 5)),
        training=Training(**settings),
        seeds=(1, 2),
        device="cpu",
    )
    state = federation.train(method).state
    assert state.round == settings["rounds"]
    return state.weights


def test_fedprox_without_a_pull_is_fedavg() -> None:
    assert torch.equal(weights(get("fedprox", mu=0.0)), weights("fedavg"))
    assert not torch.equal(weights(get("fedprox", mu=0.5)), weights("fedavg"))


@pytest.mark.parametrize("name", ["fedprox", "fo-fedavg", "ri-fedavg", "fo-ri-fedavg", "fednova"])
def test_with_one_local_step_these_are_fedavg(name: str) -> None:
    # At the only step a vehicle stands on the broadcast model and has no step behind it.
    settings = {"mu": 5.0} if name == "fedprox" else {}
    assert torch.equal(weights(get(name, **settings), steps=1), weights("fedavg", steps=1))


def test_order_one_leaves_only_the_pull() -> None:
    fractional = get("fo-ri-fedavg", alpha=1.0, lam=5.0, **SMALL_PROBE)
    assert torch.equal(weights(fractional), weights(get("ri-fedavg", lam=5.0, **SMALL_PROBE)))
    # ... and the pull is really there: vehicles had a roughness to respond to.
    assert not torch.equal(weights(fractional), weights("fedavg"))


def test_without_response_only_fractional_steps_are_left() -> None:
    silent = get("fo-ri-fedavg", response="clipped", i_max=0.0, **SMALL_PROBE)
    assert torch.equal(weights(silent), weights("fo-fedavg"))
    assert not torch.equal(weights(silent), weights("fedavg"))


def test_both_off_is_fedavg() -> None:
    off = get("fo-ri-fedavg", alpha=1.0, lam=0.0, **SMALL_PROBE)
    assert torch.equal(weights(off), weights("fedavg"))


def test_probing_alone_changes_nothing() -> None:
    for every in (1, 3):
        probing = get("ri-fedavg", lam=0.0, probe_every=every, **SMALL_PROBE)
        assert torch.equal(weights(probing), weights("fedavg"))


def test_a_constant_index_is_fedprox() -> None:
    # r = clip(I, 0.5, 0.5), so λ r = 0.125: exact in binary, whatever the probe says.
    constant = get("ri-fedavg", lam=0.25, response="clipped", i_min=0.5, i_max=0.5, **SMALL_PROBE)
    assert torch.equal(weights(constant), weights(get("fedprox", mu=0.125)))


def test_a_closed_clip_is_fedavg() -> None:
    assert torch.equal(weights(get("fo-fedavg", p_min=1.0, p_max=1.0)), weights("fedavg"))


def test_order_one_with_a_gate_is_not_plain() -> None:
    gated = get("fo-fedavg", alpha=1.0, beta_kappa=0.5)
    assert not torch.equal(weights(gated), weights("fedavg"))


def test_the_order_of_vehicles_matters_only_to_rounding() -> None:
    fleet = random_fleet()
    turned = Fleet(fleet.clients[::-1], fleet.settings, fleet.source)
    # All vehicles train, so that both orders train the same ones.
    here = weights("fo-fedavg", fleet=fleet, participation=1.0, precision="float64")
    weights_after = weights("fo-fedavg", fleet=turned, participation=1.0, precision="float64")
    torch.testing.assert_close(here, weights_after, rtol=0, atol=1e-12)


def test_seeds_in_one_stack_are_seeds_alone() -> None:
    def trained_with(seeds: tuple[int, ...]) -> torch.Tensor:
        training = Training(rounds=4, participation=0.5, batch=16, precision="float64")
        federation = Federation(
            random_fleet(), MLP(4, 8, (6, 5)), training=training, seeds=seeds, device="cpu"
        )
        return federation.train(get("fo-ri-fedavg", **SMALL_PROBE)).state.weights

    together = trained_with((1, 2, 3))
    for row, seed in enumerate((1, 2, 3)):
        torch.testing.assert_close(together[row], trained_with((seed,))[0], rtol=0, atol=1e-12)
