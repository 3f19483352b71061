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

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.kept_sums import SecretSum, keep_sum, recall_sum
from fedwatt.deploy.limits_of_replies import refuse_impossible_weight
from fedwatt.deploy.messages import Content, Value
from fedwatt.deploy.parts import NoSum, Part, SumQuestion, added, part_form
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.relay_roster import RelayRoster
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.state import RunState
from fedwatt.errors import FedwattError
from fedwatt.privacy.check_words import part_of, whole_sum
from fedwatt.privacy.fixed_point import Layout
from fedwatt.privacy.secure_settings import SecureSettings

log = logging.getLogger("fedwatt.deploy")

GATHER_SECONDS: Final = 30.0
"""How long a relay waits for vehicles that it is asked about and that are not there (yet)."""
HOP_SECONDS: Final = 10.0
"""What a question and its answer may take on their way through one relay."""


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
        called, folder = sorted(names), self.run.path.parent
        if not called:
            raise NoSum("nobody is called.", frozenset())
        asked = SumQuestion(
            what=what, kind=kind, layout=layout, question=question, seconds=seconds,
            heaviest=self.heaviest(),
        )  # fmt: skip
        purpose = Purpose.of(kind, question(called[0])).text
        before = recall_sum(folder, purpose) if self.once else None
        if before is not None and set(before.survivors) <= set(called):
            return before
        part = self.part(called, asked, purpose)
        if self.roster.config.deploy.relays:
            exchange, parts = whole_sum(purpose), part.exchanges
        else:
            exchange, parts = part_of(part.exchanges[0])[0] if part.exchanges else b"", ()
        sums, rows = layout.decode(part.words), part.rows
        found = SecretSum(sums, part.counted, exchange, parts, part.rejected, rows)
        if self.once:
            keep_sum(folder, purpose, found)
        return found

    def heaviest(self) -> tuple[float, ...]:
        """Most windows that a vehicle counts for, where they are known."""
        return ()

    def part(self, called: list[str], asked: SumQuestion, purpose: str) -> Part:
        """The sum over the vehicles `called`, with the parts that relays have of it."""
        through = self.roster.branches(called)
        behind = {name for names in through.values() for name in names}
        own = [name for name in called if name not in behind]
        relayed = self._ask_relays(asked, through)
        found, troubles = [], []
        if own:
            try:
                found.append(self.own_part(own, asked, purpose))
            except NoSum as error:
                troubles.append(error)
        parts, others = relayed()
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

    def _ask_relays(
        self, asked: SumQuestion, through: Mapping[int, Sequence[str]]
    ) -> Callable[[], tuple[list[Part], list[NoSum]]]:
        """Ask each relay for its part, and wait later: for parts, and why others have none."""
        roster = self.roster
        if not isinstance(roster, RelayRoster) or not through:
            return lambda: ([], [])
        exchange, answers = roster.exchange, dict[int, Answer]()
        levels = max(roster.relays[node].levels for node in through)
        seconds = asked.seconds + self.stage_seconds + GATHER_SECONDS + levels * HOP_SECONDS
        form = part_form(asked.layout, max(map(len, through.values())))
        questions = {
            node: roster.addressed(asked.content(names)) for node, names in through.items()
        }
        waiting, deadline = exchange.send(form, questions, seconds), exchange.clock() + seconds

        def complete() -> bool:
            answers.update(exchange.receive(form, waiting))
            return not waiting

        def parts() -> tuple[list[Part], list[NoSum]]:
            exchange.wait(complete, max(0.0, deadline - exchange.clock()))
            found, troubles = [], []
            for node, names in through.items():
                relay = roster.relays[node].name
                try:
                    found.append(_relayed(answers.get(node), names, asked.layout))
                except FedwattError as error:
                    log.warning("%s: no part of %s: %s", asked.what, relay, error)
                    sent = isinstance(error, NoSum) and error.sent
                    troubles.append(NoSum(f"{relay}: {error}", frozenset(names), sent=sent))
            return found, troubles

        return parts

    @abstractmethod
    def own_part(self, called: list[str], asked: SumQuestion, purpose: str) -> Part:
        """The sum over vehicles that are reached from here; NoSum if they are too few."""


def _relayed(answer: Answer | None, names: Sequence[str], layout: Layout) -> Part:
    """The part in a relay's answer about `names`; FedwattError where there is none to use."""
    if answer is None:
        raise NoSum("it did not answer", frozenset(names))
    part = Part.read(answer.usable(), names, layout)
    if "weight" in layout.fields:
        refuse_impossible_weight(layout, layout.decode(part.words), len(part.counted))
    return part
