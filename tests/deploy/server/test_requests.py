"""Requests in the background: so many at a time, and silent vehicles keep nobody waiting."""

import pytest

from fedwatt.deploy.server import requests
from fedwatt.deploy.server.requests import MOST_OPEN, SILENT_SECONDS, BackgroundRequests, Requests
from fedwatt.deploy.vehicle.messages import ReplyForm, failure
from fedwatt.deploy.wire import Content
from tests.deploy.fleets import Loopback

ROUND_SECONDS = 600.0


def test_a_fleet_is_asked_in_waves(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(requests, "monotonic", lambda: now[0])

    class Vehicle:
        def handle(self, body: bytes) -> bytes:
            return failure("failed")

    fleet = range(1, 3 * MOST_OPEN)
    channel = Loopback({node: Vehicle() for node in fleet})  # type: ignore[misc]
    channel.offline = set(range(1, 601))  # they are asked and stay silent
    offers = BackgroundRequests(Requests(channel), ReplyForm("driving-map"))
    request = Content({"kind": "driving-map", "plan": "0" * 64})

    def send() -> int:
        nodes = offers.ready(fleet)
        offers.send(dict.fromkeys(nodes, request), ROUND_SECONDS)
        return len(nodes)

    assert [send(), send()] == [1000, 0]
    assert len(offers.receive()) == 400  # 600 are silent
    offers.pause(range(601, 1001), ROUND_SECONDS)
    assert [send(), send()] == [400, 0]
    now[0] += SILENT_SECONDS
    assert send() == 1000  # the silent ones hold up nobody, and are not asked again
    now[0] += ROUND_SECONDS
    assert offers.ready(fleet)[:2] == [1, 2]
