"""Who a vehicle is to the others of a sum: its own key, vouched for by the depot's authority.

ECDSA on P-256 or P-384 with SHA-384, as Flower's node keys are. A voucher is the authority's
signature of a vehicle's name and public key. Vehicles check vouchers and signatures themselves, so
a server that carries their messages cannot put keys of its own into a sum.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedwatt.errors import DataError
from fedwatt.privacy.secure.agreement import framed

CURVES: Final = {33: ec.SECP256R1(), 49: ec.SECP384R1()}
"""By the bytes of a public key. Vehicles' new keys are of the first, which costs a server a tenth
of the time to check; the depot's own, and vehicles' of earlier versions, of the second."""
CURVE: Final = CURVES[33]
ALGORITHM: Final = ec.ECDSA(SHA384())


def public_bytes(key: ec.EllipticCurvePublicKey) -> bytes:
    """A public key as 33 or 49 bytes."""
    return key.public_bytes(Encoding.X962, PublicFormat.CompressedPoint)


def vouch(authority: ec.EllipticCurvePrivateKey, name: str, public: bytes) -> bytes:
    """The authority's word that `public` is the key of the vehicle `name`."""
    return authority.sign(framed(b"fedwatt vehicle", name.encode(), public), ALGORITHM)


@dataclass(frozen=True)
class Identity:
    """A vehicle's own key, and the voucher for it."""

    key: ec.EllipticCurvePrivateKey = field(repr=False)
    voucher: bytes

    @property
    def public(self) -> bytes:
        """The public half of the key."""
        return public_bytes(self.key.public_key())

    def sign(self, *parts: bytes) -> bytes:
        """A signature of the parts, in this order."""
        return self.key.sign(framed(*parts), ALGORITHM)


@dataclass(frozen=True)
class Trust:
    """The authority whose vouchers count."""

    authority: ec.EllipticCurvePublicKey

    def check_voucher(self, name: str, public: bytes, voucher: bytes) -> None:
        """DataError unless the authority vouched for a vehicle's key."""
        vouched = framed(b"fedwatt vehicle", name.encode(), public)
        if not _verified(public_bytes(self.authority), voucher, vouched):
            raise DataError(f"the key of {name} is not vouched for by the depot")


def check_signature(name: str, public: bytes, signature: bytes, *parts: bytes) -> None:
    """DataError unless the owner of `public` signed the parts."""
    if not _verified(public, signature, framed(*parts)):
        raise DataError(f"{name} did not sign this")


@lru_cache(maxsize=4096)
def _verified(public: bytes, signature: bytes, content: bytes) -> bool:
    try:
        key = ec.EllipticCurvePublicKey.from_encoded_point(CURVES[len(public)], public)
        key.verify(signature, content, ALGORITHM)
    except (InvalidSignature, ValueError, KeyError):
        return False
    return True
