"""Shares of a secret: those that do not belong together are refused."""

import pytest

from fedwatt.errors import DataError
from fedwatt.privacy.secure.shamir import PRIME, SHARE_BYTES, combine, split, weights_at_zero

SECRET = bytes(range(32))


def counting(start: int = 0):
    """Entropy that a person can follow: all bytes of the n-th draw are n."""
    draws = iter(range(start, 256))
    return lambda count: bytes([next(draws)]) * count


def test_shares_that_combine_to_more_than_32_bytes_are_refused() -> None:
    # One share at place 1 is the secret itself; 2^256 is below the prime and needs 33 bytes.
    too_large = (2**256).to_bytes(SHARE_BYTES, "little")
    assert PRIME > 2**256
    with pytest.raises(DataError, match="Shares do not belong together"):
        combine(weights_at_zero([1]), [too_large])


@pytest.mark.parametrize("length", [SHARE_BYTES - 1, SHARE_BYTES + 1])
def test_shares_of_another_length_are_refused(length: int) -> None:
    first, two = split(SECRET, 2, 2, counting(1))
    spoiled = first[:length].ljust(length, b"\0")
    with pytest.raises(DataError, match="Shares do not belong together"):
        combine(weights_at_zero([1, 2]), [spoiled, two])
