r"""Sums over vehicles: named arrays that vehicles contribute and a server adds.

Model updates, error sums, weights, and the sums from which elevation maps and routes are learned
are all of this kind. A request declares the fields of a contribution; an executor returns the
total over the vehicles that contributed:

    in_process                          simulated vehicles
    deploy.server.sums.PlaceSums        connected vehicles, by secure aggregation

The other sums of a run: updates and errors of connected vehicles are added by
`deploy.server.sums.SecureSums` or, without secure aggregation, seen one by one and bounded first
(`deploy.server.plain_backend`).

Under secure aggregation numbers are words that add exactly: fixed point modulo 2^32, 2^48 or 2^64.
A field of a vector has a declared limit on |value|. Its step is the smallest power of two with
which the words of all vehicles, each at most ⌈limit / step⌉, still add up without wrapping around:

    word = round(min(max(value, -limit), limit) / step)   mod 2^bits
    Σ value = step · Σ word                               as a signed number

Values on the grid of steps add up exactly, any others to within half a step a vehicle:

    |decoded - Σ value| ≤ vehicles · step / 2   (+ 2^-53 of the sum, from the float64 of the result)

What lies beyond its limit is clipped, and the clipped values are counted in a last field of their
own, which adds up with the rest: the server learns how many were clipped in all.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from math import frexp, inf, ldexp
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import DataError, RunError, check

FloatArray = NDArray[np.float64]

LARGEST = 2.0**24
"""Of a vehicle's sum at a node or pair; some ten thousand passes of a lorry stay far below it, and
among 10,000 vehicles sums are still exact to 2^-26 a vehicle."""

MOST_WORDS = 2**23
"""Numbers in a vehicle's message: 64 MB, with which a vehicle stays within 1 GB of memory."""

Fields = dict[str, tuple[int, float]]
"""{name: (how many, largest absolute value)}."""
Contribution = Mapping[str, FloatArray]
"""What a vehicle adds, or the total of it, by the names of `Fields`."""
Total = tuple[Contribution, frozenset[str]]
"""A total, and the names of the vehicles whose contributions are in it."""
AddUp = Callable[[Fields, int, Iterable[Contribution]], Contribution]
"""Adds the contributions of so many vehicles, as secure aggregation does
(`add_up`) or `floating_total`."""


class SumRequest(Protocol):
    """A request for contributions to a sum."""

    @property
    def fields(self) -> Fields:
        """Return the fields of a contribution, the same for every vehicle."""


Executor = Callable[[Any, frozenset[str]], Total]
"""Returns the total of a `SumRequest` over the vehicles named, and whose contributions are in it.
"""


def words_of(fields: Fields) -> int:
    """Return how many numbers a contribution holds."""
    return sum(size for size, _ in fields.values())


def refuse_long(fields: Fields, places: str) -> None:
    """Raise where contributions about so many `places` would be longer than a message may be."""
    words = words_of(fields)
    if words > MOST_WORDS:
        raise RunError(
            f"Sums over {places} take {words:,} numbers a vehicle, and {MOST_WORDS:,} can be sent. "
            "Choose a smaller elevation.area or a larger elevation.cell_m."
        )


def added(contributions: Iterable[Contribution]) -> Contribution:
    """Return the total of contributions, added in their order in floating point.

    >>> added([{"a": np.array([1.5])}, {"a": np.array([0.25])}])
    {'a': array([1.75])}
    """
    total: dict[str, FloatArray] = {}
    for contribution in contributions:
        for name, values in contribution.items():
            total[name] = total[name] + values if name in total else values
    return total


def floating_total(
    fields: Fields, vehicles: int, contributions: Iterable[Contribution]
) -> Contribution:
    """Return the total of contributions in floating point; zeros where there is none."""
    return added(
        chain([{name: np.zeros(size) for name, (size, _) in fields.items()}], contributions)
    )


def in_process(add_up: AddUp, vehicles: Mapping[str, Any]) -> Executor:
    """Return the executor over simulated vehicles, each with what a request is answered from."""

    def total(request: Any, present: frozenset[str]) -> Total:
        contributions = (request.answer(vehicles[name]) for name in sorted(present))
        return add_up(request.fields, len(present), contributions), present

    return total


Words = NDArray[np.unsignedinteger]

BITS = (32, 48, 64)
"""Of a word on its way. 48 bits are worked out modulo 2^64, which 2^48 divides."""
CLIPPED = "clipped"
"""The field that every vector ends with."""


