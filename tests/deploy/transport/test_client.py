"""A vehicle's requests to a malicious server, over real TLS connections."""

import gzip
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Error, Metadata, RecordDict
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PullMessagesResponse

from fedwatt.deploy import log
from fedwatt.deploy.plan.certificates import SERVER, VEHICLE, write_certificate
from fedwatt.deploy.transport import client as clients
from fedwatt.deploy.transport import messages
from fedwatt.deploy.transport import node as nodes
from fedwatt.deploy.transport.client import (
    BusyError,
    Connection,
    FleetClient,
    Pace,
    RefusedError,
    RunOverError,
    TooLongError,
    UntrustedError,
)
from fedwatt.deploy.transport.node import Session
from tests.deploy.fleets import owner
from tests.deploy.transport.conftest import certificate, write_key


class Malicious(ThreadingHTTPServer):
    """Answers every request with what a test puts here."""

    status = 200
    body = b""
    headers: ClassVar[dict[str, str]] = {}
    endless = False
    busy = 0
    """Requests that it asks to wait, before any other answer."""
    seen: list[dict[str, str]]


class Handler(BaseHTTPRequestHandler):
    server: Malicious
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.server.seen.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(429 if self.server.busy > 0 else self.server.status)
        self.server.busy -= 1
        for name, value in self.server.headers.items():
            self.send_header(name, value)
        if self.server.endless:
            self.send_header("connection", "close")
            self.end_headers()
            try:
                for _ in range(10_000):
                    self.wfile.write(bytes(100_000))
            except OSError:
                self.server.seen.append({"hung up": "yes"})
            return
        self.send_header("content-length", str(len(self.server.body)))
        self.end_headers()
        self.wfile.write(self.server.body)

    def log_message(self, format: str, *values: Any) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Malicious]:
    owner, fleet_key, vehicle, other = (ec.generate_private_key(ec.SECP256R1()) for _ in range(4))
    (tmp_path / "owner.pem").write_bytes(certificate("owner", owner, "owner", owner, ca=True))
    (tmp_path / "other.pem").write_bytes(certificate("other", other, "other", other, ca=True))
    (tmp_path / "server.pem").write_bytes(certificate("server", fleet_key, "owner", owner))
    write_key(tmp_path / "server.key", fleet_key)
    write_key(tmp_path / "vehicle.key", vehicle)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    server = Malicious(("127.0.0.1", 0), Handler)
    server.seen = []
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def connection(server: Malicious, tmp_path: Path) -> Connection:
    port = server.server_address[1]
    return Connection(f"127.0.0.1:{port}", tmp_path / "owner.pem", tmp_path / "vehicle.key")


def poll(connection: Connection, most: int = 1000) -> bytes:
    with FleetClient(connection) as client:
        return client.call("pull-messages", PullMessagesRequest(), most=most)[0]


def test_asks_for_no_compression(server: Malicious, connection: Connection) -> None:
    server.body = b"12345"
    assert poll(connection) == b"12345"
    (seen,) = server.seen
    assert seen["accept-encoding"] == "identity"
    assert {"flwr-public-key", "flwr-timestamp", "flwr-signature"} <= seen.keys()


def test_a_gzip_bomb_is_not_unpacked(server: Malicious, connection: Connection) -> None:
    server.body = gzip.compress(bytes(200_000_000), 9)
    server.headers = {"content-encoding": "gzip"}
    with pytest.raises(TooLongError, match="compressed"):
        poll(connection, most=10**9)


def test_an_endless_response_is_cut_off(server: Malicious, connection: Connection) -> None:
    server.endless = True
    with pytest.raises(TooLongError, match="more than 1000000 bytes"):
        poll(connection, most=1_000_000)
    deadline = time.monotonic() + 60
    while {"hung up": "yes"} not in server.seen and time.monotonic() < deadline:
        time.sleep(0.05)
    assert {"hung up": "yes"} in server.seen


def test_an_endless_refusal_is_cut_off(server: Malicious, connection: Connection) -> None:
    server.endless = True
    server.status = 500
    with pytest.raises(TooLongError):
        poll(connection, most=10**9)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (401, RefusedError),
        (403, RunOverError),
        (404, RefusedError),
        (413, TooLongError),
        (429, BusyError),
        (503, ConnectionError),
    ],
)
def test_refusals(
    server: Malicious, connection: Connection, status: int, error: type[Exception]
) -> None:
    server.status = status
    server.body = b"because"
    with pytest.raises(error, match="because"):
        poll(connection)


def test_another_owner_s_server(server: Malicious, connection: Connection, tmp_path: Path) -> None:
    other = Connection(connection.server, tmp_path / "other.pem", connection.key)
    with pytest.raises(UntrustedError, match="certificate"):
        poll(other)


