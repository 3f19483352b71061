"""Words by which vehicles tell a model that their sum made from any other."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedwatt.methods import get
from fedwatt.models import MLP
from fedwatt.privacy.check_words import WORDS, CheckKey, Made, part_bytes
from fedwatt.privacy.fixed_point import FloatArray
from fedwatt.privacy.secure.compose import means, reply_layout, reply_values
from fedwatt.privacy.secure_settings import SecureSettings

METHOD, MODEL = get("fedavg"), MLP(window=5, features=3, hidden=(8,))
KEY = CheckKey(bytes(32), b"exchange")
SIZE = MODEL.layout.size


def summed(vehicles: int, bits: int = 48) -> tuple[FloatArray, Made]:
    """The mean displacement of a few vehicles, and what the server can say of it."""
    layout = reply_layout(METHOD, MODEL, SecureSettings(bits=bits), vehicles=vehicles)
    rng, words = np.random.default_rng(1), 0
    for _ in range(vehicles):
        delta = torch.from_numpy(rng.normal(0, 0.05, SIZE))
        windows = int(rng.integers(500, 20_000))
        own = reply_values(METHOD, MODEL, delta, windows, {}, layout, check=KEY)
        words = words + layout.encode(own)
    sums = layout.decode(words)
    delta, weight, _ = means(METHOD, MODEL, sums)
    assert not sums["clipped"][0]
    return delta.numpy(), Made(b"exchange", weight, weight, vehicles, tuple(sums["check"]))


@pytest.mark.parametrize(("vehicles", "bits"), [(3, 48), (20, 48), (20, 64), (20, 32), (1000, 48)])
def test_the_mean_of_a_sum_is_followed_and_nothing_beside_it(vehicles: int, bits: int) -> None:
    mean, made = summed(vehicles, bits)
    layout = reply_layout(METHOD, MODEL, SecureSettings(bits=bits), vehicles=vehicles)
    before = np.random.default_rng(2).normal(0, 0.1, SIZE).astype(np.float32)
    after = (before + mean).astype(np.float32)

    def follows(model: FloatArray, said: Made = made, key: CheckKey = KEY) -> bool:
        return key.follows(layout, before, model.astype(np.float32), said)

    assert follows(after)
    away = np.random.default_rng(3).normal(0, 1, SIZE)
    # 32 bits are coarse; the default policy refuses them.
    part = 1e-4 if bits > 32 else 0.1
    assert not follows(after + part * np.linalg.norm(mean) * away / np.linalg.norm(away))
    assert not follows(before) and not follows(before + 2 * mean)
    assert not follows(after, replace(made, weight=1.1 * made.weight))
    assert not follows(after, replace(made, divisor=1.1 * made.divisor))
    assert not follows(after, replace(made, vehicles=made.vehicles + 1))
    assert not follows(after, replace(made, words=made.words[:-1]))
    crafted = before.copy()
    crafted[0] = -1e4
    # With weights beyond all numbers, what rounding allows would be, too.
    assert not follows(crafted, replace(made, weight=1e305, divisor=1e305))
    assert not follows(after, key=CheckKey(bytes(31) + b"1", b"exchange"))
    assert not follows(after, key=CheckKey(bytes(32), b"another"))


def test_signs_factors_and_pads_by_hand() -> None:
    layout = reply_layout(METHOD, MODEL, SecureSettings(), vehicles=3)
    signs, factors, pads = KEY.signs(SIZE), KEY.factors(), KEY.pads(layout)
    assert signs.shape == (WORDS, SIZE) and set(signs.ravel()) == {-1.0, 1.0}
    assert ((factors >= 1) & (factors < 2)).all() and len(set(pads)) == WORDS
    ones = KEY.words(layout, 10.0, np.ones(SIZE))
    assert ones == pytest.approx(signs.sum(axis=1) + 10 * factors + pads)
    # Pads are as large as half of what the field has room for, 1,024 times the largest n Δ.
    assert np.abs(pads).max() <= 512 * 200_000 * 16.0


def test_parts_of_a_sum_are_followed_as_a_whole_and_bent_to_no_other_model() -> None:
    layout = reply_layout(METHOD, MODEL, SecureSettings(), vehicles=10)
    rng, words, counts = np.random.default_rng(4), {}, {b"north": 2, b"south": 3}
    for part, vehicles in counts.items():
        key, words[part] = CheckKey(bytes(32), b"whole", part), 0
        for _ in range(vehicles):
            delta = torch.from_numpy(rng.normal(0, 0.05, SIZE))
            own = reply_values(METHOD, MODEL, delta, 1000, {}, layout, check=key)
            words[part] = words[part] + layout.encode(own)
    parts = {part: layout.decode(own) for part, own in words.items()}
    before = rng.normal(0, 0.1, SIZE).astype(np.float32)
    key = CheckKey(bytes(32), b"whole", b"north")

    def followed(factors: dict[bytes, int], said: dict[bytes, int]) -> bool:
        """Whether the model of so many times each part passes for one of `said` vehicles."""
        sums = {n: sum(f * parts[p][n] for p, f in factors.items()) for n in parts[b"north"]}
        weight = float(sums["weight"][0])
        after = (before + sums["delta"] / weight).astype(np.float32)
        # A count below 0 is a large one in the bytes that travel.
        told = tuple(part_bytes(part, count % 2**32) for part, count in said.items())
        check = tuple(sums["check"])
        made = Made(b"whole", weight, weight, sum(said.values()), check, told)
        return key.follows(layout, before, after, made)

    assert followed({b"north": 1, b"south": 1}, counts)
    # The mean of one part is what a server could have by calling its vehicles alone.
    assert followed({b"north": 1, b"south": 0}, {b"north": 2})
    assert not followed({b"north": 1, b"south": 0}, {b"north": 2, b"south": 0})
    assert not followed({b"north": 3, b"south": -1}, counts)
    assert not followed({b"north": 3, b"south": -1}, {b"north": 6, b"south": -3})
    assert not followed({b"north": 1, b"south": 1}, {b"north": 3, b"south": 2})
    assert not followed({b"north": 1, b"south": 1}, {b"other": 5})
