"""Random draws keyed by what they are for.

Every draw of the library comes from `generator(seed, purpose, *keys)`. Two draws share a stream
only if all their keys are equal, so switching a mechanism on or off, or training vehicles in
another order or stack, moves no other draw. A vehicle is keyed by its name, never by its place in a
fleet: it draws the same batches alone, in a simulation and on the road.
"""

from collections.abc import Iterable
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def generator(seed: int, purpose: str, *keys: int | str) -> np.random.Generator:
    """Independent generator for (seed, purpose, keys).

    >>> a = generator(1, "batches", 3, "car-07").integers(100, size=3)
    >>> b = generator(1, "batches", 3, "car-07").integers(100, size=3)
    >>> bool((a == b).all())
    True
    """
    return np.random.Generator(np.random.Philox(key=key_of(seed, purpose, *keys)))


def key_of(seed: int, purpose: str, *keys: int | str) -> int:
    """128 bits that stand for (seed, purpose, keys)."""
    text = "\x1f".join(f"{type(key).__name__}:{key}" for key in (seed, purpose, *keys))
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "little")


def first_uniforms(seed: int, purpose: str, names: Iterable[str]) -> NDArray[np.float64]:
    """`generator(seed, purpose, name).random()` of each name, [names], a hundred times as fast.

    A generator is Philox4x64-10 (Salmon et al., SC 2011) with a key of its own; here the first
    block of all of them is worked out at once.

    >>> draws = first_uniforms(1, "held out", ["car-1", "car-2"])
    >>> bool(draws[1] == generator(1, "held out", "car-2").random())
    True
    """
    head = "\x1f".join(f"{type(key).__name__}:{key}" for key in (seed, purpose)) + "\x1fstr:"
    digests = b"".join(blake2b((head + n).encode(), digest_size=16).digest() for n in names)
    low, high = np.frombuffer(digests, dtype="<u8").reshape(-1, 2).T.copy()
    # A block is made of a counter of four words, of which the first block has 1 in the first.
    a, b, c, d = (np.full(len(low), word, dtype=np.uint64) for word in (1, 0, 0, 0))
    for _ in range(10):
        a_high, a_low = _product(a, 0xD2E7470EE14C6C93)
        c_high, c_low = _product(c, 0xCA5A826395121157)
        a, b, c, d = c_high ^ b ^ low, c_low, a_high ^ d ^ high, a_low
        low, high = low + np.uint64(0x9E3779B97F4A7C15), high + np.uint64(0xBB67AE8584CAA73B)
    return np.asarray((a >> np.uint64(11)) * 2.0**-53)


def _product(values: NDArray[np.uint64], factor: int) -> tuple[NDArray[np.uint64], ...]:
    """(high, low) 64 bits of the 128 of each value times a factor."""
    half = np.uint64(32)
    mask = np.uint64(2**32 - 1)
    low = values & mask
    high = values >> half
    f_low = np.uint64(factor & (2**32 - 1))
    f_high = np.uint64(factor >> 32)
    middle = high * f_low + ((low * f_low) >> half)
    carry = (middle & mask) + low * f_high
    return high * f_high + (middle >> half) + (carry >> half), values * np.uint64(factor)
