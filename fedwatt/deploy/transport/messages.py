"""A message body in Flower's form: its envelope, its parts, and all parts in one request.

Flower takes a message apart into objects and sends each in its own request. A message of fedwatt is
one bytes value, so it has three objects: message, record dictionary and record. For a
single-request message the objects travel inside Flower's own request or response, as fields that
its messages do not have; Protocol Buffers skip unknown fields, so a SuperLink or SuperNode that
does not know them asks for the objects one by one, as ever.
"""

from collections.abc import Callable, Mapping
from typing import Any

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.supercore.inflatable.inflatable_object import (
    get_all_nested_objects,
    get_object_tree,
    iterate_object_tree,
    no_object_id_recompute,
)
from flwr.supercore.inflatable.inflatable_protobuf_utils import make_pull_object_fn_protobuf
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents, pull_objects
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format

from fedwatt.errors import DataError

RECORD = "fedwatt"
BODY = "body"
TYPE = "query"
ENVELOPE = 16_384
"""Bytes that a message may have besides its body."""
MOST_PARTS = 8
SINGLE_REQUEST_BYTES = 8_000_000
"""Largest message that travels in one request; a larger one goes on part by part if cut off."""

EXTRA = """
name: "fedwatt/extra.proto" package: "fedwatt" syntax: "proto3"
message_type {
  name: "Part"
  field { name: "number" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "content" number: 2 type: TYPE_BYTES label: LABEL_OPTIONAL }
}
message_type {
  name: "Extra"
  field { name: "parts" number: 1000 type: TYPE_MESSAGE type_name: "Part" label: LABEL_REPEATED }
  field { name: "wanted" number: 1001 type: TYPE_BOOL label: LABEL_OPTIONAL }
}
"""
"""Fields that are added to Flower's messages."""


def _extra_class() -> Any:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(text_format.Parse(EXTRA, descriptor_pb2.FileDescriptorProto()))
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("fedwatt.Extra"))


_Extra = _extra_class()

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


def put_together(number: str, parts: Parts, largest: int) -> Message:
    """Return a message from its objects; DataError if they are too long or no message."""
    if sum(map(len, parts.values())) > largest + ENVELOPE:
        raise DataError(f"it has more than the {largest} bytes that were asked for")
    # What Flower raises on malformed objects has no end.
    try:
        message = inflate_object_from_contents(number, dict(parts))
    except Exception as error:
        raise DataError(f"it cannot be read ({type(error).__name__})") from error
    if not isinstance(message, Message):
        raise DataError("it is no message")
    message.metadata.__dict__["_message_id"] = number
    return message


def encoded(parts: Parts) -> bytes:
    """Return objects as bytes that may follow those of one of Flower's messages."""
    extra = _Extra()
    for number, part in parts.items():
        extra.parts.add(number=number, content=part)
    return bytes(extra.SerializeToString())


def attach(message: Any, parts: Parts) -> None:
    """Put objects into one of Flower's messages."""
    message.MergeFromString(encoded(parts))


def attached(body: bytes) -> dict[str, bytes]:
    """Return the objects in the bytes of one of Flower's messages.

    >>> attached(encoded({"a": b"first", "b": b"second"}))
    {'a': b'first', 'b': b'second'}
    """
    return {part.number: part.content for part in _Extra.FromString(body).parts}


def want_parts(request: Any) -> None:
    """Ask, in a request for messages, for their objects as well."""
    request.MergeFromString(_Extra(wanted=True).SerializeToString())


def wants_parts(body: bytes) -> bool:
    """Return whether a request asks for objects as well."""
    return bool(_Extra.FromString(body).wanted)
