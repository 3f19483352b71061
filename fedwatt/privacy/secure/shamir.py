"""Shamir's secret sharing: any t shares give the secret, fewer say nothing about it.

Shamir, CACM 1979. The secret is the value at 0 of a random polynomial of degree t-1 over the
integers modulo the prime p = 2^256 + 297, the smallest one in which 32 bytes always fit; the share
of the i-th vehicle, i = 1, 2, ..., is its value at i.
"""

from collections.abc import Callable, Sequence

from fedwatt.errors import DataError

PRIME = 2**256 + 297
SECRET_BYTES = 32
SHARE_BYTES = 33

Entropy = Callable[[int], bytes]  # n → n secret random bytes; `os.urandom` wherever it matters


def split(secret: bytes, threshold: int, shares: int, entropy: Entropy) -> list[bytes]:
    """Return shares 1 to `shares` of 32 bytes, any `threshold` of which reconstruct them.

    >>> import os
    >>> one, _, three = split(b"0123456789abcdef" * 2, 2, 3, os.urandom)
    >>> combine(weights_at_zero([1, 3]), [one, three])
    b'0123456789abcdef0123456789abcdef'
    """
    assert len(secret) == SECRET_BYTES and 1 <= threshold <= shares
    # 48 bytes, so that reducing them favours no coefficient by more than 2^-127.
    drawn = [int.from_bytes(entropy(48), "little") % PRIME for _ in range(threshold - 1)]
    coefficients = [int.from_bytes(secret, "little"), *drawn]
    made = []
    for at in range(1, shares + 1):
        value = 0
        for coefficient in reversed(coefficients):
            value = (value * at + coefficient) % PRIME
        made.append(value.to_bytes(SHARE_BYTES, "little"))
    return made


def weights_at_zero(places: Sequence[int]) -> list[int]:
    """Return Lagrange's weights that turn values at `places` (from 1) into the value at 0."""
    weights = []
    for place in places:
        above = below = 1
        for other in places:
            if other != place:
                above = above * other % PRIME
                below = below * (other - place) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return weights


def combine(weights: Sequence[int], shares: Sequence[bytes]) -> bytes:
    """Return the secret from t shares and the weights of their places; refuses what is no
    secret.
    """
    values = [int.from_bytes(share, "little") for share in shares]
    secret = sum(w * v for w, v in zip(weights, values, strict=True)) % PRIME
    if any(len(share) != SHARE_BYTES for share in shares) or secret >= 2**256:
        raise DataError("Shares do not belong together: they give no 32 bytes.")
    return secret.to_bytes(SECRET_BYTES, "little")
