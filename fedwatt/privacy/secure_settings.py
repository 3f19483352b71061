"""Settings of secure aggregation, and the terms of one exchange."""

import json
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from math import ceil, inf

from fedwatt.errors import check
from fedwatt.metrics.sums import BITS


@dataclass(frozen=True, kw_only=True)
class SecureTerms:
    """The terms that server and vehicles agree on; sent first, bound into every key."""

    run: str
    """Name of the training, so that exchanges of another one do not fit."""
    number: int
    """Of the exchange, growing: a vehicle takes part in each at most once."""
    called: int
    """Vehicles asked to take part."""
    threshold: int
    """t: fewer survivors make no sum, and fewer vehicles together cannot unmask anybody."""
    length: int
    """Words in a vector."""
    bits: int = 64
    """Of a word."""
    purpose: str = ""
    """What the sum is for, with a digest of the question, so that all were asked the same."""

    def __post_init__(self) -> None:
        check(self, "number", self.number >= 0, "at least 0")
        check(self, "bits", self.bits in BITS, "32, 48 or 64")
        check(self, "length", self.length >= 1, "at least 1")
        # Half would let a server ask one half for one share of a vehicle and the rest for the other
        fits = 2 <= self.threshold <= self.called < 2 * self.threshold
        check(self, "threshold", fits, f"at least 2 and above half of {self.called} vehicles")

    @property
    def digest(self) -> bytes:
        """Return the digest that every message carries and every key is derived with."""
        return sha256(b"fedwatt secure sum " + json.dumps(vars(self)).encode()).digest()


@dataclass(frozen=True, kw_only=True)
class SecureSettings:
    """Secure aggregation of a federation; off by default."""

    enabled: bool = False
    threshold: float = 0.66
    """Share of the called vehicles that must survive a round; above one half."""
    smallest_sum: int = 3
    """Vehicles that a sum must be of, whatever the threshold; vehicles ask for 3 by default."""
    stage_seconds: float = 60.0
    """Deadline for each of the four short messages around a vehicle's training."""
    delta_limit: float = 16.0
    """Largest |Δ| of a coordinate; what is larger is clipped and counted."""
    upload_limit: float = 256.0
    """The same for a method's other uploads (SCAFFOLD's control change)."""
    windows_limit: int = 200_000
    """Most that a vehicle's windows weigh in a sum; one with more weighs as much."""
    norm_limit: float = 10.0
    """Longest mean displacement ‖Δ‖ of a sum; a longer one makes no model."""
    bits: int = 48
    """Of a word of a reply: 64 are finer, 32 are shorter and need closer limits."""

    def __post_init__(self) -> None:
        check(self, "threshold", 0.5 < self.threshold <= 1, "above 0.5 and at most 1")
        check(self, "smallest_sum", self.smallest_sum >= 2, "at least 2: one hides nothing")
        check(self, "stage_seconds", 0 < self.stage_seconds < inf, "above 0 and finite")
        check(self, "delta_limit", 0 < self.delta_limit < inf, "above 0 and finite")
        check(self, "norm_limit", 0 < self.norm_limit <= inf, "above 0 (inf switches it off)")
        check(self, "upload_limit", 0 < self.upload_limit < inf, "above 0 and finite")
        check(self, "windows_limit", self.windows_limit >= 1, "at least 1")
        check(self, "bits", self.bits in BITS, "32, 48 or 64")

    def survivors_needed(self, called: int) -> int:
        """Return t, the fewest survivors of `called` vehicles.

        >>> [SecureSettings().survivors_needed(called) for called in (2, 3, 4, 10)]
        [2, 2, 3, 7]
        """
        # As a fraction: 0.6 · 5 in floating point must not become 4.
        share = Fraction(self.threshold).limit_denominator(1000)
        return max(2, ceil(share * called), called // 2 + 1)
