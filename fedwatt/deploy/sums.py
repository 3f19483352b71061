"""Sums over vehicles, of which each server or relay adds up its own part.

A sum is of vectors of fixed-point words (`privacy.fixed_point`), and words add exactly, in whatever
order and grouping. So whoever has vehicles adds up theirs, be it the server or a relay, and passes
on the words of the sum; the server adds these and reads the total:

    total = part of the server's own vehicles + Σ parts of its relays
    part of a relay = part of its own vehicles + Σ parts of its relays          and so on

The model of a tree of relays is therefore that of one server with the same vehicles, bit for bit.
How a server or a relay comes by the part of its own vehicles is left open here: under masks
(`secure_exchange`), or from replies in the clear (`clear_sums`).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from fedwatt.deploy.branches import Branches
from fedwatt.deploy.kept_sums import keep_sum, recall_sum
from fedwatt.deploy.messages import Content, Value
from fedwatt.deploy.parts import NoSum, Part, SumQuestion, added
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.relay_roster import RelayRoster
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.privacy.check_words import whole_sum
from fedwatt.privacy.fixed_point import FloatArray, Layout
from fedwatt.privacy.secure_settings import SecureSettings


@dataclass(frozen=True)
class SecretSum:
    """What a sum brought: totals over its survivors, and whose messages could not be used."""

    sums: Mapping[str, FloatArray]
    survivors: tuple[str, ...]
    exchange: bytes
    """Digest of its terms; of its purpose where it may be of several parts."""
    rejected: Mapping[str, str]
    parts: tuple[tuple[bytes, int], ...] = ()
    """Digest and vehicles of each part that masks were made for, where it may be of several."""
    rows: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    """What is recorded of each vehicle where replies are seen."""


@dataclass(frozen=True)
class Sums(ABC):
    """The vehicles of a run as givers of numbers that are added up."""

    once: ClassVar[bool]
    """Whether vehicles answer a question once, so that its total must not be forgotten."""

    roster: Roster
    run: RunState
    settings: SecureSettings
    common: Mapping[str, Value]
    """What every question says: the run, its configuration, and the method if it is about one."""
    survivors_needed: int = 0
    """Raises what the settings ask for; 0: does not."""
    enough: int = 0
    """Vectors after which no other is waited for; 0: all are."""

    @property
    def least(self) -> int:
        """Vehicles that a part must be of."""
        return self.survivors_needed

    @property
    def stage_seconds(self) -> float:
        """How long the messages around a vehicle's answer may take."""
        return 0.0

    def total(
        self,
        what: str,
        names: Iterable[str],
        layout: Layout,
        kind: str,
        question: Callable[[str], Content],
        seconds: float,
    ) -> SecretSum:
        """The sums over those of `names` that see it through; NoSum if they are too few.

        `layout` is what the vectors of so many vehicles hold; `question` asks a vehicle for its
        vector, which may take it `seconds`; `what` is for the log.
        """
        called = sorted(names)
        asked = SumQuestion(
            what=what, kind=kind, layout=layout, question=question, seconds=seconds,
            heaviest=self.heaviest(),
        )  # fmt: skip
        purpose = Purpose.of(kind, question(called[0])).text if called else ""
        before = recall_sum(self.run.path.parent, purpose) if called and self.once else None
        if before is not None and set(before.survivors) <= set(called):
            sums, exchange, parts = before.sums, before.exchange, before.parts
            return SecretSum(sums, before.survivors, exchange, {}, parts)
        if not called:
            raise NoSum("nobody is called.", frozenset())
        part = self.part(called, asked, purpose)
        sums, several = layout.decode(part.words), self.roster.config.deploy.relays > 0
        (exchange, _), *_ = part.exchanges or ((b"", 0),)
        parts = part.exchanges if several else ()
        exchange = whole_sum(purpose) if several else exchange
        if self.once:
            keep_sum(self.run.path.parent, purpose, sums, part.counted, exchange, parts)
        return SecretSum(sums, part.counted, exchange, part.rejected, parts, part.rows)

    def heaviest(self) -> tuple[float, ...]:
        """Most windows that a vehicle counts for, where they are known."""
        return ()

    def part(self, called: list[str], asked: SumQuestion, purpose: str) -> Part:
        """The sum over the vehicles `called`, with the parts that relays have of it."""
        roster, through = self.roster, self.roster.branches(called)
        behind = {name for names in through.values() for name in names}
        own = [name for name in called if name not in behind]
        branches = None
        if isinstance(roster, RelayRoster) and through:
            branches = Branches.ask(roster, asked, through, self.stage_seconds)
        found, troubles = [], []
        if own:
            try:
                found.append(self.own_part(own, asked, purpose))
            except NoSum as error:
                troubles.append(error)
        if branches is not None:
            parts, others = branches.parts()
            found, troubles = [*found, *parts], [*troubles, *others]
        if not found:
            if len(troubles) == 1:
                raise troubles[0]
            raise NoSum(
                " ".join(map(str, troubles)),
                frozenset().union(*(error.lost for error in troubles)),
                frozenset().union(*(error.rejected for error in troubles)),
                sent=any(error.sent for error in troubles),
            )
        return added(found, asked.layout.bits)

    @abstractmethod
    def own_part(self, called: list[str], asked: SumQuestion, purpose: str) -> Part:
        """The sum over vehicles that are reached from here; NoSum if they are too few."""
