"""A vehicle's side of one secure aggregation at a time.

Its secrets are in memory only: a vehicle that restarts half-way drops out, and the others' sum
survives. (Flower's own SuperNode starts a process per message; there they pass from one to the
next as bytes, `export` and `restore`.) The purpose of a sum, a digest of the request for
contributions, is bound into its keys, so vehicles that were sent different requests have different
masks, which do not cancel.
"""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, get_args

from fedwatt.deploy.vehicle.answers import OF_VEHICLE, request_digest
from fedwatt.deploy.vehicle.client_state import plan_folder
from fedwatt.deploy.vehicle.messages import SECURE
from fedwatt.deploy.wire import Content, pack, unpack
from fedwatt.errors import DataError
from fedwatt.files import write_text
from fedwatt.metrics.sums import Words
from fedwatt.privacy.secure import vehicle as protocol
from fedwatt.privacy.secure.keys import Identity, Trust
from fedwatt.privacy.secure.messages import (
    Agreements,
    Inbox,
    NeighbourRoster,
    Survivors,
    from_plain,
    names_of,
    to_plain,
)
from fedwatt.privacy.secure_settings import SecureTerms

Message = TypeVar("Message")
Stage = protocol.Advertised | protocol.Shared | protocol.Sent


def purpose_of(request: Content) -> str:
    """Return the purpose of a sum: a digest of all that its request says to every vehicle alike."""
    return request_digest(request, OF_VEHICLE)


class SecureAggregation:
    """The secure aggregation that a vehicle takes part in: a method for each of its messages."""

    def __init__(self, vehicle: str, state: Path, identity: Identity) -> None:
        self.vehicle = vehicle
        self.identity = identity
        self.state = state
        self._stage: Stage | None = None

    def keys(self, request: Content, check: Callable[[SecureTerms], None]) -> Content:
        """Return fresh public keys, if the terms pass `check`."""
        terms = from_plain(SecureTerms, request.values, SECURE)
        check(terms)
        self._stage = None
        stage, advert = protocol.advertise(
            terms, self.vehicle, after=self._last(terms.run), identity=self.identity
        )
        write_text(self._number_file(terms.run), f"{terms.number}\n")
        self._stage = stage
        return Content(to_plain(advert))

    def shares(self, request: Content, trust: Trust) -> Content:
        """Return shares of the two secrets, sealed for the neighbours."""
        roster = from_plain(NeighbourRoster, request.values, SECURE)
        self._stage, shares = protocol.share_keys(
            self._at(protocol.Advertised), roster, trust=trust
        )
        return Content(to_plain(shares))

    def expected(self, request: Content) -> tuple[SecureTerms, tuple[str, ...]]:
        """Return terms and vehicles of the secure sum to which this request asks to contribute."""
        stage = self._at(protocol.Shared)
        if purpose_of(request) != stage.terms.purpose:
            raise DataError("the request is not the one that its vehicles agreed on")
        return stage.terms, stage.roster.vehicles

    def masked(self, request: Content, words: Words, bits: int) -> Content:
        """Return the vehicle's contribution under its masks."""
        stage = self._at(protocol.Shared)
        if bits != stage.terms.bits:
            raise DataError(
                f"the exchange is about words of {stage.terms.bits} bits, and the contribution has "
                f"{bits}"
            )
        inbox = from_plain(Inbox, request.values, SECURE)
        self._stage, masked = protocol.mask_input(stage, inbox, words)
        return Content(to_plain(masked))

    def agreed(self, request: Content, smallest: int) -> Content:
        """Return the signature of who survived; DataError if they are fewer than `smallest`."""
        stage = self._at(protocol.Sent)
        survivors = from_plain(Survivors, request.values, SECURE)
        if len(names_of(stage.vehicles, survivors.arrived)) < smallest:
            raise DataError(f"a sum of fewer than {smallest} vehicles is not unmasked")
        self._stage, agreed = protocol.agree(stage, survivors, identity=self.identity)
        return Content(to_plain(agreed))

    def revealed(self, request: Content, trust: Trust) -> Content:
        """Return a share of one secret of every vehicle of its group."""
        agreements = from_plain(Agreements, request.values, SECURE)
        self._stage, revealed = protocol.reveal(self._at(protocol.Sent), agreements, trust=trust)
        return Content(to_plain(revealed))

    def export(self) -> bytes:
        """Return the secrets of the present exchange, for the next process; empty: none."""
        if self._stage is None:
            return b""
        return pack(Content({"stage": type(self._stage).__name__, **to_plain(self._stage)}))

    def restore(self, content: bytes) -> None:
        """Continue from what another process exported."""
        values = dict(unpack(content).values) if content else {}
        stages: dict[str, type[Stage]] = {kind.__name__: kind for kind in get_args(Stage)}
        stage = stages.get(str(values.pop("stage", "")))
        self._stage = None if stage is None else from_plain(stage, values)

    def _at(self, stage: type[Message]) -> Message:
        if not isinstance(self._stage, stage):
            raise DataError("a message of a secure aggregation came out of turn or after a restart")
        return self._stage

    def _last(self, run: str) -> int:
        """Return the number of the last exchange under a plan; -1: there was none."""
        file = self._number_file(run)
        try:
            return int(file.read_text(encoding="utf-8")) if file.exists() else -1
        except (OSError, ValueError) as error:
            raise DataError(f"{file} is damaged: {error}. Delete it.") from error

    def _number_file(self, run: str) -> Path:
        """Return the file with the number of a plan's last exchange, which outlasts a restart."""
        return plan_folder(self.state, run) / "secure-aggregation.txt"
