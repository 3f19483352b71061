"""Differentially private averaging: clipping, noise, the fixed denominator, refusals."""

from math import exp, inf, sqrt

import numpy as np
import pytest
import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation import Availability, Federation, Training
from fedwatt.methods import get
from fedwatt.methods.private import PrivateAverage
from fedwatt.methods.server import Replies
from fedwatt.models import MLP
from tests.federation.toys import random_fleet


def replies(deltas: Tensor, *, population: int = 4, participation: float = 0.5, seed: int = 0):
    windows = torch.arange(1.0, len(deltas) + 1, dtype=torch.float64)
    rng = np.random.default_rng(seed)
    return Replies(deltas, windows, population, 10.0, rng, {}, participation)


def average(**settings) -> PrivateAverage:
    return PrivateAverage(**{"noise_multiplier": 0.0} | settings)


def test_long_updates_are_shortened_and_short_ones_kept() -> None:
    # (3, -4) has norm 5 and becomes (0.6, -0.8); (-0.3, 0.4) stays. The sum goes by q·K = 2, not
    # by the three replies, and the vehicles' windows (1, 2, 3) play no part.
    deltas = torch.tensor([[3.0, -4.0], [-0.3, 0.4], [0.0, 0.0]], dtype=torch.float64)
    _, after = average().update({}, torch.tensor([1.0, 1.0]).double(), replies(deltas))
    expected = torch.tensor([1 + 0.3 / 2, 1 - 0.4 / 2], dtype=torch.float64)
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-12)


def test_no_vehicle_moves_the_sum_by_more_than_the_clip() -> None:
    torch.manual_seed(0)
    deltas = torch.randn(50, 7) * torch.logspace(-3, 3, 50)[:, None]
    zero = torch.zeros(7, dtype=torch.float64)
    for delta in deltas:
        _, moved = average(clip_norm=0.7).update({}, zero, replies(delta[None], population=2))
        assert moved.norm() <= 0.7 * (1 + 1e-12)


def test_noise_has_the_deviation_it_claims() -> None:
    # 20 000 independent coordinates: the sample deviation is within 2 % with certainty enough
    # (its own is 1/√40 000 = 0.5 %). Both with and without replies: an empty round is noisy, too.
    rule = average(noise_multiplier=1.5, clip_norm=2.0)
    zero = torch.zeros(20_000).double()
    claimed = 1.5 * 2.0 / (0.5 * 4)
    for count in (0, 3):
        _, after = rule.update({}, zero, replies(torch.zeros(count, 20_000)))
        assert after.std().item() == pytest.approx(claimed, rel=0.02)
        assert abs(after.mean().item()) < 5 * claimed / sqrt(20_000)


def adaptive_clip(norms: list[float], **settings) -> float:
    rule = average(clipping="adaptive", **settings)
    deltas = torch.tensor(norms, dtype=torch.float64)[:, None]
    state, _ = rule.update(rule.state(MLP(4, 8, (6, 5))), torch.zeros(1), replies(deltas))
    return float(state["clip"])


def test_the_clip_follows_the_quantile() -> None:
    # q·K = 2 vehicles. Both clipped: b̃ = 0, so c rises by exp(0.2·0.5). Both whole: it falls.
    assert adaptive_clip([5.0, 7.0]) == pytest.approx(exp(0.1), rel=1e-12)
    assert adaptive_clip([0.5, 1.0]) == pytest.approx(exp(-0.1), rel=1e-12)
    assert adaptive_clip([0.5, 7.0]) == 1.0
    assert adaptive_clip([0.5, 7.0], clip_quantile=0.8) == pytest.approx(exp(0.06), rel=1e-12)


def test_the_clip_finds_the_updates_whatever_it_started_from() -> None:
    deltas = torch.tensor([[2.0], [-3.0], [4.0]], dtype=torch.float64)
    for start in (0.01, 100.0):
        rule = average(clipping="adaptive", clip_norm=start)
        state = rule.state(MLP(4, 8, (6, 5)))
        for _ in range(200):
            state, _ = rule.update(
                state, torch.zeros(1), replies(deltas, population=3, participation=1.0)
            )
        assert 1.8 < state["clip"] < 4.2


def test_the_count_takes_its_share_of_the_noise() -> None:
    rule = PrivateAverage(noise_multiplier=2.0, clipping="adaptive", count_noise=1.25)
    # 1/4 - 1/6.25 = 0.09
    assert rule.delta_noise(100.0) == pytest.approx(1 / 0.3, rel=1e-12)
    # Left alone, the count's noise is a twentieth of the vehicles called, but never below z.
    assert PrivateAverage(clipping="adaptive").count_deviation(100.0) == 5.0
    assert PrivateAverage(clipping="adaptive").count_deviation(6.0) == 1.0
    with pytest.raises(SettingError, match=r"must be 0 or above noise_multiplier/2 = 1"):
        PrivateAverage(noise_multiplier=2.0, clipping="adaptive", count_noise=1.0)


def federation(**training) -> Federation:
    settings = {"rounds": 3, "participation": 1.0, "batch": 16, "sampling": "poisson"} | training
    return Federation(
        random_fleet(),
        MLP(4, 8, (6, 5)),
        training=Training(**settings),
        availability=training.get("availability"),
        seeds=(1, 2),
        device="cpu",
    )


