"""A Flower Grid without processes: every node is a vehicle that answers at once.

Messages go through Flower's own records and their bytes, as they would on a network.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid

from fedwatt.deploy import client_app
from fedwatt.deploy.flower import VEHICLE_REFUSED
from fedwatt.deploy.hours import VEHICLE_AWAY, NotNow
from fedwatt.deploy.messages import MESSAGE_TYPES, from_records
from fedwatt.deploy.policy import OPEN, Refusal, create_owner, install
from fedwatt.deploy.vehicle import Vehicle
from fedwatt.errors import FedwattError

KINDS = {message_type: kind for kind, message_type in MESSAGE_TYPES.items()}


def open_policy(board: Path) -> Path:
    """A folder with a signed policy that allows all."""
    create_owner(board)
    install(OPEN, board, board)
    return board


Tamper = Callable[[str, int, RecordDict], RecordDict | None]
"""(question, node, reply) → what is sent in its place; None: nothing is."""


@dataclass
class Loopback(Grid):
    vehicles: dict[int, Vehicle]
    tamper: Tamper = lambda kind, node, reply: reply
    names: dict[int, str] = field(default_factory=dict)
    """Names that keys were registered under."""
    offline: set[int] = field(default_factory=set)
    sent: list[tuple[int, str, RecordDict]] = field(default_factory=list)
    """All that left the vehicles."""
    waiting: dict[str, Message] = field(default_factory=dict)
    count: int = 0
    training: int = 0
    """Rounds of training that were asked for."""
    models: list[Any] = field(default_factory=list)
    """What vehicles were sent to train, round after round."""
    before_push: Callable[["Loopback"], None] = lambda grid: None
    """Something that happens before the vehicles are looked up."""

    def get_nodes(self) -> Iterable[Any]:
        self.before_push(self)
        here = [node for node in self.vehicles if node not in self.offline]
        return [SimpleNamespace(node_id=n, name=self.names.get(n, "")) for n in here]

    def get_node_ids(self) -> Iterable[int]:
        return [node.node_id for node in self.get_nodes()]

    def push_messages(self, messages: Iterable[Message]) -> list[str]:
        numbers = []
        messages = list(messages)
        if messages and KINDS[messages[0].metadata.message_type] in ("train", "secure-train"):
            self.training += 1
            self.models.append(from_records(messages[0].content).arrays["weights"])
        for message in messages:
            self.count += 1
            number = f"message-{self.count}"
            message.metadata.__dict__["_message_id"] = number
            numbers.append(number)
            self.waiting[number] = message
        return numbers

    def pull_messages(self, message_ids: Iterable[str]) -> list[Message]:
        replies = []
        for number in message_ids:
            message = self.waiting.pop(number, None)
            if message is None or message.metadata.dst_node_id in self.offline:
                continue
            reply = self.answer(message)
            if reply is not None:
                reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
                replies.append(reply)
        return replies

    def answer(self, message: Message) -> Message | None:
        node, kind = message.metadata.dst_node_id, KINDS[message.metadata.message_type]
        try:
            content = self.vehicles[node].answer(kind, message.content)
        except NotNow as away:
            return Message(Error(code=VEHICLE_AWAY, reason=str(away.seconds)), reply_to=message)
        except Refusal as refusal:
            error = Error(code=VEHICLE_REFUSED, reason=refusal.rule)
            return Message(error, reply_to=message)
        except FedwattError as error:
            return Message(Error(code=0, reason=str(error)), reply_to=message)
        changed = self.tamper(kind, node, content)
        if changed is None:
            return None
        self.sent.append((node, kind, changed))
        return Message(changed, reply_to=message)

    def set_run(self, run: Any) -> None: ...

    @property
    def run(self) -> Any:
        return None

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise NotImplementedError

    def send_and_receive(self, *args: Any, **kwargs: Any) -> list[Message]:
        raise NotImplementedError


class SuperNodes(Loopback):
    """As Flower's own SuperNode: a new process, and so a new vehicle object, for every message."""

    def __init__(self, vehicles: dict[int, Vehicle], board: Path) -> None:
        super().__init__(vehicles)
        open_policy(board)
        self.contexts = {
            node: Context(
                run_id=1,
                node_id=node,
                node_config={
                    "folder": str(vehicle.folder),
                    "state": str(vehicle.state),
                    "policy": str(board),
                },
                state=RecordDict(),
                run_config={},
            )
            for node, vehicle in vehicles.items()
        }

    def answer(self, message: Message) -> Message | None:
        client_app._vehicle.cache_clear()
        return client_app._answer(message, self.contexts[message.metadata.dst_node_id])