@dataclass(frozen=True)
class VectorLayout:
    """The places of values in a vector, for sums over at most `vehicles` vehicles."""

    fields: Fields
    """{name: (size, limit)}, in this order: `size` values between -limit and limit."""
    vehicles: int
    bits: int = 64

    def __post_init__(self) -> None:
        check(self, "bits", self.bits in BITS, "32, 48 or 64")
        check(self, "vehicles", 1 <= self.vehicles < 2**20, "from 1 to about a million")
        sound = all(size >= 0 and 0 < limit < inf for size, limit in self.fields.values())
        check(self, "fields", sound, "at least 0 values each, with limits above 0 and finite")
        check(self, "fields", CLIPPED not in self.fields, f"fields of which none is '{CLIPPED}'")
        countable = self.vehicles * self.length < 2 ** (self.bits - 1)
        check(self, "vehicles", countable, f"few enough to count {self.length} clipped values each")

    @property
    def length(self) -> int:
        """Return the number of words in a vector."""
        return sum(size for size, _ in self.fields.values()) + 1

    @property
    def steps(self) -> dict[str, float]:
        """The fixed-point step of each field, by name.

        >>> VectorLayout({"weight": (1, 1000.0)}, vehicles=3, bits=32).steps["weight"]  # 2^-19
        1.9073486328125e-06
        """
        limits = {name: limit for name, (_, limit) in self.fields.items()}
        return {name: step(limit, self.vehicles, self.bits) for name, limit in limits.items()}

    def encode(self, values: Mapping[str, FloatArray]) -> Words:
        """Return a vehicle's values as words, [length]; refuses values that are not finite.

        >>> layout = VectorLayout({"a": (2, 8.0)}, vehicles=2)
        >>> layout.decode(layout.encode({"a": [1.5, -9]}) + layout.encode({"a": [0.25, 1]}))
        {'a': array([ 1.75, -7.  ]), 'clipped': array([1.])}
        """
        if values.keys() != self.fields.keys():
            raise DataError(
                f"A vector for a secure sum has the fields {', '.join(sorted(values))}, and "
                f"{', '.join(sorted(self.fields))} are to be summed."
            )
        parts = []
        clipped = 0
        steps = self.steps
        for name, (size, limit) in self.fields.items():
            array = np.asarray(values[name], dtype=np.float64).ravel()
            if len(array) != size or not np.isfinite(array).all():
                raise DataError(
                    f"'{name}' of a secure sum must be {size} finite numbers, got {len(array)}, "
                    f"{int(np.isfinite(array).sum())} of them finite."
                )
            clipped += int((np.abs(array) > limit).sum())
            parts.append(np.rint(np.clip(array, -limit, limit) / steps[name]))
        signed = np.concatenate([*parts, [clipped]]).astype(np.int64)
        # Narrowing and reading as unsigned are both reductions modulo a power of two.
        return reduced(signed.view(np.uint64).astype(word_type(self.bits)), self.bits)

    def decode(self, total: Words) -> dict[str, FloatArray]:
        """Return the sums of all fields, and how many values were clipped, from a sum of words."""
        kind = word_type(self.bits)
        if total.shape != (self.length,) or total.dtype != kind:
            raise DataError(
                f"A secure sum has {total.size} words of {total.dtype.itemsize * 8} bits, and its "
                f"layout has {self.length} of {self.bits}. Use the same settings on both sides."
            )
        # The sign is the highest of the bits that count: move it to the top and back.
        above = kind.itemsize * 8 - self.bits
        lifted = np.left_shift(total, np.array(above, kind)).view(f"<i{kind.itemsize}")
        signed = np.right_shift(lifted, above).astype(np.float64)
        sums = {}
        at = 0
        steps = self.steps
        for name, (size, _) in self.fields.items():
            sums[name] = signed[at : at + size] * steps[name]
            at += size
        return sums | {CLIPPED: signed[at:]}


def add_up(
    fields: Fields, vehicles: int, contributions: Iterable[Contribution]
) -> dict[str, FloatArray]:
    """Return the total of contributions as secure aggregation has it, to the last bit.

    Masks cancel out in a sum, so they are left out here.

    >>> add_up({"a": (2, 8.0)}, 2, [{"a": np.array([1.5, -9])}, {"a": np.array([0.25, 1])}])
    {'a': array([ 1.75, -7.  ]), 'clipped': array([1.])}
    """
    layout = VectorLayout(fields, vehicles=vehicles)
    words = np.zeros(layout.length, dtype=np.uint64)
    for contribution in contributions:
        words += layout.encode(contribution)
    return layout.decode(words)


def word_type(bits: int) -> np.dtype[np.unsignedinteger]:
    """Return the machine word in which words of so many bits are added up."""
    return np.dtype("<u4" if bits == 32 else "<u8")


def reduced(words: Words, bits: int) -> Words:
    """Return words modulo 2^bits."""
    return words if bits != 48 else words & np.uint64(2**48 - 1)


def packed(words: Words, bits: int) -> bytes:
    """Return words as they travel, bits / 8 bytes each, the lowest first.

    >>> packed(np.array([2**48 + 1], dtype="<u8"), 48).hex()
    '010000000000'
    """
    table = words.astype(word_type(bits)).view(np.uint8).reshape(len(words), -1)
    return table[:, : bits // 8].tobytes()


def unpacked(content: bytes, bits: int) -> Words:
    """Return the words that `packed` wrote."""
    table = np.frombuffer(content, dtype=np.uint8).reshape(-1, bits // 8)
    kind = word_type(bits)
    words = np.zeros((len(table), kind.itemsize), dtype=np.uint8)
    words[:, : bits // 8] = table
    return words.view(kind).ravel()


def step(limit: float, vehicles: int, bits: int) -> float:
    """Return the smallest power of two at which `vehicles` times ⌈limit / step⌉ is below
    2^(bits-1).

    >>> step(1.0, 1, 32) == 2**-30
    True
    """
    room = (2 ** (bits - 1) - 1) // vehicles
    fraction, exponent = frexp(limit)
    # limit ≤ 2^exponent; as many steps as the largest power of two within the room.
    exponent -= fraction == 0.5
    return ldexp(1.0, exponent - (room.bit_length() - 1))
