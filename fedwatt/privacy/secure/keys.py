"""Keys of an exchange: agreed secrets, seals, masks, and the signatures of vehicles.

Two vehicles agree on a secret that the server, who carries their messages, has not: X25519 (RFC
7748) between fresh key pairs, then HKDF-SHA256 (RFC 5869) bound to the exchange, to the two
vehicles and to what the key is for. Messages are sealed with ChaCha20-Poly1305 (RFC 8439), with
exchange, sender and receiver authenticated beside them. Masks are ChaCha20's key stream, added to
vectors modulo 2^bits; a key is used for one mask only, so the nonce is 0.

Vehicles sign by ECDSA on P-256 with SHA-384. A voucher ties a name to a public key; in a deployment
it is the vehicle's certificate (`deploy.plan.certificates`). Vehicles check vouchers and signatures
themselves, so the server cannot insert its keys into a sum.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256, SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from fedwatt.errors import DataError
from fedwatt.metrics.sums import Words, word_type
from fedwatt.privacy.secure.shamir import Entropy
from fedwatt.privacy.secure_settings import SecureTerms

KEY_BYTES = 32
NONCE_BYTES = 12
SEAL_BYTES = NONCE_BYTES + 16  # by how much a sealed message is longer than its text


def public_key(secret: bytes) -> bytes:
    """Return the public half of a key pair whose private half is any 32 random bytes."""
    return X25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()


def is_public_key(key: bytes) -> bool:
    """Return whether `key` is one with which a secret can be agreed: not cut short, of no small
    order.
    """
    try:
        X25519PrivateKey.from_private_bytes(bytes(KEY_BYTES)).exchange(
            X25519PublicKey.from_public_bytes(key)
        )
    except ValueError:
        return False
    return True


def agreed_key(secret: bytes, other: bytes, exchange: bytes, purpose: str, *names: str) -> bytes:
    """Return 32 bytes that the owners of `secret` and of the public key `other` both compute.

    `names` are those of the two vehicles, in an order that both know.
    """
    try:
        private = X25519PrivateKey.from_private_bytes(secret)
        common = private.exchange(X25519PublicKey.from_public_bytes(other))
    except ValueError as error:
        raise DataError(f"A public key of {' or '.join(names)} is none.") from error
    return derived(common, exchange, purpose, *names)


def derived(material: bytes, exchange: bytes, purpose: str, *names: str) -> bytes:
    """Return 32 bytes for one purpose from secret `material`."""
    info = framed(purpose.encode(), *(name.encode() for name in names))
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=exchange, info=info).derive(material)


def framed(*parts: bytes) -> bytes:
    """Return the parts one after the other, each behind its length, so that no two lists look
    alike.
    """
    return b"".join(len(part).to_bytes(4, "little") + part for part in parts)


def seal(
    key: bytes, text: bytes, exchange: bytes, sender: str, receiver: str, entropy: Entropy
) -> bytes:
    """Return `text` encrypted by `key`, so that nobody can read, alter or redirect it."""
    nonce = entropy(NONCE_BYTES)
    beside = framed(exchange, sender.encode(), receiver.encode())
    return nonce + ChaCha20Poly1305(key).encrypt(nonce, text, beside)


def unseal(key: bytes, sealed: bytes, exchange: bytes, sender: str, receiver: str) -> bytes:
    """Return the text; refuses a message that was altered, or meant for another receiver or
    exchange.
    """
    nonce = sealed[:NONCE_BYTES]
    ciphertext = sealed[NONCE_BYTES:]
    beside = framed(exchange, sender.encode(), receiver.encode())
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, ciphertext, beside)
    except (InvalidTag, ValueError) as error:
        raise DataError(
            f"What {sender} sent {receiver} was altered on its way, or belongs to another exchange."
        ) from error


def stream(key: bytes, length: int, bits: int) -> Words:
    """Return `length` words that only the holder of `key` (32 bytes) can tell from random ones."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    # Whole machine words whatever `bits`: what is above them falls off when vectors are packed.
    kind = word_type(bits)
    return np.frombuffer(encryptor.update(bytes(length * kind.itemsize)), dtype=kind)


def own_mask(terms: SecureTerms, seed: bytes, vehicle: str) -> Words:
    """Return PRG(b_u), the mask that a vehicle shares with nobody."""
    return stream(derived(seed, terms.digest, "own mask", vehicle), terms.length, terms.bits)


def commitment(terms: SecureTerms, vehicle: str, seed: bytes) -> bytes:
    """Return a digest by which the seed of an own mask is known once it is put together from
    shares.

    The seed is 32 random bytes: its SHA-256, bound to exchange and vehicle, gives nothing away.
    """
    return sha256(framed(b"own seed", terms.digest, vehicle.encode(), seed)).digest()


def pair_mask(terms: SecureTerms, secret: bytes, other_key: bytes, me: str, other: str) -> Words:
    """Return the mask that `me` adds for its pair with `other`, which adds its negative.

    PRG(s_uv) for the one whose name comes first. `secret` is the private mask key of either.
    """
    key = agreed_key(secret, other_key, terms.digest, "pair mask", *sorted((me, other)))
    words = stream(key, terms.length, terms.bits)
    return words if me < other else np.negative(words)


CURVE = ec.SECP256R1()
ALGORITHM = ec.ECDSA(SHA384())


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
