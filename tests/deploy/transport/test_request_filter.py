"""The request filter: who may connect, with how many bytes, and who is charged."""

import asyncio
import ssl
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest

from fedwatt.deploy.transport.request_filter import (
    HOURLY_BYTES,
    KEY_HEADER,
    SMALL,
    Allowance,
    Expected,
    RequestFilter,
    folder_in,
)
from tests.deploy.transport.conftest import Server, vehicles


def scope(path: str, length: int | None = 0, client: str = "203.0.113.7", key: bytes = b"k") -> Any:
    headers = [(KEY_HEADER, key)]
    if length is not None:
        headers.append((b"content-length", b"%d" % length))
    return {"type": "http", "path": path, "client": (client, 1), "headers": headers}


def asked(filter: RequestFilter, scope: Any) -> int:
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
        ("/v1/fleet/push-messages", SMALL + 5000, "203.0.113.7", 200),
        ("/v1/fleet/push-messages", SMALL + 5001, "203.0.113.7", 413),
        ("/v1/fleet/push-object", SMALL + 5000, "203.0.113.7", 200),
    ],
)
def test_who_may(tmp_path: Path, path: str, length: int | None, client: str, status: int) -> None:
    Expected(folder_in(tmp_path) / "7").at_least(5000)
    assert asked(RequestFilter(answering(200), tmp_path), scope(path, length, client)) == status


def test_announcements_are_short_without_the_fast_path(tmp_path: Path) -> None:
    Expected(folder_in(tmp_path) / "7").at_least(5000)
    own = RequestFilter(answering(200), tmp_path, single=False)
    assert asked(own, scope("/v1/fleet/push-messages", SMALL + 1)) == 413


def test_a_reply_may_come_as_soon_as_it_was_asked_for(tmp_path: Path) -> None:
    own = RequestFilter(answering(200), tmp_path)
    assert asked(own, scope("/v1/fleet/push-object", SMALL + 5000)) == 413
    Expected(folder_in(tmp_path) / "7").at_least(5000)
    assert asked(own, scope("/v1/fleet/push-object", SMALL + 5000)) == 200


def test_a_run_that_is_over_expects_nothing(tmp_path: Path) -> None:
    expected = Expected(folder_in(tmp_path) / "7")
    expected.at_least(5000)
    expected.at_least(10)
    assert (folder_in(tmp_path) / "7").read_text() == "5000\n"
    expected.over()
    own = RequestFilter(answering(200), tmp_path)
    assert asked(own, scope("/v1/fleet/push-object", SMALL + 1)) == 413


@pytest.mark.parametrize(("status", "charged"), [(200, SMALL), (401, 0), (400, 0), (500, 0)])
def test_only_verified_requests_are_charged(tmp_path: Path, status: int, charged: int) -> None:
    allowance = Allowance()
    asked(RequestFilter(answering(status), tmp_path, allowance), scope("/v1/fleet/x", SMALL))
    assert allowance.left(b"k", 10**6) == 10**6 - charged


def test_an_hour_s_quota(tmp_path: Path) -> None:
    now = [0.0]
    allowance = Allowance(clock=lambda: now[0])
    own = RequestFilter(answering(200), tmp_path, allowance)
    allowance.spend(b"k", HOURLY_BYTES - 10)
    assert asked(own, scope("/v1/fleet/x", 11)) == 429
    assert asked(own, scope("/v1/fleet/x", 11, key=b"another")) == 200
    assert asked(own, scope("/v1/fleet/x", 10)) == 200
    now[0] = 3601
    assert asked(own, scope("/v1/fleet/x", 11)) == 200


def test_nobody_uses_up_a_vehicle_s_quota(server: Server) -> None:
    """Requests in its name without its signature, then a round as if nothing had been."""
    connection = server.connection("car-0")
    from fedwatt.deploy.transport.client import FleetClient

    with FleetClient(connection) as client:
        stolen = client._signed() | {"flwr-signature": "AAAA"}
    context = ssl.create_default_context(cafile=str(server.owner))
    web = HTTPSConnection("127.0.0.1", server.port, context=context)
    for _ in range(20):
        for path in ("pull-messages", "push-messages", "nothing-there"):
            head = stolen | {"content-type": "application/protobuf"}
            web.request("POST", f"/v1/fleet/{path}", body=bytes(SMALL), headers=head)
            answer = web.getresponse()
            answer.read()
            assert answer.status != 200
    web.request("GET", "/fedwatt")
    assert web.getresponse().status == 204
    web.close()
    with vehicles(server, ["car-1"], lambda name, body: b"yes"):
        found = server.run(vehicles=1, rounds=1, size=10, largest=100)
    assert found["rounds"][0]["replies"] == {"car-1": [3, "yes", ""]}
