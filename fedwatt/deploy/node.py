"""A vehicle's connection: Flower's SuperNode protocol with the installed code and no other.

Flower's own SuperNode downloads the app of a run and executes it, starts a process for every
message and looks for one every three seconds. A vehicle must not execute what a server sends, since
nothing it declares would then hold; so this node takes Flower's connection (its sessions, TLS and
node keys), looks often, and answers every message with the `Vehicle` that is installed on board.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from flwr.app import Error, Message, RecordDict

from fedwatt.deploy import flower
from fedwatt.deploy.clock import clock_ahead, clock_trouble
from fedwatt.deploy.connection import Connection
from fedwatt.deploy.hours import VEHICLE_AWAY, NotNow
from fedwatt.deploy.messages import MESSAGE_TYPES
from fedwatt.deploy.policy import Refusal
from fedwatt.errors import FedwattError, RunError

log = logging.getLogger("fedwatt.deploy")

KINDS = {message_type: kind for kind, message_type in MESSAGE_TYPES.items()}
NO_ANSWER = "The vehicle could not answer; its own log says why."
"""All that a server learns of a failure on board, but for the rule of a policy that forbids an
answer: a message could quote data."""
RECONNECT_SECONDS = 2.0
FIRST_PAUSE: Final = 0.1
"""Seconds between a reply and the first look for the next question."""


class Answering(Protocol):
    """Whoever answers questions under a name: a vehicle, or a relay for many."""

    name: str

    def answer(self, kind: str, records: RecordDict) -> RecordDict:
        """The sealed reply to a question."""


def drive(
    vehicle: Answering,
    connection: Connection,
    *,
    poll_seconds: float = 1.0,
    patience_seconds: float = 120.0,
    goes_on: Callable[[], bool] = lambda: True,
    before: Callable[[], None] = lambda: None,
    serve: Callable[[flower.Session], None] | None = None,
) -> None:
    """Answer the server's questions for as long as `goes_on`, connecting again when it was lost.

    It looks for the next question soon after the last one, then ever less often, at least every
    `poll_seconds`: a round follows a round at once, and an idle fleet leaves the server in peace.

    A server that was started again does not know its vehicles for a moment; Flower would then end
    this process, and here it connects anew. A server that has not yet noticed that this vehicle was
    cut off, or is still registering keys after its start, refuses its key as it refuses a wrong
    one, so a refusal is final only when `patience_seconds` are over. So does one that finds the
    vehicle's clock wrong, which is then said. `before` every connection the vehicle may have a look
    at the server, and raise. A relay has its own way to `serve`.
    """
    answering = serve or partial(_served, vehicle, poll_seconds, goes_on)
    flower.stay_alive()
    flowers_log = logging.getLogger("flwr")
    since: float | None = None  # the server has refused the key
    while goes_on():
        warn_once = _WarnOnce(connection.server)
        flowers_log.addHandler(warn_once)
        try:
            before()
            with connection.open() as session:
                log.info("%s is connected to %s", vehicle.name, connection.server)
                since = None
                answering(session)
            if goes_on():
                log.warning("lost the connection to %s; trying again", connection.server)
        except flower.NotConnectedError as error:
            refused, now = flower.NOT_ACTIVATED in str(error), time.monotonic()
            clock = clock_trouble(clock_ahead(connection.server, connection.ca))
            refused |= bool(clock)  # a clock is set by itself, as soon as there is a network
            if not refused or now - (since or now) >= patience_seconds:
                who = "does not accept this vehicle's key" if refused else "is not to be trusted"
                reason = f"{connection.server} {who}: {error}. {clock}".strip()
                raise RunError(reason) from error
            if since is None:
                since = now
                if clock:
                    log.warning("%s", clock)
                log.warning(
                    "%s does not accept this vehicle's key yet: it may still be registering keys, "
                    "or not have noticed that the vehicle was cut off; giving up in %.0f s",
                    connection.server,
                    patience_seconds,
                )
        finally:
            flowers_log.removeHandler(warn_once)
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


def _served(
    vehicle: Answering, poll_seconds: float, goes_on: Callable[[], bool], session: flower.Session
) -> None:
    flower.identify(session)
    _serve(vehicle, session, poll_seconds, goes_on)


def _serve(
    vehicle: Answering, session: Any, poll_seconds: float, goes_on: Callable[[], bool]
) -> None:
    pause = first = min(FIRST_PAUSE, poll_seconds)
    while goes_on():
        began = time.perf_counter()
        if flower.answer_next(session, partial(answer, vehicle)):
            pause = first
        elif time.perf_counter() - began < poll_seconds:  # a longer look was held by the server
            time.sleep(pause)
            pause = min(1.3 * pause, poll_seconds)


def answer(vehicle: Answering, message: Message) -> Message:
    """A vehicle's reply to a message; where it has none, an error that tells nothing."""
    kind = KINDS.get(message.metadata.message_type, message.metadata.message_type)
    try:
        return Message(vehicle.answer(kind, message.content), reply_to=message)
    except Refusal as error:
        log.warning("question '%s' refused, rule '%s'", kind[:40], error.rule)
        return Message(Error(code=flower.VEHICLE_REFUSED, reason=error.rule), reply_to=message)
    except NotNow as error:
        log.info("question '%s': %s", kind[:40], error)
        away = Error(code=VEHICLE_AWAY, reason=f"{error.seconds:.0f}")
        return Message(away, reply_to=message)
    except FedwattError as error:
        log.error("question '%s': %s", kind[:40], error)
    except Exception:
        log.exception("question '%s' failed", kind[:40])
    failed = Error(code=flower.VEHICLE_FAILED, reason=NO_ANSWER)
    return Message(failed, reply_to=message)
