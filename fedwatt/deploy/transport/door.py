"""The server's door: who may come from where, and with how many bytes.

Flower reads the whole body of a request, whoever sends it, and keeps what vehicles push in memory.
So a request is judged by its head alone, before any of its body is read:

    anything but /v1/fleet       from this machine only; Flower asks operators for no password
    a body without a length      refused (411)
    a body that is too long      refused (413): no longer than the largest reply that a run expects
    too much in an hour          refused (429), by the vehicle's key

A run says how large its replies may be in a file of its own (`Expected`), which this process reads:
the two share the server's home and nothing else.
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
KEY_HEADER: Final = b"flwr-public-key"
SMALL: Final = 65_536
"""Bytes of a request without a reply: a look for questions, a heartbeat, an announcement."""
HOUR_SECONDS: Final = 3600.0
HOURLY_BYTES: Final = 256 * 2**20
"""What a vehicle may send in an hour, or `HOURLY_REPLIES` of the largest replies, if more."""
HOURLY_REPLIES: Final = 16
LOOK_SECONDS: Final = 0.5
"""Between two looks at what runs expect."""


@dataclass
class Expected:
    """How large a run's replies may be, where the door can read it."""

    file: Path | None
    """None: there is no server's home, as in a test."""
    bytes: int = 0

    @classmethod
    def of_run(cls, run: int) -> "Expected":
        """For the run of this number on the server whose home Flower has been given."""
        home = os.environ.get("FLWR_HOME")
        return cls(None if home is None else folder_in(Path(home)) / str(run))

    def over(self) -> None:
        """The run has ended."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)

    def at_least(self, size: int) -> None:
        """Let replies of `size` bytes in from now on."""
        if size > self.bytes:
            self.bytes = size
            if self.file is not None:
                write_text(self.file, f"{size}\n")


def folder_in(home: Path) -> Path:
    """Where runs say what they expect."""
    return home / "expected"


@dataclass
class Allowance:
    """What each vehicle has sent in the last hour."""

    clock: Callable[[], float] = time.monotonic
    sent: dict[bytes, deque[tuple[float, int]]] = field(default_factory=lambda: defaultdict(deque))
    """By key: when, and how many bytes."""
    totals: dict[bytes, int] = field(default_factory=lambda: defaultdict(int))

    def left(self, key: bytes, most: int) -> int:
        """Bytes that the vehicle may still send."""
        own, now = self.sent.get(key), self.clock()
        while own and now - own[0][0] > HOUR_SECONDS:
            self.totals[key] -= own.popleft()[1]
        return most - self.totals.get(key, 0)

    def spend(self, key: bytes, size: int) -> None:
        """Take note of what it has sent; within a minute one entry is enough."""
        own, now = self.sent[key], self.clock()
        if own and now - own[-1][0] < 60:
            own[-1] = own[-1][0], own[-1][1] + size
        else:
            own.append((now, size))
        self.totals[key] += size


class Door:
    """The first thing that a request to the server meets."""

    def __init__(
        self,
        app: ASGIApp,
        home: Path | None = None,
        allowance: Allowance | None = None,
        *,
        whole: bool = True,
    ) -> None:
        self.app = app
        self.whole = whole
        """Whether replies may come with their announcements (`whole`)."""
        self.home = home or Path(os.environ.get("FLWR_HOME", "."))
        self.allowance = allowance or Allowance()
        self.looked, self.largest = -1.0, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
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
        await self.app(scope, receive, self._noting(scope, send))

    def refusal(self, scope: Scope) -> tuple[int, str]:
        """Status and reason where a request may not come in; 0 where it may."""
        if not scope.get("path", "").startswith(FOR_VEHICLES):
            return (0, "") if is_local(scope) else (403, "Only from the server itself.")
        size = _length(scope)
        if size is None:
            return 411, "A request must say how long it is."
        expected = self._expected()
        if size > self._most(scope["path"], expected):
            return 413, "The request is longer than what was asked for."
        hourly = max(HOURLY_BYTES, HOURLY_REPLIES * expected)
        if self.allowance.left(_key(scope), hourly) < size:
            return 429, "This vehicle has sent too much in the last hour."
        return 0, ""

    def _most(self, path: str, expected: int) -> int:
        """Bytes of a request to this path."""
        if path.endswith("/push-object"):
            return max(SMALL, expected)
        return SMALL + expected if self.whole and path.endswith("/push-messages") else SMALL

    def _noting(self, scope: Scope, send: Send) -> Send:
        """Charge the vehicle, unless the server finds that the request is not by its key."""

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] != 401:
                self.allowance.spend(_key(scope), _length(scope) or 0)
            await send(message)

        return noting if scope["path"].startswith(FOR_VEHICLES) else send

    def _expected(self) -> int:
        """Bytes of the largest reply that any run expects."""
        now = time.monotonic()
        if now - self.looked > LOOK_SECONDS:
            self.looked = now
            files = folder_in(self.home).glob("*")
            self.largest = max((_number(file) for file in files), default=0)
        return self.largest


def is_local(scope: Scope) -> bool:
    """Whether a request comes from this machine."""
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False


def _key(scope: Scope) -> bytes:
    """The key that a request says it is signed with; where it comes from, if it names none."""
    client = scope.get("client") or ("",)
    return _header(scope, KEY_HEADER) or str(client[0]).encode()


def _length(scope: Scope) -> int | None:
    text = _header(scope, b"content-length")
    return int(text) if text.isdigit() and len(text) < 16 else None


def _header(scope: Scope, wanted: bytes) -> bytes:
    return next((value for name, value in scope.get("headers", ()) if name == wanted), b"")


def _number(file: Path) -> int:
    """What a run wrote; 0 if that is no number, or the file is gone."""
    try:
        return int(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
