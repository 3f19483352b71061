"""A relay: a server to its vehicles, and one vehicle to the centre.

A depot, a region or an edge site runs one. Its vehicles connect to it as to any server; the centre
asks it as it asks vehicles, and it answers for all of its own. What was decided:

- *The same model.* A relay passes on words of fixed point, which add exactly, so 2 relays of 3
  vehicles make the model of one server with the six, bit for bit (`sums`). Where masks are off, the
  relay makes words of the replies that it sees, after the checks that a server makes; a reply is
  shortened beside those of the same relay, so a model may differ where one is too long.
- *Masks* are between the vehicles of one relay. Each relay's part is a secure sum of its own, with
  its own minimum of vehicles, and the relay learns that sum and nothing else. What a vehicle's
  policy asks of a sum is asked of its relay's part, differential privacy included.
- *Followed models.* Vehicles tell by check words under `fleet.key` that a model came of the whole
  sum, whichever part they were in (`privacy.check_words`). All depots of a tree need the same
  `fleet.key`; `followed` stays as it is.
- *Who is asked* is drawn by the centre among all vehicles, which a relay names to it.
- *Identity.* A relay has a key that the centre's depot knows, like a vehicle's, and a depot of its
  own, which knows its vehicles.
- *Cut off.* A relay that has begun an answer finishes it without the centre, keeps its sum and
  gives it when it is asked again; one that is killed takes up the question where it was
  (`relay_app`). Vehicles under masks answer once, so what they sent to a relay that is killed
  before it has their sum is lost, as it is with a server.
- *What does not add* (medians, Krum, noise of the server's own) is refused by the centre at the
  start, by what methods declare (`summed_fleet.adding_fault`, `secure_fault`).
"""

import logging
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

import numpy as np
from flwr.app import RecordDict

import fedwatt
from fedwatt.deploy.array_file import read_arrays, write_arrays
from fedwatt.deploy.clear_sums import sums_of
from fedwatt.deploy.configuration import configuration_of, read_configuration
from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.guard import PLACES
from fedwatt.deploy.hills_on_server import PublishedHills
from fedwatt.deploy.kept_sums import SecretSum, keep_sum, recall_sum
from fedwatt.deploy.messages import IS_RELAY, Content, ReplyForm, Value, from_records, sealed
from fedwatt.deploy.parts import RELAY, NoSum, Part, SumQuestion, no_part, part_form
from fedwatt.deploy.purpose import Purpose
from fedwatt.deploy.questions import value
from fedwatt.deploy.relay_roster import TAKERS, RelayRoster
from fedwatt.deploy.state import RunState
from fedwatt.deploy.sums import GATHER_SECONDS
from fedwatt.elevation.encoding import field_from_arrays
from fedwatt.elevation.grid import Grid
from fedwatt.errors import DataError, SettingError
from fedwatt.files import oldest_first

log = logging.getLogger("fedwatt.deploy")

KEPT_RUNS: Final = 8
"""Runs whose sums are kept, the latest."""
ENROL_SECONDS: Final = 5.0
"""How long the centre is kept waiting for vehicles that are about to enrol."""
FIELD: Final = "field.safetensors"
"""The field of hills that a relay gives to its vehicles, beside their roster."""


