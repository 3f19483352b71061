"""A digest by which a seed is known once it is put together from shares.

The seed is 32 random bytes, so its digest gives nothing away.
"""

from hashlib import sha256

from fedwatt.privacy.secure.agreement import framed
from fedwatt.privacy.secure_settings import Terms


def commitment(terms: Terms, vehicle: str, seed: bytes) -> bytes:
    """SHA-256 of the seed, bound to the exchange and the vehicle."""
    return sha256(framed(b"own seed", terms.digest, vehicle.encode(), seed)).digest()
