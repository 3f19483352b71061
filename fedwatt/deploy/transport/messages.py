"""A message body in Flower's form: its envelope, its parts, and all parts in one request.

Flower takes a message apart into objects and sends each in its own request. A message of fedwatt is
one bytes value, so it has three objects: message, record dictionary and record. For a
single-request message the objects travel inside Flower's own request or response, as fields that
its messages do not have; Protocol Buffers skip unknown fields, so a SuperLink or SuperNode that
does not know them asks for the objects one by one, as ever.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import pull_objects
from google.protobuf.internal.decoder import _DecodeVarint
from google.protobuf.internal.encoder import _VarintBytes
from google.protobuf.message import DecodeError

from fedwatt.errors import DataError

RECORD = "fedwatt"
BODY = "body"
TYPE = "query"
ENVELOPE = 16_384
"""Bytes that a message may have besides its body."""
MOST_PARTS = 8
MOST_FIELDS = 100_000
"""Of a response to a run; each takes a hundred bytes of memory, however short it is."""
NUMBER = 0
BYTES = 2
"""Wire types of protobuf that Flower's messages have at their top level."""
BODY_PATH = (1, 2, 6)
"""Numbers of the fields that lead to the body in Flower's form of a record: item, value, bytes."""
SINGLE_REQUEST_BYTES = 8_000_000
"""Largest message that travels in one request; a larger one goes on part by part if cut off."""

PARTS = 1000
WANTED = 1001
"""Numbers of fields that are added to Flower's messages; a part has a number and bytes."""

Parts = Mapping[str, bytes]
"""Objects of a message by their numbers."""


def content(body: bytes) -> RecordDict:
    """Return a message body as Flower's records."""
    return RecordDict({RECORD: ConfigRecord({BODY: body})})


def body_of(message: Message, largest: int) -> bytes:
    """Return the body of a message; DataError if it has none, or a longer one."""
    record = message.content.config_records.get(RECORD, ConfigRecord())
    body = record.get(BODY)
    if not isinstance(body, bytes) or len(record) != 1:
        raise DataError("it is no message of fedwatt")
    if len(body) > largest:
        raise DataError(f"it has {len(body)} bytes, more than the {largest} that were asked for")
    return body


def taken_apart(message: Message) -> tuple[Any, dict[str, bytes]]:
    """Return the object tree and the objects of a message, which gets its number."""
    with no_object_id_recompute():
        message.metadata.__dict__["_message_id"] = message.object_id
        objects = get_all_nested_objects(message)
        tree = get_object_tree(message)
        return tree, {number: part.deflate() for number, part in objects.items()}


def numbers_in(tree: Any) -> set[str]:
    """Return the numbers of a message's objects; DataError if they are more than a message has."""
    numbers: set[str] = set()
    try:
        for part in iterate_object_tree(tree):
            numbers.add(part.object_id)
            if len(numbers) > MOST_PARTS:
                raise DataError("it has too many parts")
    except RecursionError as error:
        raise DataError("its parts are nested too deeply") from error
    return numbers


def pulled(
    numbers: set[str], pull: Callable[[Any], Any], node: Any, run_id: int, seconds: float
) -> Parts:
    """Return the objects of a message that are sent one by one.

    ObjectPullError if some are not there after so many seconds.
    """
    pull_one = make_pull_object_fn_protobuf(pull, node, run_id)
    return pull_objects(sorted(numbers), pull_one, max_time=seconds)


def body_in(parts: Parts, largest: int) -> bytes:
    """Return the body in the objects of a message; DataError if it has none, or a longer one.

    Flower's own reader would make an object of each entry of a record, many times its size.
    """
    records = [part for part in parts.values() if part.startswith(b"ConfigRecord ")]
    content = records[0].partition(b"\0")[2] if records else b""
    for number in BODY_PATH:
        value = dict(fields_of(content)).get(number, b"")
        if len(content) - len(value) > ENVELOPE:
            raise DataError("it is no message of fedwatt")
        content = value
    if not content or len(content) > largest:
        raise DataError(f"it has {len(content)} bytes, and 1 to {largest} are asked for")
    return content


def encoded(parts: Parts) -> bytes:
    """Return objects as bytes that may follow those of one of Flower's messages."""
    return b"".join(
        _field(PARTS, _field(1, number.encode()) + _field(2, part))
        for number, part in parts.items()
    )


def _field(number: int, content: bytes) -> bytes:
    """Return a field of bytes in a protobuf message."""
    return bytes(_VarintBytes(number << 3 | BYTES) + _VarintBytes(len(content)) + content)


def attach(message: Any, parts: Parts) -> None:
    """Put objects into one of Flower's messages."""
    message.MergeFromString(encoded(parts))


def attached(body: bytes) -> dict[str, bytes]:
    """Return the objects in the bytes of one of Flower's messages.

    >>> attached(encoded({"a": b"first", "b": b"second"}))
    {'a': b'first', 'b': b'second'}
    """
    parts = {}
    for number, field in fields_of(body):
        if number == PARTS:
            part = dict(fields_of(field))
            parts[part.get(1, b"").decode("ascii", "replace")] = part.get(2, b"")
    return parts


def fields_of(content: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield numbers and bytes of the fields of a protobuf message; those of a number are empty.

    DataError where they are too many: parsed at once they would take many times their size.
    """
    at = 0
    for _ in range(MOST_FIELDS):
        if at >= len(content):
            return
        try:
            key, at = _DecodeVarint(content, at)
            size, at = _DecodeVarint(content, at)
        except (IndexError, DecodeError) as error:
            raise DataError("it is no protobuf message") from error
        if key & 7 not in (NUMBER, BYTES):
            raise DataError("it is no protobuf message of Flower")
        end = at if key & 7 == NUMBER else at + size
        yield key >> 3, content[at:end]
        at = end
    raise DataError("it has too many fields")


def want_parts(request: Any) -> None:
    """Ask, in a request for messages, for their objects as well."""
    request.MergeFromString(_field(WANTED, b""))


def wants_parts(body: bytes) -> bool:
    """Return whether a request asks for objects as well; it is a short one."""
    return any(number == WANTED for number, _ in fields_of(body))
