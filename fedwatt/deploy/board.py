"""What a vehicle brings along besides its data: its policy, its key, and whom it trusts.

KEYS/key, key.pub     its own pair
KEYS/voucher          the depot's signature of its name and public key
KEYS/ca.pem           the depot's certificate: whose word counts
KEYS/fleet.key        by which the vehicles of a fleet check what a server makes of their sums
KEYS/policy.toml      what it answers, with policy.sig and owner.pub
"""

import hashlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from fedwatt.deploy.connection import Connection, key_pair
from fedwatt.deploy.hours import Hours
from fedwatt.deploy.policy import RULES, Policy, on_board
from fedwatt.errors import DataError, RunError
from fedwatt.privacy.secure.identity import Identity, Trust, public_bytes

VOUCHER: Final = "voucher"
FLEET_KEY: Final = "fleet.key"
SECONDS: Final = 10.0
"""To wait for a server's certificate."""


@dataclass(frozen=True)
class Board:
    """A vehicle's policy, and what it knows itself and others by."""

    policy: Policy = field(default_factory=Policy)
    identity: Identity | None = None
    """None: it has no key of a depot, and cannot sign."""
    trust: Trust | None = None
    fleet_key: bytes | None = field(default=None, repr=False)
    """What all vehicles of its fleet have and a server has not; None: it cannot check models."""
    hours: Hours | None = None
    """When it answers; None: at all hours."""

    @classmethod
    def of(
        cls, keys: Path | None, vehicle: str = "", policy: Path | None = None, hours: str = ""
    ) -> "Board":
        """From the folder of the vehicle's keys; the policy from another folder, if one is given.

        DataError if the depot vouched for another vehicle.
        """
        found = on_board(keys if policy is None else policy)
        of_day = Hours.of(hours) if hours else None
        if keys is None:
            return cls(found, hours=of_day)
        private, public = key_pair(keys / "key")
        try:
            voucher = (keys / VOUCHER).read_bytes()
        except OSError as error:
            raise DataError(
                f"{keys / VOUCHER} cannot be read ({error.strerror}): the depot has not vouched "
                "for this key. 'fedwatt deploy keys' does it."
            ) from error
        trust = Trust(authority_key(keys / "ca.pem"))
        try:
            if vehicle:
                trust.check_voucher(vehicle, public_bytes(public), voucher)
        except DataError as error:
            raise DataError(
                f"The depot has not vouched for {keys / 'key'} as a key of {vehicle}: is this one "
                "another's?"
            ) from error
        shared = keys / FLEET_KEY
        fleet_key = shared.read_bytes() if shared.exists() else None
        return cls(found, Identity(private, voucher), trust, fleet_key, of_day)


def authority_key(certificate: Path) -> ec.EllipticCurvePublicKey:
    """The public key of a depot's certificate."""
    try:
        key = x509.load_pem_x509_certificate(certificate.read_bytes()).public_key()
    except (OSError, ValueError) as error:
        raise DataError(f"{certificate} is no certificate of a depot: {error}.") from error
    if not isinstance(key, ec.EllipticCurvePublicKey):
        raise DataError(f"{certificate} is no certificate that 'fedwatt deploy keys' made.")
    return key


def refuse_unknown_server(connection: Connection, policy: Policy) -> None:
    """RunError unless the server shows a certificate that the policy names, where it names any.

    It is looked at on a connection of its own, before every one that Flower makes, since Flower's
    client takes a root certificate and no fingerprint. So it tells servers of one depot apart as
    long as an address leads to the same one. Who can answer the first connection with a listed
    certificate and the next with another that `ca.pem` signed is not found out.
    """
    if not policy.servers:
        return
    host, _, port = connection.server.rpartition(":")
    try:
        shown = ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=SECONDS)
    except (OSError, ValueError) as error:
        raise RunError(f"{connection.server} shows no certificate: {error}.") from error
    if fingerprint(shown) not in policy.servers:
        raise RunError(f"{connection.server} is not talked to: {RULES['servers']}.")


def fingerprint(pem: str) -> str:
    """SHA-256 of a certificate, as policies name it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
