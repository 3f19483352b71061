"""A vehicle's connection: Flower's SuperNode protocol with the installed code and no other.

Flower's own SuperNode downloads the app of a run and executes it. A vehicle must not execute what
a server sends, so this node takes Flower's connection (sessions, TLS and node keys) and answers
every message with the vehicle's request handler.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Message

from fedwatt.deploy.plan.certificates import KEY, OWNER, read_private
from fedwatt.deploy.transport import flower
from fedwatt.deploy.transport.channel import message_body, message_content
from fedwatt.deploy.transport.clock import clock_ahead, clock_trouble
from fedwatt.errors import DataError, RunError

log = logging.getLogger("fedwatt.deploy")

RECONNECT_SECONDS: Final = 2.0
FIRST_PAUSE: Final = 0.1
"""Seconds between a reply and the first poll for the next request."""


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

    @classmethod
    def of(cls, server: str, keys: Path, bandwidth: float = 0.0) -> "Connection":
        """Return the connection with the keys in a vehicle's folder."""
        return cls(server, keys / OWNER, keys / KEY, bandwidth)

    def key_pair(self) -> flower.KeyPair:
        """Return the vehicle's keys."""
        key = read_private(self.key)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise RunError(f"{self.key} is no key of 'fedwatt deploy request'.")
        return key, key.public_key()


def serve(
    handle: Callable[[bytes], bytes],
    connection: Connection,
    *,
    name: str,
    largest: int,
    poll_seconds: float = 1.0,
    patience_seconds: float = 120.0,
    goes_on: Callable[[], bool] = lambda: True,
) -> None:
    """Answer the server's requests for as long as `goes_on`, reconnecting when it was lost.

    A server that was just started, or has not noticed that this vehicle was cut off, refuses its
    key as it refuses a wrong one, so a refusal is final only after `patience_seconds`. So does one
    that finds the vehicle's clock wrong, which is then said.
    """
    flower.stay_alive()
    flower_log = logging.getLogger("flwr")
    since: float | None = None  # when the server first refused the key
    while goes_on():
        warn_once = _WarnOnce(connection.server)
        flower_log.addHandler(warn_once)
        try:
            pair = connection.key_pair()
            with flower.open_session(
                connection.server, str(connection.ca), pair, connection.bandwidth
            ) as session:
                log.info("%s is connected to %s", name, connection.server)
                since = None
                flower.identify(session)
                _answer_all(handle, session, largest, poll_seconds, goes_on)
            if goes_on():
                log.warning("lost the connection to %s; trying again", connection.server)
        except flower.NotConnectedError as error:
            now = time.monotonic()
            clock = clock_trouble(clock_ahead(connection.server, connection.ca))
            refused = flower.NOT_ACTIVATED in str(error) or bool(clock)
            if not refused or now - (since or now) >= patience_seconds:
                who = "does not accept this vehicle's key" if refused else "is not to be trusted"
                raise RunError(f"{connection.server} {who}: {error}. {clock}".strip()) from error
            if since is None:
                since = now
                log.warning(
                    "%s does not accept this vehicle's key yet; giving up in %.0f s. %s",
                    connection.server,
                    patience_seconds,
                    clock,
                )
        finally:
            flower_log.removeHandler(warn_once)
        if goes_on():
            time.sleep(RECONNECT_SECONDS)


class _WarnOnce(logging.Handler):
    """Logs once that a server does not answer, however often Flower tries again."""

    def __init__(self, server: str) -> None:
        super().__init__(logging.WARNING)
        self.server = server
        self.logged = False

    def emit(self, record: logging.LogRecord) -> None:
        """Log the first of Flower's messages about it."""
        if not self.logged and "retrying" in record.getMessage():
            self.logged = True
            log.warning("%s does not answer; trying until it does", self.server)


def _answer_all(
    handle: Callable[[bytes], bytes],
    session: flower.Session,
    largest: int,
    poll_seconds: float,
    goes_on: Callable[[], bool],
) -> None:
    def answer(message: Message) -> Message:
        try:
            body = message_body(message.content)
        except ValueError as error:
            raise DataError(str(error)) from error
        return Message(message_content(handle(body)), reply_to=message)

    pause = first = min(FIRST_PAUSE, poll_seconds)
    while goes_on():
        began = time.perf_counter()
        if flower.answer_next(session, answer, largest):
            pause = first
        elif time.perf_counter() - began < poll_seconds:  # a longer poll was held by the server
            time.sleep(pause)
            pause = min(1.3 * pause, poll_seconds)
