r"""Messages between server and vehicles as bytes: named values and named arrays.

    b"FW1\n"  |  length of the header, 4 bytes  |  header, JSON  |  contents of the parts

The header holds the plain values and a list of parts: arrays, byte strings and lists of byte
strings, each with its name and size. Nothing is pickled or compressed, so a message never takes
more memory than it has bytes, times a small constant.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite, prod
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import DataError

Value = Any
"""A bool, int, float, str or bytes, or a list of one of these; readers check which."""

MAGIC: Final = b"FW1\n"
DTYPES: Final = ("bool", "int8", "int32", "int64", "uint32", "uint64", "float32", "float64")
LARGEST_HEADER: Final = 4_000_000
"""Bytes: the names of ten thousand vehicles take about 300,000."""
MOST_AXES: Final = 4
SCALARS: Final = (bool, int, float, str)


@dataclass(frozen=True)
class Content:
    """The values and arrays of one message."""

    values: Mapping[str, Value] = field(default_factory=dict)
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def with_values(self, **values: Value) -> "Content":
        """Return the same content with some values added or replaced."""
        return Content({**self.values, **values}, self.arrays)


def pack(content: Content) -> bytes:
    """Return a message as bytes.

    >>> unpack(pack(Content({"round": 3}, {"weights": np.zeros(2)}))).values
    {'round': 3}
    """
    values: dict[str, Any] = {}
    parts: list[list[Any]] = []
    contents: list[bytes] = []
    for name, value in content.values.items():
        if isinstance(value, bytes):
            parts.append([name, "bytes", len(value)])
            contents.append(value)
        elif isinstance(value, list) and value and isinstance(value[0], bytes):
            texts = [bytes(item) for item in value]
            parts.append([name, "list", [len(item) for item in texts]])
            contents += texts
        else:
            values[name] = value
    for name, array in content.arrays.items():
        little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        parts.append([name, str(array.dtype), list(array.shape)])
        contents.append(little.tobytes())
    header = json.dumps({"values": values, "parts": parts}, allow_nan=False).encode()
    return b"".join([MAGIC, len(header).to_bytes(4, "little"), header, *contents])


def unpack(body: bytes, largest: int = 2**31) -> Content:
    """Return the message in `body`; DataError if it is none or has more than `largest` bytes."""
    if len(body) > largest:
        raise DataError(f"a message of {len(body):,} bytes is longer than {largest:,}")
    start = len(MAGIC) + 4
    size = int.from_bytes(body[len(MAGIC) : start], "little")
    if not body.startswith(MAGIC) or size > min(LARGEST_HEADER, len(body) - start):
        raise DataError("a message does not begin as one of fedwatt's")
    try:
        header = json.loads(body[start : start + size])
        values = dict(header["values"])
        parts = list(header["parts"])
        if set(header) != {"values", "parts"} or not all(map(_is_plain, values.values())):
            raise ValueError("unknown entries")
        return _with_parts(values, parts, body, start + size)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise DataError(f"the header of a message cannot be read ({error})") from error


def _with_parts(values: dict[str, Any], parts: list[Any], body: bytes, at: int) -> Content:
    """Return the content whose parts begin at byte `at` of `body`."""
    arrays: dict[str, NDArray[Any]] = {}
    for name, kind, size in parts:
        if type(name) is not str or name in values or name in arrays:
            raise ValueError("a name is missing or occurs twice")
        if kind == "bytes":
            values[name] = body[at : at + _length(size)]
            at += size
        elif kind == "list":
            texts = []
            for length in size:
                texts.append(body[at : at + _length(length)])
                at += length
            values[name] = texts
        else:
            arrays[name], at = _array(kind, size, body, at)
    if at != len(body):
        raise ValueError("its parts have another length than it says")
    return Content(values, arrays)


def _array(kind: object, shape: Any, body: bytes, at: int) -> tuple[NDArray[Any], int]:
    """Return an array and the byte after it."""
    if kind not in DTYPES or len(shape) > MOST_AXES:
        raise ValueError("an array has an unknown type or too many axes")
    dtype = np.dtype(str(kind)).newbyteorder("<")
    size = prod(_length(length) for length in shape) * dtype.itemsize
    if at + size > len(body):
        raise ValueError("an array is cut short")
    array = np.frombuffer(body, dtype, count=size // dtype.itemsize, offset=at).reshape(shape)
    # Torch counts a truth value of 255 as 255.
    if kind == "bool" and (array.view(np.uint8) > 1).any():
        raise ValueError("a truth value is neither 0 nor 1")
    return array.astype(dtype.newbyteorder("=")), at + size


def _length(value: object) -> int:
    if type(value) is not int or not 0 <= value < 2**40:
        raise ValueError("a length is not a whole number")
    return value


def _is_plain(value: object) -> bool:
    """Tell whether a value is a scalar or a list of scalars, and finite."""
    if isinstance(value, list):
        return all(type(item) in SCALARS for item in value)
    return type(value) in SCALARS and (not isinstance(value, float) or isfinite(value))
