"""Exact identities of the baselines, and the cases in which they are FedAvg bit for bit."""

from dataclasses import replace
from math import exp, inf, log, log1p

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.engine.batches import Draw
from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, State, Training
from fedwatt.federation.participation import participants
from fedwatt.methods import Fractional, Method, get
from fedwatt.methods.contrastive import contrast
from fedwatt.methods.dynamic import Dynamic
from fedwatt.methods.momentum import ClientMomentum, FleetMomentum, momentum_accumulation
from fedwatt.methods.proximal import pull_accumulation
from fedwatt.methods.scaffold import ControlVariates
from fedwatt.methods.server import Replies
from fedwatt.models import GRU, LSTM, MLP, Model
from fedwatt.windows import Fleet
from tests.federation.toys import Line, a_start, random_fleet

SMALL = MLP(4, 8, (6, 5))
# Rounding of another order of sums, over the few dozen steps of these runs.
TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def federation(
    fleet: Fleet | None = None,
    model: Model = SMALL,
    *,
    availability: Availability | None = None,
    seeds: tuple[int, ...] = (1, 2),
    **training,
) -> Federation:
    settings = {"rounds": 4, "participation": 0.5, "batch": 16} | training
    return Federation(
        fleet or random_fleet(),
        model,
        training=Training(**settings),
        availability=availability,
        seeds=seeds,
        device="cpu",
    )


def weights(method: str | Method, *args, **settings) -> Tensor:
    return federation(*args, **settings).train(method).state.weights


def same(one: str | Method, other: str | Method, *args, **settings) -> bool:
    """Return whether two methods end in the same bits."""
    return torch.equal(weights(one, *args, **settings), weights(other, *args, **settings))


# ------------------------------------------------------------------------------------ SCAFFOLD


def test_scaffold_starts_as_fedavg() -> None:
    assert same("scaffold", "fedavg", rounds=1)
    assert not same("scaffold", "fedavg", rounds=2)


@pytest.mark.parametrize("precision", TOLERANCE)
def test_scaffold_with_one_vehicle_is_fedavg(precision: str) -> None:
    # c = c_1 after every round, so the correction is what rounding leaves of it.
    alone = random_fleet((70,))
    weights_after = weights("scaffold", alone, rounds=6, precision=precision)
    other = weights("fedavg", alone, rounds=6, precision=precision)
    torch.testing.assert_close(weights_after, other, rtol=0, atol=TOLERANCE[precision])


