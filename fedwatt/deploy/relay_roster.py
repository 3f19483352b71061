"""The vehicles of a run of which some are behind relays.

A relay enrols under the name of its key, as a vehicle does, and says that it is a relay. From then
on it is asked who its vehicles are and which of them are there. They are members of the run like
any other, with the relay's node in the place of their own: who takes part is drawn among all of
them, whichever way they are reached. Their keys, and the check that a vehicle is who it says, are
the relay's matter, which has a depot of its own.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import Any, Final

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.messages import (
    IS_RELAY,
    MOST_SUM,
    Content,
    ReplyField,
    ReplyForm,
    Value,
    ValueField,
)
from fedwatt.deploy.parts import RELAY
from fedwatt.deploy.roster import DRIVING, TAKEN, Member, Roster
from fedwatt.errors import DataError
from fedwatt.runs.earlier import earlier_toml

log = logging.getLogger("fedwatt.deploy")

FRESH_SECONDS: Final = 20.0
"""For which a relay's word is taken that all its vehicles are there."""
AGAIN_SECONDS: Final = 5.0
"""The same where some are not, or it did not answer."""
ROSTER_SECONDS: Final = 15.0
"""In which a relay tells who is there; one that does not has nobody."""
TAKERS: Final[Mapping[str, ReplyField]] = {
    "taken": ValueField(list, "its vehicles that have the field", most=MOST_SUM)
}
"""What a relay says besides when it has passed a driving field on."""


@dataclass
class KnownRelay:
    """A relay as whoever is above it knows it."""

    name: str
    there: frozenset[str] = frozenset()
    """Its vehicles that were there when it last told."""
    levels: int = 1
    """Relays between its furthest vehicle and here."""
    heard: float = -inf
    """When it was last asked."""
    complete: bool = False
    """Whether all its vehicles were there."""

    def due(self, now: float) -> bool:
        """Whether it is to be asked again."""
        return now - self.heard >= (FRESH_SECONDS if self.complete else AGAIN_SECONDS)


