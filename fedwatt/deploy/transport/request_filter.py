"""The SuperLink's request filter: who may connect from where, and with how many bytes.

Flower serves vehicles, operators and its own processes on one port, asks operators for no password,
and reads bodies of any length. So each request is checked by its head, before its body is read:

    anything but /v1/fleet       only from this machine
    a body without a length      refused (411)
    a body that is too long      refused (413): longer than the largest reply that a run expects
    too much in an hour          refused (429), per vehicle's key

Bytes are charged to a key only after Flower has verified that key's signature (status 200), so
nobody else can use up a vehicle's quota. A run says in a file how large its replies may be
(`Expected`); the two processes share Flower's home and nothing else.
"""

import os
import time
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedwatt.files import write_text

FOR_VEHICLES: Final = "/v1/fleet/"
MARK: Final = "/fedwatt"
"""A path that only this filter answers: it shows that the filter is there."""
KEY_HEADER: Final = b"flwr-public-key"
SMALL: Final = 65_536
"""Bytes of a request without a reply: a poll, a heartbeat, an announcement."""
HOUR_SECONDS: Final = 3600.0
HOURLY_BYTES: Final = 256 * 2**20
"""Bytes per vehicle and hour, or `HOURLY_REPLIES` of the largest replies, if more."""
HOURLY_REPLIES: Final = 16
CHECK_SECONDS: Final = 0.5
"""Between two checks of what runs expect."""


@dataclass
class Expected:
    """The largest reply that a run expects, in a file that the filter reads."""

    file: Path | None
    """None: there is no server's home, as in a test."""
    size: int = 0

    @classmethod
    def of_run(cls, run: int) -> "Expected":
        """Return that of a run on the server whose home Flower was given."""
        home = os.environ.get("FLWR_HOME")
        return cls(None if home is None else folder_in(Path(home)) / str(run))

    def over(self) -> None:
        """Expect no more replies."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    def at_least(self, size: int) -> None:
        """Accept requests of `size` bytes from now on."""
        if size > self.size:
            self.size = size
            if self.file is not None:
                write_text(self.file, f"{size}\n")


def folder_in(home: Path) -> Path:
    """Return where runs say what they expect."""
    return home / "expected"


@dataclass
class Allowance:
    """Bytes that each vehicle sent in the last hour."""

    clock: Callable[[], float] = time.monotonic
    sent: dict[bytes, deque[tuple[float, int]]] = field(default_factory=lambda: defaultdict(deque))
    """By key: when, and how many bytes."""
    totals: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    def left(self, key: bytes, most: int) -> int:
        """Return the bytes that a vehicle may still send."""
        entries = self.sent.get(key)
        now = self.clock()
        while entries and now - entries[0][0] > HOUR_SECONDS:
            self.totals[key] -= entries.popleft()[1]
        return most - self.totals.get(key, 0)

    def spend(self, key: bytes, size: int) -> None:
        """Charge a vehicle; within a minute one entry is enough."""
        entries = self.sent[key]
        now = self.clock()
        if entries and now - entries[-1][0] < 60:
            entries[-1] = entries[-1][0], entries[-1][1] + size
        else:
            entries.append((now, size))
        self.totals[key] += size


class RequestFilter:
    """An ASGI application in front of Flower's."""

    def __init__(
        self,
        app: ASGIApp,
        home: Path | None = None,
        allowance: Allowance | None = None,
        *,
        single: bool = True,
    ) -> None:
        self.app = app
        self.carriers = ("/push-object", "/push-messages") if single else ("/push-object",)
        """Ends of paths whose requests carry replies."""
        self.home = home or Path(os.environ.get("FLWR_HOME", "."))
        self.allowance = allowance or Allowance()
        self.checked = -CHECK_SECONDS
        self.largest = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self.app(scope, receive, send)
            return
        status, reason = self.refusal(scope)
        if status:
            # Closed, since the body that follows is not read.
            head = [(b"connection", b"close")]
            await send({"type": "http.response.start", "status": status, "headers": head})
            await send({"type": "http.response.body", "body": reason.encode()})
            return
        await self.app(scope, receive, self._charging(scope, send))

    def refusal(self, scope: Scope) -> tuple[int, str]:
        """Return status and reason where a request is not passed on; 0 where it is."""
        path = scope.get("path", "")
        if not path.startswith(FOR_VEHICLES):
            if not is_local(scope):
                return 403, "Only from the server itself."
            return (204, "") if path == MARK else (0, "")
        size = _length(scope)
        if size is None:
            return 411, "A request must say how long it is."
        expected = self._expected()
        carries = path.endswith(self.carriers)
        if carries and size > SMALL + expected:
            # The run may have asked for more a moment ago.
            self.checked = -CHECK_SECONDS
            expected = self._expected()
        if size > SMALL + (expected if carries else 0):
            return 413, "The request is longer than what was asked for."
        hourly = max(HOURLY_BYTES, HOURLY_REPLIES * expected)
        if self.allowance.left(_header(scope, KEY_HEADER), hourly) < size:
            return 429, "This vehicle has sent too much in the last hour."
        return 0, ""

    def _charging(self, scope: Scope, send: Send) -> Send:
        """Charge the key whose signature Flower has verified."""

        async def charging(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self.allowance.spend(_header(scope, KEY_HEADER), _length(scope) or 0)
            await send(message)

        return charging if scope["path"].startswith(FOR_VEHICLES) else send

    def _expected(self) -> int:
        """Return the bytes of the largest reply that any run expects."""
        now = time.monotonic()
        if now - self.checked > CHECK_SECONDS:
            self.checked = now
            files = folder_in(self.home).glob("*")
            self.largest = max((_number(file) for file in files), default=0)
        return self.largest


def is_local(scope: Scope) -> bool:
    """Return whether a request comes from this machine."""
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False


def _length(scope: Scope) -> int | None:
    text = _header(scope, b"content-length")
    return int(text) if text.isdigit() and len(text) < 16 else None


def _header(scope: Scope, header: bytes) -> bytes:
    return next((value for name, value in scope.get("headers", ()) if name == header), b"")


def _number(file: Path) -> int:
    """Return what a run wrote; 0 if that is no number, or the file is gone."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
