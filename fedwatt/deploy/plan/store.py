"""The server's key store: its own key, the owner's certificate, its plan and its vehicles.

    STORE/key.pem, certificate.pem, owner.pem     as of every machine (`certificates`)
    STORE/plan.json                               the signed plan
    STORE/vehicles/NAME.pem                       certificates of vehicles that may connect

The owner's private key has no place here: with it a server could sign plans and vehicles.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from fedwatt.deploy.plan.certificates import (
    CERTIFICATE,
    KEY,
    OWNER,
    SERVER,
    VEHICLE,
    check_certificate,
    fingerprint,
    read_certificate,
    write_certificate,
)
from fedwatt.errors import DataError, RunError
from fedwatt.files import write_bytes

if TYPE_CHECKING:  # plans load torch, which a look at the server need not wait for
    from fedwatt.deploy.plan.plan import Plan

PLAN = "plan.json"
VEHICLES = "vehicles"
LARGEST_KEY = 10_000
"""Bytes of a file that may hold a private key."""
MOST_FILES = 20_000


@dataclass(frozen=True)
class KeyStore:
    """The folder of a server's keys, plan and vehicles."""

    folder: Path

    @property
    def owner(self) -> Path:
        """Return the file of the owner's certificate."""
        return self.folder / OWNER

    @property
    def certificate(self) -> Path:
        """Return the file of the server's certificate."""
        return self.folder / CERTIFICATE

    @property
    def key(self) -> Path:
        """Return the file of the server's private key."""
        return self.folder / KEY

    @property
    def plan_file(self) -> Path:
        """Return the file of the signed plan."""
        return self.folder / PLAN

    def signed_plan(self) -> bytes:
        """Return the signed plan as vehicles are sent it."""
        try:
            return self.plan_file.read_bytes()
        except OSError as error:
            raise RunError(
                f"{self.folder} has no {PLAN}. The owner signs one with 'fedwatt deploy plan'."
            ) from error

    def plan(self) -> "Plan":
        """Return the verified plan; RunError where it does not hold."""
        return self._verified(self.signed_plan())

    def install_plan(self, signed: bytes) -> "Plan":
        """Verify a signed plan and make it the server's."""
        plan = self._verified(signed)
        write_bytes(self.plan_file, signed)
        return plan

    def _verified(self, signed: bytes) -> "Plan":
        from fedwatt.deploy.plan.plan import read_plan

        try:
            return read_plan(signed, read_certificate(self.owner))
        except DataError as error:
            raise RunError(f"The plan of {self.folder} is refused: {error}.") from error

    def add_vehicle(self, file: Path) -> str:
        """Admit the vehicle of the certificate in `file` and return its name."""
        certificate = read_certificate(file)
        try:
            name = check_certificate(certificate, read_certificate(self.owner), VEHICLE)
        except DataError as error:
            raise RunError(f"{file}: {error}.") from error
        write_certificate(self._vehicle_file(name, certificate), certificate)
        return name

    def _vehicle_file(self, name: str, certificate: x509.Certificate) -> Path:
        plain = "".join(c if c.isalnum() or c in "-_" else "_" for c in name)[:60]
        return self.folder / VEHICLES / f"{plain}-{certificate.serial_number:x}.pem"

    def accepted(self) -> dict[str, tuple[str, ec.EllipticCurvePublicKey]]:
        """Return the names and keys by fingerprint of vehicles whose certificates count now.

        Of two certificates with one name the later one counts.
        """
        owner = read_certificate(self.owner)
        revoked = self.plan().revoked
        latest: dict[str, x509.Certificate] = {}
        for file in sorted((self.folder / VEHICLES).glob("*.pem")):
            certificate = read_certificate(file)
            try:
                name = check_certificate(certificate, owner, VEHICLE, revoked=revoked)
            except DataError:
                continue
            before = latest.get(name)
            if before is None or before.not_valid_before_utc < certificate.not_valid_before_utc:
                latest[name] = certificate
        keys = {name: certificate.public_key() for name, certificate in latest.items()}
        return {
            fingerprint(key): (name, key)
            for name, key in keys.items()
            if isinstance(key, ec.EllipticCurvePublicKey)
        }

    def changed(self) -> float:
        """Return when the plan or the vehicles were last changed."""
        paths = (self.plan_file, self.folder / VEHICLES)
        return max((path.stat().st_mtime for path in paths if path.exists()), default=0.0)

    def check_server(self) -> None:
        """Raise RunError unless the server may start with these keys."""
        owner = read_certificate(self.owner)
        plan = self.plan()
        try:
            certificate = read_certificate(self.certificate)
            check_certificate(certificate, owner, SERVER, revoked=plan.revoked)
        except DataError as error:
            raise RunError(f"{self.certificate}: {error}.") from error
        if (file := owner_key_within_reach(owner, self.folder)) is not None:
            raise RunError(
                f"{file} is the owner's private key, and this server can read it. With it a "
                "server could sign plans and vehicles. Move it to another machine."
            )


def owner_key_within_reach(owner: x509.Certificate, folder: Path) -> Path | None:
    """Return a file with the owner's private key that this process can read; None: none was found.

    Looked through are the key store, the folder around it, the working directory and the home
    directory's own files.
    """
    seen = 0
    for file in _candidates(folder):
        seen += 1
        if seen > MOST_FILES:
            break
        try:
            if file.stat().st_size > LARGEST_KEY or not os.access(file, os.R_OK):
                continue
            key = load_pem_private_key(file.read_bytes(), password=None)
        except (OSError, ValueError, TypeError):
            continue
        if key.public_key() == owner.public_key():
            return file
    return None


def _candidates(folder: Path) -> Iterator[Path]:
    yield from (file for file in folder.rglob("*") if file.is_file())
    for around in {folder.resolve().parent, Path.cwd(), Path.home()}:
        yield from (file for file in around.iterdir() if file.is_file())
        yield from (file for file in around.glob(f"*/{KEY}") if file.is_file())