@pytest.mark.parametrize(("role", "trusted"), [(SERVER, True), (VEHICLE, False)])
def test_a_vehicle_s_certificate_makes_no_server(role: str, trusted: bool, tmp_path: Path) -> None:
    """Though the owner has signed it, and even with the server's address in it."""
    vehicle_key = ec.generate_private_key(ec.SECP256R1())
    local = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
    issued = owner().issue("car-001", role, vehicle_key.public_key(), 10, local)
    write_certificate(tmp_path / "server.pem", issued)
    write_certificate(tmp_path / "owner.pem", owner().certificate)
    write_key(tmp_path / "server.key", vehicle_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem", tmp_path / "server.key")
    with Malicious(("127.0.0.1", 0), Handler) as server:
        server.seen = []
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        connection = Connection(address, tmp_path / "owner.pem", tmp_path / "server.key")
        if trusted:
            assert poll(connection) == b""
        else:
            with pytest.raises(UntrustedError, match="certificate"):
                poll(connection)
        server.shutdown()


def test_a_server_whose_certificate_was_revoked(
    server: Malicious, connection: Connection, tmp_path: Path
) -> None:
    certificate = x509.load_pem_x509_certificate((tmp_path / "server.pem").read_bytes())
    revoked: set[int] = {certificate.serial_number + 1}
    aware = replace(connection, revoked=lambda: revoked)
    assert poll(aware) == b""
    revoked.add(certificate.serial_number)
    with pytest.raises(UntrustedError, match="its certificate is revoked"):
        poll(aware)


def test_no_server(connection: Connection, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError):
        poll(Connection("127.0.0.1:9", connection.ca, connection.key))


def test_a_busy_server_is_asked_again(
    server: Malicious, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "BUSY_SECONDS", 0.2)
    server.busy = 3
    began = time.monotonic()
    with FleetClient(connection) as client:
        session = Session(client, lambda body: body, 1000, lambda: True)
        assert session.answer_next() is False
    assert len(server.seen) == 4
    assert time.monotonic() - began >= 3 * 0.2


def odd_responses() -> dict[str, bytes]:
    """Return responses to a poll that no honest server sends."""
    metadata = Metadata(1, "", 2, 3, "", "", 0.0, 10.0, messages.TYPE)
    message = make_message(metadata, content=RecordDict())
    tree, parts = messages.taken_apart(message)
    header = message_to_proto(remove_content_from_message(message))
    error = make_message(metadata, error=Error(code=1, reason=""))
    error_tree, error_parts = messages.taken_apart(error)
    lacking = PullMessagesResponse(messages_list=[header])
    whole = PullMessagesResponse(messages_list=[header], message_object_trees=[tree])
    other = PullMessagesResponse(messages_list=[header], message_object_trees=[error_tree])
    return {
        "no protobuf": b"\xff" * 100,
        "no object tree": lacking.SerializeToString(),
        "an error": other.SerializeToString() + messages.encoded(error_parts),
        "no record": whole.SerializeToString() + messages.encoded(parts),
        "damaged objects": whole.SerializeToString() + messages.encoded(dict.fromkeys(parts, b"x")),
    }


@pytest.mark.parametrize("name", odd_responses())
def test_odd_responses_do_not_end_a_vehicle(
    name: str, server: Malicious, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "RECONNECT_SECONDS", 0.01)
    monkeypatch.setattr(nodes, "RETRY_SECONDS", ())
    server.body = odd_responses()[name]
    asked: list[bytes] = []

    def handle(body: bytes) -> bytes:
        asked.append(body)
        return body

    nodes.serve(
        handle,
        connection,
        name="car-1",
        largest=1000,
        poll_seconds=0.01,
        goes_on=lambda: len(server.seen) < 6,
    )
    assert len(server.seen) >= 6 and not asked


def messages_without_content() -> bytes:
    """Return a response of 30 MB that takes gigabytes to parse."""
    return b"\x12\0" * 15_000_000


def record_of_many_entries() -> bytes:
    """Return a response of 14 MB with a record of a million entries."""
    metadata = Metadata(1, "", 2, 3, "", "", 0.0, 10.0, messages.TYPE)
    content = messages.content(b"")
    message = make_message(metadata, content=content)
    tree, parts = messages.taken_apart(message)
    number = content.config_records["fedwatt"].object_id
    entries = b"".join(b"\x0a\x0c\x0a\x06%06x\x12\x02\x10\x01" % n for n in range(10**6))
    parts = {**parts, number: b"ConfigRecord  %d\0" % len(entries) + entries}
    header = message_to_proto(remove_content_from_message(message))
    response = PullMessagesResponse(messages_list=[header], message_object_trees=[tree])
    return response.SerializeToString() + messages.encoded(parts)


@pytest.mark.parametrize(
    ("bomb", "reason"),
    [
        (messages_without_content, "too many fields"),
        (record_of_many_entries, "too many fields"),
    ],
)
def test_what_grows_in_memory_is_dropped(
    bomb: Callable[[], bytes],
    reason: str,
    server: Malicious,
    connection: Connection,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    server.body = bomb()
    with FleetClient(connection) as client:
        session = Session(client, lambda body: body, 60_000_000, lambda: True)
        assert session.answer_next() is False
    assert reason in caplog.text


def test_a_server_s_cookies_are_not_kept(server: Malicious, connection: Connection) -> None:
    server.headers = {"set-cookie": "number=1"}
    with FleetClient(connection) as client:
        for _ in range(2):
            client.call("pull-messages", PullMessagesRequest())
    assert ["cookie" in seen for seen in server.seen] == [False, False]


def test_bandwidth(server: Malicious, connection: Connection) -> None:
    """20 kB up and 20 kB down at 40 kB/s, less the first quarter of a second of each."""
    server.body = bytes(20_000)
    slow = Connection(connection.server, connection.ca, connection.key, bandwidth=40_000)
    began = time.monotonic()
    request = PullMessagesRequest()
    request.MergeFromString(b"\xca\x3e\x90\x9c\x01" + bytes(19_984))  # an unknown field
    with FleetClient(slow) as client:
        content, _ = client.call("pull-messages", request, most=30_000)
    assert len(content) == 20_000
    assert time.monotonic() - began >= 0.4


def test_pace_by_hand() -> None:
    """At 100 bytes per second 50 bytes pass at 0, the next at 0.5 and 1.0."""
    pauses: list[float] = []
    pace = Pace(100.0, clock=lambda: 0.0, sleep=pauses.append)
    for _ in range(3):
        pace.take(50)
    assert pauses == [0.5, 1.0]
    assert Pace(4_000.0).piece == 1000
    assert clients.SMALL == 65_536
