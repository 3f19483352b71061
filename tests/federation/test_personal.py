"""Methods that give vehicles models of their own: golden vectors, identities, plain loops."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from pytest import approx
from torch import Tensor

from fedwatt.engine.call import Call
from fedwatt.errors import SettingError
from fedwatt.federation import Federation, State, Training
from fedwatt.methods import Method, get
from fedwatt.models import MLP
from tests.federation import plain_personal as plain
from tests.federation.plain_baselines import Plain
from tests.federation.toys import FULL, PARTIAL, random_fleet, toy_rounds, toy_states

SIZES = (70, 33, 128, 5, 47)
MODEL = MLP(4, 8, (7, 5))
# float32 sums in another order differ by rounding, which some sixty steps spread a little.
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def federation(sizes: tuple[int, ...] = SIZES, **training: Any) -> Federation:
    settings = {"rounds": 3, "participation": 0.6, "batch": 16} | training
    return Federation(
        random_fleet(sizes), MODEL, training=Training(**settings), seeds=(3, 4), device="cpu"
    )


def states(fed: Federation, method: Method) -> Iterator[State]:
    state, _ = fed.start(method)
    while not fed.finished(state):
        state, _ = fed.advance(method, state)
        yield state


def own_models(fed: Federation, method: Method, state: State, run: int = 0) -> Tensor:
    """What each vehicle of a run would drive with, [K, D]."""
    calls = [Call(run, k, 0) for k in range(len(fed.fleet.clients))]
    return fed.simulated.own_models(method, state, calls)


# λ = 0.5: vehicle 1 and vehicle 2 after each round; None: it has not taken part yet.
DITTO = {
    FULL: [
        (0.5925000000, -0.6562500000),
        (0.5768906250, -1.2470937500),
        (0.5172614250, -1.5567952402),
    ],
    PARTIAL: [
        (0.5925000000, None),
        (0.5925000000, -0.6051875000),
        (0.5509804500, -1.2579394766),
    ],
}


@pytest.mark.parametrize("schedule", DITTO, ids=["full", "partial"])
def test_ditto_on_the_toy(schedule) -> None:
    method = get("ditto", lam_own=0.5)
    assert toy_rounds(method, schedule) == toy_rounds(get("fedavg"), schedule)
    for (toy, state), row in zip(toy_states(method, schedule), DITTO[schedule], strict=True):
        # A vehicle that never took part would drive with the model that it would begin at.
        expected = [state.weights.item() if own is None else own for own in row]
        assert own_models(toy, method, state).flatten().tolist() == approx(expected, abs=1e-9)


VARIANTS: dict[str, tuple[str, dict[str, Any], type[Plain], dict[str, Any]]] = {
    "ditto": ("ditto", {}, plain.Ditto, {}),
    "ditto, slower": (
        "ditto",
        {"lam_own": 1.0, "rate_own": 0.5},
        plain.Ditto,
        {"lam": 1.0, "rate_own": 0.5},
    ),
}


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", VARIANTS)
def test_agrees_with_one_vehicle_at_a_time(name: str, precision: str) -> None:
    label, settings, kind, own = VARIANTS[name]
    fed, method = federation(precision=precision), get(label, **settings)
    loops = [kind(fed.fleet, MODEL, fed.training, seed, **own) for seed in fed.seeds]
    rounds = [loop.rounds() for loop in loops]
    for state in states(fed, method):
        expected = torch.stack([next(one) for one in rounds])
        torch.testing.assert_close(state.weights, expected, rtol=0, atol=TOLERANCE[precision])
        for run, loop in enumerate(loops):
            driven = torch.stack([loop.own(client) for client in fed.fleet.clients])
            found = own_models(fed, method, state, run)
            torch.testing.assert_close(found, driven, rtol=0, atol=TOLERANCE[precision])


@pytest.mark.parametrize("plainly", ["fedavg", "fo-ri-fedavg", "scaffold", "fedavg@adam"])
def test_dittos_global_half_is_the_plain_method(plainly: str) -> None:
    local, at, server = plainly.partition("@")
    both = zip(
        states(federation(), get(f"{local}+own-model{at}{server}")),
        states(federation(), get(plainly)),
        strict=True,
    )
    for beside, alone in both:
        assert torch.equal(beside.weights, alone.weights)


def test_ditto_without_a_pull_is_training_alone() -> None:
    # A fleet of that vehicle alone, with the same name and so the same batches.
    fed, method = federation(participation=1.0), get("ditto", lam_own=0.0)
    first = random_fleet(SIZES).clients[0]
    lonely = federation((SIZES[0],), participation=1.0)
    assert lonely.fleet.clients[0].name == first.name
    for state, alone in zip(states(fed, method), states(lonely, get("fedavg")), strict=True):
        assert torch.equal(own_models(fed, method, state)[0], alone.weights[0])


def test_a_strong_pull_keeps_the_own_model_at_the_broadcast_one() -> None:
    # η_p λ = 1: v ← w_t - η_p ∇loss(v), at a rate that leaves nothing of the gradient.
    fed = federation(rate=0.05, schedule="constant", participation=1.0, precision="float64")
    method = get("ditto", rate_own=1e-6, lam_own=1 / (1e-6 * 0.05))
    state, _ = fed.start(method)
    for _ in range(2):
        sent = state.weights[0]
        state, _ = fed.advance(method, state)
        assert (own_models(fed, method, state) - sent).abs().max() < 1e-6
        assert (state.weights[0] - sent).abs().max() > 1e-3


def test_an_own_model_that_leaves_the_finite_numbers_stays(caplog) -> None:
    fed, method = federation((70, 33), participation=1.0), get("ditto", rate_own=1e30)
    after, _ = fed.advance(method, fed.start(method)[0])
    assert torch.equal(own_models(fed, method, after), after.weights[0].expand(2, -1))
    assert "the own model of car-000 is not finite" in caplog.text


def test_two_kinds_of_own_models_are_refused() -> None:
    class Other(type(get("ditto").local[0])):
        pass

    with pytest.raises(SettingError, match="each give vehicles a model of their own"):
        Method("both", (*get("ditto").local, Other()))
