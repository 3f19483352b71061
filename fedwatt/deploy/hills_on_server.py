"""The server's side of hills on a real fleet: learn the field once, hand it to every vehicle.

Counts and sums come as totals of secure sums, and the server sees no others. The field it makes of
them goes to all vehicles, also to those that join later, and lies in the run folder.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from fedwatt.deploy.exchange import Exchange
from fedwatt.deploy.hills_on_board import HILLS
from fedwatt.deploy.messages import Content, ReplyForm, Value
from fedwatt.deploy.roster import Roster
from fedwatt.deploy.secret_totals import SecretTotals
from fedwatt.deploy.state import RunState
from fedwatt.elevation.encoding import field_digest, field_to_arrays, judged_prefix
from fedwatt.elevation.exchange import SharedField, learn_from_totals
from fedwatt.elevation.field import Field
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.question import Question
from fedwatt.elevation.store import Provenance, read_field, read_provenance, write_field
from fedwatt.errors import DataError, RunError
from fedwatt.noise import SystemNoise

log = logging.getLogger("fedwatt.deploy")

TAKEN = ReplyForm("terrain-field")
AGAIN_SECONDS = 10.0  # after which a vehicle that could not take the field is sent it again


def hills_of_run(out: Path, roster: Roster, run: RunState, *, resume: bool) -> tuple[Field, int]:
    """The field of a run and how many vehicles it is from: learned now, or before a cut-off."""
    file = out / "field.parquet"
    if resume and file.exists():
        try:
            found, provenance = read_field(file), read_provenance(file)
        except DataError as problem:
            raise RunError(
                f"{problem} Delete {file}, and {out / 'checkpoint'} if there is one: --resume then "
                "learns hills and models anew."
            ) from problem
        log.info("hills: %d nodes, learned before", found.nodes)
        return found, 0 if provenance is None else len(provenance.vehicles)
    run.begin_learning()
    learned = learn_hills(roster, run)
    provenance = Provenance.by(learned.contributors, roster.config.data)
    write_field(file, learned.field, driven=learned.driven, provenance=provenance)
    return learned.field, len(learned.contributors)


def learn_hills(roster: Roster, run: RunState) -> SharedField:
    """The field that the connected vehicles learn together, under masks."""
    config = roster.config
    totals = SecretTotals(roster, run, "hills", "secure-terrain", _asked)
    everyone = frozenset(c.name for c in roster.fleet().clients if not c.held_out)
    grid = Grid(cell_m=config.terrain.cell_m)
    learned = learn_from_totals(totals, everyone, grid, config.terrain, secret_draws)
    if learned.field.nodes:
        nodes, vehicles = learned.field.nodes, len(learned.contributors)
        log.info("hills: %d nodes are published, of %d vehicles", nodes, vehicles)
    else:
        log.warning(
            "hills: nothing is published, because %s; each vehicle has what it learns by itself",
            learned.nothing,
        )
    return learned


def _asked(question: Question) -> Content:
    """What a message about a question holds."""
    arrays = {"nodes": question.nodes}
    if question.field is not None:
        arrays |= field_to_arrays(question.field)
    for number, one in enumerate(question.judged):
        arrays |= field_to_arrays(one, judged_prefix(number))
    values: dict[str, Value] = {
        "count": question.field is None and not question.judged,
        "judged": len(question.judged),
        "segment_s": question.segment_s,
    }
    return Content(values, arrays)


def secret_draws(*purpose: object) -> SystemNoise:
    """Noise that nobody can repeat: every vehicle knows the seed of the configuration."""
    return SystemNoise()


@dataclass
class PublishedHills:
    """The field of a run, and which vehicles have it on board."""

    published: Field
    common: Mapping[str, Value]
    seconds: float
    """How long a vehicle may take to make it its own."""
    holders: set[int] = field(default_factory=set)
    doubted: set[int] = field(default_factory=set)
    """Holders that are sent it once more; one that has it still says so at once."""
    asked: dict[str, int] = field(default_factory=dict)
    """Fields on their way: node by message number."""
    pause: dict[int, float] = field(default_factory=dict)
    """Nodes that are not sent it before a time."""

    @cached_property
    def digest(self) -> str:
        """Names the field in questions and in the vehicles' files."""
        return field_digest(self.published)

    @property
    def question_values(self) -> dict[str, Value]:
        """Names the field in every question that is about it."""
        return {HILLS: self.digest}

    def offer(self, roster: Roster) -> None:
        """Send the field to vehicles that are not known to have it; waits for none."""
        exchange = roster.exchange
        if self.asked:
            self._receive(exchange)
        now = exchange.clock()
        wanting = roster.online.keys() - (self.holders - self.doubted)
        fresh = {
            member.node: name
            for name, member in roster.members.items()
            if member.node in wanting and self.pause.get(member.node, now) <= now
        }
        if not fresh:
            return
        never = {client.name for client in roster.fleet().clients if client.held_out}
        arrays = field_to_arrays(self.published)
        questions = {
            node: roster.for_node(node, Content({**self.common, "own": name not in never}, arrays))
            for node, name in fresh.items()
        }
        # What was sent before to these is not waited for any more.
        self.asked = {n: node for n, node in self.asked.items() if node not in fresh}
        self.asked |= exchange.send(TAKEN, questions, self.seconds)
        self.pause |= dict.fromkeys(fresh, now + max(AGAIN_SECONDS, self.seconds))
        self.doubted -= fresh.keys()

    def _receive(self, exchange: Exchange) -> None:
        """Note who has the field by now, and who could not take it."""
        before = set(self.asked.values())
        answers = exchange.receive(TAKEN, self.asked)
        for node in before - set(self.asked.values()):
            content = answers[node].content if node in answers else None
            if content is not None and content.values["field"] == self.digest:
                self.holders.add(node)
                self.pause.pop(node, None)
            else:
                log.warning("node %d could not take the field; its own log says why", node)
                self.pause[node] = exchange.clock() + AGAIN_SECONDS

    def wait(self, roster: Roster) -> None:
        """Until all vehicles that are there have the field, or time is up; RunError if none has."""

        def answered() -> bool:
            roster.refresh()
            return not self.asked

        roster.exchange.wait(answered, self.seconds)
        if not self.holders:
            raise RunError(
                "No vehicle took the field of hills. Their own logs say why; --resume tries again."
            )
