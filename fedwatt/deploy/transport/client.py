"""A vehicle's requests to its server: Flower's Fleet API over one kept HTTPS connection.

Each request is a protobuf message of Flower, signed with the vehicle's key as Flower's SuperNode
signs it. Responses are read as capped streams without compression, whatever the server sends; with
a bandwidth, bodies go piece by piece, each when its turn has come.
"""

import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import httpx
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from flwr.supercore.runtime_version_compatibility import RuntimeVersionMetadata
from google.protobuf.message import DecodeError

from fedwatt.deploy.plan.certificates import read_vehicle_key

SMALL = 65_536
"""Bytes of a response without a message."""
WAIT_HEADER = "fedwatt-wait"
"""Of a poll: seconds for which the server may hold it."""
HEARD_HEADER = "fedwatt-heard"
"""Of its response: the poll counted as a heartbeat."""
WAIT_SECONDS = 50.0
"""Less than the minute after which Flower takes a silent vehicle for gone."""
ANSWER_SECONDS = 30.0
KEEP_SECONDS = 60.0
"""How long an idle connection is kept; the server keeps it for longer."""


class RefusedError(Exception):
    """The server does not accept this vehicle's key (yet, or any more), or its clock."""


class UntrustedError(Exception):
    """The server's certificate is not signed by the owner, or revoked."""


class RunOverError(Exception):
    """The run that a message belongs to has ended."""


class TooLongError(Exception):
    """The server sent more than it may, or takes no message of this length."""


class BusyError(ConnectionError):
    """The server asks to wait (429)."""


REFUSALS: Final[Mapping[int, type[Exception]]] = {
    401: RefusedError,
    403: RunOverError,
    413: TooLongError,
    429: BusyError,
}
"""Errors of statuses; of another one that is 500 or more the request may be repeated."""


@dataclass
class Pace:
    """A rate limiter in bytes per second, shared by all threads."""

    rate: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    free: float = 0.0
    """When the bytes that were let pass so far are over."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def piece(self) -> int:
        """Return the bytes that pass at a time: those of a quarter of a second, within reason."""
        return int(min(max(self.rate / 4, 512), 65_536))

    def take(self, count: int) -> None:
        """Return when it is the turn of `count` bytes."""
        with self.lock:
            now = self.clock()
            turn = max(self.free, now)
            self.free = turn + count / self.rate
        if turn > now:
            self.sleep(turn - now)


@dataclass(frozen=True)
class Connection:
    """A vehicle's server, and how the two authenticate each other."""

    server: str
    """host:port."""
    ca: Path
    """The owner's certificate, which must have signed the server's."""
    key: Path
    bandwidth: float = 0.0
    """Bytes per second each way; 0: no limit."""
    revoked: Callable[[], Collection[int]] = frozenset
    """Returns the serial numbers of certificates that no longer count."""


class FleetClient:
    """A connection to the Fleet API; a context manager."""

    def __init__(self, connection: Connection) -> None:
        self._key = read_vehicle_key(connection.key)
        public = self._key.public_key()
        self.public_key = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        self._revoked = connection.revoked
        self._pace = Pace(connection.bandwidth) if connection.bandwidth else None
        versions = RuntimeVersionMetadata.from_local_component("SuperNode").as_metadata()
        self._http = httpx.Client(
            base_url=f"https://{connection.server}/v1/fleet/",
            verify=ssl.create_default_context(cafile=str(connection.ca)),
            timeout=httpx.Timeout(ANSWER_SECONDS, read=WAIT_SECONDS + ANSWER_SECONDS),
            limits=httpx.Limits(keepalive_expiry=KEEP_SECONDS),
            headers={
                "content-type": "application/protobuf",
                "accept": "application/protobuf",
                "accept-encoding": "identity",
                **dict(versions),
            },
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def call(
        self,
        path: str,
        request: Any,
        *,
        most: int = SMALL,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[bytes, httpx.Headers]:
        """Return body and headers of the response to a request; `most` bytes are read.

        Raises ConnectionError where it may be repeated, and one of the errors above where not.
        """
        body: bytes = request.SerializeToString()
        self._http.cookies.clear()  # a server could fill the memory with them
        try:
            with self._http.stream(
                "POST",
                path,
                content=body if self._pace is None else self._paced(body),
                headers={
                    "content-length": str(len(body)),
                    **self._signed(),
                    **(headers or {}),
                },
            ) as response:
                self._refuse_revoked(response)
                content = self._read(response, most if response.is_success else SMALL)
        except httpx.TransportError as error:
            if "certificate" in str(error).lower():
                raise UntrustedError(str(error)) from error
            raise ConnectionError(str(error)) from error
        if not response.is_success:
            raise refusal(response.status_code, content.decode("utf-8", "replace"))
        return content, response.headers

    def _refuse_revoked(self, response: httpx.Response) -> None:
        """Raise UntrustedError if the server's certificate was revoked."""
        connection = response.extensions["network_stream"].get_extra_info("ssl_object")
        if int(connection.getpeercert()["serialNumber"], 16) in self._revoked():
            raise UntrustedError("its certificate is revoked")

    def _read(self, response: httpx.Response, most: int) -> bytes:
        """Return the body as it came; TooLongError if it is longer than `most` or compressed."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise TooLongError("The server sent compressed data, which it was asked not to")
        content = bytearray()
        size = None if self._pace is None else self._pace.piece
        for piece in response.iter_raw(size):
            if self._pace is not None:
                self._pace.take(len(piece))
            content += piece
            if len(content) > most:
                raise TooLongError(f"The server sent more than {most} bytes")
        return bytes(content)

    def _paced(self, body: bytes) -> Iterator[bytes]:
        assert self._pace is not None
        size = self._pace.piece
        for start in range(0, len(body), size):
            part = body[start : start + size]
            self._pace.take(len(part))
            yield part

    def _signed(self) -> dict[str, str]:
        """Return the headers by which Flower knows a SuperNode: its key signs the time."""
        stamp = datetime.now(UTC).isoformat()
        signature = self._key.sign(stamp.encode(), ec.ECDSA(hashes.SHA256()))
        return {
            "flwr-public-key": b64encode(self.public_key).decode(),
            "flwr-timestamp": stamp,
            "flwr-signature": b64encode(signature).decode(),
        }


def parsed(kind: Any, content: bytes) -> Any:
    """Return a message of Flower; ConnectionError if the server sent something else."""
    try:
        return kind.FromString(content)
    except DecodeError as error:
        raise ConnectionError("the server's response cannot be read") from error


def refusal(status: int, text: str) -> Exception:
    """Return the error that stands for a refused request."""
    reason = text.strip()[:300]
    if status in REFUSALS:
        return REFUSALS[status](reason)
    kind = ConnectionError if status >= 500 else RefusedError
    return kind(f"status {status}: {reason}")
