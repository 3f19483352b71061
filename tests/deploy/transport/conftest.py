"""A real SuperLink with certificates, and vehicles that answer with a function."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

import fedwatt.deploy.transport as version
from fedwatt.deploy.transport.client import Connection
from fedwatt.deploy.transport.control import Control
from fedwatt.deploy.transport.node import serve
from fedwatt.deploy.transport.processes import quiet, write_app

ROOT = Path(__file__).parents[3]


def write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)


def certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    *,
    ca: bool = False,
) -> bytes:
    def named(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    now = datetime.now(UTC)
    local = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(named(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca, None), critical=True)
        .add_extension(local, critical=False)
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(Encoding.PEM)


@dataclass
class Server:
    """A running SuperLink."""

    folder: Path
    port: int
    environment: dict[str, str]
    process: subprocess.Popen[str]
    keys: dict[str, ec.EllipticCurvePrivateKey] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def owner(self) -> Path:
        return self.folder / "owner.pem"

    def control(self) -> Control:
        flower: Any = SimpleNamespace(store=self, local_address=self.address)
        return Control(flower)

    def connection(self, name: str, **options: Any) -> Connection:
        """Register a new vehicle, and return its connection."""
        key = ec.generate_private_key(ec.SECP256R1())
        write_key(self.folder / f"{name}.key", key)
        with self.control() as control:
            control.register(key.public_key(), name)
        return Connection(self.address, self.owner, self.folder / f"{name}.key", **options)

    def run(self, **settings: object) -> dict[str, Any]:
        """Run the echo app on this server and return what it wrote."""
        out = self.folder / "echo.json"
        out.unlink(missing_ok=True)
        echo = "tests.deploy.transport.echo_app:app"
        app = write_app(self.folder / "app", echo, {"out": str(out), **settings})
        done = subprocess.run(
            ["flwr", "run", str(app), "fedwatt", "--stream"],
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=600,
        )
        assert out.exists(), done.stdout + done.stderr
        record: dict[str, Any] = json.loads(out.read_text())
        return record


@contextmanager
def superlink(
    folder: Path, module: str = "fedwatt.deploy.transport.superlink", **surroundings: str
) -> Iterator[Server]:
    """Start a SuperLink in `folder` and end it afterwards."""
    owner, vehicle_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    (folder / "owner.pem").write_bytes(certificate("owner", owner, "owner", owner, ca=True))
    (folder / "certificate.pem").write_bytes(certificate("server", vehicle_key, "owner", owner))
    write_key(folder / "key.pem", vehicle_key)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    home = folder / "flower"
    home.mkdir()
    (home / "config.toml").write_text(
        f'[superlink]\ndefault = "fedwatt"\n[superlink.fedwatt]\naddress = "127.0.0.1:{port}"\n'
        f'root-certificates = "{folder}/owner.pem"\n'
    )
    paths = [*surroundings.pop("PYTHONPATH", "").split(os.pathsep), str(ROOT)]
    environment = {
        **os.environ,
        **quiet(),
        "FLWR_HOME": str(home),
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.2",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([os.environ.get("PYTHONPATH", ""), *filter(None, paths)]),
        **surroundings,
    }
    command = [
        sys.executable, "-m", module,
        "--host", "127.0.0.1", "--port", str(port), "--enable-supernode-auth",
        "--disable-runtime-dependency-installation", "--ssl-ca-certfile", str(folder / "owner.pem"),
        "--ssl-certfile", str(folder / "certificate.pem"), "--ssl-keyfile", str(folder / "key.pem"),
    ]  # fmt: skip
    with (folder / "superlink.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, text=True)
    server = Server(folder, port, environment, process)
    try:
        deadline = time.monotonic() + 300
        while True:
            try:
                with server.control() as control:
                    control.nodes()
                break
            except Exception:
                assert process.poll() is None, (folder / "superlink.log").read_text()
                assert time.monotonic() < deadline, (folder / "superlink.log").read_text()
                time.sleep(0.2)
        yield server
    finally:
        process.terminate()
        process.wait(120)


@contextmanager
def vehicles(
    server: Server, names: list[str], handle: Callable[[str, bytes], bytes], **options: Any
) -> Iterator[None]:
    """Connect vehicles that answer with `handle(name, body)`."""
    stop = threading.Event()
    threads = []
    for name in names:

        def answer(body: bytes, name: str = name) -> bytes:
            return handle(name, body)

        thread = threading.Thread(
            target=serve,
            args=(answer, server.connection(name)),
            kwargs={"name": name, "largest": 10_000_000, "poll_seconds": 0.3}
            | options
            | {"goes_on": lambda: not stop.is_set()},
            daemon=True,
        )
        thread.start()
        threads.append(thread)
    try:
        yield
    finally:
        stop.set()


@pytest.fixture(params=["1", "0"], ids=["fast path", "public interface"])
def server(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    """A SuperLink with the fast path, and one without."""
    monkeypatch.setenv(version.SWITCH, request.param)
    version.fast_path_is_on.cache_clear()
    with superlink(tmp_path) as running:
        yield running
    version.fast_path_is_on.cache_clear()
