"""Random draws keyed by what they are for.

Every draw of the library comes from `generator(seed, purpose, *keys)`. Two draws share a stream
only if all their keys are equal, so switching a mechanism on or off, or training vehicles in
another order or stack, moves no other draw. A vehicle is keyed by its name, never by its place in a
fleet: it draws the same batches alone, in a simulation and on the road.
"""

from hashlib import blake2b

import numpy as np


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