def test_without_noise_and_clip_it_is_uniform_fedavg() -> None:
    private = get("fedavg@private", noise_multiplier=0.0, clip_norm=inf)
    # FedDyn without its regulariser and correction is the plain mean over vehicles.
    uniform = get("feddyn", alpha_dyn=0.0, correction=False)
    fed = federation()
    here = fed.train(private).state.weights
    weights = fed.train(uniform).state.weights
    assert torch.equal(here, weights)
    assert not torch.equal(here, fed.train("fedavg").state.weights)
    clipped = get("fedavg@private", noise_multiplier=0.0, clip_norm=0.01)
    assert not torch.equal(here, fed.train(clipped).state.weights)


def test_a_round_that_nobody_was_drawn_for_is_as_noisy_as_any() -> None:
    fed = federation(participation=1e-9, rounds=1)
    for name in ("fedavg@private", "moon@private"):
        before, _ = fed.start(get(name))
        after, record = fed.advance(get(name), before)
        assert record.rounds[0]["participants"] == 0
        assert not torch.equal(before.weights, after.weights)
    plain, _ = fed.advance(get("fedavg"), fed.start(get("fedavg"))[0])
    assert torch.equal(plain.weights, before.weights)


def test_noise_is_the_seed_s_own_and_repeats() -> None:
    method = get("fo-ri-fedavg@private", directions=2, points=4, clipping="adaptive")
    fed = federation(participation=0.7)
    first = fed.train(method).state
    second = fed.train(method).state
    assert torch.equal(first.weights, second.weights)
    assert not torch.equal(first.weights[0], first.weights[1])
    assert first.server["clip"].shape == (2,)


@pytest.mark.parametrize("name", ["scaffold@private", "scaffold+fractional@private"])
def test_what_goes_up_beside_the_update_is_refused(name: str) -> None:
    with pytest.raises(SettingError, match=r"control_change beside Δ_k.*inside it or the method"):
        get(name)


def test_normalised_averaging_is_refused() -> None:
    with pytest.raises(SettingError, match=r"uploads the number of steps.*clipped vector"):
        get("fednova@private")


def test_a_name_that_would_promise_another_server_is_refused() -> None:
    with pytest.raises(SettingError, match=r"would replace Adam, .* Use 'fedavg@private'"):
        get("fedadam@private")
    with pytest.raises(SettingError, match="Elastic uploads trained beside Δ_k"):
        get("fedel@private")
    with pytest.raises(SettingError, match="Krum screens updates"):
        get("fedavg@krum+private")


def test_uploads_nobody_announced_are_refused() -> None:
    sent = replies(torch.zeros(2, 1))
    sent.uploads["losses"] = torch.zeros(2)
    with pytest.raises(SettingError, match="losses would be uploaded: differential privacy"):
        average().update({}, torch.zeros(1), sent)


def test_a_fixed_number_of_vehicles_is_refused_unless_sampling_counts_for_nothing() -> None:
    fixed = federation(sampling="fixed", participation=0.5)
    with pytest.raises(SettingError, match=r"training.sampling = 'poisson', or amplified = false"):
        fixed.start(get("fedavg@private"))
    fixed.start(get("fedavg@private", amplified=False))
    fixed.start(get("fedavg@private", noise_multiplier=0.0))  # promises nothing
    federation(sampling="fixed").start(get("fedavg@private"))  # everybody: no sampling at all


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"noise_multiplier": -1.0}, "noise_multiplier must be at least 0"),
        ({"clip_norm": 0.0}, "clip_norm must be above 0"),
        ({"clip_norm": inf}, "clip_norm must be finite where there is noise"),
        ({"clipping": "soft"}, "clipping must be 'fixed' or 'adaptive'"),
        ({"clip_quantile": 1.0}, r"clip_quantile must be in \(0, 1\)"),
        ({"privacy_delta": 1.0}, r"privacy_delta must be in \[0, 1\)"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict, sentence: str) -> None:
    with pytest.raises(SettingError, match=sentence):
        PrivateAverage(**settings)


def test_lost_replies_leave_the_denominator_alone() -> None:
    method = get("fedavg@private", noise_multiplier=0.0, clip_norm=inf)
    fed = Federation(
        random_fleet(),
        MLP(4, 8, (6, 5)),
        training=Training(rounds=1, participation=1.0, batch=16, sampling="poisson"),
        availability=Availability(reply_loss=0.5),
        seeds=(1,),
        device="cpu",
    )
    before, _ = fed.start(method)
    after, record = fed.advance(method, before)
    plain = get("feddyn", alpha_dyn=0.0, correction=False)
    uniform, _ = fed.advance(plain, fed.start(plain)[0])
    replied = record.rounds[0]["replies"]
    assert 0 < replied < 4
    moved = (after.weights - before.weights).double()
    mean = (uniform.weights - before.weights).double()
    # Differences of float32 weights of size 1.
    torch.testing.assert_close(moved, mean * replied / 4, rtol=0, atol=1e-6)
