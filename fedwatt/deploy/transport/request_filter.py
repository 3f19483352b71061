"""The SuperLink's request filter: who may connect from where, and with how many bytes.

Flower serves vehicles, operators and its own processes on one port, asks operators for no password,
and reads a body before it checks who sent it. So each request is checked by its head, before its
body is read:

    anything but /v1/fleet       only from this machine
    a body without a length      refused (411)
    a body that is too long      refused (413)
    a body of more than SMALL    only a reply; its key must have connected and signed this request
                                 (401), and sends one at a time (429)
    too much in an hour          refused (429), per vehicle's key

Bytes are charged to a key only after Flower has verified that key's signature (status 200), so
nobody else can use up a vehicle's quota.
"""

import time
from base64 import b64decode
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_public_key
from starlette.types import ASGIApp, Message, Receive, Scope, Send

FOR_VEHICLES = "/v1/fleet/"
MARK = "/fedwatt"
"""A path that only this filter answers: it shows that the filter is there."""
KEY_HEADER = b"flwr-public-key"
SMALL = 65_536
"""Bytes of a request without a reply: a poll, a heartbeat, an announcement."""
LARGEST = 2**26 + SMALL
"""Bytes of a request with a reply; by default a vehicle sends replies of 64 MB at most."""
SINGLE = 2**23 + SMALL
"""Bytes of a single-request message; tiny parts take twenty times as much memory."""
HOUR_SECONDS = 3600.0
HOURLY_BYTES = 2**30
"""Bytes per vehicle and hour."""


@dataclass
class Allowance:
    """Bytes that each vehicle sent in the last hour."""

    clock: Callable[[], float] = time.monotonic
    sent: dict[bytes, deque[tuple[float, int]]] = field(default_factory=lambda: defaultdict(deque))
    """By key: when, and how many bytes."""

    def left(self, key: bytes) -> int:
        """Return the bytes that a vehicle may still send."""
        entries = self.sent.get(key, deque())
        now = self.clock()
        while entries and now - entries[0][0] > HOUR_SECONDS:
            entries.popleft()
        return HOURLY_BYTES - sum(size for _, size in entries)

    def spend(self, key: bytes, size: int) -> None:
        """Charge a vehicle; within a minute one entry is enough."""
        entries = self.sent[key]
        now = self.clock()
        if entries and now - entries[-1][0] < 60:
            entries[-1] = entries[-1][0], entries[-1][1] + size
        else:
            entries.append((now, size))


class RequestFilter:
    """An ASGI application in front of Flower's."""

    def __init__(
        self, app: ASGIApp, allowance: Allowance | None = None, *, single: bool = True
    ) -> None:
        self.app = app
        self.longest = {"push-object": LARGEST, "push-messages": SINGLE if single else SMALL}
        """Bytes of requests that carry replies, by the end of their paths."""
        self.allowance = allowance or Allowance()
        self.sending: set[bytes] = set()
        """Keys whose long bodies are being read."""

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
        key = _decoded(scope, KEY_HEADER)
        is_long = (_length(scope) or 0) > SMALL and scope["path"].startswith(FOR_VEHICLES)
        if is_long:
            self.sending.add(key)
        try:
            await self.app(scope, receive, self._charging(scope, key, send))
        finally:
            if is_long:
                self.sending.discard(key)

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
        if size > self.longest.get(path.removeprefix(FOR_VEHICLES), SMALL):
            return 413, "The request is longer than any reply."
        key = _decoded(scope, KEY_HEADER)
        if size > SMALL:
            if key not in self.allowance.sent or not is_signed(scope):
                return 401, "Only a connected vehicle sends a reply."
            if key in self.sending:
                return 429, "This vehicle is sending a reply already."
        if self.allowance.left(key) < size:
            return 429, "This vehicle has sent too much in the last hour."
        return 0, ""

    def _charging(self, scope: Scope, key: bytes, send: Send) -> Send:
        """Charge the key whose signature Flower has verified."""

        async def charging(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                self.allowance.spend(key, _length(scope) or 0)
            await send(message)

        return charging if scope["path"].startswith(FOR_VEHICLES) else send


def is_local(scope: Scope) -> bool:
    """Return whether a request comes from this machine."""
    client = scope.get("client")
    try:
        return client is not None and ip_address(client[0]).is_loopback
    except ValueError:
        return False


def is_signed(scope: Scope) -> bool:
    """Return whether a request's key has signed its time, which Flower checks afterwards."""
    try:
        key = load_pem_public_key(_decoded(scope, KEY_HEADER))
        signature = _decoded(scope, b"flwr-signature")
        if isinstance(key, ec.EllipticCurvePublicKey):
            key.verify(signature, _header(scope, b"flwr-timestamp"), ec.ECDSA(SHA256()))
            return True
    except (ValueError, InvalidSignature, UnsupportedAlgorithm):
        pass
    return False


def _length(scope: Scope) -> int | None:
    text = _header(scope, b"content-length")
    if _header(scope, b"transfer-encoding"):  # in chunks, of any number, whatever else it says
        return None
    return int(text) if text.isdigit() and len(text) < 16 else None


def _decoded(scope: Scope, header: bytes) -> bytes:
    """Return the bytes in a header, which Base64 can spell in several ways; empty: none."""
    try:
        return b64decode(_header(scope, header), validate=True)
    except ValueError:
        return b""


def _header(scope: Scope, header: bytes) -> bytes:
    return next((value for name, value in scope.get("headers", ()) if name == header), b"")
