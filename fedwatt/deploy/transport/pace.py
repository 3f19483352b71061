"""A limit on the bytes a second that a vehicle sends, and on those that it receives.

Bodies of requests and answers go piece by piece, each when its turn has come; what is not fetched
yet waits at the server's end of the connection. Headers, TLS and heartbeats that fit into a packet
are not worth counting and come on top.
"""

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import httpx


@dataclass
class Pace:
    """Lets so many bytes a second pass, whoever asks."""

    rate: float
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    free: float = 0.0
    """When what was let pass so far is over."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def piece(self) -> int:
        """Bytes that pass at a time: those of a quarter of a second, within reason."""
        return int(min(max(self.rate / 4, 512), 65_536))

    def take(self, count: int) -> None:
        """Return when it is the turn of `count` bytes."""
        with self.lock:
            now = self.clock()
            turn = max(self.free, now)
            self.free = turn + count / self.rate
        if turn > now:
            self.sleep(turn - now)


@dataclass
class PacedStream(httpx.SyncByteStream):
    """A body in pieces, each in its turn."""

    body: httpx.SyncByteStream
    pace: Pace

    def __iter__(self) -> Iterator[bytes]:
        """The pieces."""
        size = self.pace.piece
        for chunk in self.body:
            for start in range(0, len(chunk), size):
                piece = chunk[start : start + size]
                self.pace.take(len(piece))
                yield piece

    def close(self) -> None:
        """Let go of the connection."""
        self.body.close()


def paced(own: httpx.Request | httpx.Response, pace: Pace) -> None:
    """Let the body of a request, or of an answer that was not read yet, go at this pace."""
    if isinstance(own.stream, httpx.SyncByteStream):
        own.stream = PacedStream(own.stream, pace)
