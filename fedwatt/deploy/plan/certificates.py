"""X.509 certificates of a fleet: its owner, its server and its vehicles.

    owner      Ed25519, self-signed: signs certificates and plans; its private key stays offline
    server     P-256, signed by the owner: TLS
    vehicle    P-256, signed by the owner: its connection, and its keys of secure aggregation

A role is the organizational unit of a certificate's subject and counts only under the owner's
signature. Server and vehicle make their keys themselves and send the owner a request (PKCS #10);
the owner, and not the request, says which role is signed. A certificate ends at its expiry or when
a plan lists its serial number as revoked.

    KEYS/key.pem           private key, never leaves its machine
    KEYS/request.pem       name and public key, for the owner to sign
    KEYS/certificate.pem   the answer to it
    KEYS/owner.pem         the owner's certificate
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedwatt.errors import DataError, RunError
from fedwatt.files import write_bytes, write_secret

KEY = "key.pem"
REQUEST = "request.pem"
CERTIFICATE = "certificate.pem"
OWNER = "owner.pem"
SERVER = "server"
VEHICLE = "vehicle"
USES = {SERVER: ExtendedKeyUsageOID.SERVER_AUTH, VEHICLE: ExtendedKeyUsageOID.CLIENT_AUTH}
"""Roles that an owner signs, and the extended key usage of each."""
OWNER_DAYS = 3650
EARLY = timedelta(hours=1)
"""A certificate is valid from a while before it is made: clocks differ."""


def create_owner(folder: Path) -> x509.Certificate:
    """Make the owner's key and self-signed certificate in `folder`."""
    if (folder / KEY).exists():
        raise RunError(f"{folder} already has a key. Make the new owner in another folder.")
    key = ed25519.Ed25519PrivateKey.generate()
    certificate = owner_certificate(key)
    write_secret(folder / KEY, private_bytes(key))
    write_certificate(folder / OWNER, certificate)
    return certificate


def owner_certificate(key: ed25519.Ed25519PrivateKey) -> x509.Certificate:
    """Return a self-signed certificate of an owner's key."""
    name = _subject("owner", "owner")
    builder = _builder(name, name, key.public_key(), OWNER_DAYS)
    only_signs = x509.BasicConstraints(ca=True, path_length=0)
    return builder.add_extension(only_signs, critical=True).sign(key, None)


def private_bytes(key: ed25519.Ed25519PrivateKey | ec.EllipticCurvePrivateKey) -> bytes:
    """Return a private key as PEM without a passphrase."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def make_request(name: str, folder: Path, hosts: Sequence[str] = ()) -> str:
    """Make a key and a request to sign it in `folder`; return the key's fingerprint.

    `hosts` are the names and addresses of a server.
    """
    if (folder / KEY).exists():
        raise RunError(f"{folder} already has a key. Make the new one in another folder.")
    key = ec.generate_private_key(ec.SECP256R1())
    try:
        builder = x509.CertificateSigningRequestBuilder().subject_name(_subject(name))
    except ValueError as error:
        raise RunError(f"A request cannot be made for the name '{name[:80]}': {error}.") from error
    if hosts:
        addresses = x509.SubjectAlternativeName([_address(host) for host in hosts])
        builder = builder.add_extension(addresses, critical=False)
    write_secret(folder / KEY, private_bytes(key))
    request = builder.sign(key, SHA256())
    write_bytes(folder / REQUEST, request.public_bytes(Encoding.PEM))
    return fingerprint(key.public_key())


@dataclass(frozen=True)
class Owner:
    """The owner's private key and certificate, which sign certificates and plans."""

    key: ed25519.Ed25519PrivateKey
    certificate: x509.Certificate

    @classmethod
    def read(cls, key: Path) -> "Owner":
        """Read the owner's key and the certificate beside it; RunError if they do not fit."""
        private = read_private(key)
        certificate = read_certificate(key.parent / OWNER)
        if not isinstance(private, ed25519.Ed25519PrivateKey):
            raise RunError(f"{key} is not an owner's key. 'fedwatt deploy owner' makes one.")
        if private.public_key() != certificate.public_key():
            raise RunError(f"{key} is not the key of {key.parent / OWNER}.")
        return cls(private, certificate)

    def sign_request(self, path: Path, role: str, days: int) -> x509.Certificate:
        """Return a certificate for the request in a file or a folder of keys."""
        path = path / REQUEST if path.is_dir() else path
        try:
            request = x509.load_pem_x509_csr(path.read_bytes())
            names = request.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
            key = request.public_key()
            sound = request.is_signature_valid and len(names) == 1 and bool(names[0].value)
        except (OSError, ValueError) as error:
            raise RunError(f"{path} is no request: {error}.") from error
        if not sound or not isinstance(key, ec.EllipticCurvePublicKey):
            raise RunError(f"{path} was not made by 'fedwatt deploy request'.")
        hosts = None
        if role == SERVER:
            try:
                names_of_hosts = request.extensions.get_extension_for_class(
                    x509.SubjectAlternativeName
                )
            except x509.ExtensionNotFound as error:
                raise RunError(f"{path} names no host. Make it with --host.") from error
            hosts = names_of_hosts.value
        return self.issue(str(names[0].value), role, key, days, hosts)

    def issue(
        self,
        name: str,
        role: str,
        key: ec.EllipticCurvePublicKey,
        days: int,
        hosts: x509.SubjectAlternativeName | None = None,
    ) -> x509.Certificate:
        """Return a certificate of a server's or vehicle's public key."""
        subject = _subject(name, role)
        builder = _builder(subject, self.certificate.subject, key, days)
        builder = builder.add_extension(
            x509.BasicConstraints(ca=False, path_length=None), critical=True
        ).add_extension(x509.ExtendedKeyUsage([USES[role]]), critical=False)
        if hosts is not None:
            builder = builder.add_extension(hosts, critical=False)
        return builder.sign(self.key, None)


