"""Sums over replies in the clear, added up in fixed point where vehicles are connected.

A relay, or a server with relays, sees the replies of its own vehicles, checks them and shortens
what is too long as a server without relays does (`remote_fleet`), and adds what is left as words,
so that the grouping of vehicles does not show in the sum. A reply is too long beside the replies
that came to the same place. What a vehicle may count for is said by the server, which knows how
many windows all of them have.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import ClassVar, Final

import torch

from fedwatt.deploy.configuration import read_configuration
from fedwatt.deploy.error_vectors import judging_values, strata_values
from fedwatt.deploy.exchange import Answer
from fedwatt.deploy.messages import Content, ReplyForm, Value
from fedwatt.deploy.parts import NoSum, Part, SumQuestion, added
from fedwatt.deploy.questions import value
from fedwatt.deploy.remote_fleet import RemoteFleet
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.secure_exchange import SecureExchange
from fedwatt.deploy.state import RunState
from fedwatt.deploy.sums import Sums
from fedwatt.engine.call import Call
from fedwatt.errors import DataError
from fedwatt.privacy.fixed_point import FloatArray
from fedwatt.privacy.secure.compose import reply_values
from fedwatt.privacy.secure_settings import SecureSettings

log = logging.getLogger("fedwatt.deploy")

UNDER_MASKS: Final = "secure-"
"""Prefix of the kinds of questions that are answered under masks."""


class ClearSums(Sums):
    """The vehicles of a run as givers of numbers that are seen one by one where they arrive."""

    once: ClassVar[bool] = False

    def heaviest(self) -> tuple[float, ...]:
        """deploy.weight_cap medians of all vehicles' training, validation and test windows."""
        return self.roster.heaviest()

    def own_part(self, called: list[str], asked: SumQuestion, purpose: str) -> Part:
        """The sum over those of `called` whose answers can be used."""
        config = read_configuration(str(self.common["config"]))
        label = str(self.common["label"])
        (choice,) = (own for own in config.methods if own.label == label)
        fleet = RemoteFleet.of(self.roster, config, choice, self.run)
        kind = asked.kind.removeprefix(UNDER_MASKS)
        questions = {name: asked.question(name) for name in called}
        answered = self._trained if kind == "train" else self._judged
        parts, rejected = [], {}
        for name, values, row in answered(fleet, kind, questions, asked):
            if isinstance(values, str):
                rejected[name] = values
                continue
            words = asked.layout.encode(values)
            parts.append(Part(words=words, counted=(name,), rows={name: row} if row else {}))
        if len(parts) < max(1, self.survivors_needed):
            reason = f"{len(parts)} of {len(called)} vehicles gave an answer that can be used."
            lost = frozenset(called) - {part.counted[0] for part in parts}
            raise NoSum(reason, lost, frozenset(rejected))
        return replace(added(parts, asked.layout.bits), rejected=rejected)

    def _trained(
        self, fleet: RemoteFleet, kind: str, questions: Mapping[str, Content], asked: SumQuestion
    ) -> Iterator["_Summand"]:
        """What each reply to a round adds, and its row of the records."""
        method, model = fleet.method, fleet.method.adapted(fleet.model)
        first, members = next(iter(questions.values())), fleet.members()
        places = {members.name(k): k for k in range(len(members.fleet.clients))}
        own = {name: places[name] for name in questions}
        calls = {name: Call(0, k, fleet.steps(members, k)) for name, k in own.items()}
        form = fleet.training_form
        answers = self.roster.ask(form, questions, asked.seconds, enough=self.enough)
        if not answers:
            return
        before = torch.from_numpy(first.arrays["weights"])[None]
        round_ = int(value(first, "round", int))
        work = fleet.checked(round_, before, members, calls, answers)
        for row, (name, answer) in enumerate(answers.items()):
            if not work.counted[row]:
                yield name, answer.trouble or "its reply cannot be used", ()
                continue
            windows = min(members.windows(places[name]), *asked.heaviest[:1])
            uploads = {upload: table[row] for upload, table in work.uploads.items()}
            values = reply_values(method, model, work.deltas[row], windows, uploads, asked.layout)
            yield name, values, tuple(column[row] for column in work.columns.values())

    def _judged(
        self, fleet: RemoteFleet, kind: str, questions: Mapping[str, Content], asked: SumQuestion
    ) -> Iterator["_Summand"]:
        """What each vehicle's errors of a model add."""
        answers = self.roster.ask(ReplyForm(kind), questions, asked.seconds)
        for name, answer in answers.items():
            try:
                yield name, self._errors(fleet, kind, name, answer, asked.heaviest), ()
            except DataError as error:
                log.warning("%s: errors of %s rejected: %s", asked.what, name, error)
                if not answer.refused:
                    self.roster.conduct.fault(name, f"its errors of a model: {error}")
                yield name, str(error), ()

    def _errors(
        self, fleet: RemoteFleet, kind: str, name: str, answer: Answer, heaviest: tuple[float, ...]
    ) -> dict[str, FloatArray]:
        """Error sums as they add up; DataError if they cannot be true."""
        if kind != "evaluate":
            return strata_values(fleet.errors.strata(name, answer))
        windows = min(self.roster.members[name].windows[0], heaviest[0])
        return judging_values(*fleet.own_errors(name, answer, heaviest), int(windows))


_Summand = tuple[str, dict[str, FloatArray] | str, tuple[float, ...]]
"""A vehicle, what it adds or why it adds nothing, and its row of the records."""


def sums_of(
    roster: Roster,
    run: RunState,
    settings: SecureSettings,
    common: Mapping[str, Value],
    *,
    survivors_needed: int = 0,
    enough: int = 0,
) -> Sums:
    """Sums over the vehicles of a roster: under masks if that is the setting."""
    kind = SecureExchange if settings.enabled else ClearSums
    return kind(roster, run, settings, common, survivors_needed, enough)
