"""The request filter: who may connect, with how many bytes, and who is charged."""

import asyncio
import socket
import ssl
import time
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.proto.fleet_pb2 import (
    ActivateNodeRequest,
    ActivateNodeResponse,
    PullMessagesRequest,
    PushMessagesRequest,
)
from flwr.proto.node_pb2 import Node

from fedwatt.deploy.transport import SWITCH
from fedwatt.deploy.transport.client import (
    HEARD_HEADER,
    WAIT_HEADER,
    Connection,
    FleetClient,
    RefusedError,
)
from fedwatt.deploy.transport.request_filter import (
    HOURLY_BYTES,
    KEY_HEADER,
    LARGEST,
    MARK,
    SINGLE,
    SMALL,
    Allowance,
    RequestFilter,
)
from tests.deploy.transport.conftest import Server, superlink, vehicles

KEY = ec.generate_private_key(ec.SECP256R1())
PUBLIC = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
TIME = b"2026-11-19T12:00:00"


def scope(
    path: str,
    length: int | None = 0,
    client: str = "203.0.113.7",
    key: bytes = PUBLIC,
    time: bytes = TIME,
) -> Any:
    signature = KEY.sign(TIME, ec.ECDSA(SHA256()))
    headers = [
        (KEY_HEADER, b64encode(key)),
        (b"flwr-signature", b64encode(signature)),
        (b"flwr-timestamp", time),
    ]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {"type": "http", "path": path, "client": (client, 1), "headers": headers}


def status_of(filter: RequestFilter, scope: Any) -> int:
    """The status of the response."""
    statuses: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    asyncio.run(filter(scope, receive, send))
    return statuses[0]


def answering(status: int) -> Any:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    return app


@pytest.mark.parametrize(
    ("path", "length", "client", "status"),
    [
        ("/v1/fleet/pull-messages", 100, "203.0.113.7", 200),
        ("/v1/control/start-run", 100, "203.0.113.7", 403),
        ("/v1/runtime/pull-messages", 100, "203.0.113.7", 403),
        ("/v1/control/start-run", 100, "127.0.0.1", 200),
        ("/v1/control/start-run", 100, "::1", 200),
        ("/v1/control/start-run", 100, "localhost.evil.example", 403),
        ("/fedwatt", 0, "127.0.0.1", 204),
        ("/fedwatt", 0, "203.0.113.7", 403),
        ("/v1/fleet/pull-messages", None, "203.0.113.7", 411),
        ("/v1/fleet/pull-messages", SMALL + 1, "203.0.113.7", 413),
        ("/v1/fleet/push-messages", SINGLE, "203.0.113.7", 200),
        ("/v1/fleet/push-messages", SINGLE + 1, "203.0.113.7", 413),
        ("/v1/fleet/push-object", LARGEST, "203.0.113.7", 200),
        ("/v1/fleet/push-object", LARGEST + 1, "203.0.113.7", 413),
    ],
)
def test_who_may(path: str, length: int | None, client: str, status: int) -> None:
    filter = RequestFilter(answering(200))
    filter.allowance.spend(PUBLIC, 1)
    assert status_of(filter, scope(path, length, client)) == status


def test_announcements_are_short_without_the_fast_path() -> None:
    filter = RequestFilter(answering(200), single=False)
    assert status_of(filter, scope("/v1/fleet/push-messages", SMALL + 1)) == 413


def test_a_long_body_is_read_for_a_connected_and_signed_key_only() -> None:
    """Without that, anybody could fill the server's memory with bodies that Flower reads."""
    filter = RequestFilter(answering(200))
    path = "/v1/fleet/push-messages"
    assert status_of(filter, scope(path, SMALL + 1)) == 401
    assert status_of(filter, scope("/v1/fleet/activate-node", 100)) == 200
    assert status_of(filter, scope(path, SMALL + 1)) == 200
    assert status_of(filter, scope(path, SMALL + 1, time=b"2026-11-19T12:00:01")) == 401
    filter.allowance.spend(b"nonsense", 1)
    assert status_of(filter, scope(path, SMALL + 1, key=b"nonsense")) == 401


def test_a_body_in_chunks_has_no_length() -> None:
    """Whatever length its head says: a server reads chunks to their end."""
    filter = RequestFilter(answering(200))
    request = scope("/v1/fleet/pull-messages", 10)
    request["headers"].append((b"transfer-encoding", b"chunked"))
    assert status_of(filter, request) == 411


def test_a_vehicle_sends_one_long_body_at_a_time() -> None:
    statuses: list[int] = []
    path = "/v1/fleet/push-object"

    async def app(*arguments: Any) -> None:
        if not statuses:
            statuses.append(filter.refusal(scope(path, SMALL + 1))[0])
        await answering(200)(*arguments)

    filter = RequestFilter(app)
    filter.allowance.spend(PUBLIC, 1)
    assert status_of(filter, scope(path, SMALL + 1)) == 200
    assert statuses == [429]
    assert status_of(filter, scope(path, SMALL + 1)) == 200


@pytest.mark.parametrize(("status", "charged"), [(200, SMALL), (401, 0), (400, 0), (500, 0)])
def test_only_verified_requests_are_charged(status: int, charged: int) -> None:
    allowance = Allowance()
    status_of(RequestFilter(answering(status), allowance), scope("/v1/fleet/x", SMALL))
    assert allowance.left(PUBLIC) == HOURLY_BYTES - charged