def check_certificate(
    certificate: x509.Certificate,
    owner: x509.Certificate,
    role: str,
    *,
    revoked: Collection[int] = (),
    now: datetime | None = None,
) -> str:
    """Return the name in a certificate; DataError unless the owner signed it for this role."""
    now = now or datetime.now(UTC)
    _refuse_unsigned(certificate, owner)
    subject = certificate.subject
    names = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    roles = subject.get_attributes_for_oid(NameOID.ORGANIZATIONAL_UNIT_NAME)
    if [attribute.value for attribute in roles] != [role] or len(names) != 1:
        raise DataError(f"a certificate is not that of a {role}")
    name = str(names[0].value)
    _refuse_expired(certificate, name, now)
    if certificate.serial_number in revoked:
        raise DataError(f"the certificate of {name} is revoked")
    return name


def check_owner(owner: x509.Certificate, now: datetime | None = None) -> None:
    """Raise DataError unless the owner's certificate is self-signed, Ed25519 and not expired."""
    _refuse_unsigned(owner, owner)
    if not isinstance(owner.public_key(), ed25519.Ed25519PublicKey):
        raise DataError("the owner's certificate has no Ed25519 key")
    _refuse_expired(owner, "the owner", now or datetime.now(UTC))


def _refuse_unsigned(certificate: x509.Certificate, owner: x509.Certificate) -> None:
    try:
        certificate.verify_directly_issued_by(owner)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise DataError("a certificate is not signed by this fleet's owner") from error


def _refuse_expired(certificate: x509.Certificate, name: str, now: datetime) -> None:
    if not certificate.not_valid_before_utc <= now <= certificate.not_valid_after_utc:
        raise DataError(f"the certificate of {name} is not valid at {now:%Y-%m-%d %H:%M} UTC")


def fingerprint(key: ec.EllipticCurvePublicKey) -> str:
    """Return the SHA-256 of a public key, by which people compare keys."""
    content = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"SHA256:{sha256(content).hexdigest()}"


def read_certificate(path: Path) -> x509.Certificate:
    """Return the certificate in a file; RunError if there is none."""
    try:
        return x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        raise RunError(f"{path} is no certificate: {error}.") from error


def write_certificate(path: Path, certificate: x509.Certificate) -> None:
    """Write a certificate as PEM."""
    write_bytes(path, certificate.public_bytes(Encoding.PEM))


def read_private(path: Path) -> object:
    """Return the private key in a file; RunError if there is none without a passphrase."""
    try:
        return load_pem_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise RunError(f"There is no key {path}. 'fedwatt deploy request' makes one.") from error
    except (OSError, ValueError, TypeError) as error:
        raise RunError(f"{path} is not a private key without a passphrase: {error}.") from error


def read_vehicle_key(path: Path) -> ec.EllipticCurvePrivateKey:
    """Return the private key of a vehicle; RunError if the file holds another one."""
    key = read_private(path)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise RunError(f"{path} is no key of 'fedwatt deploy request'.")
    return key


def _subject(name: str, role: str = "") -> x509.Name:
    unit = [x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, role)] if role else []
    return x509.Name([*unit, x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey,
    days: int,
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - EARLY)
        .not_valid_after(now + timedelta(days=days))
    )


def _address(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
