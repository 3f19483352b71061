"""Words by which vehicles can tell that a model was made from their sum, and not by the server.

Beside its weight n and its displacement n Δ [D], every vehicle of a sum adds a few numbers

    c_j = ⟨r_j, n Δ⟩ + ρ_j n + p_j       r_j ∈ {-1, 1}^D, 1 ≤ ρ_j ≤ 2

with signs r_j, factor ρ_j and pad p_j from a key that the vehicles of a fleet share and the server
does not have, drawn anew for every exchange. The server sees their sums C_j over R vehicles, sends
them with the model w' that it made of w, N = Σn, R and what it divided by, d (N, or q·K where the
method is private), and a vehicle compares

    ⟨r_j, d (w' - w)⟩ + ρ_j N + R p_j   with   C_j

(a linear authentication code: Wegman and Carter, 1981, over the reals). Who does not know r_j, ρ_j
and p_j and puts e on top of d (w' - w) is off by ⟨r_j, e⟩, about ‖e‖; that this is below the
rounding τ of floating and fixed point has a chance of about τ/‖e‖ for each of the words. Models of
float32 leave room for an e of some 10⁻⁵ of a usual step. Noise for privacy is part of Δ, so the
words tell no more than the sum does.

Where relays add up a sum in parts, each an exchange of its own, signs and factors are those of the
whole sum and pads those of each part i, so that a vehicle compares with Σ_i R_i p_ji in the place
of R p_j. Whoever has the parts can pass off no other model than one of their weighted means, with
weights above 0: a part counted a_i times needs the pad a_i R_i p_ji, and R_i is a whole number. A
server that says who takes part can make such models anyway.
"""

from dataclasses import dataclass, field
from hashlib import sha256
from math import inf, isfinite, sqrt
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.privacy.secure.agreement import derived

WORDS: Final = 4
CHECK: Final = "check"
"""The field of a vector that holds them."""
COUNT_BYTES: Final = 4
ROOM: Final = 2.0**10
"""Largest pad over the largest n Δ of a coordinate: what it hides is hidden to a thousandth."""


@dataclass(frozen=True)
class Made:
    """What a server says a model was made from."""

    exchange: bytes
    """Digest of the terms of the sum; of its purpose, where relays add it up."""
    weight: float  # N
    divisor: float  # d
    vehicles: int  # R
    words: tuple[float, ...]  # C_j
    parts: tuple[bytes, ...] = ()
    """Of each part `part_bytes`; none where the sum is a single exchange."""

    @property
    def padded(self) -> tuple[tuple[bytes, int], ...]:
        """Whose pads are in the words, and how often."""
        return tuple(map(part_of, self.parts)) or ((self.exchange, self.vehicles),)


def part_bytes(exchange: bytes, vehicles: int) -> bytes:
    """What a part of a sum is known by: the digest of its exchange, and R_i."""
    return exchange + vehicles.to_bytes(COUNT_BYTES, "little")


def part_of(content: bytes) -> tuple[bytes, int]:
    """The digest and R_i that `part_bytes` put together."""
    return content[:-COUNT_BYTES], int.from_bytes(content[-COUNT_BYTES:], "little")


def whole_sum(purpose: str) -> bytes:
    """What names a sum that is added up in parts: all its vehicles know it by its purpose."""
    return sha256(b"fedwatt sum in parts " + purpose.encode()).digest()


@dataclass(frozen=True)
class CheckKey:
    """The key of a fleet, for one sum."""

    fleet: bytes = field(repr=False)
    exchange: bytes
    part: bytes = b""
    """The exchange that a vehicle adds to; empty: `exchange` is all there is."""

    def signs(self, size: int) -> FloatArray:
        """r, [WORDS, size]."""
        bits = np.frombuffer(self._stream("check signs", -(-WORDS * size // 8)), dtype=np.uint8)
        ones = np.unpackbits(bits)[: WORDS * size].reshape(WORDS, size)
        return 2 * ones.astype(np.float64) - 1

    def factors(self) -> FloatArray:
        """ρ, [WORDS]."""
        return 1.0 + self._uniform("check factors")

    def pads(self, layout: Layout, part: bytes = b"") -> FloatArray:
        """p of a part, or of the vehicle's own, [WORDS], as large as the layout has room for."""
        _, limit = layout.fields[CHECK]
        return (self._uniform("check pads", part or self.part) - 0.5) * limit

    def words(self, layout: Layout, weight: float, weighted: FloatArray) -> FloatArray:
        """c [WORDS] of a vehicle with n = `weight` and n Δ = `weighted` [D]."""
        plain = self.signs(len(weighted)) @ weighted + self.factors() * weight
        return plain + self.pads(layout)

    def follows(
        self, layout: Layout, before: NDArray[np.floating], after: NDArray[np.floating], made: Made
    ) -> bool:
        """Whether the model `after` [D] came from `before` by the mean of the sum."""
        _, heaviest = layout.fields["weight"]
        told = 1 <= made.vehicles <= layout.vehicles and 0 < made.divisor < inf
        told &= 0 < made.weight <= made.vehicles * heaviest
        counts = [count for _, count in made.padded]
        told &= sum(counts) == made.vehicles and min(counts) > 0
        if len(made.words) != WORDS or not told:
            return False
        moved = made.divisor * (after.astype(np.float64) - before.astype(np.float64))
        expected = self.signs(len(moved)) @ moved + self.factors() * made.weight
        for part, count in made.padded:
            expected = expected + count * self.pads(layout, part)
        away, allowed = np.abs(expected - np.array(made.words)), _rounding(layout, after, made)
        # Beyond all numbers, everything is near: infinity is at most infinity.
        return bool(isfinite(allowed) and np.isfinite(away).all() and (away <= allowed).all())

    def _uniform(self, purpose: str, exchange: bytes = b"") -> FloatArray:
        stream = self._stream(purpose, 8 * WORDS, exchange)
        bits = np.frombuffer(stream, dtype="<u8") >> np.uint64(11)
        return bits.astype(np.float64) * 2.0**-53

    def _stream(self, purpose: str, size: int, exchange: bytes = b"") -> bytes:
        key = derived(self.fleet, exchange or self.exchange, purpose)
        return Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor().update(bytes(size))


def _rounding(layout: Layout, after: NDArray[np.floating], made: Made) -> float:
    """τ: six deviations of what rounding the model and the words of R vehicles comes to."""
    steps, size = layout.steps, len(after)
    of_model = made.divisor * float(np.linalg.norm(after.astype(np.float64)))
    of_model *= float(np.finfo(after.dtype).eps) / 2 / sqrt(3)
    of_delta = sqrt(size * made.vehicles / 12) * steps["delta"]
    return 6 * (of_model + of_delta) + made.vehicles * (steps[CHECK] + steps["weight"])
