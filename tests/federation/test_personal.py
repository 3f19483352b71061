"""Methods that give vehicles models of their own: golden vectors, identities, plain loops."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from pytest import approx
from torch import Tensor, nn

from fedwatt.errors import SettingError
from fedwatt.federation import Asynchronous, Federation, State, Training
from fedwatt.federation.participation import Call
from fedwatt.methods import Method, get
from fedwatt.models import MLP
from tests.federation import plain_personalised as plain
from tests.federation.plain_baselines import Plain
from tests.federation.toys import (
    FULL,
    PARTIAL,
    BodyAndHead,
    Line,
    line_client,
    line_federation,
    random_fleet,
    toy_rounds,
    toy_states,
)

SIZES = (70, 33, 128, 5, 47)
MODEL = MLP(4, 8, (7, 5))
# float32 sums in another order differ by rounding, which some sixty steps spread a little.
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}


def federation(
    sizes: tuple[int, ...] = SIZES, *, model: MLP = MODEL, **training: Any
) -> Federation:
    settings = {"rounds": 3, "participation": 0.6, "batch": 16} | training
    return Federation(
        random_fleet(sizes), model, training=Training(**settings), seeds=(3, 4), device="cpu"
    )


def states(fed: Federation, method: Method) -> Iterator[State]:
    state, _ = fed.start(method)
    while not fed.finished(state):
        state, _ = fed.advance(method, state)
        yield state


def quick(name: str) -> Method:
    """The method, with a small probe if it has one."""
    return get(name, **({"directions": 2, "points": 4, "radius": 0.5} if "ri-" in name else {}))


def personalised_models(fed: Federation, method: Method, state: State, run: int = 0) -> Tensor:
    """Return the personalised model of each vehicle of a run, [K, D]."""
    calls = [Call(run, k, 0) for k in range(len(fed.fleet.clients))]
    return fed.simulated.personalised_models(method, state, calls)


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
    method = get("ditto", lam_personal=0.5)
    assert toy_rounds(method, schedule) == toy_rounds(get("fedavg"), schedule)
    for (toy, state), row in zip(toy_states(method, schedule), DITTO[schedule], strict=True):
        # A vehicle that never took part would drive with the model that it would begin at.
        expected = [
            state.weights.item() if vehicle_weight is None else vehicle_weight
            for vehicle_weight in row
        ]
        assert personalised_models(toy, method, state).flatten().tolist() == approx(
            expected, abs=1e-9
        )


# After each round: the body, and the heads of vehicle 1 and vehicle 2.
HEADS = {
    ("together", FULL): [
        (-0.2760085938, 1.0489937500, 0.8565000000),
        (-0.8223210520, 0.9973205706, 1.2993858915),
        (-1.0587916933, 0.7487625582, 1.5843162212),
    ],
    ("together", PARTIAL): [
        (0.5947156250, 1.0489937500, 1.0),
        (-0.4539934471, 1.0489937500, 0.7377678666),
        (-0.9102397358, 0.9432728720, 1.2665773031),
    ],
    ("first", FULL): [
        (0.0081757812, 1.0250000000, 0.7500000000),
        (-0.3907353764, 1.0258107267, 0.7467196610),
        (-0.7606736376, 0.9710757126, 0.8802128560),
    ],
    ("first", PARTIAL): [
        (0.5499687500, 1.0250000000, 1.0),
        (-0.1038398422, 1.0250000000, 0.7195193748),
        (-0.4883173616, 1.0135107877, 0.7595036375),
    ],
}


@pytest.mark.parametrize(("when", "schedule"), HEADS)
def test_personal_heads_on_the_toy(when: str, schedule) -> None:
    # A third of 2 or 3 steps is one step of the head.
    method = get("fedrep", head_training=when, head_share=1 / 3)
    expected = HEADS[when, schedule]
    for (_, state), row in zip(toy_states(method, schedule, BodyAndHead()), expected, strict=True):
        body, head = state.weights[0].tolist()
        client_state = state.client_state
        heads = (
            torch.where(client_state["has_head"][..., None], client_state["personal_head"], 1.0)
            .flatten()
            .tolist()
        )
        assert [body, *heads] == approx(row, abs=1e-9)
        assert head == 1.0


@pytest.mark.parametrize("schedule", [FULL, PARTIAL], ids=["full", "partial"])
def test_fedbabu_with_a_head_of_one_is_scalar_fedavg(schedule) -> None:
    result = [s.weights[0].tolist() for _, s in toy_states(get("fedbabu"), schedule, BodyAndHead())]
    assert result == [[body, 1.0] for body in toy_rounds(get("fedavg"), schedule)]


# Centres from 0.5 and -0.5; vehicle 1 takes the first, vehicle 2 the second.
CENTRES = {
    FULL: [(0.595, -1.232), (0.67195, -1.606784), (0.7342795, -1.798673408)],
    PARTIAL: [(0.595, -0.5), (0.595, -1.232), (0.67195, -1.606784)],
}


@pytest.mark.parametrize("schedule", CENTRES, ids=["full", "partial"])
def test_ifca_on_the_toy(schedule) -> None:
    method = get("ifca", warm_rounds=0)
    begin = method.server.state(Line()) | {"centres": torch.tensor([[0.5], [-0.5]]).double()}
    inputs = {name: value[None] for name, value in begin.items()}
    result = toy_states(method, schedule, server=inputs)
    for (toy, state), row in zip(result, CENTRES[schedule], strict=True):
        assert state.server["centres"].flatten().tolist() == approx(row, abs=1e-9)
        assert personalised_models(toy, method, state).flatten().tolist() == approx(row, abs=1e-9)
        assert state.weights.item() in state.server["centres"].flatten().tolist()


VARIANTS: dict[str, tuple[str, dict[str, Any], type[Plain], dict[str, Any]]] = {
    "ditto": ("ditto", {}, plain.Ditto, {}),
    "ditto, slower": (
        "ditto",
        {"lam_personal": 1.0, "rate_personal": 0.5},
        plain.Ditto,
        {"lam": 1.0, "rate_personal": 0.5},
    ),
    "fedrep": (
        "fedrep",
        {"head_share": 0.4, "head_steps_new": 12},
        plain.SharedBody,
        {"share": 0.4, "new": 12},
    ),
    "fedper": (
        "fedrep",
        {"head_training": "together", "head_steps_new": 7},
        plain.SharedBody,
        {"training_of_head": "together", "new": 7},
    ),
    "ifca": (
        "ifca",
        {"centres": 3, "warm_rounds": 0, "centre_spread": 0.0},
        plain.Ifca,
        {"count": 3},
    ),
    "fedbabu": ("fedbabu", {}, plain.SharedBody, {"training_of_head": "never"}),
}


@pytest.mark.parametrize("precision", TOLERANCE)
@pytest.mark.parametrize("name", VARIANTS)
def test_agrees_with_one_vehicle_at_a_time(name: str, precision: str) -> None:
    label, settings, kind, options = VARIANTS[name]
    fed = federation(precision=precision)
    method = get(label, **settings)
    loops = [kind(fed.fleet, MODEL, fed.training, seed, **options) for seed in fed.seeds]
    rounds = [loop.rounds() for loop in loops]
    for state in states(fed, method):
        expected = torch.stack([next(round_rows) for round_rows in rounds])
        torch.testing.assert_close(state.weights, expected, rtol=0, atol=TOLERANCE[precision])
        for run, loop in enumerate(loops):
            driven = torch.stack([loop.vehicle_model(client) for client in fed.fleet.clients])
            models = personalised_models(fed, method, state, run)
            torch.testing.assert_close(models, driven, rtol=0, atol=TOLERANCE[precision])


@pytest.mark.parametrize("plainly", ["fedavg", "fo-ri-fedavg", "scaffold", "fedavg@adam"])
def test_dittos_global_half_is_the_plain_method(plainly: str) -> None:
    local, at, server = plainly.partition("@")
    both = zip(
        states(federation(), quick(f"{local}+personal-model{at}{server}")),
        states(federation(), quick(plainly)),
        strict=True,
    )
    for beside, alone in both:
        assert torch.equal(beside.weights, alone.weights)


@pytest.mark.parametrize("terms", [{"buffer": 3}, {"private": True}], ids=["buffer", "private"])
def test_own_models_do_not_mind_how_replies_are_taken_in(terms: dict) -> None:
    # The global half is the same bit for bit, and the own models rest where nobody was called.
    private = "@private" if "private" in terms else ""
    settings = {"noise_multiplier": 1.0} if private else {}
    result = []
    for name in ("fedavg", "ditto"):
        fed = Federation(
            random_fleet(SIZES),
            MODEL,
            training=Training(
                rounds=3, participation=0.6, sampling="poisson" if private else "fixed"
            ),
            asynchronous=Asynchronous(buffer=terms.get("buffer", 0)),
            device="cpu",
        )
        *_, last = states(fed, get(f"{name}{private}", **settings))
        result.append(last)
    assert torch.equal(result[0].weights, result[1].weights)
    assert result[1].client_state["has_personal"].any()


def test_ditto_without_a_pull_is_training_alone() -> None:
    # A fleet of that vehicle alone, with the same name and so the same batches.
    fed = federation(participation=1.0)
    method = get("ditto", lam_personal=0.0)
    first = random_fleet(SIZES).clients[0]
    lonely = federation((SIZES[0],), participation=1.0)
    assert lonely.fleet.clients[0].name == first.name
    for state, alone in zip(states(fed, method), states(lonely, get("fedavg")), strict=True):
        assert torch.equal(personalised_models(fed, method, state)[0], alone.weights[0])


def test_a_strong_pull_keeps_the_own_model_at_the_broadcast_one() -> None:
    # η_p λ = 1: v ← w_t - η_p ∇loss(v), at a rate that leaves nothing of the gradient.
    fed = federation(
        learning_rate=0.05, schedule="constant", participation=1.0, precision="float64"
    )
    method = get("ditto", rate_personal=1e-6, lam_personal=1 / (1e-6 * 0.05))
    state, _ = fed.start(method)
    for _ in range(2):
        sent = state.weights[0]
        state, _ = fed.advance(method, state)
        assert (personalised_models(fed, method, state) - sent).abs().max() < 1e-6
        assert (state.weights[0] - sent).abs().max() > 1e-3


def test_an_own_model_that_leaves_the_finite_numbers_stays(caplog) -> None:
    fed = federation((70, 33), participation=1.0)
    method = get("ditto", rate_personal=1e30)
    after, _ = fed.advance(method, fed.start(method)[0])
    assert torch.equal(personalised_models(fed, method, after), after.weights[0].expand(2, -1))
    assert "the personalised model of car-000 is not finite" in caplog.text


def test_ifca_chooses_by_any_loss() -> None:
    # Torch warns, which is an error here, where labels would be broadcast along the centres.
    trained = federation(rounds=1, loss="huber").train(get("ifca", warm_rounds=0))
    assert trained.state.live == [0, 1]


def test_ifca_with_one_centre_is_fedavg() -> None:
    looked_up = get("ifca", centres=1)
    plainly = get("fedavg")
    for centre, model in zip(
        states(federation(), looked_up), states(federation(), plainly), strict=True
    ):
        assert torch.equal(centre.weights, model.weights)


def test_of_equal_centres_all_choose_the_first() -> None:
    method = get("ifca", warm_rounds=0)
    fed = federation()
    state, _ = fed.start(method)
    same = state.weights[:, None].expand(-1, 2, -1).double()
    state = replace(state, server=state.server | {"centres": same})
    after, record = fed.advance(method, state)
    plainly = fed.advance(get("fedavg"), fed.start(get("fedavg"))[0])[0]
    assert torch.equal(after.weights, plainly.weights)
    assert torch.equal(after.server["centres"][:, 1], same[:, 1])
    assert {row["centre"] for row in record.clients} == {0.0}


def test_centres_part_after_rounds_of_fedavg() -> None:
    method = get("ifca", warm_rounds=2, centre_spread=0.1)
    plainly = get("fedavg")
    both = zip(states(federation(), method), states(federation(), plainly), strict=True)
    for centre, model in list(both)[:2]:
        assert torch.equal(centre.weights, model.weights)
        first, second = centre.server["centres"][0]
        apart = 0.0 if centre.round == 1 else 0.1
        assert (second - first).norm().item() == approx(apart * first.norm().item(), rel=1e-5)
    with pytest.raises(SettingError, match="above 0 after warm_rounds"):
        get("ifca", centre_spread=0.0)


def test_groups_that_choose_apart_are_two_federations() -> None:
    # Labels of one sign and of the other: a centre at 2 attracts three of them, one at -2 two.
    ways = {"a": 2, "b": -2, "c": 3, "d": -3, "e": 2.5}
    clients = {
        name: line_client(name, train=[(1, y)] * n, validation=[(1, y)], test=[(1, y)])
        for n, (name, y) in enumerate(ways.items(), start=1)
    }

    def last(names: str, method: Method, **given: Any) -> State:
        fed = line_federation([clients[name] for name in names], training={"rounds": 3})
        state = replace(fed.start(method)[0], **given)
        while not fed.finished(state):
            state, _ = fed.advance(method, state)
        return state

    method = get("ifca", warm_rounds=0)
    server = {n: v[None] for n, v in method.server.state(Line()).items()}
    both = torch.tensor([[[2.0], [-2.0]]]).double()
    together = last("abcde", method, server=server | {"centres": both}, weights=both[:, 0])
    for j, names in enumerate(["ace", "bd"]):
        alone = last(names, get("fedavg"), weights=both[:, j])
        assert torch.equal(together.server["centres"][:, j], alone.weights)


def test_a_centre_that_is_not_finite_is_not_chosen() -> None:
    method = get("ifca", warm_rounds=0)
    fed = federation()
    state, _ = fed.start(method)
    broken = state.server["centres"].clone()
    broken[:, 0] = torch.nan
    # w_t is the centre at `place`, the first before anybody has chosen.
    inputs = {"server": state.server | {"centres": broken}, "weights": broken[:, 0].float()}
    _, record = fed.advance(method, replace(state, **inputs))
    assert {row["centre"] for row in record.clients} == {1.0}


@pytest.mark.parametrize("other", ["ri-fedavg", "moon", "lesam", "ditto", "fedrep"])
def test_what_remembers_one_model_does_not_go_with_several(other: str) -> None:
    with pytest.raises(SettingError, match=r"of one model|a personalised model"):
        get(f"ifca+{other}")


def test_centres_of_a_module_that_begins_as_it_is_need_a_spread() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(32, 1))
    fed = Federation(random_fleet(SIZES), module, device="cpu")
    with pytest.raises(SettingError, match="Set centre_spread"):
        fed.start(get("ifca", warm_rounds=0, centre_spread=0.0))
    state, _ = fed.start(get("ifca", warm_rounds=0, centre_spread=0.05))
    first, second = state.server["centres"][0]
    assert (second - first).norm().item() == approx(0.05 * first.norm().item(), rel=1e-5)


class Headless(MLP):
    head_names = ()


class AllHead(MLP):
    head_names = tuple(MODEL.layout.shapes)


def test_fedper_without_a_head_is_fedavg() -> None:
    model = Headless(4, 8, (7, 5))
    fedper = get("fedrep", head_training="together")
    both = (states(federation(model=model), method) for method in (fedper, get("fedavg")))
    for body, complete in zip(*both, strict=True):
        assert torch.equal(body.weights, complete.weights)


def test_fedper_with_nothing_but_a_head_is_training_alone() -> None:
    fed = federation(model=AllHead(4, 8, (7, 5)), participation=1.0)
    fedper = get("fedrep", head_training="together")
    ditto = get("ditto", lam_personal=0.0)
    for all_own, beside in zip(states(fed, fedper), states(fed, ditto), strict=True):
        assert torch.equal(all_own.weights, fed.start(fedper)[0].weights)
        assert torch.equal(
            personalised_models(fed, fedper, all_own), personalised_models(fed, ditto, beside)
        )


def test_fedrep_without_steps_of_the_head_is_fedbabu() -> None:
    both = (get("fedrep", head_share=0.0), get("fedbabu"))
    for first, other in zip(*(states(federation(), method) for method in both), strict=True):
        assert torch.equal(first.weights, other.weights)


@pytest.mark.parametrize("name", ["momentum+fedbabu", "fo-ri-fedavg+fedrep", "fedcm+fedrep"])
def test_the_servers_head_and_a_frozen_one_keep_their_bits(name: str) -> None:
    fed = federation()
    method = quick(name)
    initial = fed.start(method)[0].weights
    *_, last = states(fed, method)
    head = MODEL.hidden[-1] + 1
    assert torch.equal(last.weights[:, -head:], initial[:, -head:])
    assert not torch.equal(last.weights[:, :-head], initial[:, :-head])


def test_scaffold_corrects_the_body_alone() -> None:
    fed = federation()
    method = get("fedrep+scaffold", head_share=0.4)
    *_, last = states(fed, method)
    head = MODEL.hidden[-1] + 1
    assert not last.server["control"][:, -head:].any()
    assert not last.client_state["control"][..., -head:].any()
    assert last.server["control"][:, :-head].any()


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("fedrep+moon", {}, "Contrastive works on the whole model"),
        ("fedrep+fedel", {}, "Elastic works on the whole model"),
        ("fedrep+mimelite", {}, "FrozenMomentum uploads gradients of the whole model"),
        ("fedrep+scaffold", {"option": 1}, "ControlVariates uploads gradients of the whole"),
        ("fedrep+scaffold", {"head_training": "together"}, "Train the head apart"),
        ("fedrep+ditto", {}, "each give vehicles a personalised model"),
    ],
)
def test_what_a_personal_head_cannot_go_with(name: str, settings: dict, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        get(name, **settings)


def test_a_model_that_does_not_tell_its_last_layer_has_no_personal_head() -> None:
    with pytest.raises(SettingError, match="Line does not declare it"):
        next(toy_states(get("fedrep"), FULL))


def test_two_kinds_of_own_models_are_refused() -> None:
    class Other(type(get("ditto").local[0])):
        pass

    with pytest.raises(SettingError, match="each give vehicles a personalised model"):
        Method("both", (*get("ditto").local, Other()))
