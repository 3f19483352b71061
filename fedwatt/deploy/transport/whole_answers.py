"""The server's side of whole messages: what is done with the parts beside Flower's own answer.

    a vehicle looks         its question's parts go along with it, and the server drops them
    a vehicle replies       the parts in its announcement are kept, as if pushed one by one
    a run asks              the parts of all its questions are kept likewise
    a run looks             the parts of replies go along, up to `whole.MOST_BYTES` in a request

Flower's handlers say what is wanted and who may (`flower_server`); these functions are called after
them, for its state of the server.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any, Final

from flwr.common.constant import Status
from flwr.proto.runtime_pb2 import PullAppMessagesRequest, PullAppMessagesResponse
from flwr.server.superlink.utils import check_abort
from flwr.supercore.inflatable.inflatable_object import iterate_object_tree

from fedwatt.deploy.transport import whole
from fedwatt.deploy.transport.door import SMALL

NOT_RUNNING: Final = [Status.PENDING, Status.STARTING, Status.FINISHED]
LOOKED_THROUGH: Final = 64
"""Questions whose replies are looked for before the bytes found are counted again."""
ALL_SECONDS: Final = 2.0
"""Between two looks of a run at all its questions, those without a reply included."""


def question_parts(state: Any, found: Any) -> bytes:
    """Parts of the question in the answer to a vehicle's look, which are then dropped.

    None of one whose run has ended: the vehicle then asks for them and is told.
    """
    (about,) = (message.metadata for message in found.messages_list)
    (tree,) = found.message_object_trees
    if check_abort(about.run_id, NOT_RUNNING, state):
        return b""
    parts = taken(state, about.run_id, tree)
    if not parts:
        return b""
    size = sum(map(len, parts.values()))
    state.store_traffic(about.run_id, bytes_sent=size, bytes_recv=0)
    return whole.encoded(parts)


def taken(state: Any, run: int, tree: Any) -> dict[str, bytes]:
    """All parts of a message, which is then dropped; none if some are not there yet."""
    parts = {}
    for part in iterate_object_tree(tree):
        content = state.get_object(run, part.object_id)
        if not content:
            return {}
        parts[part.object_id] = content
    state.object_store.delete(tree.object_id)
    return parts


def keep_parts(state: Any, run: int, found: Any, body: bytes) -> None:
    """Keep the parts that came with announcements; `found`, Flower's answer, asks for the rest."""
    parts = whole.attached(body)
    rest = [
        number
        for number in found.objects_to_push
        if number not in parts
        or not state.store_object(run, found.session_id, number, parts[number])
    ]
    del found.objects_to_push[:]
    found.objects_to_push.extend(rest)


def is_small(body: bytes) -> bool:
    """Whether an announcement without its parts is as short as the door would have it."""
    if len(body) <= SMALL:
        return True
    return len(body) - sum(map(len, whole.attached(body).values())) <= SMALL


def replies_with_parts(
    state: Any, run: int, numbers: Sequence[str], look: Callable[[Any], Any]
) -> bytes:
    """Replies to the questions of these numbers with their parts; `look` is Flower's handler."""
    found, size = PullAppMessagesResponse(), 0
    parts: dict[str, bytes] = {}
    for some in _slices(_worth_a_look(state, run, numbers)):
        own = look(PullAppMessagesRequest(message_ids=some))
        found.MergeFrom(own)
        for tree in own.message_object_trees:
            fresh = taken(state, run, tree)
            parts |= fresh
            size += sum(map(len, fresh.values()))
        if size > whole.MOST_BYTES:
            break
    return bytes(found.SerializeToString()) + whole.encoded(parts)


def _worth_a_look(state: Any, run: int, numbers: Sequence[str]) -> list[str]:
    """Questions with a reply; every few seconds all, since Flower also says who is gone or late."""
    looked: dict[int, float] = vars(state).setdefault("looked_through", {})
    now = time.monotonic()
    if now - looked.get(run, -inf) > ALL_SECONDS:
        looked[run] = now
        return list(numbers)
    with state.lock:
        replied = state.message_ins_id_to_message_res_id
        return [number for number in numbers if number in replied]


def _slices(numbers: list[str]) -> Iterable[list[str]]:
    return (numbers[n : n + LOOKED_THROUGH] for n in range(0, len(numbers), LOOKED_THROUGH))
