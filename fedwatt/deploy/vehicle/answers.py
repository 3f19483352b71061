"""Answers of a vehicle under a plan, on its disk: at most one each, in growing rounds.

    STATE/plans/DIGEST/plan.json         the signed plan
    STATE/plans/DIGEST/answers.jsonl     a line per answer, written before it is computed
    STATE/plans/DIGEST/replies/          the last replies of each kind without secure aggregation

A request for a round that was answered gets the same bytes again, or nothing under secure
aggregation: two sums over different vehicles would differ by single ones. New rounds only grow, so
a server cannot go back to an old one with another model; an aggregation that failed is repeated as
a new round. A computation that fails has used its round for any other request: whether one fails
can depend on the data, and a server could try models until one does not. A server that was restored
from a backup gets the stored replies of its last rounds.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import astuple, dataclass
from hashlib import sha256
from pathlib import Path

from fedwatt.deploy.vehicle.messages import PLACE_KINDS, SECURE
from fedwatt.deploy.wire import Content
from fedwatt.errors import DataError
from fedwatt.files import append_rows, read_rows, write_bytes
from fedwatt.runs.config import RunConfig
from fedwatt.runs.source import shares_elevation

MOST_PLACE_SUMS = 100
"""Sums over places that one plan may ask for; learning a map and routes takes about twenty."""
MOST_SET_CHANGES = 3
"""How often the vehicles of sums over places may change: each change can show a difference."""
MOST_FINAL = 3
"""Evaluations of final models per method: best, last and mean."""
STORED_REPLIES = 16
"""Of each kind and method; a backup of the server may be so many rounds old."""
AFTER_LAST = 1
"""Evaluations after that of the last model: of the mean of two models."""
OF_FLEET = ("population", "population_windows")
"""Values of a request that may have changed when it is repeated: vehicles join."""
OF_VEHICLE = ("counted", "extend")
"""Values of a request that differ between vehicles."""


@dataclass(frozen=True)
class Slot:
    """One answer that a plan allows."""

    kind: str
    method: str
    round: int

    @classmethod
    def of(cls, request: Content) -> "Slot":
        """Return the slot of a request."""
        values = request.values
        kind, method = (str(values.get(name, "")) for name in ("kind", "method"))
        number = values.get("round", values.get("number", 0))
        assert isinstance(number, int)  # requests are checked when they are read
        return cls(kind, method, number)

    @property
    def track(self) -> tuple[str, str]:
        """Return the kind and method; rounds are counted separately for each such pair."""
        return self.kind, self.method


class Answers:
    """The answers that a vehicle has sent under one plan."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._path = folder / "answers.jsonl"
        self._latest: dict[tuple[str, str], int] = {}
        self._requests: dict[Slot, str] = {}
        self._counts = Counter[str]()
        self._sets: list[str] = []
        try:
            for row in read_rows(self._path):
                self._take(Slot(*row["slot"]), str(row["request"]), str(row.get("set", "")))
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise DataError(
                f"{self._path} is damaged ({error}), so nothing more is answered under this plan"
            ) from error

    def repeated(self, slot: Slot, request: str, config: RunConfig) -> bool:
        """Tell whether this very request was answered.

        DataError if its slot is used otherwise, or if a plan with this configuration has none such.
        """
        if self._counts[slot.kind] >= MOST_PLACE_SUMS and slot.kind in PLACE_KINDS:
            raise DataError(f"more than {MOST_PLACE_SUMS} sums for '{slot.kind}' under one plan")
        if not is_planned(slot, config):
            raise DataError(f"the plan has no round {slot.round} of '{slot.kind}'")
        latest = self._latest.get(slot.track, -1)
        once = slot.kind == "personalise" and latest >= 0
        if slot.round > latest and not once:
            return False
        if self._requests.get(slot) == request:
            return True
        raise DataError(
            f"'{slot.kind}' of round {slot.round} is refused: this vehicle has answered round "
            f"{latest} of this plan. A failed round is repeated as a new one"
        )

    def check_set(self, vehicles: Iterable[str]) -> str:
        """Return a digest of a sum's vehicles; DataError after they changed too often."""
        digest = sha256(json.dumps(sorted(vehicles)).encode()).hexdigest()[:32]
        changes = len(self._sets) - 1 + (digest != self._sets[-1]) if self._sets else 0
        if changes > MOST_SET_CHANGES:
            raise DataError("the vehicles of sums over places have changed too often")
        return digest

    def add(self, slot: Slot, request: str, *, vehicles: str = "") -> None:
        """Write down an answer that is about to be computed."""
        append_rows(self._path, [{"slot": astuple(slot), "request": request, "set": vehicles}])
        self._take(slot, request, vehicles)

    def _take(self, slot: Slot, request: str, vehicles: str) -> None:
        self._latest[slot.track] = slot.round
        self._requests[slot] = request
        self._counts[slot.kind] += 1
        if vehicles and self._sets[-1:] != [vehicles]:
            self._sets.append(vehicles)

    def store_reply(self, slot: Slot, reply: bytes) -> None:
        """Store a reply for a repeated request."""
        file = self._reply(slot)
        write_bytes(file, reply)
        replies = sorted(file.parent.glob(f"{file.name.rpartition('-')[0]}-*.bin"))
        for old in replies[:-STORED_REPLIES]:
            old.unlink(missing_ok=True)

    def stored_reply(self, slot: Slot) -> bytes:
        """Return the reply that was made; empty where the last computation made none."""
        file = self._reply(slot)
        if not file.exists() and slot.round < self._latest[slot.track]:
            raise DataError("the reply to this request is no longer kept")
        return file.read_bytes() if file.exists() else b""

    def _reply(self, slot: Slot) -> Path:
        name = sha256(json.dumps(slot.track).encode()).hexdigest()[:32]
        return self.folder / "replies" / f"{name}-{slot.round:06d}.bin"


def is_planned(slot: Slot, config: RunConfig) -> bool:
    """Tell whether a plan with this configuration has such a request."""
    if slot.kind in PLACE_KINDS:
        learned = config.deploy.routes if slot.kind == "routes" else shares_elevation(config)
        return learned and slot.round >= 0
    methods = {choice.label: choice.method for choice in config.methods}
    if slot.method not in methods:
        return False
    rounds = config.training.rounds
    last = {
        "train": rounds - 1,
        "evaluate": rounds + AFTER_LAST,
        "final": MOST_FINAL - 1,
        "personalise": rounds,
    }[slot.kind]
    if slot.kind == "personalise":
        personalises = config.personalisation.enabled or methods[slot.method].personalised
        return personalises and 0 <= slot.round <= last
    # Between evaluations of rounds there is at most that of a mean, where training ends early.
    between = slot.round % config.training.evaluate_every > 1 and slot.round < rounds
    return 0 <= slot.round <= last and not (slot.kind == "evaluate" and between)


def request_digest(request: Content, without: Collection[str]) -> str:
    """Return a digest of a request, `without` some of its values and secure aggregation's."""
    digest = sha256()
    parts = {name: repr(value).encode() for name, value in request.values.items()}
    for name, array in request.arrays.items():
        parts[f"{name} {array.dtype.str} {array.shape}"] = array.tobytes()
    for name, part in sorted(parts.items()):
        if name not in without and not name.startswith(SECURE):
            # With both lengths, so that no two requests are hashed as the same bytes.
            digest.update(f"{len(name.encode())} {len(part)} {name}".encode() + part)
    return digest.hexdigest()
