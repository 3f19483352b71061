"""The ServerApp of a relay: Flower's Grid on its vehicles' side, a vehicle's session on the other.

A question for a sum is on the relay's disk from when it is received until its answer is sent:

    RELAY/pending/NUMBER.safetensors

A relay that is started again, or was cut off from the centre, answers it within the question's
time. What it had added up by then it has not forgotten (`relay`), so nobody is asked twice who
answers once.
"""

import logging
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from fedwatt.deploy import flower
from fedwatt.deploy.array_file import read_arrays, write_arrays
from fedwatt.deploy.connection import Connection
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.messages import MESSAGE_TYPES
from fedwatt.deploy.node import answer, drive
from fedwatt.deploy.progress import show_log
from fedwatt.deploy.prompt_grid import prompt
from fedwatt.deploy.relay import Relay
from fedwatt.errors import FedwattError
from fedwatt.files import oldest_first

log = logging.getLogger("fedwatt.deploy")

ATTEMPTS: Final = 3
"""How often the answer to a question is sent to a centre that does not take it."""
PAUSE_SECONDS: Final = 0.2
"""Between two looks for questions that the centre did not hold."""

app = ServerApp()


@dataclass
class Pending:
    """Questions of the centre that have no answer yet."""

    folder: Path
    attempts: dict[str, int] = field(default_factory=dict)

    def keep(self, message: Message) -> Path:
        """Write a question down."""
        root, parts = flower.taken_apart(message)
        number = message.metadata.message_id
        path = self.folder / f"{number[:64]}.safetensors"
        table = {name: np.frombuffer(part, dtype=np.uint8) for name, part in parts.items()}
        write_arrays(path, table, {"root": root, "number": number})
        return path

    def questions(self) -> list[tuple[Path, Message]]:
        """Those that can still be answered, the oldest first; others are forgotten."""
        found = []
        for path in oldest_first(self.folder.glob("*.safetensors")):
            self.attempts[path.name] = self.attempts.get(path.name, 0) + 1
            try:
                message = _read(path)
            except (KeyError, TypeError, ValueError) as error:
                log.warning("a question of the centre is lost: %s is damaged (%r)", path, error)
                path.unlink(missing_ok=True)
                continue
            over = message.metadata.created_at + message.metadata.ttl < time.time()
            if over or self.attempts[path.name] > ATTEMPTS:
                log.warning("a question of the centre is too old, and is dropped")
                path.unlink(missing_ok=True)
            else:
                found.append((path, message))
        return found


def _read(path: Path) -> Message:
    arrays, about = read_arrays(path)
    message = flower.inflated(
        about["root"], {name: part.tobytes() for name, part in arrays.items()}
    )
    message.metadata.__dict__["_message_id"] = about["number"]
    return message


@dataclass(frozen=True)
class Centre:
    """A relay's conversation with its centre."""

    relay: Relay
    pending: Pending

    def serve(self, session: flower.Session) -> None:
        """Answer what is left from before, then one question after the other."""
        for path, message in self.pending.questions():
            log.info("goes on with a question of the centre from before")
            flower.send_answer(session, answer(self.relay, message))
            path.unlink(missing_ok=True)
        while True:
            began = time.monotonic()
            kept: list[Path] = []
            if flower.answer_next(session, partial(self._answer, kept)):
                for path in kept:
                    path.unlink(missing_ok=True)
            elif time.monotonic() - began < PAUSE_SECONDS:
                time.sleep(PAUSE_SECONDS)

    def _answer(self, kept: list[Path], message: Message) -> Message:
        if message.metadata.message_type == MESSAGE_TYPES["relay-sum"]:  # others are asked again
            kept.append(self.pending.keep(message))
        return answer(self.relay, message)


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Answer the centre until the relay is stopped."""
    show_log()
    for handler in logging.getLogger("flwr").handlers:
        handler.setLevel(logging.CRITICAL)  # what it says of a lost centre is said in a sentence
    settings = {name: str(own) for name, own in context.run_config.items()}
    folder, keys = Path(settings["folder"]), settings["keys"]
    connection = Connection.of(settings["centre"], Path(keys) if keys else None)
    relay = Relay(settings["name"], folder, Exchange(prompt(grid)), int(settings["least"]))
    centre = Centre(relay, Pending(folder / "pending"))
    try:
        drive(
            relay,
            connection,
            patience_seconds=float(settings["patience"]),
            serve=centre.serve,
        )
    except FedwattError as error:
        log.error("Error: %s", error)
        raise
