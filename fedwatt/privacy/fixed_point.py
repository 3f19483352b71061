"""Vectors of numbers as words that add exactly: fixed point modulo 2^32 or 2^64.

A field of a vector has a declared limit on |value|. Its step is the smallest power of two with
which the words of all vehicles, each at most ⌈limit / step⌉, still add up without wrapping around:

    word = round(min(max(value, -limit), limit) / step)   mod 2^bits
    Σ value = step · Σ word                               as a signed number

Values on the grid of steps add up exactly, any others to within half a step a vehicle:

    |decoded - Σ value| ≤ vehicles · step / 2   (+ 2^-53 of the sum, from the float64 of the result)

What lies beyond its limit is clipped, and the clipped values are counted in a last field of their
own, which adds up with the rest: the server learns how many were clipped in all.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import frexp, inf, ldexp

import numpy as np
from numpy.typing import NDArray

from fedwatt.errors import DataError, check

Words = NDArray[np.unsignedinteger]
FloatArray = NDArray[np.float64]

CLIPPED = "clipped"
"""The field that every vector ends with."""


@dataclass(frozen=True, kw_only=True)
class Field:
    """A stretch of a vector: `size` values between -limit and limit."""

    name: str
    size: int
    limit: float

    def __post_init__(self) -> None:
        check(self, "size", self.size >= 0, "at least 0")
        check(self, "limit", 0 < self.limit < inf, "above 0 and finite")


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Which values lie where in a vector, for sums over at most `vehicles` vehicles."""

    fields: tuple[Field, ...]
    vehicles: int
    bits: int = 64

    def __post_init__(self) -> None:
        check(self, "bits", self.bits in (32, 64), "32 or 64")
        check(self, "vehicles", 1 <= self.vehicles < 2**20, "from 1 to about a million")
        countable = self.vehicles * self.length < 2 ** (self.bits - 1)
        check(self, "vehicles", countable, f"few enough to count {self.length} clipped values each")
        names = [field.name for field in self.fields]
        unlike = len({*names, CLIPPED}) == len(names) + 1
        check(self, "fields", unlike, f"of different names, none of them '{CLIPPED}'")

    @classmethod
    def of(
        cls, fields: Mapping[str, tuple[int, float]], *, vehicles: int, bits: int = 64
    ) -> "Layout":
        """From {name: (size, limit)}, in this order."""
        made = (Field(name=n, size=size, limit=limit) for n, (size, limit) in fields.items())
        return cls(fields=tuple(made), vehicles=vehicles, bits=bits)

    @property
    def length(self) -> int:
        """Words in a vector."""
        return sum(field.size for field in self.fields) + 1

    @property
    def steps(self) -> dict[str, float]:
        """The resolution of each field.

        >>> Layout.of({"weight": (1, 1000.0)}, vehicles=3, bits=32).steps["weight"]  # 2^-19
        1.9073486328125e-06
        """
        return {field.name: step(field.limit, self.vehicles, self.bits) for field in self.fields}

    def encode(self, values: Mapping[str, FloatArray]) -> Words:
        """A vehicle's values as words, [length]; refuses values that are not finite.

        >>> layout = Layout.of({"a": (2, 8.0)}, vehicles=2)
        >>> layout.decode(layout.encode({"a": [1.5, -9]}) + layout.encode({"a": [0.25, 1]}))
        {'a': array([ 1.75, -7.  ]), 'clipped': array([1.])}
        """
        if set(values) != {field.name for field in self.fields}:
            raise DataError(
                f"A vector for a secure sum has the fields {', '.join(sorted(values))}, and "
                f"{', '.join(sorted(field.name for field in self.fields))} are to be summed."
            )
        parts, clipped = [], 0
        for field in self.fields:
            own = np.asarray(values[field.name], dtype=np.float64).ravel()
            if len(own) != field.size or not np.isfinite(own).all():
                raise DataError(
                    f"'{field.name}' of a secure sum must be {field.size} finite numbers, got "
                    f"{len(own)}, {int(np.isfinite(own).sum())} of them finite."
                )
            clipped += int((np.abs(own) > field.limit).sum())
            own = np.clip(own, -field.limit, field.limit)
            parts.append(np.rint(own / step(field.limit, self.vehicles, self.bits)))
        signed = np.concatenate([*parts, [clipped]]).astype(np.int64)
        # Narrowing and reading as unsigned are both reductions modulo a power of two.
        return signed.view(np.uint64).astype(f"<u{self.bits // 8}")

    def decode(self, total: Words) -> dict[str, FloatArray]:
        """The sums of all fields, and how many values were clipped, from a sum of words."""
        if total.shape != (self.length,) or total.dtype.itemsize * 8 != self.bits:
            raise DataError(
                f"A secure sum has {total.size} words of {total.dtype.itemsize * 8} bits, and its "
                f"layout has {self.length} of {self.bits}. Use the same settings on both sides."
            )
        signed = total.view(f"<i{self.bits // 8}").astype(np.float64)
        sums, at = {}, 0
        for field in self.fields:
            own = signed[at : at + field.size]
            sums[field.name] = own * step(field.limit, self.vehicles, self.bits)
            at += field.size
        return sums | {CLIPPED: signed[at:]}


def add_up(
    fields: Mapping[str, tuple[int, float]],
    vehicles: int,
    answers: Iterable[Mapping[str, FloatArray]],
) -> dict[str, FloatArray]:
    """Totals of the vehicles' answers as a secure sum has them, to the last bit.

    Masks cancel out in a sum, so they are left out here.

    >>> add_up({"a": (2, 8.0)}, 2, [{"a": np.array([1.5, -9])}, {"a": np.array([0.25, 1])}])
    {'a': array([ 1.75, -7.  ]), 'clipped': array([1.])}
    """
    layout = Layout.of(fields, vehicles=vehicles)
    words = np.zeros(layout.length, dtype=np.uint64)
    for answer in answers:
        words += layout.encode(answer)
    return layout.decode(words)


def step(limit: float, vehicles: int, bits: int) -> float:
    """The smallest power of two at which `vehicles` times ⌈limit / step⌉ is below 2^(bits-1).

    >>> step(1.0, 1, 32) == 2**-30
    True
    """
    room = (2 ** (bits - 1) - 1) // vehicles
    fraction, exponent = frexp(limit)
    # limit ≤ 2^exponent; as many steps as the largest power of two within the room.
    exponent -= fraction == 0.5
    return ldexp(1.0, exponent - (room.bit_length() - 1))