@dataclass
class Relay:
    """Answers for the vehicles that `exchange` reaches; what it must not forget is in `folder`."""

    name: str
    folder: Path
    exchange: Exchange
    least: int = 1
    """Vehicles of its own that a part must be of, whatever the centre asks for."""
    rosters: dict[str, RelayRoster] = field(default_factory=dict)
    """By the configuration with which the centre lets vehicles enrol."""

    def answer(self, kind: str, records: RecordDict) -> RecordDict:
        """The sealed reply to a question of the centre."""
        answers: dict[str, Callable[[Content], RecordDict]] = {
            "enrol": self._enrol,
            "relay-roster": self._told,
            "relay-sum": self._summed,
            "terrain-field": self._field,
            "driving-field": self._passed_on,
        }
        if kind not in answers:
            raise DataError(f"a question '{kind[:40]}' is for vehicles, and this is a relay")
        return answers[kind](from_records(records))

    def _enrol(self, question: Content) -> RecordDict:
        """Say that this is a relay, and let its vehicles enrol."""
        config = configuration_of(question)
        if not config.deploy.relays:
            raise SettingError(
                "The centre's run has no room for relays. Set deploy.relays to the number of "
                "vehicles that it is to have room for."
            )
        self._roster(str(question.values["config"])).refresh()
        content = Content({
            "vehicle": self.name, "enough": True, "features": list(config.data.columns),
            "simulated": False, "version": fedwatt.__version__, "relay": True,
        })  # fmt: skip
        return sealed(ReplyForm("enrol", more=IS_RELAY), content)

    def _roster(self, text: str) -> RelayRoster:
        """The vehicles that enrol by the configuration `text`."""
        key = sha256(text.encode()).hexdigest()[:32]
        if key not in self.rosters:
            path = self.folder / "rosters" / key / "roster.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            roster = RelayRoster(self.exchange, read_configuration(text), path)
            roster.provision = _kept_field(path.with_name(FIELD))
            while len(self.rosters) >= KEPT_RUNS:
                del self.rosters[next(iter(self.rosters))]
            self.rosters[key] = roster
        return self.rosters[key]

    def _addressed(self, question: Content) -> RelayRoster:
        """The vehicles that a question is about."""
        roster = self._roster(str(value(question, RELAY + "config", str)))
        never = question.values.get(RELAY + "never")
        roster.never = frozenset(map(str, never if isinstance(never, list) else ()))
        return roster

    def _told(self, question: Content) -> RecordDict:
        """Who the vehicles are, and which of them are there."""
        roster = self._addressed(question)

        def settled() -> bool:
            roster.refresh()
            return not roster.asked

        self.exchange.wait(settled, ENROL_SECONDS)
        members = roster.ordered()
        values: dict[str, Value] = {
            "names": [member.name for member in members],
            "there": [roster.there(member.name) for member in members],
            "simulated": [member.simulated for member in members],
            "levels": roster.levels + 1,
        }
        windows = np.array([m.windows for m in members], dtype=np.int64).reshape(-1, 3)
        return sealed(ReplyForm("relay-roster"), Content(values, {"windows": windows}))

    def _summed(self, question: Content) -> RecordDict:
        """The part that this relay's vehicles have in a sum."""
        asked, names = SumQuestion.read(question)
        roster, run = self._addressed(question), self._run(str(value(question, "run", str)))
        purpose = Purpose.of(asked.kind, asked.question(names[0])).text
        layout = asked.layout
        try:
            part = self._kept(run, purpose, names) or self._part(roster, run, asked, names, purpose)
            content = part.reply(names, layout.bits)
        except NoSum as error:
            log.warning("%s: %s", asked.what, error)
            content = no_part(error)
        return sealed(part_form(layout, len(names)), content)

    def _part(
        self, roster: RelayRoster, run: RunState, asked: SumQuestion, names: list[str], purpose: str
    ) -> Part:
        """The sum over those of `names` that are there; kept where it cannot be asked for again."""
        question = asked.question(names[0])
        config = configuration_of(question)
        self.exchange.wait(lambda: not _away(roster, names), min(GATHER_SECONDS, asked.seconds))
        there = [name for name in names if name not in _away(roster, names)]
        if not there:
            raise NoSum("none of its vehicles is there", frozenset(names))
        places = config.terrain.minimum_vehicles if asked.kind in PLACES else 0
        common = {n: question.values[n] for n in ("run", "config", "label") if n in question.values}
        needed = max(self.least, places)
        sums = sums_of(roster, run, config.secure, common, survivors_needed=needed)
        log.info("%s: asking %d of %d vehicles", asked.what, len(there), len(names))
        part = sums.part(there, asked, purpose)
        if sums.once or set(part.counted) == set(names):
            kept = SecretSum({"words": part.words}, part.counted, parts=part.exchanges)
            keep_sum(run.path.parent, purpose, kept)
        return part

    def _kept(self, run: RunState, purpose: str, names: list[str]) -> Part | None:
        """What was added up before, for a centre that asks again."""
        found = recall_sum(run.path.parent, purpose)
        if found is None or not set(found.survivors) <= set(names):
            return None
        words, counted = found.sums["words"], found.survivors
        return Part(words=words, counted=counted, exchanges=found.parts)

    def _run(self, run: str) -> RunState:
        """The numbers of a run of the centre's, as far as they are this relay's."""
        folder = self.folder / "runs" / sha256(run.encode()).hexdigest()[:32]
        path = folder / "deployment.json"
        if path.exists():
            return RunState.read(path)
        folder.mkdir(parents=True, exist_ok=True)
        state = RunState(path, run)
        state.save()
        for old in oldest_first(folder.parent.iterdir())[:-KEPT_RUNS]:
            shutil.rmtree(old, ignore_errors=True)
        return state

    def _field(self, question: Content) -> RecordDict:
        """Take the field of hills, which vehicles are given before they are there to train."""
        roster = self._addressed(question)
        about = {name: str(value(question, name, str)) for name in ("run", "config")}
        write_arrays(roster.path.with_name(FIELD), question.arrays, about)
        roster.provision = _kept_field(roster.path.with_name(FIELD))
        if roster.provision is None:
            raise DataError("the field of hills could not be kept")
        roster.refresh()
        return sealed(ReplyForm("terrain-field"), Content({"field": roster.provision.digest}))

    def _passed_on(self, question: Content) -> RecordDict:
        """Pass a driving field on to vehicles; who has it."""
        roster, config = self._addressed(question), configuration_of(question)
        names = question.values.get(RELAY + "names")
        common = {n: v for n, v in question.values.items() if not n.startswith(RELAY)}
        named = names if isinstance(names, list) else []
        own = [str(name) for name in named if name in roster.members]
        seconds = config.deploy.round_seconds
        taken = roster.hand_out(Content(common, question.arrays), own, seconds)
        if not taken:
            raise DataError("no vehicle took the driving field")
        digest = next(iter(taken.values()))
        content = Content({"field": digest, "taken": [n for n, d in taken.items() if d == digest]})
        return sealed(ReplyForm("driving-field", more=TAKERS), content)


def _kept_field(file: Path) -> PublishedHills | None:
    """The field, to be offered to vehicles; None where there is none that can be read."""
    try:
        arrays, about = read_arrays(file)
        config = read_configuration(about["config"])
        shared = field_from_arrays(arrays, Grid(cell_m=config.terrain.cell_m))
    except (KeyError, DataError):
        return None
    return PublishedHills(shared, about, config.deploy.round_seconds)


def _away(roster: RelayRoster, names: list[str]) -> set[str]:
    """Those of `names` that are not there."""
    roster.refresh()
    return {name for name in names if name not in roster.members or not roster.there(name)}
