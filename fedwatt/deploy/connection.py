"""Where a vehicle's server is, and how the two know each other."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedwatt.errors import DataError


@dataclass(frozen=True)
class Connection:
    """Where the server is and how it and the vehicle know each other."""

    server: str  # host:port
    ca: Path | None = None
    """Certificate that the server's is signed with; None: no TLS, for tests on one machine."""
    key: Path | None = None  # the vehicle's private key; None: a server that asks for none
    bandwidth: float = 0.0
    """Bytes a second that go each way; 0: no limit."""

    @classmethod
    def of(cls, server: str, keys: Path | None, bandwidth: float = 0.0) -> "Connection":
        """With the key and the certificate in a folder, or without any."""
        if keys is None:
            return cls(server, bandwidth=bandwidth)
        return cls(server, keys / "ca.pem", keys / "key", bandwidth)

    def open(self) -> Any:
        """Flower's session with the server, as a context manager."""
        # Here, since a look at a vehicle before it joins needs no Flower.
        from fedwatt.deploy.flower import open_session

        certificate = None if self.ca is None else str(self.ca)
        keys = None if self.key is None else key_pair(self.key)
        return open_session(self.server, certificate, keys, self.bandwidth)


def key_pair(path: Path) -> tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]:
    """A vehicle's keys from its private key file; DataError if they are none."""
    try:
        private = load_ssh_private_key(path.read_bytes(), password=None)
    except FileNotFoundError as error:
        raise DataError(f"There is no key {path}. 'fedwatt deploy keys add' makes one.") from error
    except (OSError, ValueError, TypeError) as error:
        raise DataError(f"{path} is not a private key without a passphrase: {error}.") from error
    if not isinstance(private, ec.EllipticCurvePrivateKey):
        raise DataError(f"{path} is no elliptic-curve key. 'fedwatt deploy keys add' makes one.")
    return private, private.public_key()
