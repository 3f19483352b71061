"""Masks: long streams of random words from short keys, added to vectors modulo 2^bits.

The stream is ChaCha20's key stream (RFC 8439). A key is used for one mask only, so the nonce is 0.
"""

from hashlib import sha256

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from fedwatt.metrics.sums import Words, word_type
from fedwatt.privacy.secure.agreement import agreed_key, derived, framed
from fedwatt.privacy.secure_settings import SecureTerms


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
