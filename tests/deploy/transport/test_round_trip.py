"""Requests and replies over a real SuperLink, with the fast path and without.

Everything that a vehicle sends around its messages is compared with the list on docs/privacy.md.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from flwr.proto import fleet_pb2, heartbeat_pb2, message_pb2

from fedwatt.deploy.transport import SWITCH
from tests.deploy.transport.conftest import Server, vehicles

NAMES = ["car-1", "car-2", "car-3"]
PAGE = Path(__file__).parents[3] / "docs" / "privacy.md"
REQUESTS = {
    "activate-node": fleet_pb2.ActivateNodeRequest,
    "deactivate-node": fleet_pb2.DeactivateNodeRequest,
    "send-node-heartbeat": heartbeat_pb2.SendNodeHeartbeatRequest,
    "pull-messages": fleet_pb2.PullMessagesRequest,
    "push-messages": fleet_pb2.PushMessagesRequest,
    "pull-object": message_pb2.PullObjectRequest,
    "push-object": message_pb2.PushObjectRequest,
    "confirm-message-received": message_pb2.ConfirmMessageReceivedRequest,
}
EVERY_REQUEST = {
    "host", "connection", "accept", "accept-encoding", "content-type", "content-length",
}  # fmt: skip
"""Headers that say nothing of the vehicle."""


def field_names(message: Any) -> Iterator[str]:
    """Names of the innermost fields that are set."""
    for descriptor, value in message.ListFields():
        if descriptor.message_type is None:
            yield descriptor.name
            continue
        for item in value if descriptor.is_repeated else [value]:
            yield from field_names(item)


def test_rounds_send_only_what_the_page_lists(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[httpx.Request] = []
    send = httpx.Client.send

    def recorded(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if request.url.path.startswith("/v1/fleet/"):
            request.read()
            sent.append(request)
        return send(client, request, **options)

    monkeypatch.setattr(httpx.Client, "send", recorded)

    def handle(name: str, body: bytes) -> bytes:
        number, _, remainder = body.partition(b":")
        return f"{name} round {number.decode()} ".encode() + remainder

    with vehicles(server, NAMES, handle):
        answer = server.run(vehicles=3, rounds=3, size=130_000, largest=200_000)
    fast = os.environ[SWITCH] == "1"
    assert answer["channel"] == ("FastChannel" if fast else "PublicChannel")
    for number, round in enumerate(answer["rounds"]):
        expected = {name: f"{name} round {number} " for name in NAMES}
        assert {n: text.rstrip("\0") for n, (_, text, _) in round["replies"].items()} == expected
        assert all(length == 130_000 + 14 for length, _, _ in round["replies"].values())
    print([round["seconds"] for round in answer["rounds"]])
    compare_with_page(sent, fast)


def compare_with_page(sent: list[httpx.Request], fast: bool) -> None:
    """The page lists what travels around a message."""
    headers = {name for request in sent for name in request.headers}
    names: set[str] = set()
    for request in sent:
        message = REQUESTS[request.url.path.rpartition("/")[2]].FromString(request.content)
        names |= set(field_names(message))
        if isinstance(message, fleet_pb2.PushMessagesRequest):
            assert message.clientapp_runtime_list == [0.0]
    _, _, text = PAGE.read_text(encoding="utf-8").partition("**Around each message**")
    paragraph, _, _ = text.partition("\n\n")
    listed = set(re.findall("`([^`]+)`", paragraph))
    assert headers - EVERY_REQUEST | names <= listed
    # The fast path sends parts in fields that Flower's messages do not have.
    absent = {"message_object_id", "object_content", "session_id"} if fast else {"fedwatt-wait"}
    assert listed - headers - names == absent
