"""Relative sharpness on losses of known shape, and the rule that pulls by it."""

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from pytest import approx
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation import Federation, Training
from fedwatt.methods import get
from fedwatt.methods.experimental import sharpness
from fedwatt.methods.experimental.sharpness import (
    SharpnessProximal,
    filter_normalised,
    relative_sharpness,
)
from fedwatt.methods.roughness import Slicing
from fedwatt.methods.rule import Batch, Start
from fedwatt.models import MLP
from fedwatt.models.model import Layout
from tests.federation.toys import a_start, random_fleet

# Two units of two weights, and their biases.
TOY = SimpleNamespace(layout=Layout({"weight": (2, 2), "bias": (2,)}), unit_axis=0)
WEIGHTS = torch.tensor([3.0, 4.0, 0.6, 0.8, 0.5, -1.0], dtype=torch.float64)
DRAWN = torch.tensor(
    [
        [1.0, 0.0, 0.0, 1.0, 1.0, 1.0],
        [0.0, 1.0, 1.0, 0.0, -1.0, 1.0],
        [1.0, 1.0, 1.0, -1.0, 1.0, -1.0],
        [2.0, -1.0, -1.0, 2.0, 0.0, 1.0],
    ],
    dtype=torch.float64,
)
SLOPE = torch.tensor([0.2, -0.1, 0.5, 0.3, 0.7, -0.4], dtype=torch.float64)
BEND = torch.tensor([1.0, 2.0, 4.0, 8.0, 5.0, 5.0], dtype=torch.float64)


def linear(x: Tensor) -> Tensor:
    return 1 + x @ SLOPE


def bowl(x: Tensor) -> Tensor:
    return 1 + x**2 @ BEND / 2


def quadratic(x: Tensor) -> Tensor:
    return linear(x) + x**2 @ BEND / 2


def ripple(x: Tensor) -> Tensor:
    return quadratic(x) + 0.02 * (30 * x).sin().sum(dim=-1)


def slices(loss: Callable[[Tensor], Tensor], radius: float, points: int = 16) -> Tensor:
    directions = filter_normalised(TOY, WEIGHTS, DRAWN)
    offsets = torch.linspace(-radius, radius, points + 1, dtype=torch.float64)
    return loss(offsets[:, None] * directions[:, None])


def test_every_unit_moves_by_as_much_as_its_own_weights() -> None:
    # Units have lengths 5 and 1; the third draw is 45° between the axes of each.
    normalised = filter_normalised(TOY, WEIGHTS, DRAWN)
    assert normalised[0].tolist() == [5.0, 0.0, 0.0, 1.0, 0.0, 0.0]
    half = 0.5**0.5
    expected = [5 * half, 5 * half, half, -half, 0, 0]
    assert normalised[2].tolist() == approx(expected, abs=1e-12)
    assert normalised.norm(dim=1).square().tolist() == approx([26.0] * 4, abs=1e-12)
    columns = SimpleNamespace(layout=TOY.layout, unit_axis=-1)  # the same, turned
    order = [0, 2, 1, 3, 4, 5]
    turned = filter_normalised(columns, WEIGHTS[order], DRAWN[:, order])
    torch.testing.assert_close(turned, normalised[:, order], rtol=0, atol=0)


def test_a_unit_without_weights_does_not_move() -> None:
    dead = WEIGHTS * torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    assert filter_normalised(TOY, dead, DRAWN)[:, :2].abs().sum() == 0
    still = DRAWN * torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0, 1.0])
    assert filter_normalised(TOY, WEIGHTS, still)[:, :2].abs().sum() == 0


@pytest.mark.parametrize(
    ("loss", "radius", "expected"),
    [
        (linear, 0.1, 0.0),
        (bowl, 0.1, 0.209625),
        (quadratic, 0.1, 0.209625),  # both sides cancel the slope
        (ripple, 0.1, 0.209625),
        (quadratic, 0.02, 0.008385),
    ],
)
def test_golden_numbers(loss: Callable[[Tensor], Tensor], radius: float, expected: float) -> None:
    assert relative_sharpness(slices(loss, radius)).item() == approx(expected, abs=1e-9)


def test_a_scale_of_the_loss_and_turned_directions_change_nothing() -> None:
    ripples = slices(ripple, 0.1)
    expected = relative_sharpness(ripples).item()
    for other in (3 * ripples, ripples.flip(-1), ripples[[2, 0, 3, 1]]):
        assert relative_sharpness(other).item() == approx(expected, rel=1e-12)


