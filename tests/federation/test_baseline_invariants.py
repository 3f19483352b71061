"""Invariants after every round of any run, whoever takes part and whatever gets lost."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fedwatt.federation import Availability, Federation, Training
from fedwatt.methods import get
from fedwatt.methods.elastic_model import front_after, next_window, select
from fedwatt.models import MLP
from fedwatt.windows import Client, DataSettings, Fleet
from tests.federation.toys import Line, random_fleet

shares = st.floats(0, 0.6)


@st.composite
def federations(draw: st.DrawFn) -> Federation:
    """Some vehicles of any size, coming and going, some replies lost, two seeds."""
    sizes = draw(st.lists(st.integers(1, 40), min_size=2, max_size=5))
    held_out = draw(st.sets(st.integers(1, len(sizes) - 1), max_size=1))
    return Federation(
        random_fleet(sizes, window=2, held_out=tuple(held_out)),
        MLP(2, 8, (3,)),
        training=Training(
            rounds=5,
            participation=draw(st.floats(0.1, 1.0)),
            sampling=draw(st.sampled_from(["fixed", "poisson"])),
            steps=draw(st.integers(0, 3)),
            batch=8,
            precision="float64",
            evaluate_every=5,
        ),
        availability=Availability(
            p_leave=draw(shares),
            p_join=draw(shares),
            initially=draw(st.floats(0.3, 1.0)),
            reply_loss=draw(shares),
        ),
        seeds=draw(st.sampled_from([(1, 2), (7, 8)])),
        device="cpu",
    )


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    federations(),
    st.sampled_from(["windows", "uniform"]),
    st.sampled_from([1, 2]),
    st.sampled_from(["scaffold", "fractional+scaffold", "momentum+scaffold"]),
)
def test_the_servers_control_is_the_mean_of_all_controls(
    federation: Federation, weighting: str, option: int, name: str
) -> None:
    method = get(name, weighting=weighting, option=option)
    q = torch.ones(len(federation.members.population), dtype=torch.float64)
    if weighting == "windows":
        q *= torch.tensor(
            [federation.pool.train.count(int(k)) for k in federation.members.population]
        )
    q /= q.sum()
    state, _ = federation.start(method)
    while not federation.finished(state):
        state, _ = federation.advance(method, state)
        controls = state.client_state["control"][:, federation.members.population]
        mean = (q[:, None] * controls).sum(dim=1)
        torch.testing.assert_close(state.server["control"], mean, rtol=0, atol=1e-12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(federations(), st.sampled_from(["windows", "uniform"]))
def test_feddyns_server_knows_the_mean_of_all_h(federation: Federation, weighting: str) -> None:
    method = get("feddyn", weighting=weighting)
    state, _ = federation.start(method)
    while not federation.finished(state):
        state, _ = federation.advance(method, state)
        mean = state.client_state["h"][:, federation.members.population].mean(dim=1)
        torch.testing.assert_close(state.server["mean_h"], mean, rtol=0, atol=1e-12)


def constant_gradients(slopes: list[float], sizes: list[int]) -> Fleet:
    """Vehicles whose Huber loss of y = w·x has the gradient `slope` wherever w is near 0."""
    clients = []
    for k, (slope, size) in enumerate(zip(slopes, sizes, strict=True)):
        ends = np.arange(size)
        labels = np.full(size, -1e6 if slope > 0 else 1e6)
        clients.append(
            Client(
                name=f"car-{k}",
                features=("speed",),
                window=1,
                series=np.full((size, 1), abs(slope)),
                ends=dict.fromkeys(("train", "validation", "test"), ends),
                labels=dict.fromkeys(("train", "validation", "test"), labels),
                label_center_wh=0.0,
                label_scale_wh=1.0,
                strata={},
                trips={},
            )
        )
    return Fleet(tuple(clients), DataSettings(window=1), "constant gradients")


@settings(max_examples=30, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.floats(-3, 3).filter(lambda g: abs(g) > 0.1), st.integers(1, 60)),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from(
        [("fednova", 0.0, 0.0), ("proximal@nova", 0.7, 0.0), ("momentum@nova", 0, 0.8)]
    ),
    st.integers(1, 3),
)
def test_fednova_takes_a_linear_loss_as_if_all_had_done_the_same_steps(
    vehicles: list[tuple[float, int]], variant: tuple[str, float, float], epochs: int
) -> None:
    # With a constant gradient G_k the model moves by -η τ Σ p_k G_k, whatever the H_k were.
    slopes = [g for g, _ in vehicles]
    sizes = [n for _, n in vehicles]
    name, mu, rho = variant
    method = get(name, **{k: v for k, v in (("mu", mu), ("rho", rho)) if v})
    training = Training(
        rounds=1, participation=1.0, batch=8, epochs=epochs, loss="huber", precision="float64"
    )
    federation = Federation(
        constant_gradients(slopes, sizes), Line(), training=training, seeds=(1,), device="cpu"
    )
    accumulated = []
    for size in sizes:
        reached = speed = 0.0
        for _ in range(epochs * -(-size // 8)):
            speed = rho * speed + 1 - 0.05 * mu * reached
            reached += speed
        accumulated.append(reached)
    p = np.array(sizes) / sum(sizes)
    expected = 0.5 - 0.05 * (p @ accumulated) * (p @ slopes)
    assert federation.train(method).state.weights.item() == pytest.approx(expected, abs=1e-9)


costs = st.integers(0, 12)


@st.composite
def shortages(draw: st.DrawFn) -> tuple[list[float], list[int], list[int], int]:
    count = draw(st.integers(0, 7))
    values = st.one_of(st.sampled_from([0.0, 0.25, 1.0]), st.floats(0, 1))
    return (
        draw(st.lists(values, min_size=count, max_size=count)),
        draw(st.lists(costs, min_size=count, max_size=count)),
        draw(st.lists(costs, min_size=count + 1, max_size=count + 1)),
        draw(st.integers(-3, 60)),
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(shortages())
def test_the_selection_is_the_best_of_all_sets(shortage) -> None:
    importance, apply, through, budget = shortage
    best = (Fraction(0), 0, [])
    chosen = [False] * len(importance)
    for candidate in product([False, True], repeat=len(importance)):
        inside = [k for k, on in enumerate(candidate) if on]
        if not inside:
            continue
        cost = sum(apply[k] for k in inside) + sum(through[min(inside) + 1 :])
        # Importance first, then more tensors, then deeper ones.
        worth = (sum(Fraction(importance[k]) for k in inside), len(inside), inside[::-1])
        if cost <= budget and worth > best:
            best = worth
            chosen = list(candidate)
    assert select(importance, apply, through, budget) == chosen


def test_an_unlimited_budget_selects_everything_even_the_shallowest() -> None:
    assert select([0.0] * 40, [5] * 40, [7] * 41, float("inf")) == [True] * 40


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0.5, 30), st.randoms())
def test_windows_walk_to_the_last_block_and_start_anew(times, budget: float, random) -> None:
    last = len(times) - 1
    first_window = (0, front_after(-1, times, budget))
    window = None
    for _ in range(12):
        used = [random.random() < 0.5 for _ in times]
        before, window = window, next_window(window, used, times, budget)
        first, front = window
        assert 0 <= first <= front <= last
        if before is None or before[1] == last:
            assert window == first_window
        else:
            assert front > before[1]
            assert before[0] <= first <= before[1]
            assert not any(used[before[0] : first])
            assert used[first] or first == before[1]
            # Moved on by a budget's worth of blocks, and by not one more than that.
            assert front == last or sum(times[before[1] + 1 : front + 1]) >= budget
            assert sum(times[before[1] + 1 : front]) < budget