@dataclass
class RelayRoster(Roster):
    """A roster with relays."""

    relays: dict[int, KnownRelay] = field(default_factory=dict)
    """By their nodes."""
    never: frozenset[str] | None = None
    """Who never trains, where that was decided further up; None: it is decided here."""

    @property
    def enrolment(self) -> ReplyForm:
        """What vehicles and relays tell when they enrol."""
        return ReplyForm("enrol", more={**super().enrolment.more, **IS_RELAY})

    def addressed(self, question: Content) -> Content:
        """A question to a relay, which says by which configuration its vehicles enrolled."""
        about: dict[str, Value] = {
            RELAY + "config": self.text,
            RELAY + "never": sorted(self.held_out()),
        }
        return Content({**about, **question.values}, question.arrays)

    @cached_property
    def text(self) -> str:
        """The configuration by which vehicles enrol."""
        return earlier_toml(self.config)

    def for_node(self, node: int, question: Content) -> Content:
        """A question as a vehicle or a relay is asked it."""
        return self.addressed(question) if node in self.relays else question

    def known_nodes(self) -> set[int]:
        """Nodes that have enrolled, as vehicles or as relays."""
        return super().known_nodes() | self.relays.keys()

    def _admit(self, node: int, answer: Answer) -> Member | None:
        content = answer.content
        if content is None or content.values.get("relay") is not True:
            return super()._admit(node, answer)
        name = str(content.values["vehicle"])
        before = [n for n, one in self.relays.items() if one.name == name]
        if reason := self.name_fault(node, content, before):
            self._turn_away(node, reason)
            return None
        for old in before:
            del self.relays[old]
        self.relays[node] = KnownRelay(name)
        self.refusals.pop(node, None)
        log.info("relay %s enrolled", name)
        return None

    def refresh(self) -> None:
        """See who is there, here and behind relays."""
        super().refresh()
        now = self.exchange.clock()
        due = [
            node for node, relay in self.relays.items() if node in self.online and relay.due(now)
        ]
        if not due:
            return
        questions = dict.fromkeys(due, self.addressed(Content()))
        seconds = ROSTER_SECONDS * self.levels
        answers = self.exchange.ask(ReplyForm("relay-roster"), questions, seconds)
        for node in due:
            self.relays[node].heard = self.exchange.clock()
            self._hear(node, answers.get(node, Answer(None, "it did not answer")))

    def _hear(self, node: int, answer: Answer) -> None:
        """Take in what a relay tells of its vehicles."""
        relay = self.relays[node]
        try:
            found, there = self._told(node, answer.usable())
        except DataError as error:
            log.warning("relay %s does not say who is there: %s", relay.name, error)
            relay.there, relay.complete = frozenset(), False
            return
        relay.there, relay.complete = there, 0 < len(there) == len(found)
        changed = [one for one in found if self.members.get(one.name) != one]
        self.members |= {one.name: one for one in changed}
        self._keep(changed)
        if changed:
            own, fresh = len(found), len(changed)
            log.info("relay %s answers for %d vehicles, %d of them new", relay.name, own, fresh)

    def _told(self, node: int, content: Content) -> tuple[list[Member], frozenset[str]]:
        """A relay's vehicles, and those that are there; none that another node answers for."""
        values: Mapping[str, Any] = content.values
        table = content.arrays["windows"].tolist()
        lengths = {len(values[n]) for n in ("names", "there", "simulated")} | {len(table)}
        if len(lengths) != 1 or len(set(values["names"])) != len(table):
            raise DataError("its lists do not fit each other")
        if not (self.hidden or all(self.possible(count) for row in table for count in row)):
            raise DataError("a vehicle has an impossible number of windows")
        members, there = [], set()
        rows = zip(values["names"], values["there"], values["simulated"], table, strict=True)
        for name, is_there, simulated, windows in rows:
            other = self.members.get(name)
            if other is not None and other.node != node and self.there(name):
                log.warning("relay %s: %s '%s'", self.relays[node].name, TAKEN, name)
                continue
            relay = self.relays[node].name
            members.append(Member(name, node, tuple(windows), simulated, relay))
            if is_there:
                there.add(name)
        self.relays[node].levels = int(values["levels"])
        return members, frozenset(there)

    def there(self, name: str) -> bool:
        """Whether a vehicle can be asked; one behind a relay if the relay says so."""
        member, here = self.members[name], super().there(name)
        if not member.relay:
            return here
        relay = self.relays.get(member.node)  # None: it has not enrolled since a run was resumed
        return here and relay is not None and name in relay.there

    def branches(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Those of `names` that a relay answers for, by its node."""
        found: dict[int, list[str]] = {}
        for name in names:
            if (node := self.members[name].node) in self.relays:
                found.setdefault(node, []).append(name)
        return found

    @property
    def levels(self) -> int:
        """Relays between the furthest vehicle and here."""
        return max((relay.levels for relay in self.relays.values()), default=0)

    def held_out(self) -> frozenset[str]:
        """Vehicles that never train, by the fleet as a whole."""
        return super().held_out() if self.never is None else self.never

    def hand_out(self, question: Content, names: Collection[str], seconds: float) -> dict[str, str]:
        """Send vehicles a driving field, which relays pass on to those behind them."""
        through = self.branches(name for name in names if self.there(name))
        passed = {}
        for node, own in through.items():
            values = {**question.values, RELAY + "names": own}
            passed[node] = self.addressed(Content(values, question.arrays))
        form, wait = replace(DRIVING, more=TAKERS), seconds + self.levels * ROSTER_SECONDS
        waiting = self.exchange.send(form, passed, wait)
        direct = [name for name in names if self.members[name].node not in self.relays]
        found = super().hand_out(question, direct, seconds)

        def complete() -> bool:
            for node, answer in self.exchange.receive(form, waiting).items():
                told: Mapping[str, Any] = {} if answer.content is None else answer.content.values
                for name in set(through[node]) & set(told.get("taken", ())):
                    found[name] = told["field"]
            return not waiting

        if passed:
            self.exchange.wait(complete, wait)
        return found
