"""All that fedwatt uses of Flower beyond its public interface, for Flower 1.41.

Modules of Flower other than flwr.app, flwr.serverapp and flwr.clientapp may change with any
release; whoever moves to a new one has this file to go through, `fleet_client`, which is about a
vehicle's requests, and `flower_server` with `whole_answers`, which are about the SuperLink's own
process: its modules would cost a vehicle 30 MB. What is patched, and why:

`flwr.supernode.fleet_http_connection.flwr_exit`
    Flower ends the process when a server refuses a key. A vehicle raises `NotConnectedError`
    instead and tries again (`node`).
`os` in `fleet_http_connection` and `http_retry`, and `http_retry.FORCE_EXIT_TIMEOUT_SECONDS`
    Flower kills its own process when a server has forgotten the vehicle, after a second of sleep.
    Here it does neither.
`fleet_http_connection.FleetHttpClient`
    A vehicle sends a request for each part of a message and gives up its connection after five idle
    seconds. Here a message is one request, and the connection is kept (`fleet_client`).
`http_retry.MAX_RETRY_DELAY`
    Flower waits up to 20 s between attempts to reach a server that does not answer; here up to 5 s.

What is replaced without a patch: `HttpGrid.pull_messages`, which waits for each reply in turn, by
`prompt_grid`; `HttpGrid.push_messages`, which sends a request for each part, by `push_questions`;
the SuperNode's loop, which executes code that a server sends, by `answer_next`; the commands `flwr
supernode` and `flwr list`, which take a second to start, by `ask_control`.
"""

import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, NoReturn

import httpx
from cryptography.hazmat.primitives.asymmetric import ec
from flwr.app import Error, Message, Metadata
from flwr.app.message import make_message, remove_content_from_message
from flwr.common.constant import ErrorCode
from flwr.common.serde import message_to_proto
from flwr.proto import control_pb2
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PushAppMessagesRequest
from flwr.supercore.constant import SYSTEM_MESSAGE_TYPE
from flwr.supercore.control import ControlHttpClient
from flwr.supercore.error import FlowerError
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import (
    make_pull_object_fn_protobuf,
    make_push_object_fn_protobuf,
)
from flwr.supercore.inflatable.inflatable_utils import (
    ObjectPullError,
    ObjectPushError,
    ObjectUnavailableError,
    inflate_object_from_contents,
    pull_objects,
    push_object_contents_from_iterable,
    push_objects,
)
from flwr.supercore.interceptors import RuntimeVersionHttpInterceptor
from flwr.supercore.retry import http_retry
from flwr.supercore.run import RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity
from flwr.supernode import fleet_http_connection

from fedwatt.deploy.transport import whole
from fedwatt.deploy.transport.fleet_client import FleetClient
from fedwatt.errors import DataError

if TYPE_CHECKING:
    from flwr.superlink.grid.http_grid import HttpGrid as HttpGrid

log = logging.getLogger("fedwatt.deploy")

KeyPair = tuple[ec.EllipticCurvePrivateKey, ec.EllipticCurvePublicKey]
Session = Any
"""Flower's session of a vehicle with its server: a node number and seven functions."""

REPLY_LOST: Final = int(ErrorCode.MESSAGE_UNAVAILABLE)
"""Code of the error that stands for a reply which never came whole."""
NODE_GONE: Final = int(ErrorCode.NODE_UNAVAILABLE)
"""Code of the error that stands for a vehicle which is no longer connected."""
NOT_ACTIVATED: Final = "[code: 2004]"
"""How Flower says that a key is unknown, or that its last connection is not over yet."""
UNREGISTERED: Final = "unregistered"
"""Flower's word for a key that it accepts no longer."""
LONGEST_RETRY_SECONDS: Final = 5.0
"""Between attempts to reach a server that does not answer."""
SOON: Final = 0.05
"""Seconds to wait for the parts of a message that was announced and is still on its way."""


# ------------------------------------------------------------------------ replies on the server


def is_http_grid(grid: object) -> bool:
    """Whether a grid is the one that Flower gives to the app of a server."""
    from flwr.superlink.grid.http_grid import HttpGrid

    return isinstance(grid, HttpGrid)


