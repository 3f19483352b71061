"""All that fedwatt uses of Flower's SuperLink beyond its public interface, for Flower 1.41.

What is patched in the server's own process, and why (`flower` has the rest):

`flwr.superlink.extensions.get_middleware`
    The SuperLink serves vehicles and operators on one port and asks operators for no password, and
    reads bodies of any length. A middleware put in front of all others looks at who comes from
    where with how many bytes (`door`); a second one answers what is asked often (`shortcut`).
`linkstate_factory.InMemoryLinkState`
    A vehicle's look for questions goes through all that are on their way to anybody. Here it goes
    through its own (`questions_by_node`).
`flower_superlink.uvicorn`
    The server gives up a connection after five idle seconds, and a new one costs ten times a
    request. Here it keeps it for longer than vehicles do.
`node_auth.bytes_to_public_key` and `node_auth.verify_signature`
    Read a vehicle's key, and check its signature of the time, with every request and twice with a
    look that is held; here a signature that was found right once is not checked again.
`fleet_handlers.MessageToDict`
    Spells out every look for a log that nobody keeps.

tests/deploy/test_flower_server.py has digests of what is replaced, and says what has changed when
Flower has.
"""

import time
from collections.abc import Callable, Iterator, MutableMapping
from functools import lru_cache, partial
from importlib import import_module
from inspect import signature
from types import SimpleNamespace
from typing import Any, ClassVar, Final

from flwr.app import Message
from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.proto.fleet_pb2 import PullMessagesResponse, Reconnect
from flwr.server.superlink.linkstate import in_memory_linkstate, linkstate_factory
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.date import now
from flwr.supercore.dependencies.superexec import authenticate_superexec_request
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.dependencies.version import VersionDependency
from flwr.supercore.logger import FLOWER_LOGGER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import (
    PROTOBUF_REQUEST_TYPES,
    ProtobufTranslationMiddleware,
)
from flwr.supercore.servicer.runtime import runtime_handlers as core_handlers
from flwr.superlink import extensions
from flwr.superlink.routers.fleet import node_auth
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers

from fedwatt.deploy.transport.door import FOR_VEHICLES
from fedwatt.deploy.transport.whole import is_wanted
from fedwatt.deploy.transport.whole_answers import (
    is_small,
    keep_parts,
    question_parts,
    replies_with_parts,
)

SERVER_KEEPS_SECONDS: Final = 75
"""How long the server keeps an idle connection; vehicles give it up before that."""
SHUTDOWN_SECONDS: Final = 2
"""For which a server that is stopped waits for what it is at: looks that it holds would take it
longer."""
SWEEP_SECONDS: Final = 5.0
"""Between two looks through all questions for those that are too old."""
COME_BACK_PER_SECOND: Final = 200
"""Vehicles that a server can let in again after it was gone: each costs a handshake."""
MOST_KEYS: Final = 20_000
"""Vehicles' keys that are kept ready to check signatures with."""
PROTOBUF: Final = PROTOBUF_MEDIA_TYPE.encode()
PULL: Final = "/pull-messages"
PUSH: Final = "/push-messages"
LOOK: Final = f"/v1/fleet{PULL}"
OFTEN: Final = tuple(
    f"/v1/runtime/{name}"
    for name in ("pull-object", "push-object", "pull-messages", "push-messages",
                 "confirm-message-received", "get-nodes", "push-logs",
                 "send-task-heartbeat")
)  # fmt: skip
"""What a run asks its server for in every round, and the sign that it is alive: on the long way,
while ten thousand vehicles enrol, it would come too late, and Flower would end the run."""


VERSION: Final = VersionDependency(component_name="SuperLink", connection_name="Runtime API")
ACQUIRE: Final = "/v1/runtime/acquire-task"
"""Asked several times a second by the process that starts runs."""


def start_superlink(*middleware: Any) -> None:
    """Run Flower's SuperLink, with `middleware` before all that it has itself."""
    from flwr.superlink.cli.flower_superlink import flower_superlink

    others = extensions.get_middleware
    extensions.get_middleware = lambda: (*middleware, *others())
    flower_superlink()


def keep_connections() -> None:
    """Let the SuperLink of this process keep idle connections for longer than vehicles do."""
    import uvicorn

    module = import_module("flwr.superlink.cli.flower_superlink")  # a function has the same name
    run = partial(
        uvicorn.run,
        timeout_keep_alive=SERVER_KEEPS_SECONDS,
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
    )
    vars(module)["uvicorn"] = SimpleNamespace(run=run)


