"""How large a message may be, checked on its bytes before Flower makes objects of them.

Flower sends a message in parts and "inflates" it from them. Few bytes can be made expensive there:
an array may name one chunk of its data any number of times, and a record of values may hold a
million tiny ones. So the parts of a message are looked at first, without building anything:

    chunks of arrays     no more bytes than the arrays that were asked for, each chunk used once
    values               no more bytes, and no more single values, than were asked for
    everything else      an envelope of a few kilobytes
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from fedwatt.deploy.messages import LONGEST, MOST, REPLIES, ArrayField, ReplyForm, Sizes
from fedwatt.errors import DataError

ENVELOPE: Final = 16_384
"""Bytes of a part that holds neither values nor data of arrays."""
MOST_PARTS: Final = 1000
"""Parts of a message; ours have about ten."""
PER_FIELD: Final = 256
"""Bytes around a value or an array: its name, its type, its shape."""
PER_CHARACTER: Final = 4
"""Bytes of the longest character in UTF-8."""
PER_ITEM: Final = 16
"""Bytes around an item of a list."""
LIST_NUMBERS: Final = range(21, 27)
"""Numbers of the lists among the kinds of values of Flower's `ConfigRecordValue`."""


@dataclass(frozen=True)
class Bounds:
    """What a message may hold."""

    arrays: int
    """Bytes of all arrays."""
    values: int
    """Bytes of all values."""
    items: int
    """Single values, items of lists included."""

    @property
    def total(self) -> int:
        """Bytes of the whole message, envelopes included."""
        return self.arrays + self.values + 4 * ENVELOPE


QUESTION: Final = Bounds(arrays=2**27, values=2**27, items=100_000)
"""Of a question to a vehicle; the longest that there are hold a field of hills."""


def reply_bounds(form: ReplyForm) -> Bounds:
    """Of a reply to a question, from the declaration of its fields.

    >>> reply_bounds(ReplyForm("enrol")).total < 200_000
    True
    """
    arrays, values, items = 0, 0, 0
    for field in (*REPLIES[form.kind].values(), *form.more.values()):
        if isinstance(field, ArrayField):
            arrays += PER_FIELD + _array_bytes(field, form.sizes)
            continue
        values += PER_FIELD
        if field.kind is list:
            values += field.most * (PER_ITEM + PER_CHARACTER * field.longest)
            items += field.most
        elif field.kind in (bytes, str):
            vector = form.sizes.words if field.longest > LONGEST else 0
            values += vector or PER_CHARACTER * field.longest
        items += 1
    return Bounds(arrays, values, items)


def _array_bytes(field: ArrayField, sizes: Sizes) -> int:
    lengths = {"D": sizes.parameters, **MOST}
    shape = (lengths[n] if isinstance(n, str) else n for n in field.shape)
    return prod(shape) * np.dtype(sizes.number_type(field.dtype)).itemsize


def refuse_oversized(parts: Mapping[str, bytes], bounds: Bounds) -> None:
    """DataError if the parts of a message are more than its bounds allow."""
    if len(parts) > MOST_PARTS:
        raise DataError(f"it has {len(parts)} parts")
    used = {"ArrayChunk": 0, "ConfigRecord": 0}
    most = {"ArrayChunk": bounds.arrays, "ConfigRecord": bounds.values}
    items = 0
    for part in parts.values():
        kind, body = _taken_apart(part)
        if kind in used:
            used[kind] += len(body)
            if used[kind] > most[kind]:
                raise DataError(f"it has more than the {most[kind]} bytes that were asked for")
        elif kind not in ("Message", "RecordDict", "ArrayRecord", "Array"):
            raise DataError("it holds something that no message has")
        elif len(part) > ENVELOPE:
            raise DataError("its envelope is too long")
        if kind == "ConfigRecord":
            items += _count_values(body, bounds.items - items)
        if kind == "Array":
            _refuse_repetition(body)


def _taken_apart(part: bytes) -> tuple[str, memoryview]:
    """Kind and body of a part, which begins with "kind children length" and a zero."""
    head, _, _ = part[:ENVELOPE].partition(b"\0")
    kind = head.split(b" ", 1)[0].decode("ascii", "replace")
    return kind, memoryview(part)[len(head) + 1 :]


def _refuse_repetition(body: memoryview) -> None:
    """DataError if an array names a chunk of its data twice."""
    try:
        chunks = json.loads(bytes(body))["arraychunk_ids"]
        once = len(set(chunks)) == len(chunks)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError("an array of it cannot be read") from error
    if not once:
        raise DataError("an array of it repeats its data")


def _count_values(body: memoryview, most: int) -> int:
    """Single values in the protobuf of a ConfigRecord; DataError as soon as there are more."""
    count = 0
    for _, item in _fields(body):
        count += 1
        for number, value in _fields(item):
            for kind, held in _fields(value) if number == 2 else ():
                if kind in LIST_NUMBERS:
                    # Numbers are packed into one field, a byte or more each; texts have their own.
                    for _, one in _fields(held):
                        count += len(one) if kind < 25 else 1
                        if count > most:
                            raise DataError(f"it has more than {most} values")
        if count > most:
            raise DataError(f"it has more than {most} values")
    return count


def _fields(body: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Number and content of each field of a protobuf message; numbers have no content."""
    at = 0
    while at < len(body):
        key, at = _varint(body, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            length, (_, end) = 0, _varint(body, at)
        elif wire in (1, 5):
            length, end = 0, at + (8 if wire == 1 else 4)
        elif wire == 2:
            length, at = _varint(body, at)
            end = at + length
        else:
            raise DataError("its values cannot be read")
        if end > len(body):
            raise DataError("its values cannot be read")
        yield number, body[at : at + length]
        at = end


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    """A whole number in groups of seven bits, and where it ends."""
    value = 0
    for place in range(10):
        if at >= len(body):
            break
        byte, at = body[at], at + 1
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at
    raise DataError("its values cannot be read")