def push_questions(grid: "HttpGrid", messages: Sequence[Message]) -> list[str]:
    """Send questions with all their parts in one request: their numbers, empty where refused.

    A part that the server no longer wants, because a vehicle says that it has the whole question,
    is that vehicle's loss; in Flower's own grid it ends the run.
    """
    request, objects = PushAppMessagesRequest(), {}
    with no_object_id_recompute():
        for message in messages:
            message.metadata.__dict__["_message_id"] = message.object_id
            request.messages_list.append(message_to_proto(remove_content_from_message(message)))
            request.message_object_trees.append(get_object_tree(message))
            objects.update(get_all_nested_objects(message))
        parts = {number: part.deflate() for number, part in objects.items()}
    whole.attach(request, parts)
    found = grid._runtime_client.PushMessages(request)
    # A server that knows whole messages has everything by now.
    wanted = ((number, parts[number]) for number in found.objects_to_push)
    push_object_contents_from_iterable(wanted, partial(_push_part, grid, found.session_id))
    return list(found.message_ids)


def _push_part(grid: "HttpGrid", session: str, number: str, content: bytes) -> None:
    push = make_push_object_fn_protobuf(
        push_object_protobuf=grid._runtime_client.PushObject,
        node=grid.node,
        run_id=grid.run.run_id,
        session_id=session,
    )
    try:
        push(number, content)
    except ObjectPushError as error:
        log.warning("a part of a question is no longer wanted: %s", error)


def announced_replies(
    grid: "HttpGrid", questions: Sequence[str]
) -> tuple[list[tuple[Any, Any]], dict[str, bytes]]:
    """Replies to these questions that were announced by now, and parts that came with them.

    Each is its metadata and its object tree; of one whose parts are all there the server keeps
    none.
    """
    request = PullAppMessagesRequest(message_ids=list(questions))
    whole.want(request)
    found = grid._runtime_client.PullMessages(request)
    abouts = [message.metadata for message in found.messages_list]
    return list(zip(abouts, found.message_object_trees, strict=True)), whole.attached(found)


def part_numbers(tree: Any) -> set[str]:
    """Numbers of the parts of an announced reply; RecursionError if they are nested too deeply."""
    return {part.object_id for part in iterate_object_tree(tree)}


def pull_part(grid: "HttpGrid", part: str) -> bytes | None:
    """A part of a reply; None where it is still on its way, ConnectionError if it is lost."""
    pull = make_pull_object_fn_protobuf(
        pull_object_protobuf=grid._runtime_client.PullObject, node=grid.node, run_id=grid.run.run_id
    )
    try:
        return bytes(pull(part))
    except ObjectUnavailableError:
        return None
    except ObjectPullError as error:
        raise ConnectionError(str(error)) from error


def confirm_received(grid: "HttpGrid", number: str) -> None:
    """Let the server drop a reply that is here."""
    request = ConfirmMessageReceivedRequest(
        node=grid.node, run_id=grid.run.run_id, message_object_id=number
    )
    grid._runtime_client.ConfirmMessageReceived(request)


def inflated(number: str, parts: Mapping[str, bytes]) -> Message:
    """A message from its parts; malformed ones may make it raise anything."""
    message = inflate_object_from_contents(number, dict(parts))
    if not isinstance(message, Message):
        raise TypeError("no message")
    message.metadata.__dict__["_message_id"] = number
    return message


def error_reply(grid: "HttpGrid", question: str, code: int, reason: str) -> Message:
    """An error in the place of the reply to a question."""
    about = Metadata(
        run_id=grid.run.run_id,
        message_id="",
        src_node_id=grid.node.node_id,
        dst_node_id=grid.node.node_id,
        message_type=SYSTEM_MESSAGE_TYPE,
        group_id="",
        ttl=0,
        reply_to_message_id=question,
        created_at=time.time(),
    )
    return make_message(metadata=about, error=Error(code=code, reason=reason))


# ------------------------------------------------------------------------ a vehicle's connection


class NotConnectedError(Exception):
    """The server refused the key, or is not who it should be."""


def not_connected(code: int, message: str) -> NoReturn:
    """In the place of Flower's exit, which ends the process five seconds later in any case."""
    lines = [line.strip().rstrip(".") for line in message.splitlines() if "[" in line]
    raise NotConnectedError(lines[-1] if lines else message.strip().rstrip("."))


