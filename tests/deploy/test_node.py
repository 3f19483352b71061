"""When a vehicle tries again, and when it gives up."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

import httpx

from fedwatt.deploy import flower, node
from fedwatt.deploy.connection import Connection
from fedwatt.errors import RunError

REFUSED = "Failed to initialize.\n[code: 2004] Failed to activate SuperNode.\nMore."
UNTRUSTED = "Failed to initialize.\n[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed"


class Door:
    """A server that answers each attempt as told: a reason to give up, or "" to let in."""

    server, ca = "depot:9092", Path("ca.pem")

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.sessions = 0

    @contextmanager
    def open(self) -> Iterator[tuple]:
        reason = self.answers.pop(0)
        if reason:
            flower.not_connected(305, reason)
        self.sessions += 1
        with suppress(ConnectionError):
            yield (7, self.receive, *[None] * 6)

    def receive(self) -> None:
        """Nothing to do; and the connection is lost, where there is another attempt to come."""
        if self.answers:
            raise ConnectionError


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node, "RECONNECT_SECONDS", 0.0)


def drive(door: Door, patience: float = 60.0) -> None:
    vehicle = SimpleNamespace(name="car-001")
    terms = {"poll_seconds": 0.0, "patience_seconds": patience}
    node.drive(vehicle, door, goes_on=lambda: bool(door.answers), **terms)


def test_a_vehicle_that_was_cut_off_is_let_in_later() -> None:
    door = Door(REFUSED, REFUSED, "")
    drive(door)
    assert door.sessions == 1


def test_a_vehicle_waits_while_the_server_registers_keys_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    drive(Door(REFUSED, ""))
    assert "does not accept this vehicle's key yet" in caplog.text
    assert "giving up in 60 s" in caplog.text


def test_patience_begins_with_the_first_refusal(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A vehicle that was on before its server is not turned away by the server's first seconds."""
    seconds = iter([1000.0, 1059.0, 2000.0, 2001.0])
    monkeypatch.setattr(node.time, "monotonic", lambda: next(seconds))
    door = Door(REFUSED, REFUSED, "", REFUSED, REFUSED, "")
    drive(door)
    assert door.sessions == 2
    assert caplog.text.count("giving up in 60 s") == 2


def test_a_server_that_does_not_answer_is_spoken_of_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tries = []

    def refuse(request: httpx.Request) -> httpx.Response:
        tries.append(request.url.path)
        if len(tries) < 5:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(401, request=request)  # it is up again and knows nobody

    monkeypatch.setattr(httpx.HTTPTransport, "handle_request", lambda self, own: refuse(own))
    monkeypatch.setattr(flower, "LONGEST_RETRY_SECONDS", 0.01)
    began = time.monotonic()
    vehicle, connection = SimpleNamespace(name="car-001"), Connection("depot:9092")
    threads = threading.active_count()
    with pytest.raises(RunError, match="401"):
        node.drive(vehicle, connection, patience_seconds=0.0)
    # Flower's own way out would leave one behind that ends this process in five seconds.
    assert threading.active_count() == threads
    assert len(tries) >= 5
    assert caplog.text.count("does not answer") == 1
    assert time.monotonic() - began < 5.0  # Flower alone would sleep for 6 s when it is unknown


def test_a_wrong_key_is_refused_in_the_end() -> None:
    with pytest.raises(RunError, match=r"does not accept this vehicle's key: .*Failed to activate"):
        drive(Door(REFUSED, REFUSED), patience=0.0)


def test_another_server_is_not_tried_twice() -> None:
    door = Door(UNTRUSTED, "")
    with pytest.raises(RunError, match=r"is not to be trusted: .*CERTIFICATE_VERIFY_FAILED"):
        drive(door)
    assert door.answers == [""]


def test_after_a_look_that_the_server_held_the_next_comes_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # One look is answered after 10 ms, the next is held for 20 s, and the third answered again.
    clock, pauses = iter([0.0, 0.01, 1.0, 21.0, 21.0, 21.01]), []
    monkeypatch.setattr(node.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(node.time, "sleep", pauses.append)
    monkeypatch.setattr(node.flower, "answer_next", lambda session, answer: False)
    goes_on = iter([True, True, True, False])
    node._serve(None, None, 1.0, lambda: next(goes_on))
    assert pauses == [node.FIRST_PAUSE, 1.3 * node.FIRST_PAUSE]