class Questions(MutableMapping[str, Message]):
    """Questions by their numbers, as Flower keeps them; and their numbers by node.

    All that changes it, `pop`, `clear` and `update` as well, is made of the two that do here.
    """

    listeners: ClassVar[list[Callable[[int], None]]] = []
    """Are told the node of every question that is complete, in whatever thread that is seen."""

    def __init__(self) -> None:
        self.by_number: dict[str, Message] = {}
        self.to_node: dict[int, dict[str, None]] = {}

    def __setitem__(self, number: str, message: Message) -> None:
        if number in self.by_number:
            del self[number]
        self.by_number[number] = message
        self.to_node.setdefault(message.metadata.dst_node_id, {})[number] = None

    def __delitem__(self, number: str) -> None:
        node = self.by_number.pop(number).metadata.dst_node_id
        del self.to_node[node][number]
        if not self.to_node[node]:
            del self.to_node[node]

    def __getitem__(self, number: str) -> Message:
        return self.by_number[number]

    def __iter__(self) -> Iterator[str]:
        return iter(self.by_number)

    def __len__(self) -> int:
        return len(self.by_number)


class QuickState(in_memory_linkstate.InMemoryLinkState):
    """Flower's state of a server, which finds the questions to a vehicle without a search."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.questions = Questions()
        vars(self)["message_ins_store"] = self.questions
        self.swept = time.monotonic()

    def get_message_ins(
        self, node_id: int, limit: int | None, *, run_id: int | None = None
    ) -> list[Message]:
        """As Flower's own, but for the questions that it looks through.

        One whose head is still on its way is not given away yet: a vehicle would ask for it again
        and again, and a thousand of them would keep the run from sending the rest.
        """
        if limit is not None and limit < 1:
            raise AssertionError("`limit` must be >= 1")
        found: list[Message] = []
        with self.lock:
            self._sweep()
            for number in list(self.questions.to_node.get(node_id, ())):
                self._check_stored_messages({number})
                message = self.questions.get(number)
                if message is None or not self._is_due(number, message):
                    continue
                if run_id in (None, message.metadata.run_id):
                    message.metadata.delivered_at = now().isoformat()
                    found.append(message)
                if len(found) == limit:
                    break
        return found

    def _is_due(self, number: str, message: Message) -> bool:
        """Whether a question was not given away yet, and is all there."""
        return not message.metadata.delivered_at and self.object_store.get(number) != b""

    def is_asked(self, node: int) -> bool:
        """Whether there is a question that `get_message_ins` would find for a node."""
        with self.lock:
            own = self.questions.to_node.get(node, ())
            return any(self._is_due(number, self.questions[number]) for number in own)

    def store_object(
        self, run_id: int, session_id: str, object_id: str, object_content: bytes
    ) -> bool:
        """As Flower's own; the head of a question comes after its parts, and is told of."""
        stored = super().store_object(run_id, session_id, object_id, object_content)
        question = self.questions.get(object_id) if stored else None
        if question is not None:
            for tell in Questions.listeners:
                tell(question.metadata.dst_node_id)
        return stored

    def _sweep(self) -> None:
        """Drop what is too old, as Flower does with every look."""
        if time.monotonic() - self.swept > SWEEP_SECONDS:
            self.swept = time.monotonic()
            self._check_stored_messages(set(self.questions))


def questions_by_node() -> None:
    """Let the SuperLink of this process keep its state in a `QuickState`."""
    vars(linkstate_factory)["InMemoryLinkState"] = QuickState


def check_once() -> None:
    """Check each signature once, and make no records of log messages that nobody sees."""
    key = lru_cache(MOST_KEYS)(bytes_to_public_key)

    @lru_cache(MOST_KEYS)
    def verified(public: bytes, stamp: bytes, signature: bytes) -> bool:
        return bool(verify_signature(key(public), stamp, signature))

    vars(node_auth).update(bytes_to_public_key=lambda public: public, verify_signature=verified)
    vars(fleet_handlers)["MessageToDict"] = lambda message: ""
    FLOWER_LOGGER.setLevel(min((h.level for h in FLOWER_LOGGER.handlers), default=0))


ShortAnswer = Callable[[Any, bytes], bytes]
"""From Starlette's request and its body, the body of a response; raises where there is none."""


