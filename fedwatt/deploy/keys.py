"""Certificates and keys of a depot: who the server is, and who the vehicles are.

    DEPOT/ca.pem, ca.key                 the depot's own certificate authority; ca.key never leaves
    DEPOT/server.pem, server.key         what the server shows
    DEPOT/vehicles/NAME/key.pub          a vehicle's public key
    DEPOT/vehicles/NAME/ca.pem           how the vehicle knows the server
    DEPOT/vehicles/NAME/voucher          how other vehicles know it
    DEPOT/fleet.key, vehicles/NAME/...   how vehicles check a server's models; not for the server
    DEPOT/vehicles/NAME/policy.toml      what it answers, signed with owner.key
    DEPOT/vehicles/NAME/key              its private key, only where the depot made it, for a trial
    DEPOT/owner.key, owner.pub           what policies are signed with; keep it where the owner is
    DEPOT/registry.jsonl                 keys that were accepted and revoked, a line each, in order
    DEPOT/registry.json                  the same before these, in a depot of an earlier version

Vehicles have elliptic-curve keys in OpenSSH's format, as Flower's node authentication wants them,
made on board (`key_request`). A revoked or replaced key is refused from the moment the server is
told.
"""

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from secrets import token_bytes
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from fedwatt.deploy.board import FLEET_KEY, VOUCHER
from fedwatt.deploy.key_request import (
    KeyRequest,
    fingerprint,
    write_pair,
    write_public,
)
from fedwatt.deploy.policy import POLICY, Policy, create_owner, install
from fedwatt.errors import RunError
from fedwatt.files import (
    append_rows,
    exclusively,
    read_rows,
    write_bytes,
    write_secret,
    write_text,
)
from fedwatt.privacy.secure.identity import public_bytes, vouch
from fedwatt.telemetry.store import folder_name

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
        """A key pair for a new vehicle, made here; the folder to copy into it."""
        self._authority()
        with self.changing() as registry:
            registry.refuse_known(name)
            registry.accept(name, fingerprint(self._write_pair(name)))
        return self.vehicle(name)

    def sign(self, path: Path, *, replace: bool = False) -> KeyRequest:
        """Accept the key of a vehicle's request; its answer is in the vehicle's folder.

        With `replace` it takes the place of the vehicle's old key, which is refused from then on.
        """
        self._authority()
        request = KeyRequest.read(path)
        name, new = request.vehicle, fingerprint(request.key)
        with self.changing() as registry:
            if registry.keys.get(name) != new:
                if name in registry.keys and replace:
                    registry.revoke(name)
                registry.refuse_known(name)
                registry.accept(name, new)
            # A key that the depot made for this vehicle is of no more use.
            (self.vehicle(name) / "key").unlink(missing_ok=True)
            self._write_public(name, request.key)
        return request

    def hand_out(self, name: str, folder: Path) -> list[Path]:
        """Put what a vehicle needs of the depot into `folder`, beside its request."""
        own = [file for file in self.vehicle(name).iterdir() if file.name not in ("key", "key.pub")]
        for file in own:
            write = write_secret if file.name == FLEET_KEY else write_bytes
            write(folder / file.name, file.read_bytes())
        return sorted(folder / file.name for file in own)

    def rotate_vehicle(self, name: str) -> Path:
        """A new pair, made here, in the place of one that was; the old key is to be refused."""
        if name in self.registry().keys and not (self.vehicle(name) / "key").exists():
            raise RunError(
                f"{name} made its key itself. Let it make a new one ('keys request'), which 'keys "
                "sign --replace' accepts."
            )
        with self.changing() as registry:
            registry.revoke(name)
            # Before there is a new pair: whatever happens now, the old one is to be refused.
            self.save(registry)
            registry.accept(name, fingerprint(self._write_pair(name)))
        return self.vehicle(name)

    def revoke_vehicle(self, key: str) -> str:
        """Refuse a vehicle's key for good, by the vehicle's name or the key's fingerprint.

        Returns the vehicle's name; a fingerprint that nobody has is refused from now on, too.
        """
        with self.changing() as registry:
            name = registry.revoke(key)
            self.save(registry)
            if name:
                shutil.rmtree(self.vehicle(name), ignore_errors=True)
        return name

    def registry(self) -> "Registry":
        """Which vehicles there are, as last saved."""
        registry, (old, path) = Registry(), self.registries
        with _whole(old):
            if old.exists():
                table = json.loads(old.read_text(encoding="utf-8"))
                registry.keys = {str(name): str(key) for name, key in table["keys"].items()}
                registry.revoked = [str(key) for key in table["revoked"]]
        with _whole(path):
            for line in read_rows(path):
                registry.replay(**line)
        return registry

    @property
    def registries(self) -> tuple[Path, Path]:
        """The files that the registry is in: an earlier version's, and what came after it."""
        return self.folder / "registry.json", self.folder / "registry.jsonl"

    def changed(self) -> float:
        """When the registry was last changed; 0: never."""
        return max((p.stat().st_mtime for p in self.registries if p.exists()), default=0.0)

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
        """Write down what was accepted and revoked since it was read, or saved."""
        if registry.news:
            append_rows(self.registries[1], registry.news)
            registry.news.clear()

    def _write_pair(self, name: str) -> ec.EllipticCurvePublicKey:
        public = write_pair(self.vehicle(name)).public_key()
        self._write_public(name, public)
        return public

    def _write_public(self, name: str, public: ec.EllipticCurvePublicKey) -> None:
        """What the depot keeps of a vehicle's key, and what the vehicle needs of the depot."""
        folder = self.vehicle(name)
        write_public(folder / "key.pub", public)
        write_text(folder / "ca.pem", self.ca.read_text(encoding="utf-8"))
        voucher = vouch(self._authority(), name, public_bytes(public))
        write_bytes(folder / VOUCHER, voucher)
        write_secret(folder / FLEET_KEY, self._fleet_key())
        if not (folder / POLICY).exists():
            install(Policy(), folder, self.folder)

    def _fleet_key(self) -> bytes:
        """The key that the vehicles share, made when the first of them is accepted."""
        path = self.folder / FLEET_KEY
        if not path.exists():
            write_secret(path, token_bytes(32))
        return path.read_bytes()

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
    """Whose keys are accepted, by fingerprint; servers are told so and asked for nothing else."""

    keys: dict[str, str] = field(default_factory=dict)
    """Fingerprint of each vehicle's key."""
    revoked: list[str] = field(default_factory=list)
    """Fingerprints that are never accepted again."""
    former: dict[str, str] = field(default_factory=dict)
    """Fingerprint of the last key of each vehicle that was revoked."""
    news: list[dict[str, str]] = field(default_factory=list)
    """What is not on the disk yet."""

    def replay(self, *, key: str, vehicle: str = "") -> None:
        """Do again what a line says: accept the key of a vehicle, or revoke a key."""
        if vehicle:
            self.keys[vehicle] = key
        else:
            # By the key alone: a vehicle may be called as another's key is.
            self.former |= {name: key for name, own in self.keys.items() if own == key}
            self.keys = {name: own for name, own in self.keys.items() if own != key}
            self.revoked.append(key)

    def refuse_known(self, name: str) -> None:
        """RunError if a vehicle has a key already."""
        if name in self.keys:
            raise RunError(
                f"'{name}' already has the key {self.keys[name]}. 'keys rotate {name}' replaces "
                "it, or 'keys sign --replace' with a request that the vehicle made."
            )

    def accept(self, name: str, key: str) -> None:
        """Accept a key for a vehicle; RunError if it was revoked, or is another's."""
        if name.startswith("SHA256:"):
            raise RunError(f"'{name}' would be taken for a key. Choose another name.")
        if key in self.revoked:
            raise RunError(f"The key {key} was revoked. The vehicle must make a new one.")
        if key in self.keys.values():
            raise RunError(f"The key {key} is another vehicle's. {name} must make its own.")
        self.replay(key=key, vehicle=name)
        self.news.append({"vehicle": name, "key": key})

    def revoke(self, key: str) -> str:
        """Refuse the key of a vehicle, or one by its fingerprint; whose it was, if anybody's."""
        owners = [name for name, own in self.keys.items() if key in (name, own)]
        if not owners and not key.startswith("SHA256:"):
            raise RunError(f"There is no vehicle '{key}'. 'keys list' names all.")
        found = self.keys[owners[0]] if owners else key
        if found not in self.revoked:
            self.replay(key=found)
            self.news.append({"key": found})
        return owners[0] if owners else ""


@contextmanager
def _whole(path: Path) -> Iterator[None]:
    """Turn an error while a registry is read into a sentence about its file."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(
            f"{path} is damaged, or of another version of fedwatt: {error!r}. Put a copy of it "
            "back. Without one, delete it, sign the vehicles' requests again and revoke once more "
            "every key that was revoked: the file is all that kept these out."
        ) from error


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
