"""The parts of a sum that relays add up, as whoever is above them asks for these."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.limits_of_replies import refuse_impossible_weight
from fedwatt.deploy.messages import NO_MODEL, Sizes
from fedwatt.deploy.parts import NoSum, Part, SumQuestion, part_fields
from fedwatt.deploy.relay_roster import RelayRoster
from fedwatt.errors import DataError, RunError

log = logging.getLogger("fedwatt.deploy")

GATHER_SECONDS: Final = 30.0
"""How long a relay waits for vehicles that it is asked about and that are not there (yet)."""
HOP_SECONDS: Final = 10.0
"""What a question and its answer may take on their way through one relay."""


@dataclass(frozen=True)
class Branches:
    """Questions to relays that are on their way."""

    roster: RelayRoster
    asked: SumQuestion
    through: Mapping[int, Sequence[str]]
    waiting: dict[str, int]
    deadline: float

    @classmethod
    def ask(
        cls, roster: RelayRoster, asked: SumQuestion, through: Mapping[int, Sequence[str]],
        stages: float,
    ) -> "Branches":  # fmt: skip
        """Ask each relay for its part; masks take it `stages` seconds more."""
        exchange = roster.exchange
        levels = max((roster.relays[node].levels for node in through), default=0)
        seconds = asked.seconds + stages + GATHER_SECONDS + levels * HOP_SECONDS
        questions = {
            node: roster.addressed(asked.content(names)) for node, names in through.items()
        }
        fields = part_fields(max(map(len, through.values()), default=0))
        waiting = exchange.send("relay-sum", questions, seconds, sizes=_sizes(asked), asked=fields)
        return cls(roster, asked, through, waiting, exchange.clock() + seconds)

    def parts(self) -> tuple[list[Part], list[NoSum]]:
        """The parts that came in time, and why others have none."""
        exchange, answers = self.roster.exchange, dict[int, Answer]()
        fields = part_fields(max(map(len, self.through.values()), default=0))

        def complete() -> bool:
            came = exchange.receive(
                "relay-sum", self.waiting, sizes=_sizes(self.asked), asked=fields
            )
            answers.update(came)
            return not self.waiting

        exchange.wait(complete, max(0.0, self.deadline - exchange.clock()))
        found, troubles = [], []
        for node, names in self.through.items():
            relay = self.roster.relays[node].name
            try:
                found.append(self._part(answers.get(node), names))
            except (NoSum, DataError, RunError) as error:
                log.warning("%s: no part of %s: %s", self.asked.what, relay, error)
                sent = isinstance(error, NoSum) and error.sent
                troubles.append(NoSum(f"{relay}: {error}", frozenset(names), sent=sent))
        return found, troubles

    def _part(self, answer: Answer | None, names: Sequence[str]) -> Part:
        if answer is None:
            raise NoSum("it did not answer", frozenset(names))
        part, layout = Part.read(answer.usable(), names, self.asked.layout), self.asked.layout
        if "weight" in layout.fields:
            refuse_impossible_weight(layout, layout.decode(part.words), len(part.counted))
        return part


def _sizes(asked: SumQuestion) -> Sizes:
    layout = asked.layout
    return replace(NO_MODEL, words=layout.length * layout.bits // 8)