def short_answers(*, whole: bool = True) -> dict[str, ShortAnswer]:
    """How requests that are sent often are answered, by their paths."""
    check_once()
    vehicles = [path for _, path in PROTOBUF_REQUEST_TYPES if path.startswith(FOR_VEHICLES)]
    return {
        **{path: _of_vehicle(path, whole) for path in vehicles},
        **{path: _of_run(path, whole) for path in OFTEN},
        ACQUIRE: _task,
    }


def _read(request: Any, body: bytes, path: str) -> Any:
    """The message in a request, where Flower's functions look for it as well."""
    ProtobufTranslationMiddleware._check_request_media_type(request)
    kind = PROTOBUF_REQUEST_TYPES["POST", path]
    message = ProtobufTranslationMiddleware._parse_request(body, kind)
    request.state.protobuf_request = message
    return message


def _admitted(request: Any, body: bytes, path: str) -> Any:
    """The message of a vehicle, which is who it says it is."""
    message = _read(request, body, path)
    node_auth.authenticate_node(request)
    if request.app.state.fleet_event_log_plugin is not None:
        raise NotImplementedError("Flower is to log this")
    return message


def _of_vehicle(path: str, whole: bool) -> ShortAnswer:
    handler = getattr(fleet_handlers, _name(path))
    wanted = signature(handler).parameters

    def answer(request: Any, body: bytes) -> bytes:
        if path.endswith(PUSH) and not is_small(body):
            raise TooLongError("The announcement is longer than that of any reply.")
        message, app = _admitted(request, body, path), request.app.state
        state = app.linkstate_factory.state()
        known = {
            "request": message,
            "state": state,
            "store": state.object_store,
            "enable_supernode_auth": bool(app.enable_supernode_auth),
        }
        found, parts = handler(**{name: known[name] for name in wanted}), b""
        if whole and path.endswith(PUSH):
            keep_parts(state, message.messages_list[0].metadata.run_id, found, body)
        elif whole and path.endswith(PULL) and found.messages_list and is_wanted(body):
            parts = question_parts(state, found)
        return bytes(found.SerializeToString()) + parts

    return answer


def _of_run(path: str, whole: bool) -> ShortAnswer:
    handler = getattr(runtime_handlers, _name(path), None) or getattr(core_handlers, _name(path))

    def answer(request: Any, body: bytes) -> bytes:
        message = _read(request, body, path)
        VERSION(request)
        state = request.app.state.runtime_state_factory.state()
        task = authenticate_task(request, request.headers.get(TASK_TOKEN_HEADER), state)
        if whole and path.endswith(PULL) and is_wanted(body):
            look = partial(handler, state=state, task=task)
            return replies_with_parts(state, task.run_id, message.message_ids, look)
        found = handler(message, state, task)
        if whole and path.endswith(PUSH):
            keep_parts(state, task.run_id, found, body)
        return bytes(found.SerializeToString())

    return answer


def _task(request: Any, body: bytes) -> bytes:
    """What there is to do for the process that starts runs."""
    message = _read(request, body, ACQUIRE)
    VERSION(request)
    state = request.app.state.runtime_state_factory.state()
    authenticate_superexec_request(request, state, "/flwr.proto.Runtime/AcquireTask")
    return bytes(runtime_handlers.acquire_task(message, state).SerializeToString())


class TooLongError(Exception):
    """A request that is not to be read, by Flower neither."""


def looking_node(request: Any, body: bytes) -> int:
    """The node that looks for questions, by its own signature."""
    return int(_admitted(request, body, LOOK).node.node_id)


def is_asked(request: Any, node: int) -> bool:
    """Whether there is a question for a node that it was not given yet."""
    return bool(request.app.state.linkstate_factory.state().is_asked(node))


def beat(request: Any, node: int) -> None:
    """Count a look of a node as a heartbeat."""
    state = request.app.state.linkstate_factory.state()
    state.acknowledge_node_heartbeat(node, HEARTBEAT_DEFAULT_INTERVAL)


def come_back_over(request: Any) -> bytes:
    """Of an answer to a look: seconds over which vehicles spread when the server was gone."""
    nodes = len(request.app.state.linkstate_factory.state().nodes)
    return _reconnect(nodes // COME_BACK_PER_SECOND)


@lru_cache
def _reconnect(seconds: int) -> bytes:
    told = PullMessagesResponse(reconnect=Reconnect(reconnect=seconds))
    return bytes(told.SerializeToString())


def _name(path: str) -> str:
    return path.rpartition("/")[2].replace("-", "_")
