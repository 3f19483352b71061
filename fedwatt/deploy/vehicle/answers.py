"""Answers of a vehicle under a plan, on its disk: at most once each, in growing rounds.

    STATE/plans/DIGEST/plan.json         the signed plan
    STATE/plans/DIGEST/answers.jsonl     a line per answer, written before it is sent
    STATE/plans/DIGEST/replies/          the last replies of each kind without secure aggregation

A request for a round that was answered gets the same bytes again, or nothing under secure
aggregation: two sums over different vehicles would differ by single ones. New rounds only grow, so
a server cannot go back to an old one with another model; an aggregation that failed is repeated as
a new round. A server that was restored from a backup gets the kept replies of its last rounds.
"""

import json
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from fedwatt.deploy.wire import Content
from fedwatt.errors import DataError
from fedwatt.files import append_rows, read_rows, write_bytes

log = logging.getLogger("fedwatt.deploy")

MOST_PLACE_SUMS: Final = 100
"""Sums over places that one plan may ask for; learning a map and routes takes about twenty."""
MOST_SET_CHANGES: Final = 3
"""How often the vehicles of sums over places may change: each change can show a difference."""
MOST_FINAL: Final = 4
"""Evaluations of final models per method: best, last and mean, and one that is repeated."""
KEPT_REPLIES: Final = 16
"""Of each kind and method; a backup of the server may be so many rounds old."""
AFTER_LAST: Final = 2
"""Evaluations after the last round: of its model, and of the mean of two models."""


@dataclass(frozen=True)
class Slot:
    """One answer that a plan allows."""

    kind: str
    method: str
    round: int

    @classmethod
    def of(cls, kind: str, request: Content) -> "Slot":
        """Return the slot of a request."""
        values = request.values
        number = values.get("round", values.get("number", 0))
        assert isinstance(number, int)  # requests are checked when they are read
        return cls(kind, str(values.get("method", "")), number)

    @property
    def track(self) -> tuple[str, str]:
        """Return what its rounds are counted for."""
        return self.kind, self.method


class Answers:
    """The answers that a vehicle has given under one plan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "answers.jsonl"
        self._latest: dict[tuple[str, str], int] = {}
        self._given: dict[Slot, str] = {}
        self._counts: dict[str, int] = {}
        self._sets: list[str] = []
        try:
            for row in read_rows(self._path):
                self._take(Slot(*row["slot"]), str(row["request"]), str(row.get("set", "")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{self._path} is damaged ({error}), so nothing more is answered under this plan"
            ) from error

    def repeated(self, slot: Slot, request: str) -> bool:
        """Tell whether this very request was answered; DataError if its slot is used otherwise."""
        latest = self._latest.get(slot.track, -1)
        if slot.round > latest:
            return False
        if self._given.get(slot) == request:
            return True
        raise DataError(
            f"'{slot.kind}' of round {slot.round} is refused: this vehicle has answered round "
            f"{latest} of this plan. A failed round is repeated as a new one"
        )

    def check_bounds(self, slot: Slot, rounds: int) -> None:
        """Raise DataError where the plan has no such slot."""
        bounds = {"train": rounds - 1, "personalise": rounds, "final": MOST_FINAL}
        most = bounds.get(slot.kind, rounds + AFTER_LAST)
        places = slot.kind in ("elevation", "routes")
        if places and self._counts.get(slot.kind, 0) >= MOST_PLACE_SUMS:
            raise DataError(f"more than {MOST_PLACE_SUMS} sums for '{slot.kind}' under one plan")
        if slot.round < 0 or (not places and slot.round > most):
            raise DataError(f"the plan has no round {slot.round} of '{slot.kind}'")

    def check_set(self, vehicles: Iterable[str]) -> str:
        """Return a digest of a sum's vehicles; DataError after they changed too often."""
        own = sha256(json.dumps(sorted(vehicles)).encode()).hexdigest()[:32]
        changes = len(self._sets) - 1 + (own != self._sets[-1]) if self._sets else 0
        if changes > MOST_SET_CHANGES:
            raise DataError("the vehicles of sums over places have changed too often")
        return own

    def give(self, slot: Slot, request: str, *, vehicles: str = "") -> None:
        """Write down an answer that is about to be sent."""
        row = {"slot": list(vars(slot).values()), "request": request, "set": vehicles}
        append_rows(self._path, [row])
        self._take(slot, request, vehicles)

    def keep_reply(self, slot: Slot, reply: bytes) -> None:
        """Keep a reply for a repeated request."""
        file = self._reply(slot)
        write_bytes(file, reply)
        others = sorted(file.parent.glob(f"{file.name.rpartition('-')[0]}-*.bin"))
        for old in others[:-KEPT_REPLIES]:
            old.unlink(missing_ok=True)

    def kept_reply(self, slot: Slot) -> bytes:
        """Return the reply that was sent; DataError if it was lost."""
        try:
            return self._reply(slot).read_bytes()
        except OSError as error:
            raise DataError("the reply to this request was sent and is lost") from error

    def _take(self, slot: Slot, request: str, vehicles: str) -> None:
        self._latest[slot.track] = slot.round
        self._given[slot] = request
        self._counts[slot.kind] = self._counts.get(slot.kind, 0) + 1
        if vehicles and (not self._sets or self._sets[-1] != vehicles):
            self._sets.append(vehicles)

    def _reply(self, slot: Slot) -> Path:
        name = sha256(json.dumps(slot.track).encode()).hexdigest()[:32]
        return self.folder / "replies" / f"{name}-{slot.round:06d}.bin"


def request_digest(request: Content) -> str:
    """Return a digest of what a reply depends on, without the sizes of the fleet."""
    digest = sha256()
    kept = ("round", "number", "counted", "asks", "count", "evaluated", "segment_s", "extend")
    for name in kept:
        if name in request.values:
            digest.update(f"{name}={request.values[name]!r};".encode())
    for name, array in sorted(request.arrays.items()):
        about = f"{name} {array.dtype.str} {array.shape};"
        digest.update(about.encode() + array.tobytes())
    return digest.hexdigest()