def test_an_hour_s_quota() -> None:
    now = [0.0]
    allowance = Allowance(clock=lambda: now[0])
    request_filter = RequestFilter(answering(200), allowance)
    allowance.spend(PUBLIC, HOURLY_BYTES - 10)
    assert status_of(request_filter, scope("/v1/fleet/x", 11)) == 429
    assert status_of(request_filter, scope("/v1/fleet/x", 11, key=b"another")) == 200
    assert status_of(request_filter, scope("/v1/fleet/x", 10)) == 200
    # Another spelling of the same key in Base64 has no quota of its own.
    other = scope("/v1/fleet/x", 11)
    name, spelled = other["headers"][0]
    assert spelled.endswith(b"g==")
    other["headers"][0] = (name, spelled[:-3] + b"h==")
    assert status_of(request_filter, other) == 429
    now[0] = 3601
    assert status_of(request_filter, scope("/v1/fleet/x", 11)) == 200


def test_nobody_uses_up_a_vehicle_s_quota(tmp_path: Path) -> None:
    """Four times its quota in a vehicle's name without its signature, then a round of its own."""
    with (
        superlink(tmp_path, "tests.deploy.transport.small_quota") as server,
        vehicles(server, ["car-1"], lambda name, body: bytes(100_000)),
    ):
        connection = Connection(server.address, server.owner, tmp_path / "car-1.key")
        with FleetClient(connection) as client:
            stolen = client._signed() | {"flwr-signature": "AAAA"}
        head = stolen | {"content-type": "application/protobuf"}
        context = ssl.create_default_context(cafile=str(server.owner))
        web = HTTPSConnection("127.0.0.1", server.port, context=context)

        def refused(path: str, size: int) -> tuple[int, bytes]:
            web.request("POST", f"/v1/fleet/{path}", body=bytes(size), headers=head)
            answer = web.getresponse()
            return answer.status, answer.read()

        for _ in range(22):
            for path in ("pull-messages", "push-messages", "nothing-there"):
                assert refused(path, SMALL)[0] != 200
        assert refused("push-object", SMALL + 1) == (
            401,
            b"Only a connected vehicle sends a reply.",
        )
        web.close()
        found = server.run(vehicles=1, rounds=1, size=10, largest=100_000)
    assert found["rounds"][0]["replies"]["car-1"][0] == 100_000


def test_half_open_requests_do_not_stop_a_round(server: Server) -> None:
    """A hundred connections whose requests never end, half of them in the middle of the head."""
    context = ssl.create_default_context(cafile=str(server.owner))
    head = b"POST /v1/fleet/pull-messages HTTP/1.1\r\nhost: a\r\ncontent-length: 60000\r\n"
    opened = []
    for number in range(100):
        plain = socket.create_connection(("127.0.0.1", server.port))
        opened.append(context.wrap_socket(plain, server_hostname="127.0.0.1"))
        opened[-1].sendall(head + (b"\r\nthe beginning of a body" if number % 2 else b""))
    with vehicles(server, ["car-1"], lambda name, body: b"yes"):
        answer = server.run(vehicles=1, rounds=1, size=10, largest=100)
    assert answer["rounds"][0]["replies"] == {"car-1": [3, "yes", ""]}
    for connection in opened:
        connection.close()


@pytest.fixture(scope="module")
def believing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A SuperLink whose environment tells the web server to believe every proxy."""
    settings = {SWITCH: "1", "FORWARDED_ALLOW_IPS": "*"}
    with superlink(tmp_path_factory.mktemp("believing"), **settings) as server:
        yield server


def test_no_header_says_where_a_request_comes_from(believing: Server) -> None:
    context = ssl.create_default_context(cafile=str(believing.owner))
    web = HTTPSConnection("127.0.0.1", believing.port, context=context)
    web.request("GET", MARK, headers={"x-forwarded-for": "203.0.113.7"})
    assert web.getresponse().status == 204
    web.close()


def test_nobody_switches_the_fast_path_off(believing: Server) -> None:
    """Requests that cannot be read, by a stranger and by a vehicle; then polls are held as ever."""
    connection = believing.connection("car-1")
    context = ssl.create_default_context(cafile=str(believing.owner))
    web = HTTPSConnection("127.0.0.1", believing.port, context=context)
    with FleetClient(connection) as client:
        activate = ActivateNodeRequest(public_key=client.public_key, heartbeat_interval=30)
        content, _ = client.call("activate-node", activate)
        node = Node(node_id=ActivateNodeResponse.FromString(content).node_id)
        for path in ("pull-messages", "push-messages"):
            head = {"content-type": "application/protobuf"}
            web.request("POST", f"/v1/fleet/{path}", body=b"\xff" * 50, headers=head)
            response = web.getresponse()
            assert (response.status, response.read()) != (200, b"")
        with pytest.raises((ConnectionError, RefusedError)):
            client.call("push-messages", PushMessagesRequest(node=node))
        began = time.monotonic()
        _, headers = client.call(
            "pull-messages", PullMessagesRequest(node=node), headers={WAIT_HEADER: "2"}
        )
        assert time.monotonic() - began >= 2.0 and HEARD_HEADER in headers
    web.close()