@pytest.mark.parametrize("name", ["scaffold", "proximal+scaffold", "momentum+scaffold"])
def test_the_own_control_is_a_mean_of_stochastic_gradients(name: str) -> None:
    settings = {"mu": 2.0} if "proximal" in name else {}
    method = get(name, **settings)
    fed = federation(precision="float64", seeds=(1,), participation=1.0)
    before, _ = fed.advance(method, fed.start(method)[0])
    after, _ = fed.advance(method, before)
    learning_rate = 0.05 / 2**0.5
    anchor = before.weights[0]
    for k, client in enumerate(fed.fleet.clients):
        size = len(client.ends["train"])
        order = Draw(1, 1, client.name, windows=size, end=-(-size // 16), batch=16).order()
        correction = before.server["control"][0] - before.client_state["control"][0, k]
        w = anchor
        buffer = torch.zeros_like(anchor)
        gradients = []
        influence = []
        for row in order:
            index = torch.from_numpy(row[row >= 0]) + fed.pool.train.offsets[k]
            windows = fed.pool.gather(fed.pool.train.starts[index])
            share = torch.full((len(index),), 1 / len(index), dtype=torch.float64)
            labels = fed.pool.train.labels[index]
            gradients.append(SMALL.gradient(w, windows, labels, share, fed.loss))
            rho = 0.9 if "momentum" in name else 0.0
            buffer = rho * buffer + gradients[-1] + correction
            buffer = buffer + settings.get("mu", 0.0) * (w - anchor)
            w = w - learning_rate * buffer
        # How often each gradient is in the displacement: once, or as the local rule repeats it.
        for step in range(len(order)):
            moved = 0.0
            speed = 1.0
            for _ in range(step, len(order)):
                moved += speed
                speed = rho * speed - settings.get("mu", 0.0) * learning_rate * moved
            influence.append(moved)
        mean = sum(i * g for i, g in zip(influence, gradients, strict=True)) / sum(influence)
        torch.testing.assert_close(after.client_state["control"][0, k], mean, rtol=0, atol=1e-12)


def test_at_the_optimum_corrected_vehicles_stand_still() -> None:
    # ∇F_1 = w - 1 (n=1), ∇F_2 = 2(w + 2) (n=3): the weighted optimum is -11/7.
    optimum = torch.tensor([[-11 / 7], [-11 / 7]], dtype=torch.float64)
    gradient = torch.tensor([[-18 / 7], [6 / 7]], dtype=torch.float64)
    start = a_start(optimum, Line(), broadcast={"server_control": torch.zeros(2, 1).double()})
    rule = ControlVariates()
    _, plan = rule.begin({"control": gradient}, start)
    moved = rule.gradient(gradient, optimum, optimum, plan)
    assert moved.abs().max() < 1e-15
    assert gradient.abs().min() > 0.8  # without the correction they would move


# ------------------------------------------------------------------------------------- FedNova


@pytest.mark.parametrize("rules", ["fedavg", "momentum", "proximal"])
def test_fednova_with_equal_work_is_averaging(rules: str) -> None:
    assert same(f"{rules}@nova", f"{rules}@average", steps=3)
    assert not same(f"{rules}@nova", f"{rules}@average", participation=1.0)


def test_fednova_with_one_participant_is_fedavg() -> None:
    assert same("fednova", "fedavg", participation=0.01)


def test_closed_forms_of_accumulation_follow_the_steps() -> None:
    rho = 0.9
    shrink = 0.015
    momentum = 0.0
    pulled = 0.0
    buffer = 0.0
    for step in range(1, 12):
        buffer = rho * buffer + 1
        momentum += buffer
        pulled = (1 - shrink) * pulled + 1
        steps = torch.tensor([step])
        mu = torch.tensor(0.1, dtype=torch.float64)
        assert momentum_accumulation(steps, rho).item() == pytest.approx(momentum, abs=1e-12)
        assert pull_accumulation(steps, 0.15, mu).item() == pytest.approx(pulled, abs=1e-12)
    assert momentum == pytest.approx(48.2429536481, abs=1e-9)
    assert pulled == pytest.approx(10.2110342916, abs=1e-9)


# -------------------------------------------------------------------------------------- FedOpt


def test_adam_that_never_adapts_is_fedavg() -> None:
    # √v = τ for ever, so the step is 2τ Δ̄/(2τ); a power of two keeps it exact.
    still = get("fedadam", beta1=0.0, beta2=1.0, tau=2.0**-10, server_learning_rate=2.0**-9)
    assert same(still, "fedavg")


def test_server_sgd_at_rate_one_is_fedavg() -> None:
    assert same("fedavg@sgd", "fedavg")


def test_adam_without_memory_steps_by_the_sign() -> None:
    signed = get("fedadam", beta1=0.0, beta2=0.0, tau=1e-30, server_learning_rate=0.01)
    fed = federation(rounds=1, precision="float64")
    before = fed.start(signed)[0].weights
    moved = fed.train(signed).state.weights - before
    delta = fed.train("fedavg").state.weights - before
    torch.testing.assert_close(moved, 0.01 * delta.sign(), rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------- MOON


def test_moon_without_its_term_is_fedavg() -> None:
    assert same(get("moon", contrast_weight=0.0), "fedavg", rounds=6)
    assert not same(get("moon", contrast_weight=1.0), "fedavg", rounds=6)


def test_moon_is_fedavg_for_vehicles_that_train_for_the_first_time() -> None:
    strong = get("moon", contrast_weight=5.0)
    assert same(strong, "fedavg", rounds=1, participation=1.0)
    # One vehicle a round, another one each time: four rounds of first participations.
    everyone = np.ones(4, dtype=bool)

    def called(seed: int) -> list[int]:
        return [int(participants(seed, t, everyone, 0.25)[0]) for t in range(5)]

    seed = next(seed for seed in range(1000) if set(called(seed)[:4]) == {0, 1, 2, 3})
    assert same(strong, "fedavg", rounds=4, participation=0.25, seeds=(seed,))
    assert not same(strong, "fedavg", rounds=5, participation=0.25, seeds=(seed,))


def test_the_contrast_of_equal_and_opposite_models() -> None:
    z = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    moving = z.clone().requires_grad_()
    # u_k = w_t: both similarities are the same function of z and cancel.
    for temperature in (0.1, 0.5, 1.0):
        value = contrast(moving, z, z, temperature)
        (gradient,) = torch.autograd.grad(value.sum(), moving)
        torch.testing.assert_close(value, torch.full_like(value, log(2)), rtol=0, atol=1e-12)
        assert gradient.abs().max() < 1e-12
        opposite = contrast(z, z, -z, temperature)
        expected = torch.full_like(opposite, log1p(exp(-2 / temperature)))
        torch.testing.assert_close(opposite, expected, rtol=0, atol=1e-12)


def test_a_dead_representation_has_no_contrast_and_no_nan() -> None:
    dead = torch.zeros(2, 5, dtype=torch.float64, requires_grad=True)
    value = contrast(dead, torch.ones(2, 5).double(), -torch.ones(2, 5).double(), 0.5)
    (gradient,) = torch.autograd.grad(value.sum(), dead)
    assert value.tolist() == pytest.approx([log(2)] * 2)
    assert gradient.isfinite().all()


# -------------------------------------------------------------------------------------- FedDyn


def test_feddyn_without_strength_is_an_integrator() -> None:
    # w_{t+1} - w_t = Δ̄_t + Σ_{s<=t} (|S_s|/K) Δ̄_s: not FedAvg.
    method = get("feddyn", alpha_dyn=0.0)
    plain = get("feddyn", alpha_dyn=0.0, correction=False)
    fed = federation(precision="float64", participation=0.5)
    state, _ = fed.start(method)
    total = torch.zeros_like(state.weights)
    for _ in range(4):
        delta = fed.advance(plain, state)[0].weights - state.weights
        total = total + 2 / 4 * delta
        after, _ = fed.advance(method, state)
        torch.testing.assert_close(after.weights - state.weights, delta + total, atol=1e-12, rtol=0)
        state = after


def test_feddyn_without_strength_and_correction_is_uniform_fedavg() -> None:
    # Equal vehicles, two or four of them: dividing by n_t and by |S_t| are both exact.
    equal = random_fleet((33, 33, 33, 33))
    off = get("feddyn", alpha_dyn=0.0, correction=False)
    for participation in (0.5, 1.0):
        assert same(off, "fedavg", equal, participation=participation)
    assert not same(get("feddyn", alpha_dyn=0.0), "fedavg", equal)


def test_feddyn_first_step_is_fedavg_for_every_strength() -> None:
    strong = get("feddyn", alpha_dyn=5.0, correction=False)
    equal = random_fleet((33, 33, 33, 33))
    assert same(strong, "fedavg", equal, steps=1, rounds=1)
    assert not same(strong, "fedavg", equal, steps=2, rounds=1)


@pytest.mark.parametrize("weighting", ["windows", "uniform"])
def test_feddyn_stands_still_at_the_optimum(weighting: str) -> None:
    # -11/7 with weights 1 and 3 (ω = 1/2 and 3/2), -1 with equal ones.
    omega = torch.tensor([0.5, 1.5] if weighting == "windows" else [1.0, 1.0]).double()
    optimum = -11 / 7 if weighting == "windows" else -1.0
    gradient = torch.tensor([[optimum - 1], [2 * (optimum + 2)]], dtype=torch.float64)
    h = -omega[:, None] / 0.1 * gradient
    assert h.mean().item() == pytest.approx(0, abs=1e-12)
    anchor = torch.full((2, 1), optimum, dtype=torch.float64)
    start = a_start(anchor, Line(), relative_size=torch.tensor([0.5, 1.5]).double())
    rule = Dynamic(alpha_dyn=0.1, weighting=weighting)
    _, plan = rule.begin({"h": h}, start)
    assert rule.gradient(gradient, anchor, anchor, plan).abs().max() < 1e-12


# --------------------------------------------------------------------------------------- FedEL

SPEEDS = Availability(speeds=(1.0, 0.5, 0.25))
DEEP = MLP(4, 8, (6, 7, 5))


@pytest.mark.parametrize("model", [SMALL, DEEP, GRU(8, 5), LSTM(8, 5)], ids=str)
@pytest.mark.parametrize("precision", TOLERANCE)
def test_fedel_with_time_enough_is_fedavg(model: Model, precision: str) -> None:
    size = model.layout.size
    plain = weights("fedavg", None, model, precision=precision)
    for budget, speeds in ((inf, SPEEDS), (0.0, Availability(speeds=(0.3,)))):
        elastic = get("fedel", budget=budget)
        fed = federation(None, model, availability=speeds, precision=precision)
        start = fed.start(elastic)[0].weights
        end = fed.train(elastic).state.weights
        assert torch.equal(end[:, :size], plain)
        assert torch.equal(end[:, size:], start[:, size:])  # nobody left by an early exit
    unequal = weights("fedel", None, model, availability=SPEEDS, precision=precision)
    assert not torch.equal(unequal[:, :size], plain)


@pytest.mark.parametrize("weighting", ["windows", "uniform"])
def test_fedel_leaves_alone_what_was_not_selected(weighting: str) -> None:
    method = get("fedel", weighting=weighting)
    fed = federation(None, DEEP, availability=SPEEDS, participation=0.25, seeds=(1, 2, 3))
    model = method.adapted(fed.model)
    state, _ = fed.start(method)
    remaining = changed = 0
    for _ in range(6):
        after, record = fed.advance(method, state)
        before_parts = model.layout.split(state.weights)
        after_parts = model.layout.split(after.weights)
        for run, seed in enumerate(fed.seeds):
            (name,) = (row["vehicle"] for row in record.clients if row["seed"] == seed)
            trained = after.client_state["trained"][run, fed.fleet.names.index(name)].tolist()
            for tensor, on in zip(model.layout.shapes, trained, strict=True):
                equal = torch.equal(before_parts[tensor][run], after_parts[tensor][run])
                assert equal != on
                remaining, changed = remaining + equal, changed + (not equal)
        state = after
    assert min(remaining, changed) > 20


def test_fedel_evaluates_the_model_without_its_exits() -> None:
    method = get("fedel")
    fed = federation(None, DEEP, availability=SPEEDS)
    state = fed.train(method).state
    bare: State = replace(state, weights=state.weights[:, : DEEP.layout.size])
    for with_exits, without in zip(
        fed.evaluate(state.weights), fed.evaluate(bare.weights), strict=True
    ):
        assert with_exits.test == without.test
    assert state.weights.shape[1] > DEEP.layout.size


# -------------------------------------------------------------------------- at the default size

WINDOW = random_fleet((70, 33, 128, 5), window=60)


@pytest.mark.parametrize(
    ("name", "settings", "rounds"),
    [
        ("moon", {"contrast_weight": 0.0}, 3),
        ("moon", {"contrast_weight": 5.0}, 1),  # nobody has a last model
        ("fedel", {}, 3),  # equal computers: all leave at the last block
        ("fedavg+examples.faulty_vehicles:LabelShift", {"fault_share": 0.0}, 3),
    ],
)
def test_rules_with_nothing_to_say_are_fedavg_at_the_default_size(
    name: str, settings: dict[str, float], rounds: int
) -> None:
    # Large enough that autograd and the gradient written by hand round differently.
    model = MLP(60, 8, (64, 32))
    terms = {"rounds": rounds, "participation": 1.0, "batch": 16, "precision": "float32"}
    silent = weights(get(name, **settings), WINDOW, model, **terms)
    assert torch.equal(silent[:, : model.layout.size], weights("fedavg", WINDOW, model, **terms))


# ------------------------------------------------------------------- FedExP, FedCM and MimeLite


def test_fedexp_with_one_participant_is_fedavg() -> None:
    assert same("fedexp", "fedavg", participation=0.25)


def test_fedexp_multiplies_orthogonal_replies_by_half_their_number() -> None:
    replies = Replies(
        torch.eye(6, dtype=torch.float64), torch.ones(6).double(), 6, 6.0, np.random.default_rng(0),
        {"squared_length": torch.ones(6).double()},
    )  # fmt: skip
    server = get("fedexp", epsilon_relative=0.0, epsilon=1e-12).server
    _, moved = server.update({}, torch.zeros(6).double(), replies)
    # Σ p Δ is 1/6 in every coordinate; η_g = max(1, 6/2).
    assert moved.tolist() == pytest.approx([0.5] * 6)


def test_fedexp_does_not_depend_on_the_scale_of_the_displacements() -> None:
    rule = get("fedexp").server
    mean = torch.tensor([0.1, 0.0]).double()
    lengths = torch.tensor(1.0).double()
    assert rule.factor(1000 * mean, 1e6 * lengths) == pytest.approx(rule.factor(mean, lengths))


@pytest.mark.parametrize("name", ["fedcm", "mimelite"])
def test_without_momentum_they_are_fedavg(name: str) -> None:
    none = get("fedcm", alpha_cm=1.0) if name == "fedcm" else get("mimelite", beta=0.0)
    assert same(none, "fedavg")


def test_the_first_round_of_fedcm_is_fedavg_at_a_smaller_rate() -> None:
    mixed = weights(get("fedcm", alpha_cm=0.25), rounds=1, learning_rate=0.04, precision="float64")
    plain = weights("fedavg", rounds=1, learning_rate=0.01, precision="float64")
    torch.testing.assert_close(mixed, plain, rtol=0, atol=1e-12)


def test_fedcm_and_mimelite_agree_on_single_full_steps() -> None:
    # One step of all windows is the gradient at w_t: FedCM's m and MimeLite's are then the same.
    # Its own batches are drawn apart from the other's, so each batch must hold everything.
    terms = {"participation": 1.0, "steps": 1, "batch": 128, "precision": "float64", "rounds": 5}
    mixed = weights(get("fedcm", alpha_cm=0.3), **terms)
    frozen = weights(get("mimelite", beta=0.7), **terms)
    torch.testing.assert_close(mixed, frozen, rtol=0, atol=1e-12)


def test_fedcm_mixes_last_whatever_the_order_of_names() -> None:
    mixed = ClientMomentum()
    fractional = Fractional()
    for method in (
        get("fedcm+fractional"),
        Method("own", (mixed, fractional), FleetMomentum()),
        Method("own", (fractional, mixed), FleetMomentum()),
    ):
        assert method.local == (fractional, mixed)


def test_without_a_distance_they_are_fedavg() -> None:
    # FedSAM takes its gradients in torch where FedAvg takes them in C, so bits may differ.
    sharp = weights(get("sam", rho_sam=0.0), precision="float64")
    torch.testing.assert_close(sharp, weights("fedavg", precision="float64"), rtol=0, atol=1e-12)
    assert same(get("lesam", rho_lesam=0.0), "fedavg")


def test_the_first_round_of_lesam_is_fedavg() -> None:
    assert same("lesam", "fedavg", rounds=1)
    assert not same("lesam", "fedavg", rounds=3, participation=1.0)


def test_a_constant_pull_is_fedprox() -> None:
    constant = get("fedprox-adaptive", mu_start=0.3, mu_step=0.0)
    assert same(constant, get("fedprox", mu=0.3), precision="float64")


def test_the_pull_rises_with_the_loss_and_falls_after_some_patience() -> None:
    server = get("fedprox-adaptive", mu_start=0.5, patience=2).server
    state = server.state(SMALL)
    strengths = []
    for loss in (4.0, 3.0, 2.0, 2.5, 2.4, 2.3, 2.2):
        replies = Replies(
            torch.zeros(1, 3), torch.ones(1).double(), 1, 1.0, np.random.default_rng(0),
            {"loss_before": torch.tensor([loss]).double()},
        )  # fmt: skip
        state, _ = server.update(state, torch.zeros(3), replies)
        strengths.append(round(server.broadcast(state)["mu"].item(), 10))
    # The first loss is compared with nothing; falls: 3, 2 → less; 2.5 → more; 2.4, 2.3 → less.
    assert strengths == [0.5, 0.5, 0.4, 0.5, 0.5, 0.4, 0.4]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("sam+lesam", "use one"),
        ("lesam+contrastive", "compares models"),
        ("sam@nova", "not linear in the gradients"),
        ("fedcm+momentum", "a momentum already"),
        ("mimelite+fractional", "leave out Fractional"),
        ("fedcm@adam", "halves of one mechanism"),
        ("fedexp@private", "beside Δ_k"),
    ],
)
def test_what_they_cannot_be_put_together_with(name: str, reason: str) -> None:
    with pytest.raises(SettingError, match=reason):
        get(name)
