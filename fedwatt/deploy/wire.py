r"""Messages between server and vehicles as bytes: named values and named arrays.

A message is a safetensors file: a header in JSON and arrays, of which nothing is pickled or
compressed, so it never takes more memory than it has bytes, times a small constant. Values are
JSON in the header's metadata; bytes, and lists of them, are arrays of bytes beside it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedwatt.errors import DataError

Value = Any
"""A bool, int, float, str or bytes, or a list of one of these; readers check which."""

LARGEST_HEADER = 4_000_000
"""Bytes: the names of ten thousand vehicles take about 300,000."""
HEADER = "fedwatt"
"""The entry of the metadata that holds values, and lengths of byte strings."""
BYTES = "bytes:"
"""Before the names of arrays that hold bytes."""


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

    >>> unpack(pack(Content({"round": 3, "key": b"k"}, {"weights": np.zeros(2)}))).values
    {'round': 3, 'key': b'k'}
    """
    values: dict[str, Any] = {}
    lengths: dict[str, Any] = {}
    arrays = {name: np.asarray(array, order="C") for name, array in content.arrays.items()}
    for name, value in content.values.items():
        texts = value if isinstance(value, list) else [value]
        if not texts or not isinstance(texts[0], bytes):
            values[name] = value
            continue
        lengths[name] = len(value) if isinstance(value, bytes) else [len(text) for text in texts]
        arrays[BYTES + name] = np.frombuffer(b"".join(texts), dtype=np.uint8)
    header = json.dumps({"values": values, "lengths": lengths}, allow_nan=False)
    return save(arrays, {HEADER: header})


def unpack(body: bytes, largest: int = 2**31) -> Content:
    """Return the message in `body`; DataError if it is none or has more than `largest` bytes."""
    if len(body) > largest:
        raise DataError(f"a message of {len(body):,} bytes is longer than {largest:,}")
    size = int.from_bytes(body[:8], "little")
    if size > min(LARGEST_HEADER, len(body) - 8):
        raise DataError("a message does not begin as one of fedwatt's")
    try:
        header = json.loads(json.loads(body[8 : 8 + size])["__metadata__"][HEADER])
        values = dict(header["values"])
        lengths = dict(header["lengths"])
        arrays = load(body)
        if not all(map(_is_plain, values.values())):
            raise ValueError("a value is of an unknown type")
        texts = {name: _texts(arrays.pop(BYTES + name), n) for name, n in lengths.items()}
        _refuse_mixed(values, texts, arrays)
    except (ValueError, TypeError, KeyError, RecursionError, SafetensorError) as error:
        raise DataError(f"the header of a message cannot be read ({error})") from error
    return Content(values | texts, arrays)


def _texts(array: NDArray[Any], lengths: Any) -> bytes | list[bytes]:
    """Return the bytes in an array, or the parts of them that have these lengths."""
    content = array.tobytes()
    if lengths == len(content) and isinstance(lengths, int):
        return content
    ends = np.cumsum([0, *lengths]).tolist()
    if min(lengths) < 0 or ends[-1] != len(content):
        raise ValueError("its parts have other lengths than it says")
    return [content[start:end] for start, end in pairwise(ends)]


def _refuse_mixed(*tables: Mapping[str, Any]) -> None:
    """Raise ValueError if a name occurs twice, or a truth value is neither 0 nor 1."""
    names = [name for table in tables for name in table]
    if len(set(names)) < len(names):
        raise ValueError("a name occurs twice")
    for array in tables[-1].values():
        # Torch counts a truth value of 255 as 255.
        if array.dtype == bool and (array.view(np.uint8) > 1).any():
            raise ValueError("a truth value is neither 0 nor 1")


def _is_plain(value: object) -> bool:
    """Tell whether a value is a scalar or a list of scalars, and finite."""
    if isinstance(value, list):
        return all(type(item) in (bool, int, float, str) for item in value)
    return type(value) in (bool, int, str) or (isinstance(value, float) and isfinite(value))
