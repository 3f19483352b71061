"""When a vehicle tries again, and when it gives up."""

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy import node
from fedwatt.errors import RunError

REFUSED = "Exit Code: 305\n[code: 2004] Failed to activate SuperNode.\nMore."
UNTRUSTED = "Exit Code: 305\n[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed\nMore."


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
            logging.getLogger("flwr").error(reason)
            sys.exit(1)
        self.sessions += 1
        yield (7, lambda: None, *[None] * 6)


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


def test_a_wrong_key_is_refused_in_the_end() -> None:
    with pytest.raises(RunError, match=r"does not accept this vehicle's key: .*Failed to activate"):
        drive(Door(REFUSED, REFUSED), patience=0.0)


def test_another_server_is_not_tried_twice() -> None:
    door = Door(UNTRUSTED, "")
    with pytest.raises(RunError, match=r"is not to be trusted: .*CERTIFICATE_VERIFY_FAILED"):
        drive(door)
    assert door.answers == [""]
