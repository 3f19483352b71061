"""A vehicle's answers in a secure sum: it keeps the secrets, for as long as an exchange lasts.

Secrets are in memory only. A vehicle that restarts half-way has lost them and drops out of that
round, which the others' sum survives. Flower's own SuperNode starts a process for every message;
there they are handed from one to the next in the node's memory (`handed_on`, `take_over`).
"""

import json
import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from fedwatt.deploy.board import Board
from fedwatt.deploy.guard import Guard
from fedwatt.deploy.messages import SECURE, Content, Value
from fedwatt.deploy.policy import Refusal
from fedwatt.deploy.purpose import Purpose
from fedwatt.errors import DataError
from fedwatt.files import write_text
from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.privacy.secure import vehicle as protocol
from fedwatt.privacy.secure.identity import Trust
from fedwatt.privacy.secure.messages import Agreements, Inbox, Roster, Survivors, names_of
from fedwatt.privacy.secure.plain import from_plain, to_plain
from fedwatt.privacy.secure_settings import Terms

LOST_SECONDS = 60
"""How far back a number may lie where the last one was lost: clocks differ."""

log = logging.getLogger("fedwatt.deploy")

Message = TypeVar("Message")
Stage = protocol.Advertised | protocol.Shared | protocol.Sent


class Secrets:
    """What a vehicle knows of the exchange it is in."""

    def __init__(self, vehicle: str, folder: Path, board: Board, guard: Guard) -> None:
        self.vehicle, self.board, self.guard = vehicle, board, guard
        self._state: Stage | None = None
        self._path = folder / "secure-sums.json"
        """Keeps run and number of the last exchange, which a restart must not forget."""

    @property
    def _trust(self) -> Trust | None:
        """Whose signatures are asked for; None: nobody's, if the policy can do without."""
        self._refuse_unsigned()
        return self.board.trust if self.guard.policy.signed_sums else None

    def _refuse_unsigned(self) -> None:
        """Refuse a sum if its keys must be signed and this vehicle has no key of a depot."""
        known = self.board.trust is not None and self.board.identity is not None
        if self.guard.policy.signed_sums and not known:
            raise Refusal("signed_sums")

    def keys(self, question: Content) -> Content:
        """Fresh public keys; what was left of another exchange is forgotten."""
        terms = from_plain(Terms, question.values, SECURE)
        self.guard.terms(terms)
        purpose = Purpose.read(terms.purpose)
        if purpose.run != question.values.get("run"):
            raise Refusal("question")
        self.guard.kind(purpose.kind)
        self.guard.announced(purpose)
        self.guard.unanswered(purpose)
        self._refuse_unsigned()
        trains = self.guard.policy.followed and purpose.kind.endswith("train")
        if trains and self.board.fleet_key is None:
            # It would spoil the sum for the others: without its words nobody can check it.
            raise Refusal("followed")
        self._state = None
        state, advert = protocol.advertise(
            terms, self.vehicle, after=self._last(terms.run), identity=self.board.identity
        )
        write_text(self._path, json.dumps({"run": terms.run, "number": terms.number}) + "\n")
        self._state = state
        return Content(to_plain(advert))

    def shares(self, question: Content) -> Content:
        """Shares of the two secrets, sealed for the neighbours."""
        roster = from_plain(Roster, question.values, SECURE)
        self._state, shares = protocol.share_keys(
            self._now(protocol.Advertised), roster, trust=self._trust
        )
        return Content(to_plain(shares))

    @property
    def terms(self) -> Terms:
        """Of the exchange that now waits for this vehicle's vector; DataError if none does."""
        return self._now(protocol.Shared).terms

    def terms_about_places(self, what: str, least: int) -> Terms:
        """The terms; DataError if the sum may be of fewer vehicles than must drive a place."""
        terms = self.terms
        if terms.threshold < least:
            raise DataError(
                f"{what} are asked for of {terms.threshold} vehicles or more, and a place is "
                f"hidden unless {least} drive there"
            )
        return terms

    @property
    def vehicles(self) -> tuple[str, ...]:
        """Who is called to the exchange that waits for this vehicle's vector."""
        return self._now(protocol.Shared).roster.vehicles

    def purpose(self, kind: str, question: Content) -> Purpose:
        """What a question is for; refuses another one than its vehicles agreed on."""
        purpose = Purpose.of(kind, question)
        if purpose.text != self.terms.purpose:
            raise Refusal("question")
        return purpose

    def masked(
        self,
        question: Content,
        layout: Layout,
        values: Mapping[str, FloatArray],
        *,
        follows: bool = True,
    ) -> Content:
        """The vehicle's numbers under its masks; it will sign whether it `follows` the model."""
        state = self._now(protocol.Shared)
        if layout.bits != state.terms.bits:
            raise DataError(
                f"the exchange is about words of {state.terms.bits} bits, and the answer to its "
                f"question has {layout.bits}"
            )
        inbox = from_plain(Inbox, question.values, SECURE)
        words = layout.encode(values)
        self._state, masked = protocol.mask_input(state, inbox, words, follows=follows)
        return Content(to_plain(masked))

    def agreed(self, question: Content) -> Content:
        """Its signature of who survived."""
        state = self._now(protocol.Sent)
        survivors = from_plain(Survivors, question.values, SECURE)
        after, agreed = protocol.agree(state, survivors, identity=self.board.identity)
        if not state.arrived:
            self.guard.agreed(state.terms, names_of(state.vehicles, survivors.arrived))
        self._state = after
        return Content(to_plain(agreed))

    def revealed(self, question: Content) -> Content:
        """A share of one secret of every vehicle of its group."""
        state = self._now(protocol.Sent)
        agreements = from_plain(Agreements, question.values, SECURE)
        self._state, revealed = protocol.reveal(state, agreements, trust=self._trust)
        purpose = Purpose.read(state.terms.purpose)
        self.guard.revealing(purpose, protocol.followers(state, agreements))
        return Content(to_plain(revealed))

    def handed_on(self) -> dict[str, Value]:
        """All that the next message needs, as plain values; empty between exchanges."""
        if self._state is None:
            return {}
        return {"stage": type(self._state).__name__, **to_plain(self._state)}

    def take_over(self, kept: Mapping[str, Any]) -> None:
        """Go on from what was `handed_on`."""
        rest = dict(kept)
        stages: dict[str, type[Stage]] = {kind.__name__: kind for kind in get_args(Stage)}
        stage = stages.get(rest.pop("stage", ""))
        self._state = None if stage is None else from_plain(stage, rest)

    def _now(self, kind: type[Message]) -> Message:
        if not isinstance(self._state, kind):
            raise DataError("a message of a secure sum came out of turn, or after a restart")
        return self._state

    def _last(self, run: str) -> int:
        """Number of the last exchange of a run; -1: there was none."""
        try:
            kept = json.loads(self._path.read_text(encoding="utf-8"))
            return int(kept["number"]) if kept["run"] == run else -1
        except FileNotFoundError:
            return -1
        except (OSError, ValueError, TypeError, KeyError) as error:
            # Numbers are the server's time in µs, so whatever was lost is below the present one.
            log.warning("%s is damaged (%s); this vehicle begins it anew", self._path, error)
            return time.time_ns() // 1000 - LOST_SECONDS * 1_000_000
