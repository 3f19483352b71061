"""Identities of vehicles in secure aggregation: a key on P-256 and a voucher for it.

ECDSA with SHA-384. A voucher ties a name to a public key; in a deployment it is the vehicle's
certificate (`deploy.plan.certificates`). Vehicles check vouchers and signatures themselves, so a
server that carries their messages cannot put keys of its own into a sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedwatt.errors import DataError
from fedwatt.privacy.secure.agreement import framed

CURVE: Final = ec.SECP256R1()
ALGORITHM: Final = ec.ECDSA(SHA384())


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """Return a public key as 33 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


@dataclass(frozen=True)
class Identity:
    """A vehicle's own key, and the voucher for it."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    voucher: bytes

    @property
    def public(self) -> bytes:
        """Return the public half of the key."""
        return public_bytes(self.key.public_key())

    def sign(self, *parts: bytes) -> bytes:
        """Return a signature of the parts, in this order."""
        return self.key.sign(framed(*parts), ALGORITHM)


@dataclass(frozen=True)
class Trust:
    """The check that a vehicle makes of other vehicles' vouchers."""

    check_voucher: Callable[[str, bytes, bytes], None]
    """Raises DataError unless the voucher ties this name to this public key."""


def check_signature(name: str, public: bytes, signature: bytes, *parts: bytes) -> None:
    """Raise DataError unless the owner of `public` signed the parts."""
    if not _verified(public, signature, framed(*parts)):
        raise DataError(f"{name} did not sign this")


@lru_cache(maxsize=4096)
def _verified(public: bytes, signature: bytes, content: bytes) -> bool:
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(CURVE, public)
        key.verify(signature, content, ALGORITHM)
    except (InvalidSignature, ValueError):
        return False
    return True
