"""Keys that two vehicles have in common and the server, who carries their messages, has not.

X25519 (RFC 7748) between fresh key pairs, then HKDF-SHA256 (RFC 5869) bound to the exchange, to the
two vehicles and to what the key is for. Messages are sealed with ChaCha20-Poly1305 (RFC 8439), with
exchange, sender and receiver authenticated beside them.
"""

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedwatt.errors import DataError
from fedwatt.privacy.secure.shamir import Entropy

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
