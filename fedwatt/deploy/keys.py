"""Certificates and keys of a depot: who the server is, and who the vehicles are.

    DEPOT/ca.pem, ca.key                 the depot's own certificate authority; ca.key never leaves
    DEPOT/server.pem, server.key         what the server shows
    DEPOT/vehicles/NAME/key, key.pub     a vehicle's pair; the folder goes into the vehicle
    DEPOT/vehicles/NAME/ca.pem           how the vehicle knows the server
    DEPOT/vehicles/NAME/voucher          how other vehicles know it
    DEPOT/vehicles/NAME/policy.toml      what it answers, signed with owner.key
    DEPOT/owner.key, owner.pub           what policies are signed with; keep it where the owner is
    DEPOT/registry.json                  Flower's node number of every vehicle, and those to remove

Vehicles have elliptic-curve keys (NIST P-384) in OpenSSH's format, as Flower's node authentication
wants them. A revoked or replaced key is refused from the moment the server is told.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
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
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedwatt.data.store import folder_name
from fedwatt.deploy.board import VOUCHER
from fedwatt.deploy.policy import POLICY, Policy, create_owner, install
from fedwatt.errors import RunError
from fedwatt.files import exclusively, write_bytes, write_secret, write_text
from fedwatt.privacy.secure.identity import public_bytes, vouch

CA_DAYS: Final = 3650
SERVER_DAYS: Final = 397


@dataclass(frozen=True)
class Depot:
    """A folder with the keys of a federation."""

    folder: Path

    @property
    def ca(self) -> Path:
        """Certificate of the authority."""
        return self.folder / "ca.pem"

    @property
    def server(self) -> tuple[Path, Path]:
        """(certificate, key) of the server."""
        return self.folder / "server.pem", self.folder / "server.key"

    def vehicle(self, name: str) -> Path:
        """Folder of a vehicle's keys."""
        return self.folder / "vehicles" / folder_name(name)

    def create(self, hosts: Sequence[str]) -> None:
        """A new authority and a server certificate for `hosts`, names or addresses.

        It is always for this machine, too: operators come from there.
        """
        hosts = [*hosts, *(name for name in ("127.0.0.1", "localhost") if name not in hosts)]
        if self.ca.exists():
            raise RunError(
                f"{self.folder} already has keys. Renew the server's with 'keys rotate --server', "
                "or choose another folder."
            )
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        authority = x509.BasicConstraints(ca=True, path_length=0)
        self._issue("ca", "fedwatt depot", CA_DAYS, {authority: True, usage: True})
        create_owner(self.folder)
        self.renew_server(hosts)

    def renew_server(self, hosts: Sequence[str]) -> None:
        """A new key and certificate for the server; without `hosts`, for those it had."""
        authority = self._authority()
        hosts = hosts or _hosts(self.server[0])
        extensions: dict[x509.ExtensionType, bool] = {
            x509.SubjectAlternativeName([_san(host) for host in hosts]): False,
            x509.BasicConstraints(ca=False, path_length=None): True,
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]): False,
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()): False,
        }
        self._issue("server", hosts[0], SERVER_DAYS, extensions, authority)

    def _issue(
        self,
        stem: str,
        subject: str,
        days: int,
        extensions: Mapping[x509.ExtensionType, bool],
        authority: ec.EllipticCurvePrivateKey | None = None,
    ) -> None:
        """Write a new key and its certificate, signed by the authority or, without one, by itself.

        `extensions` says of each whether it is critical.
        """
        key = ec.generate_private_key(ec.SECP384R1())
        name = issuer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)])
        if authority is not None:
            issuer = x509.load_pem_x509_certificate(self.ca.read_bytes()).subject
        own, now = x509.SubjectKeyIdentifier.from_public_key(key.public_key()), datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            # Clocks of vehicles may be slow.
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=days))
        )
        for extension, critical in {own: False, **extensions}.items():
            builder = builder.add_extension(extension, critical=critical)
        certificate = builder.sign(authority or key, hashes.SHA384())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        write_secret(self.folder / f"{stem}.key", private)
        write_bytes(self.folder / f"{stem}.pem", certificate.public_bytes(Encoding.PEM))

    def add_vehicle(self, name: str) -> Path:
        """A key pair for a new vehicle; the folder to copy into it."""
        self._authority()
        with self.changing() as registry:
            if name in registry.nodes:
                raise RunError(f"'{name}' already has a key. 'keys rotate {name}' replaces it.")
            self._write_pair(name)
            registry.nodes[name] = 0
        return self.vehicle(name)

    def rotate_vehicle(self, name: str) -> Path:
        """A new pair in the place of a vehicle's old one, which is to be refused."""
        with self.changing() as registry:
            registry.retire(name)
            registry.nodes[name] = 0
            # Before there is a new pair: whatever happens now, the old one is to be refused.
            self.save(registry)
            self._write_pair(name)
        return self.vehicle(name)

    def revoke_vehicle(self, name: str) -> None:
        """Take a vehicle's key out of the depot; the server is to refuse it."""
        with self.changing() as registry:
            registry.retire(name)
            self.save(registry)
            shutil.rmtree(self.vehicle(name), ignore_errors=True)

    def registry(self) -> "Registry":
        """Which vehicles there are, as last saved."""
        path = self.folder / "registry.json"
        if not path.exists():
            return Registry()
        try:
            table = json.loads(path.read_text(encoding="utf-8"))
            nodes = {str(name): int(node) for name, node in table["nodes"].items()}
            return Registry(nodes, [int(node) for node in table["retired"]])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunError(f"{path} is damaged: {error}.") from error

    @contextmanager
    def changing(self) -> Iterator["Registry"]:
        """The registry as it is now, saved at the end; nobody else changes it meanwhile."""
        if not self.folder.is_dir():
            raise RunError(f"There is no {self.folder}. 'fedwatt deploy keys create' makes it.")
        with exclusively(self.folder):
            registry = self.registry()
            yield registry
            self.save(registry)

    def save(self, registry: "Registry") -> None:
        """Write the registry."""
        table = {"nodes": registry.nodes, "retired": registry.retired}
        text = json.dumps(table, indent=2, ensure_ascii=False)
        write_text(self.folder / "registry.json", text + "\n")

    def _write_pair(self, name: str) -> None:
        folder = self.vehicle(name)
        key = ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())
        public = key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH)
        write_secret(folder / "key", private)
        write_text(folder / "key.pub", public.decode() + "\n")
        write_text(folder / "ca.pem", self.ca.read_text(encoding="utf-8"))
        voucher = vouch(self._authority(), name, public_bytes(key.public_key()))
        write_bytes(folder / VOUCHER, voucher)
        if not (folder / POLICY).exists():
            install(Policy(), folder, self.folder)

    def _authority(self) -> ec.EllipticCurvePrivateKey:
        path = self.folder / "ca.key"
        try:
            key = load_pem_private_key(path.read_bytes(), password=None)
        except FileNotFoundError as error:
            raise RunError(
                f"{self.folder} has no ca.key. 'fedwatt deploy keys create' makes a depot."
            ) from error
        except (OSError, ValueError, TypeError) as error:
            raise RunError(f"{path} cannot be read: {error}.") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise RunError(f"{path} is not a key that 'fedwatt deploy keys create' made.")
        return key


@dataclass
class Registry:
    """Vehicles by name with Flower's number of their node, 0 where the server was not told yet."""

    nodes: dict[str, int] = field(default_factory=dict)
    retired: list[int] = field(default_factory=list)
    """Nodes whose keys are no longer to be accepted."""

    def retire(self, name: str) -> None:
        """Note that a vehicle's key is no longer to be accepted."""
        if name not in self.nodes:
            raise RunError(f"There is no vehicle '{name}'. 'keys list' names all.")
        node = self.nodes.pop(name)
        if node:
            self.retired.append(node)


def _san(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _hosts(certificate: Path) -> list[str]:
    """Names and addresses that a certificate stands for."""
    found = x509.load_pem_x509_certificate(certificate.read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(name.value) for name in names]
