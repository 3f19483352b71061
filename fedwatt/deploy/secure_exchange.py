"""One secure sum over Flower's messages, whatever numbers it is of.

Five questions: keys, shares, the vector under masks, agreement on who survived, and the shares that
unmask the total. What the vector is made of is a kind of question of its own (such as
"secure-train"); the other four are the same for all. Vehicles answer each question once, so a total
is kept (`kept_sums`): a server that is started again goes on with it.
"""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeVar

from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.messages import SECURE, Content, ReplyForm
from fedwatt.deploy.parts import NoSum, Part, SumQuestion, layout_sizes
from fedwatt.deploy.sums import Sums
from fedwatt.errors import DataError, FedwattError
from fedwatt.privacy.check_words import part_bytes
from fedwatt.privacy.secure import server
from fedwatt.privacy.secure.messages import Advert, Agreed, Masked, Revealed, Shares
from fedwatt.privacy.secure.plain import from_plain, to_plain
from fedwatt.privacy.secure_settings import Terms

log = logging.getLogger("fedwatt.deploy")

Message = TypeVar("Message")


@dataclass(frozen=True)
class SecureExchange(Sums):
    """The vehicles of a run as givers of secret numbers."""

    once: ClassVar[bool] = True

    @property
    def stage_seconds(self) -> float:
        """How long the four short messages around a vehicle's vector may take."""
        return 4 * self.settings.stage_seconds

    def own_part(self, called: list[str], asked: SumQuestion, purpose: str) -> Part:
        """The sum over those of `called` that see an exchange through; NoSum if too few do."""
        layout, least = asked.layout, max(self.settings.smallest_sum, self.survivors_needed)
        if len(called) < least:  # so that each is hidden among the others
            reason = f"a secure sum needs {least} vehicles or more, and {len(called)} are called."
            raise NoSum(reason, frozenset())
        terms = self.settings.terms(
            run=self.run.run,
            number=self.run.next_exchange(time.time_ns() // 1000),
            called=len(called),
            length=layout.length,
            purpose=purpose,
        )
        terms = replace(terms, threshold=max(terms.threshold, least), bits=layout.bits)
        asking = _Asking(self, asked)
        try:
            total, survivors = asking.total(terms, called)
        except FedwattError as error:
            if isinstance(error, server.NoTotal):
                asking.reject(error.rejected)
            lost = frozenset(called) - asking.answered
            rejected = frozenset(asking.rejected)
            raise NoSum(str(error), lost, rejected, sent=asking.sent) from error
        finally:
            for name, reason in asking.rejected.items():
                log.warning("%s: a message of %s rejected: %s", asked.what, name, reason)
                self.roster.events.uncounted(name, reason)
        made = (part_bytes(terms.digest, len(survivors)),)
        return Part(words=total, counted=survivors, exchanges=made, rejected=asking.rejected)


@dataclass
class _Asking:
    """One exchange on its way."""

    exchange: SecureExchange
    asked: SumQuestion
    rejected: dict[str, str] = field(default_factory=dict)
    answered: frozenset[str] = frozenset()
    """Whose answer to the last step was in order."""
    sent: bool = False
    """Whether vectors have been asked for."""

    def total(self, terms: Terms, names: list[str]) -> tuple[Any, tuple[str, ...]]:
        """The sum of the survivors' words, and who they are."""
        short = self.exchange.settings.stage_seconds
        adverts = self._ask("secure-keys", Advert, dict.fromkeys(names, terms), short)
        keyed, left_out = server.make_roster(terms, adverts)
        self.reject(left_out)
        rosters = {name: keyed.roster(name) for name in keyed.graph.names}
        shares = self._ask("secure-shares", Shares, rosters, short)
        routed, inboxes, left_out = server.route(keyed, shares)
        self.reject(left_out)
        vectors = {}
        for name, inbox in inboxes.items():
            plain = self.asked.question(name)
            vectors[name] = Content({**plain.values, **to_plain(inbox, SECURE)}, plain.arrays)
        self.sent = True
        enough = self.exchange.enough and max(self.exchange.enough, terms.threshold)
        summed, survivors, left_out = self._added(routed, vectors, enough).collected()
        self.reject(left_out)
        told = dict.fromkeys(summed.survivors, survivors)
        passed, left_out = server.pass_on(summed, self._ask("secure-agree", Agreed, told, short))
        self.reject(left_out)
        revealed = self._ask("secure-reveal", Revealed, passed, short)
        total, left_out = server.unmask(summed, revealed)
        self.reject(left_out)
        return total, summed.survivors

    def _added(
        self, routed: server.Routed, questions: Mapping[str, Content], enough: int
    ) -> server.Adding:
        """The sum of the vectors that come; none of them is kept."""
        adding = server.Adding(routed)

        def add(name: str, answer: Answer) -> Answer:
            try:
                adding.add(name, from_plain(Masked, answer.usable().values))
            except DataError as error:
                self.rejected[name] = str(error)
                return answer
            return replace(answer, content=Content())

        form = ReplyForm(self.asked.kind, layout_sizes(self.asked.layout))
        self.exchange.roster.ask(form, questions, self.asked.seconds, enough=enough, each=add)
        self.answered = frozenset(adding.arrived)
        return adding

    def _ask(
        self, kind: str, reply: type[Message], messages: Mapping[str, Any], seconds: float
    ) -> dict[str, Message]:
        """Answers to messages of the exchange, by vehicle."""
        # Vehicles look at the configuration once, before they have keys made.
        common = self.exchange.common if kind == "secure-keys" else {}
        questions = {n: Content({**common, **to_plain(one, SECURE)}) for n, one in messages.items()}
        good = {}
        answers = self.exchange.roster.ask(ReplyForm(kind), questions, seconds)
        for name, answer in answers.items():
            try:
                good[name] = from_plain(reply, answer.usable().values)
            except DataError as error:
                self.rejected[name] = str(error)
        self.answered = frozenset(good)
        return good

    def reject(self, left_out: Mapping[str, str]) -> None:
        """Take note of those whose messages were not in order."""
        self.rejected |= left_out
        self.answered -= left_out.keys()