def stay_alive() -> None:
    """Keep Flower from ending the process when a server does not know this vehicle (any more)."""
    vars(fleet_http_connection)["flwr_exit"] = not_connected
    for module in (http_retry, fleet_http_connection):
        vars(module)["os"] = SimpleNamespace(getpid=os.getpid, kill=lambda pid, number: None)
    # It sleeps for a second more than this, to be ended meanwhile.
    vars(http_retry)["FORCE_EXIT_TIMEOUT_SECONDS"] = -1
    vars(http_retry)["MAX_RETRY_DELAY"] = LONGEST_RETRY_SECONDS
    vars(fleet_http_connection)["FleetHttpClient"] = FleetClient


def open_session(
    server: str, certificate: str | None, keys: KeyPair | None, bandwidth: float = 0.0
) -> AbstractContextManager[Session]:
    """Flower's session with `server`; without a certificate there is no TLS.

    With a `bandwidth` it sends and receives at most so many bytes a second.
    """
    if bandwidth:
        client = type("PacedClient", (FleetClient,), {"bandwidth": bandwidth})
        vars(fleet_http_connection)["FleetHttpClient"] = client
    return fleet_http_connection.http_request_response(
        server,
        insecure=certificate is None,
        root_certificates=certificate,
        authentication_keys=keys,
    )


def identify(session: Session) -> None:
    """Let messages of this process name the node that the server knows it by."""
    TaskIdentity.node_id = session[0]


def answer_next(session: Session, answer: Callable[[Message], Message], largest: int) -> bool:
    """Take the next request, if there is one, and send its reply; return whether there was one."""
    _, receive, _, _, _, pull_object, _, confirm = session
    received = receive()
    if received is None:
        return False
    envelope, tree = received
    run = envelope.metadata.run_id
    try:
        parts = pull_objects(
            list(part_numbers(tree)),
            partial(pull_object, run),
            initial_backoff=SOON,
            backoff_cap=1.0,
        )
        confirm(run, tree.object_id)
        refuse_oversized(parts, largest)
        send_answer(session, answer(inflated(tree.object_id, parts)))
    except RunNotRunningException:
        log.info("the run has ended; its question is dropped")
    except DataError as error:
        log.error("a question was dropped: %s", error)
    return True


def send_answer(session: Session, reply: Message) -> None:
    """Send the reply to a question; RunNotRunningException if its run has ended."""
    _, _, send, _, _, _, push_object, _ = session
    reply.metadata.__dict__["_message_id"] = reply.object_id
    with no_object_id_recompute():
        objects, outline = get_all_nested_objects(reply), get_object_tree(reply)
        header = remove_content_from_message(reply)
        # Flower would also like to know how long it took; that would tell of the data.
        wanted, upload = send(header, outline, 0.0)
        push = partial(push_object, reply.metadata.run_id, upload)
        push_objects(objects, push, object_ids_to_push=wanted)


MOST_PARTS: Final = 20
"""Parts of a message; fedwatt's have four."""
ENVELOPE: Final = 65_536
"""Bytes of a message besides its body."""


def refuse_oversized(parts: Mapping[str, bytes], largest: int) -> None:
    """Raise DataError if the parts of a message hold more than a body of `largest` bytes."""
    size = sum(map(len, parts.values()))
    if len(parts) > MOST_PARTS or size > largest + ENVELOPE:
        raise DataError(f"a message of {size:,} bytes in {len(parts)} parts is too large")


def taken_apart(message: Message) -> tuple[str, dict[str, bytes]]:
    """A message in parts, and the number of the one that holds the others, for `inflated`."""
    with no_object_id_recompute():
        objects = get_all_nested_objects(message)
        return message.object_id, {number: one.deflate() for number, one in objects.items()}


# ------------------------------------------------------------------------------ operators' requests


class RefusedError(Exception):
    """The server understood a request and refuses it; says why."""


def control_client(address: str, certificate: bytes | None) -> ControlHttpClient:
    """A connection to the server's interface for operators; no TLS without a certificate."""
    versions = RuntimeVersionHttpInterceptor(component_name="flwr CLI")
    return ControlHttpClient.from_server_address(
        address, certificate is None, certificate, [versions]
    )


def ask_control(client: ControlHttpClient, request: str, **fields: object) -> Any:
    """Flower's answer to a request such as "ListNodes"; RefusedError or ConnectionError if none."""
    message = getattr(control_pb2, f"{request}Request")(**fields)
    try:
        return getattr(client, request)(message)
    except httpx.HTTPStatusError as error:
        refusal = FlowerError.from_json(error.response.text)
        reason = error.response.text[:200] if refusal is None else refusal.message
        raise RefusedError(reason) from error
    except httpx.HTTPError as error:
        raise ConnectionError(str(error)) from error
