"""The request filter and a vehicle's client: quotas, refused sessions, bounded responses."""

from pathlib import Path

import httpx
import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.transport import fleet_client
from fedwatt.deploy.transport.door import HOURLY_BYTES, Allowance, Door
from fedwatt.deploy.transport.fleet_client import (
    FleetClient,
    NotRecognisedError,
    refuse_unbounded,
)

PUBLIC_KEY = b"anybody may know this"


def scope(path: str = "/v1/fleet/pull-messages", length: int = 10, client: str = "10.0.0.1"):
    headers = [(b"flwr-public-key", PUBLIC_KEY), (b"content-length", str(length).encode())]
    return {"type": "http", "path": path, "headers": headers, "client": (client, 1)}


async def _send(door: Door, status: int, length: int) -> int:
    statuses: list[int] = []

    async def app(scope, receive, send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def send(message) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    door.app = app
    await door(scope(length=length), None, send)
    return statuses[0]


def test_requests_that_are_not_signed_use_up_no_quota(tmp_path: Path) -> None:
    import asyncio

    door = Door(lambda *_: None, tmp_path, Allowance())
    for status in (401, 400, 404, 500):
        for _ in range(HOURLY_BYTES // 60_000 + 10):
            assert asyncio.run(_send(door, status, 60_000)) == status
    assert asyncio.run(_send(door, 200, 60_000)) == 200


def test_operators_interfaces_are_for_this_machine_only(tmp_path: Path) -> None:
    door = Door(lambda *_: None, tmp_path)
    assert door.refusal(scope("/v1/control/list"))[0] == 403
    assert door.refusal(scope("/v1/control/list", client="127.0.0.1"))[0] == 0
    assert door.refusal(scope(length=10**9))[0] == 413


def client_with(responses: list[httpx.Response]) -> FleetClient:
    client = FleetClient("http://test")
    transport = httpx.MockTransport(lambda request: responses.pop(0))
    client._client = httpx.Client(transport=transport)
    return client


def test_a_quota_is_waited_for_and_an_unknown_session_is_no_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from flwr.proto.fleet_pb2 import ActivateNodeRequest

    pauses: list[float] = []
    monkeypatch.setattr(fleet_client.time, "sleep", pauses.append)
    client = client_with([httpx.Response(429), httpx.Response(401, text="{}")])
    with pytest.raises(NotRecognisedError):
        client.ActivateNode(ActivateNodeRequest())
    assert pauses == [fleet_client.QUOTA_PAUSE_SECONDS]


@pytest.mark.parametrize(
    "headers",
    [{"content-encoding": "gzip", "content-length": "10"}, {}, {"content-length": "9999999999"}],
)
def test_compressed_or_unbounded_responses_are_refused(headers: dict[str, str]) -> None:
    with pytest.raises(httpx.RemoteProtocolError):
        refuse_unbounded(httpx.Response(200, headers=headers))
    refuse_unbounded(httpx.Response(200, headers={"content-length": "10"}))


def test_no_module_of_flower_has_its_os_replaced() -> None:
    import os

    from flwr.supercore.retry import http_retry
    from flwr.supernode import fleet_http_connection

    from fedwatt.deploy.transport.flower import stay_alive

    stay_alive()
    assert http_retry.os is os and fleet_http_connection.os is os
