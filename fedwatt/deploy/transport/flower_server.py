"""Short answers of the SuperLink to four frequent requests, for Flower 1.41 and 1.42.

Flower passes every request through nine layers. Requests for messages, and those that push them,
of vehicles and of a run, are read, authenticated and answered here by Flower's own functions.
Whatever does not end well here is passed on to Flower from its beginning.
"""

from collections.abc import Callable, Iterable
from functools import lru_cache, partial
from inspect import signature
from typing import Any, Final

from flwr.common.constant import HEARTBEAT_DEFAULT_INTERVAL
from flwr.proto.fleet_pb2 import PullMessagesResponse, Reconnect
from flwr.supercore.constant import TASK_TOKEN_HEADER
from flwr.supercore.dependencies.task import authenticate_task
from flwr.supercore.dependencies.version import VersionDependency
from flwr.supercore.protobuf.constants import PROTOBUF_MEDIA_TYPE
from flwr.supercore.protobuf.translation import (
    PROTOBUF_REQUEST_TYPES,
    ProtobufTranslationMiddleware,
)
from flwr.supercore.servicer.runtime import runtime_handlers as core_handlers
from flwr.superlink.routers.fleet import node_auth
from flwr.superlink.servicer.fleet import fleet_handlers
from flwr.superlink.servicer.runtime import runtime_handlers

from fedwatt.deploy.transport.whole import is_wanted
from fedwatt.deploy.transport.whole_answers import (
    is_small,
    keep_parts,
    question_parts,
    replies_with_parts,
)

COME_BACK_PER_SECOND: Final = 200
"""Vehicles that a server can let in again after it was gone: each costs a handshake."""
PROTOBUF: Final = PROTOBUF_MEDIA_TYPE.encode()
PULL: Final = "/pull-messages"
PUSH: Final = "/push-messages"
LOOK: Final = f"/v1/fleet{PULL}"
FREQUENT: Final = (PULL, PUSH)
"""The requests that are answered here, of vehicles (/v1/fleet) and of a run (/v1/runtime)."""
listeners: list[Callable[[int], None]] = []
"""Called with the node of every message that is complete."""


VERSION: Final = VersionDependency(component_name="SuperLink", connection_name="Runtime API")


ShortAnswer = Callable[[Any, bytes], bytes]
"""From Starlette's request and its body, the body of a response; raises where there is none."""


def short_answers(*, whole: bool = True) -> dict[str, ShortAnswer]:
    """Return the functions that answer frequent requests, by path."""
    return {
        **{f"/v1/fleet{path}": _of_vehicle(f"/v1/fleet{path}", whole) for path in FREQUENT},
        **{f"/v1/runtime{path}": _of_run(f"/v1/runtime{path}", whole) for path in FREQUENT},
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
            if not found.objects_to_push:
                _tell(own.metadata.dst_node_id for own in message.messages_list)
        return bytes(found.SerializeToString())

    return answer


def _tell(nodes: Iterable[int]) -> None:
    """Let held polls of these nodes look for their messages."""
    for node in nodes:
        for listener in listeners:
            listener(node)


class TooLongError(Exception):
    """A request that is not to be read, by Flower neither."""


def looking_node(request: Any, body: bytes) -> int:
    """The node that looks for questions, by its own signature."""
    return int(_admitted(request, body, LOOK).node.node_id)


def is_asked(request: Any, node: int) -> bool:
    """Tell whether there is a message for a node that it was not given yet."""
    state = request.app.state.linkstate_factory.state()
    with state.lock:
        about = [message.metadata for message in state.message_ins_store.values()]
    return any(own.dst_node_id == node and not own.delivered_at for own in about)


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
