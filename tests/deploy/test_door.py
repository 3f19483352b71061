"""Who may reach the server, and with how many bytes."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")

from fedwatt.deploy.bounds import reply_bounds
from fedwatt.deploy.door import (
    HOUR_SECONDS,
    HOURLY_BYTES,
    SMALL,
    Allowance,
    Door,
    Expected,
    folder_in,
)
from fedwatt.deploy.messages import ReplyForm

PUSH, PULL = "/v1/fleet/push-object", "/v1/fleet/pull-messages"


def request(
    path: str, client: str = "203.0.113.9", length: int | None = 10, key: bytes = b"k"
) -> dict:
    headers = [(b"flwr-public-key", key)]
    if length is not None:
        headers.append((b"content-length", str(length).encode()))
    return {"type": "http", "path": path, "client": (client, 4711), "headers": headers}


@pytest.mark.parametrize(
    ("path", "client", "status"),
    [
        (PULL, "203.0.113.9", 0),
        ("/v1/control/start-run", "203.0.113.9", 403),
        ("/v1/control/start-run", "127.0.0.1", 0),
        ("/v1/control/start-run", "::1", 0),
        ("/v1/runtime/push-logs", "10.0.0.3", 403),
        ("/docs", "10.0.0.3", 403),
        ("/v1/fleet/../control/start-run", "10.0.0.3", 0),  # a path of no route: answers 404
        ("/v1/control/start-run", "unix", 403),
    ],
)
def test_only_vehicles_come_from_elsewhere(
    path: str, client: str, status: int, tmp_path: Path
) -> None:
    assert Door(None, tmp_path).refusal(request(path, client))[0] == status


def passed(door: Door, scope: dict, answer: int = 200) -> tuple[bool, int]:
    """Whether a request reaches the server, which then answers so, and what is answered."""
    reached, sent = [], []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        reached.append(scope["path"])
        await send({"type": "http.response.start", "status": answer, "headers": []})

    async def send(message: Any) -> None:
        sent.append(message)

    door.app = inside
    asyncio.run(door(scope, None, send))
    return bool(reached), sent[0]["status"]


def test_a_refused_request_reaches_nothing(tmp_path: Path) -> None:
    door = Door(None, tmp_path)
    assert passed(door, request("/v1/control/start-run")) == (False, 403)
    assert passed(door, request(PULL)) == (True, 200)
    assert passed(door, request(PULL, length=None)) == (False, 411)


def test_a_hundred_megabytes_of_enrolment_are_refused_before_any_is_read(tmp_path: Path) -> None:
    door, run = Door(None, tmp_path), Expected(folder_in(tmp_path) / "7")
    enrolment = reply_bounds(ReplyForm("enrol")).total
    assert enrolment < 200_000
    run.at_least(enrolment)
    assert passed(door, request(PUSH, length=100_000_000)) == (False, 413)
    assert passed(door, request(PUSH, length=enrolment)) == (True, 200)
    # What is no reply is small, whatever a run expects.
    assert passed(door, request(PULL, length=SMALL + 1)) == (False, 413)


def test_a_run_that_expects_more_opens_the_door_further(tmp_path: Path) -> None:
    run = Expected(folder_in(tmp_path) / "7")
    run.at_least(300_000)
    run.at_least(1000)  # a smaller question after it closes nothing
    assert Door(None, tmp_path).refusal(request(PUSH, length=300_000))[0] == 0
    assert Door(None, tmp_path).refusal(request(PUSH, length=300_001))[0] == 413
    run.over()
    assert Door(None, tmp_path).refusal(request(PUSH, length=300_000))[0] == 413


def test_an_hour_has_an_allowance_for_each_vehicle(tmp_path: Path) -> None:
    now = [0.0]
    door = Door(None, tmp_path, Allowance(lambda: now[0]))
    size = 8 * 2**20
    Expected(folder_in(tmp_path) / "7").at_least(size)
    for _ in range(HOURLY_BYTES // size):
        assert passed(door, request(PUSH, length=size)) == (True, 200)
    assert passed(door, request(PUSH, length=size)) == (False, 429)
    assert passed(door, request(PUSH, length=size, key=b"another")) == (True, 200)
    now[0] = HOUR_SECONDS + 1
    assert passed(door, request(PUSH, length=size)) == (True, 200)


def test_nobody_spends_the_allowance_of_another(tmp_path: Path) -> None:
    door = Door(None, tmp_path)
    # The server finds that the signature is not that of the key.
    assert passed(door, request(PUSH, length=SMALL), answer=401)[0]
    assert not door.allowance.sent
