"""What a vehicle changes of its reply by chance: by how much, and what stays as it is."""

import numpy as np
import pytest
import torch

from fedwatt.engine.batches import Draw
from fedwatt.privacy.hiding import chance_weight, noisy, own_seed


@pytest.mark.parametrize("hiding", [0.5, 4.0])
def test_noise_has_so_many_lengths_of_what_it_hides(hiding: float) -> None:
    delta = torch.linspace(-0.02, 0.03, 20_000)
    control, count = 7 * torch.ones(20_000), torch.tensor([3.0, 0.0])
    hidden, uploads = noisy(delta, {"control": control, "count": count}, hiding)
    for found, true in ((hidden, delta), (uploads["control"], control)):
        noise = (found - true).double()
        # 20,000 normal numbers: their length is known to half a per cent, four times that here.
        assert float(noise.norm() / true.double().norm()) == pytest.approx(hiding, rel=0.02)
        assert abs(float(noise.mean() / noise.std())) < 4 / 20_000**0.5
        assert found.dtype == true.dtype
    assert torch.equal(uploads["count"], count)  # what rules divide by
    again, _ = noisy(delta, {}, hiding)
    assert not torch.equal(again, hidden)


def test_a_vehicle_without_a_displacement_adds_nothing() -> None:
    hidden, _ = noisy(torch.zeros(50), {}, 4.0)
    assert torch.equal(hidden, torch.zeros(50))


def test_weights_lie_between_half_and_one_and_a_half() -> None:
    weights = np.array([chance_weight(1000) for _ in range(4000)])
    assert weights.min() >= 500 and weights.max() <= 1500
    # Uniform: a mean of 1,000, known to 289 / √4,000 = 5.
    assert weights.mean() == pytest.approx(1000, abs=20)
    assert chance_weight(1) >= 1


def test_no_two_sums_have_the_same_batches() -> None:
    seeds = {own_seed() for _ in range(100)}
    assert len(seeds) == 100
    one, other = (
        Draw(s, 0, "car-1", windows=500, end=5, batch=64).order() for s in list(seeds)[:2]
    )
    assert not np.array_equal(one, other)
