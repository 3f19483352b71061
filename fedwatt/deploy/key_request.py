"""A vehicle's key, made on board, and the request that a depot signs.

    KEYS/key, key.pub      the pair; the private key never leaves the vehicle
    KEYS/request.pem       name and public key, signed with the private one (PKCS #10)
    KEYS/ca.pem            what the depot adds: how the vehicle knows the server

Keys are named by their fingerprints, as `ssh-keygen -lf key.pub` shows them.
"""

from base64 import b64decode, b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_ssh_public_key,
)
from cryptography.x509.oid import NameOID

from fedwatt.errors import RunError
from fedwatt.files import write_bytes, write_secret, write_text
from fedwatt.privacy.secure.identity import CURVE, CURVES

REQUEST: Final = "request.pem"


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """The name of a public key: SHA-256 of it in OpenSSH's format."""
    blob = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).split()[1]
    digest = sha256(b64decode(blob)).digest()
    return "SHA256:" + b64encode(digest).decode().rstrip("=")


def read_public(path: Path) -> ec.EllipticCurvePublicKey:
    """The public key in a file; RunError if there is none."""
    try:
        key = load_ssh_public_key(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is no public key: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise RunError(f"{path} is no elliptic-curve key. 'fedwatt deploy keys request' makes one.")
    return key


def write_public(path: Path, key: ec.EllipticCurvePublicKey) -> None:
    """A public key as a line of text."""
    text = key.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
    write_text(path, text + "\n")


def write_pair(folder: Path) -> ec.EllipticCurvePrivateKey:
    """A new pair in `folder`, the private key for its owner's eyes only."""
    key = ec.generate_private_key(CURVE)
    private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
    write_secret(folder / "key", private)
    write_public(folder / "key.pub", key.public_key())
    return key


def make_request(name: str, folder: Path) -> str:
    """A new key in `folder` and the request to sign it; the key's fingerprint."""
    if (folder / "key").exists():
        raise RunError(f"{folder} already has a key. Make the new one in another folder.")
    try:
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    except ValueError as error:
        raise RunError(f"A request cannot be made for the name '{name[:80]}': {error}.") from error
    key = write_pair(folder)
    request = x509.CertificateSigningRequestBuilder().subject_name(subject)
    signed = request.sign(key, hashes.SHA384())
    write_bytes(folder / REQUEST, signed.public_bytes(Encoding.PEM))
    return fingerprint(key.public_key())


@dataclass(frozen=True)
class KeyRequest:
    """A request as the depot reads it."""

    vehicle: str
    key: ec.EllipticCurvePublicKey

    @classmethod
    def read(cls, path: Path) -> "KeyRequest":
        """The request in a file, or in a folder of keys; RunError unless its key signed it."""
        path = path / REQUEST if path.is_dir() else path
        try:
            found = x509.load_pem_x509_csr(path.read_bytes())
            names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            key, signed = found.public_key(), found.is_signature_valid
        except (OSError, ValueError) as error:
            raise RunError(f"{path} is no request of a vehicle: {error}.") from error
        known = [curve.name for curve in CURVES.values()]
        if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name not in known:
            raise RunError(f"{path} has no key that 'fedwatt deploy keys request' makes.")
        if not signed or len(names) != 1 or not str(names[0].value):
            raise RunError(f"{path} is not signed with its own key, or names no vehicle.")
        return cls(str(names[0].value), key)