# ------------------------------------------------------------------------------------ the rule
class Probes:
    """Two vehicles whose loss is (w·x - label)² on windows of their own."""

    def __init__(self) -> None:
        self.model = MLP(2, 1, (3, 2))
        self.anchor = self.model.initial(np.random.default_rng(0)).repeat(2, 1)
        self.scale = 1.0
        self.seen = []

    def batch(self, row: int, size: int, purpose: str) -> Batch:
        self.seen.append((row, size, purpose))
        rng = np.random.default_rng(row)
        windows = torch.from_numpy(rng.standard_normal((size, 2, 1)))
        return Batch(windows, self.scale * torch.from_numpy(rng.standard_normal(size)))

    def directions(self, row: int, count: int) -> Tensor:
        rng = np.random.default_rng(9)
        return torch.from_numpy(rng.standard_normal((count, self.anchor.shape[1])))

    def start(self, round: int) -> Start:
        return a_start(
            self.anchor,
            self.model,
            round=round,
            fixed_batch=self.batch,
            probe_directions=self.directions,
        )


def test_an_index_is_the_mean_rise_on_both_sides() -> None:
    probes = Probes()
    rule = SharpnessProximal(directions=3, probe_batch=8)
    client_state = {
        name: value.repeat(2) for name, value in rule.client_state(probes.model).items()
    }
    client_state, plan = rule.begin(client_state, probes.start(0))
    assert probes.seen == [(0, 8, "sharpness batch"), (1, 8, "sharpness batch")]
    for row in range(2):
        batch = probes.batch(row, 8, "")
        weights = probes.anchor[row]

        def loss(point: Tensor, batch: Batch = batch) -> float:
            error = probes.model.predict(point, batch.windows) - batch.labels
            return error.square().mean().item()

        lines = filter_normalised(probes.model, weights, probes.directions(row, 3))
        rises = [(loss(weights + 0.1 * d) + loss(weights - 0.1 * d)) / 2 for d in lines]
        expected = max(0.0, sum(rises) / 3 - loss(weights)) / loss(weights)
        assert plan["sharpness"][row].item() == approx(expected, abs=1e-12)
        assert plan["probe_loss"][row].item() == approx(loss(weights), abs=1e-12)
        assert plan["pull"][row].item() == approx(0.1 * expected / (expected + 0.03), abs=1e-12)


def test_the_mean_over_probes_forgets_by_their_age(monkeypatch: pytest.MonkeyPatch) -> None:
    probes = Probes()
    rule = SharpnessProximal(probe_every=1, keep=0.8)
    result = iter([0.4, 0.2, 0.3])

    def scripted(start: Start, rows: list[int], slicing: Slicing) -> Tensor:
        rise = next(result)
        slices = torch.tensor([[[1 + rise, 1.0, 1 + rise]]], dtype=torch.float64)
        return slicing.measure(slices.repeat(len(rows), 1, 1))

    monkeypatch.setattr(sharpness, "measured", scripted)
    client_state = {
        name: value.repeat(2) for name, value in rule.client_state(probes.model).items()
    }
    means = []
    for round in (0, 1, 4):
        client_state, plan = rule.begin(client_state, probes.start(round))
        means.append(plan["sharpness"][0].item())
    assert means == approx([0.4, 0.2888888889, 0.2969538315], abs=1e-10)


def test_a_loss_that_is_not_finite_leaves_the_index_as_it_was() -> None:
    probes = Probes()
    rule = SharpnessProximal(probe_every=1)
    client_state = {
        name: value.repeat(2) for name, value in rule.client_state(probes.model).items()
    }
    client_state, before = rule.begin(client_state, probes.start(0))
    probes.scale = torch.inf
    client_state, after = rule.begin(client_state, probes.start(1))
    assert after["sharpness"].tolist() == before["sharpness"].tolist()
    assert client_state["sharpness_in"].tolist() == [0, 0]


def test_without_a_pull_it_is_fedavg() -> None:
    federation = Federation(random_fleet(), training=Training(rounds=3), device="cpu")
    weights = federation.train("fedavg").state.weights
    two = federation.train(get("si-fedavg", lam=0.0)).state.weights
    assert torch.equal(weights, two)


@pytest.mark.parametrize("wrong", [{"radius": 0.0}, {"keep": 1.0}, {"probe_schedule": "often"}])
def test_settings_are_checked(wrong: dict[str, float | str]) -> None:
    with pytest.raises(SettingError, match=next(iter(wrong))):
        SharpnessProximal(**wrong)
