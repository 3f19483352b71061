"""The plain engine against steps worked out by hand."""

import numpy as np
import torch

from fedwatt.engine import plain
from fedwatt.engine.batches import Batches, Draw
from fedwatt.engine.job import Job
from fedwatt.engine.pool import pool_fleet
from fedwatt.methods import Fractional, Proximal
from fedwatt.models.model import squared
from tests.federation.toys import Line, scalar_toy


def job(*rules) -> Job:
    """Two steps of the second vehicle and one of the first, η = 0.1, from w = 0.5.

    Their gradients are 2(w + 2) and w - 1.
    """
    pool = pool_fleet(scalar_toy(), device=torch.device("cpu"), dtype=torch.float64)
    draws = [
        Draw(0, 0, "car-1", windows=3, end=2, batch=3),
        Draw(0, 0, "car-0", windows=1, end=1, batch=3),
    ]
    anchor = Line().initial(np.random.default_rng(0)).expand(2, 1)
    plans = tuple({} for _ in rules)
    return Job(rules, plans, Line(), squared, anchor, 0.1, Batches(pool, [1, 0], draws))


def test_plain_steps() -> None:
    # Second vehicle: 0.5 - 0.1·5 = 0, 0 - 0.1·4 = -0.4. First: 0.5 + 0.1·0.5 = 0.55.
    expected = torch.tensor([[-0.9], [0.05]], dtype=torch.float64)
    torch.testing.assert_close(plain.train(job()), expected, rtol=0, atol=1e-15)


def test_a_pull_acts_from_the_second_step_on() -> None:
    # Second vehicle: 0, then 0 - 0.1·(4 + 0.5·(0 - 0.5)) = -0.375.
    expected = torch.tensor([[-0.875], [0.05]], dtype=torch.float64)
    torch.testing.assert_close(plain.train(job(Proximal(mu=0.5))), expected, rtol=0, atol=1e-15)


def test_a_power_scales_the_second_step() -> None:
    # It moved by 0.5: p = √(0.5 + δ)/Γ(1.5), and w_2 = 0 - 0.1·4·p with Γ(1.5) = √π/2.
    rule = Fractional(alpha=0.5, delta=1e-12, p_min=0.01)
    p = 0.5**0.5 / (np.pi**0.5 / 2)
    outcome = plain.train(job(rule))
    assert abs(outcome[0, 0].item() - (-0.5 - 0.4 * p)) < 1e-11
