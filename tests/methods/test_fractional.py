"""The fractional preconditioner, its clip and its gate."""

from math import gamma

import numpy as np
import pytest
import torch
from pytest import approx

from fedwatt.errors import SettingError
from fedwatt.methods import Fractional
from fedwatt.methods.fractional import spectral_ratio
from fedwatt.models import MLP
from tests.federation.toys import a_start


def test_the_factor_for_known_displacements() -> None:
    # Worked out from (|Δ| + 1e-6)^0.2 / Γ(1.2); the sign of a displacement does not matter.
    moved = torch.tensor([0.0, 1e-6, -1e-4, 1e-3, -1e-2, 0.1, -1.0]).double()
    expected = [0.06871911, 0.07893752, 0.17295844, 0.27363038, 0.43359691, 0.68719243, 1.08912464]
    factor = Fractional(alpha=0.8, delta=1e-6, p_min=1e-9, p_max=1e9).scale(moved)
    assert factor.tolist() == approx(expected, abs=1e-8)


def test_order_one_is_exactly_plain() -> None:
    moved = torch.tensor([0.0, 1e-8, 3.0, -1e5])
    assert Fractional(alpha=1.0).scale(moved).tolist() == [1.0, 1.0, 1.0, 1.0]


def test_the_clip_holds_on_both_sides() -> None:
    moved = torch.tensor([0.0, 2000.0, 1e9]).double()
    # 2000^0.2 / Γ(1.2) = 4.98, just inside.
    assert Fractional().scale(moved).tolist() == approx([0.2, 2000**0.2 / gamma(1.2), 5.0])


def test_gate_and_clip_commute_only_away_from_the_floor() -> None:
    moved = torch.tensor([1e-9, 0.1]).double()
    kappa = 0.8
    free = 0.1**0.2 / gamma(1.2) / 1.4  # β κ = 0.4
    gate_first = Fractional(beta_kappa=0.5).scale(moved, kappa)
    clip_first = Fractional(beta_kappa=0.5, order="clip-then-gate").scale(moved, kappa)
    assert gate_first.tolist() == approx([0.2, free], rel=1e-5)
    assert clip_first.tolist() == approx([0.2 / 1.4, free], rel=1e-5)


def test_the_first_step_is_plain_and_later_ones_are_scaled() -> None:
    gradient = torch.tensor([[2.0, -2.0]])
    here = torch.tensor([[1.0, 1.0]])
    rule = Fractional(alpha=0.5, delta=1e-12, p_min=1e-9, p_max=9)
    assert rule.direction(gradient, here, None, {}).tolist() == [[2.0, -2.0]]
    before = torch.tensor([[1.25, 0.91]])  # moved by -0.25 and +0.09: roots 0.5 and 0.3
    scaled = rule.direction(gradient, here, before, {}) * gamma(1.5)
    assert scaled.flatten().tolist() == approx([1.0, -0.6], rel=1e-5)


def test_kappa_is_that_of_the_last_hidden_matrix() -> None:
    model = MLP(4, 2, (6, 5))
    anchor = torch.stack([model.initial(np.random.default_rng(i)) for i in range(3)])
    rule = Fractional(beta_kappa=0.5, power_iterations=500)
    _, plan = rule.begin({}, a_start(anchor, model))
    matrices = model.layout.split(anchor)["hidden2.weight"]
    exact = torch.linalg.matrix_norm(matrices, 2) / torch.linalg.matrix_norm(matrices)
    torch.testing.assert_close(plan["kappa"], exact, rtol=0, atol=1e-6)

    # The output layer of a scalar regressor is a vector: its ratio says nothing.
    _, plan = Fractional(beta_kappa=0.5, matrix="output.weight").begin({}, a_start(anchor, model))
    assert plan["kappa"].tolist() == approx([1.0] * 3)


def test_kappa_is_exact_where_ten_iterations_leave_it_low() -> None:
    draw = torch.Generator().manual_seed(0)
    matrices = torch.randn(20, 64, 32, generator=draw)
    exact = torch.linalg.matrix_norm(matrices, 2) / torch.linalg.matrix_norm(matrices)
    low = 1 - spectral_ratio(matrices) / exact
    assert low.mean().item() > 0.01 and low.max().item() > 0.03
    # Rounding of float32 with room to spare.
    torch.testing.assert_close(spectral_ratio(matrices, iterations=0), exact, rtol=1e-5, atol=0)


def test_without_a_gate_kappa_is_not_computed() -> None:
    model = MLP(4, 2, (6, 5))
    anchor = model.initial(np.random.default_rng(0))[None]
    assert Fractional().begin({}, a_start(anchor, model)) == ({}, {})


def test_the_ratio_of_a_zero_matrix_is_zero() -> None:
    assert spectral_ratio(torch.zeros(3, 4)).item() == 0.0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 1.4}, r"Fractional\(alpha=1.4\): alpha must be in \(0, 1\]. Use 1 to switch"),
        ({"alpha": 0.0}, r"alpha must be in"),
        ({"alpha": float("nan")}, r"alpha must be in"),
        ({"delta": 0.0}, r"delta must be above 0"),
        ({"p_min": 6.0}, r"Fractional\(p_min=6.0\): p_min must be in \(0, p_max=5.0\]"),
        ({"beta_kappa": -1.0}, r"beta_kappa must be at least 0"),
        ({"order": "clip"}, r"'gate-then-clip' or 'clip-then-gate'"),
        ({"power_iterations": -1}, r"power_iterations must be at least 0"),
    ],
)
def test_bad_hyperparameters_are_refused(settings, message) -> None:
    with pytest.raises(SettingError, match=message):
        Fractional(**settings)


def test_an_unknown_matrix_is_named() -> None:
    model = MLP(4, 2, (6, 5))
    anchor = model.initial(np.random.default_rng(0))[None]
    with pytest.raises(
        SettingError, match=r"It has: hidden1.weight, hidden2.weight, output.weight"
    ):
        Fractional(beta_kappa=1.0, matrix="W2").begin({}, a_start(anchor, model))


def test_a_matched_rate_keeps_the_shape_and_has_mean_one() -> None:
    moved = torch.tensor([[0.0, 0.1, -1.0], [0.5, 0.5, 0.5]]).double()
    plain = Fractional(alpha=0.8).scale(moved.clone())
    matched = Fractional(alpha=0.8, match_rate=True).scale(moved.clone())
    assert matched.mean(dim=-1).tolist() == approx([1.0, 1.0], abs=1e-15)
    assert (matched / plain)[0].tolist() == approx([3 / float(plain[0].sum())] * 3, rel=1e-14)
    assert matched[1].tolist() == approx([1.0, 1.0, 1.0], abs=1e-15)
