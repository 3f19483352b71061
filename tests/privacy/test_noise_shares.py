"""Noise in shares: its variance whoever drops out, its grid, and what one vehicle can move."""

from math import sqrt

import numpy as np
import pytest
import torch

from fedwatt.errors import DataError
from fedwatt.methods import get
from fedwatt.metrics.sums import VectorLayout
from fedwatt.models import get_model
from fedwatt.privacy.secure import compose
from fedwatt.privacy.secure.compose import reply_layout, reply_values, with_share
from fedwatt.privacy.secure_settings import SecureSettings
from fedwatt.randomness import grid_of_noise
from tests.privacy.exchanges import terms_of
from tests.privacy.rehearsal import rehearse

METHOD = get("fedavg@private", noise_multiplier=2.0, clip_norm=0.5)
MODEL = get_model("mlp", window=10, features=8, hidden=(30,))
SIZE = MODEL.layout.size


def words(vehicles: int, survivors: int, delta: float = 0.0) -> tuple[VectorLayout, np.ndarray]:
    layout = reply_layout(METHOD, MODEL, SecureSettings(), vehicles=vehicles)
    delta_alone = torch.full((SIZE,), delta)
    return layout, layout.encode(reply_values(METHOD, MODEL, delta_alone, 9, {}, layout, survivors))


@pytest.mark.parametrize("left", [7, 10])
def test_the_fewest_survivors_have_all_of_the_noise(left: int) -> None:
    # Ten vehicles are called and seven must survive; z·c = 1.
    shares = [words(10, 7) for _ in range(left)]
    layout = shares[0][0]
    total = sum(share_sum for _, share_sum in shares)
    sums = layout.decode(total)
    # 2,461 coordinates: the deviation is known to 1.4 %.
    assert sums["delta"].std() == pytest.approx(sqrt(left / 7), rel=0.06)
    assert sums["clipped"][0] == 0
    delta, weight, _ = METHOD.mean_of_sums(MODEL, sums)
    assert weight == left
    assert (delta.numpy() * left) == pytest.approx(sums["delta"])


@pytest.mark.parametrize("bits", [32, 48, 64])
def test_a_vector_is_no_longer_than_its_clip_norm_on_the_grid(
    bits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = METHOD.server
    generator = torch.Generator().manual_seed(1)
    step = reply_layout(METHOD, MODEL, SecureSettings(bits=bits), vehicles=100).steps["delta"]
    contribution = server.contribution(MODEL, torch.randn(SIZE, generator=generator).double(), {})
    assert float(contribution.norm()) == pytest.approx(0.5)
    noisy = with_share(server, contribution, 70, step)
    grid = grid_of_noise(server.noise_deviation / sqrt(70), step)
    assert torch.equal((noisy / grid).round() * grid, noisy)
    # Without the noise: the vector on its grid, shortened by at most √D·γ/2 twice and no longer.
    monkeypatch.setattr(compose, "discrete_gaussian", lambda deviation, size: np.zeros(size))
    length = float(with_share(server, contribution, 70, step).norm())
    assert 0.5 - sqrt(SIZE) * grid <= length <= 0.5
    # Rounding up everywhere would be longer, were the vector not shortened first.
    upward = torch.full((SIZE,), 0.5 / sqrt(SIZE), dtype=torch.float64)
    assert float(with_share(server, upward, 70, step).norm()) <= 0.5


def test_noise_that_is_too_fine_for_the_words_is_refused() -> None:
    server = get("fedavg@private", noise_multiplier=1e-3, clip_norm=0.5).server
    with pytest.raises(DataError, match=r"secure.bits = 64"):
        with_share(server, torch.zeros(4, dtype=torch.float64), 100, 2.0**-10)


@pytest.mark.parametrize("drawn", [(), (0,), (1,), (0, 1)])
def test_one_vehicle_moves_a_sum_by_its_clip_norm_whoever_is_drawn(drawn: tuple[int, ...]) -> None:
    """All take part in every sum, so none fails, and leaves others out, for want of one."""
    silent = get("fedavg@private", noise_multiplier=0.0, clip_norm=0.5)
    deltas = [torch.full((SIZE,), 1.0), torch.full((SIZE,), -2.0), torch.full((SIZE,), 3.0)]
    layout = reply_layout(silent, MODEL, SecureSettings(), vehicles=3)

    def total(drawn: tuple[int, ...]) -> np.ndarray:
        updates = [deltas[k] if k in drawn else torch.zeros(SIZE) for k in range(3)]
        words = {
            f"car-{k}": layout.encode(reply_values(silent, MODEL, d, 9, {}, layout, 2))
            for k, d in enumerate(updates)
        }
        terms = terms_of(3, layout.length, bits=layout.bits)
        result, survivors = rehearse(terms, words)
        assert len(survivors) == 3
        sums = layout.decode(result)
        assert sums["weight"] == 3  # nobody can tell from it who was drawn
        return sums["delta"]

    apart = total((*drawn, 2)) - total(drawn)
    # Clipping is in float64, words are finer.
    assert np.linalg.norm(apart) == pytest.approx(0.5, rel=1e-9)
