"""Who the vehicles of a run are: names, sizes and the nodes that answer for them.

A vehicle enrols by telling its name and its windows. Where its key was registered under a name, it
must be that one; a name that a node which is still there answers for is not given to a second one.
So a vehicle that restarts, or comes back with a new key under its registered name, is the same
vehicle, and nobody else can speak for it.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING

import numpy as np

import fedwatt
from fedwatt.deploy.conduct import Conduct
from fedwatt.deploy.error_vectors import MOST_WINDOWS
from fedwatt.deploy.event_log import AWAY as AWAY_NOW
from fedwatt.deploy.event_log import ENROLLED, FILE, MISSES, TURNED_AWAY, EventLog
from fedwatt.deploy.exchange import Answer, Exchange, Heard
from fedwatt.deploy.hours import told_seconds, until
from fedwatt.deploy.messages import AWAY, IN_THE_CLEAR, Content, ReplyForm
from fedwatt.deploy.versions import version_fault
from fedwatt.errors import RunError
from fedwatt.federation.participation import BoolArray
from fedwatt.files import append_rows, read_rows
from fedwatt.runs.config import RunConfig
from fedwatt.runs.earlier import earlier_toml
from fedwatt.windows import DataSettings, Fleet
from fedwatt.windows.client import Client
from fedwatt.windows.split import SPLITS, held_out_vehicles, natural_key

if TYPE_CHECKING:
    from fedwatt.deploy.hills_on_server import PublishedHills

log = logging.getLogger("fedwatt.deploy")

AGAIN_SECONDS = 10.0
"""After which a node that was turned away is asked again; doubled with every refusal."""
LONGEST_AGAIN_SECONDS = 600.0
TAKEN = "another node already answers for"
DRIVING = ReplyForm("driving-field")


@dataclass(frozen=True)
class Member:
    """A vehicle as the server knows it."""

    name: str
    node: int  # Flower's number of the node that answers for it
    windows: tuple[int, int, int]
    """Training, validation and test windows; 0 where masks hide them."""
    simulated: bool
    relay: str = ""
    """The relay that answers for it; empty: it does so itself."""


@dataclass
class Roster:
    """The vehicles of a run; grows when new ones enrol, and forgets none."""

    exchange: Exchange
    config: RunConfig
    path: Path
    """Where the members are kept, a line each; of two with one name, the latter."""
    members: dict[str, Member] = field(default_factory=dict)
    online: dict[int, str] = field(default_factory=dict)
    """Nodes that are there now, with the name their key is registered under ("" for none)."""
    asked: dict[str, int] = field(default_factory=dict)
    """Enrolments on their way: node by message number."""
    turned_away: dict[int, float] = field(default_factory=dict)
    """Nodes that are not asked again before a time: those that cannot be admitted, or not yet."""
    refusals: dict[int, int] = field(default_factory=dict)
    """How often in a row a node was turned away."""
    away: dict[int, float] = field(default_factory=dict)
    """Nodes that have said until when they are outside their hours."""
    provision: "PublishedHills | None" = None
    """What vehicles must have on board before they can train; None: nothing but their data."""
    made: dict[DataSettings, tuple[tuple[object, ...], Fleet]] = field(default_factory=dict)
    """The fleet of these members by its settings, kept until somebody enrols."""
    missed: dict[str, str] = field(default_factory=dict)
    """Who was late with an answer to the last question or failed to give one, and why."""
    conduct: Conduct = field(init=False)
    events: EventLog = field(init=False)

    def __post_init__(self) -> None:
        self.events = EventLog(self.path.with_name(FILE))
        self.conduct = Conduct.read(self.path.with_name("conduct.json"))
        self.conduct.on_fault = self.events.uncounted

    @property
    def hidden(self) -> bool:
        """Whether masks hide what single vehicles have."""
        return self.config.secure.enabled

    @property
    def enrolment(self) -> ReplyForm:
        """What vehicles tell when they enrol."""
        return ReplyForm("enrol", more=AWAY if self.hidden else {**IN_THE_CLEAR, **AWAY})

    def load(self) -> None:
        """Continue with the vehicles of an interrupted run."""
        old = self.path.with_suffix(".json")  # one table, as earlier versions wrote it
        path = self.path if self.path.exists() or not old.exists() else old
        try:
            rows = json.loads(old.read_text("utf-8")) if path == old else read_rows(path)
            found = [Member(**row | {"windows": tuple(row["windows"])}) for row in rows]
            sizes = (count for m in found for count in m.windows)
            if not (self.hidden or all(self.possible(count) for count in sizes)):
                raise ValueError("a vehicle has an impossible number of windows")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{path} is damaged: {error}. Delete it.") from error
        self.members = {member.name: member for member in found}
        if path == old:
            self._keep(found)

    def wait(self) -> None:
        """Let vehicles enrol: until as many are there as configured, or time is up.

        A run that is continued waits for those it had, and goes on with whoever is there.
        """
        known, seconds = len(self.members), self.config.deploy.enrolment_seconds
        vehicles = known or self.config.deploy.vehicles

        def complete() -> bool:
            self.refresh()
            return 0 < vehicles <= enrolled()

        def enrolled() -> int:
            return sum(self.there(name) or self.is_away(name) for name in self.members)

        self.exchange.wait(complete, seconds)
        there = enrolled()
        if not there or (vehicles and there < vehicles and not known):
            raise RunError(
                f"{there} of {vehicles or 'any'} vehicles enrolled within {seconds:g} s. Start "
                "'fedwatt deploy vehicle' in each, or change deploy.vehicles."
            )
        log.info("%d vehicles enrolled", there)

    def refresh(self) -> None:
        """See who is there, ask newcomers to enrol and take in those who have."""
        exchange = self.exchange
        self.online = {node.node_id: node.name or "" for node in exchange.grid.get_nodes()}
        # Who was gone meanwhile may have other hours now.
        self.away = {node: until for node, until in self.away.items() if node in self.online}
        if self.asked:
            before = set(self.asked.values())
            answers = exchange.receive(self.enrolment, self.asked)
            admitted = (self._admit(node, answer) for node, answer in answers.items())
            self._keep([member for member in admitted if member is not None])
            for node in before - set(self.asked.values()) - answers.keys():
                self._turn_away(node, "it could not answer; its own log says why")
            self.events.flush()
        known = self.known_nodes() | set(self.asked.values())
        now = exchange.clock()
        waiting = {node for node, until in self.turned_away.items() if until > now}
        fresh = [node for node in self.online if node not in known | waiting]
        if fresh:
            question = Content({"config": earlier_toml(self.config)})
            seconds = self.config.deploy.enrolment_seconds
            questions = dict.fromkeys(fresh, question)
            self.asked |= exchange.send(self.enrolment, questions, seconds)
        if self.provision is not None:
            self.provision.offer(self)

    def known_nodes(self) -> set[int]:
        """Nodes of vehicles that have enrolled; a relay enrols itself."""
        return {member.node for member in self.members.values() if not member.relay}

    def branches(self, names: Iterable[str]) -> dict[int, list[str]]:
        """Those of `names` that a relay answers for, by its node; none here (`relay_roster`)."""
        return {}

    def for_node(self, node: int, question: Content) -> Content:
        """A question as a node is asked it; a relay would have to be told about whom."""
        return question

    def _keep(self, members: list[Member]) -> None:
        """Write down who has enrolled."""
        if members:
            append_rows(self.path, map(asdict, members))

    def _admit(self, node: int, answer: Answer) -> Member | None:
        """Enter a vehicle, or turn it away and say why."""
        reason = answer.trouble if answer.content is None else self._fault(node, answer.content)
        if reason or answer.content is None:
            if answer.refused:
                self.conduct.refused(self.online.get(node) or f"node {node}", answer.refused)
            self._turn_away(node, reason)
            return None
        values = answer.content.values
        windows = answer.content.arrays.get("windows", np.zeros(3))
        train, validation, test = (int(count) for count in windows)
        name = str(values["vehicle"])
        member = Member(name, node, (train, validation, test), bool(values["simulated"]))
        self.members[name] = member
        self.refusals.pop(node, None)
        log.info("vehicle %s enrolled", name)
        self.events.came(ENROLLED, name, version=str(values["version"])[:40])
        if away := told_seconds(values.get("away")):
            self.away[node] = self.exchange.clock() + away
            self.events.came(AWAY_NOW, name, reason=until(away))
        if values["version"] != fedwatt.__version__:
            log.warning(
                "vehicle %s has fedwatt %.40s on board, and the server has %s: its replies may "
                "differ from those of the others; install the same version",
                name,
                values["version"],
                fedwatt.__version__,
            )
        return member

    def _turn_away(self, node: int, reason: str) -> None:
        """Ask a node again later, and ever later: it may be put right, and is not to be nagged."""
        self.refusals[node] = self.refusals.get(node, 0) + 1
        # Who was cut off may come back before the old connection is over.
        doubled = 0 if reason.startswith(TAKEN) else min(self.refusals[node] - 1, 20)
        pause = min(AGAIN_SECONDS * 2**doubled, LONGEST_AGAIN_SECONDS)
        self.turned_away[node] = self.exchange.clock() + pause
        log.warning("node %d was turned away for %g s: %s", node, pause, reason)
        # It goes by the name that its key is registered under.
        name = self.online.get(node) or f"node {node}"
        self.events.came(TURNED_AWAY, name, reason=reason[:200])

    def possible(self, count: int) -> bool:
        """Whether a vehicle can have so many windows."""
        return 1 <= count <= MOST_WINDOWS

    def _fault(self, node: int, content: Content) -> str:
        """Why an enrolment cannot be accepted; empty if it can."""
        before = self.members.get(str(content.values["vehicle"]))
        if fault := self.name_fault(node, content, [] if before is None else [before.node]):
            return fault
        if content.values["features"] != list(self.config.data.columns):
            return "it has other features than the configuration asks for"
        if not content.values["enough"]:
            return "it lacks windows for training, validation or test"
        if self.hidden:
            return ""
        if "windows" not in content.arrays:
            return "it does not say how many windows it has"
        counts = content.arrays["windows"].tolist()
        if not all(self.possible(count) for count in counts):
            return f"it says that it has {counts} windows, and 1 to {MOST_WINDOWS} are possible"
        return ""

    def name_fault(self, node: int, content: Content, before: Iterable[int]) -> str:
        """Why a node cannot enrol under its name, which nodes had `before`; empty if it can."""
        name, registered = str(content.values["vehicle"]), self.online.get(node, "")
        if not name:
            return "it has no name"
        if registered and registered != name:
            return f"it calls itself '{name}', and its key is registered for '{registered}'"
        if any(other != node and other in self.online for other in before):
            return f"{TAKEN} '{name}'"
        return version_fault(str(content.values["version"]))

    def ordered(self) -> list[Member]:
        """Members in the order in which draws go through them, held-out ones included."""
        return sorted(self.members.values(), key=lambda member: natural_key(member.name))

    def held_out(self) -> frozenset[str]:
        """Vehicles that never train."""
        data = self.config.data
        return held_out_vehicles(self.members, data.held_out, data.split_seed)

    def there(self, name: str) -> bool:
        """Whether a vehicle is connected, has what it needs to train, and is not set aside."""
        node = self.members[name].node
        if self.conduct.set_aside(name) or self.is_away(name):
            return False
        ready = self.provision is None or node in self.provision.holders
        return node in self.online and ready

    def is_away(self, name: str) -> bool:
        """Whether a vehicle is connected and has said that it is outside its hours until later."""
        return self.away.get(self.members[name].node, 0.0) > self.exchange.clock()

    def unanswered(self, name: str) -> None:
        """Take note that a vehicle did not do what it was asked to."""
        if self.provision is not None:
            self.provision.doubted.add(self.members[name].node)

    def resize(self, name: str, windows: int) -> None:
        """Take note that a vehicle now has other training windows than it enrolled with."""
        member = self.members[name]
        self.members[name] = replace(member, windows=(windows, *member.windows[1:]))

    def heaviest(self) -> tuple[float, ...]:
        """Most training, validation and test windows that a vehicle counts for."""
        table = [member.windows for member in self.members.values()]
        return tuple(
            self.config.deploy.weight_cap * median_low(c) for c in zip(*table, strict=True)
        )

    def fleet(self, settings: DataSettings | None = None) -> Fleet:
        """The fleet as the server knows it: names and numbers of windows, no data.

        With other `settings` it is that of a run inside the run, with other features of the same
        windows.
        """
        settings, never = settings or self.config.data, self.held_out()
        about = (never, *self.members.values())
        if settings not in self.made or self.made[settings][0] != about:
            clients = tuple(_hollow(m, settings, m.name in never) for m in self.ordered())
            source = f"{len(clients)} vehicles on Flower"
            self.made[settings] = about, Fleet(clients, settings, source)
        return self.made[settings][1]

    def available(self, fleet: Fleet) -> BoolArray:
        """A_t as a mask over the vehicles of `fleet` that may train."""
        return np.array([self.there(c.name) for c in fleet.clients if not c.held_out], dtype=bool)

    def ask(
        self,
        form: ReplyForm,
        questions: Mapping[str, Content],
        seconds: float,
        *,
        enough: int = 0,
        share: float = 1.0,
        each: Callable[[str, Answer], Answer] = lambda name, answer: answer,
    ) -> dict[str, Answer]:
        """Answers by vehicle, in the order of `questions`, of those that came within `seconds`.

        `enough`, `share` and `each` as in `Exchange.ask`.
        """
        nodes = {name: self.members[name].node for name in questions if self.there(name)}
        sent = {node: questions[name] for name, node in nodes.items()}
        heard, names = Heard(), {node: name for name, node in nodes.items()}
        answers = self.exchange.ask(
            form,
            sent,
            seconds,
            enough=enough,
            share=share,
            heard=heard,
            each=lambda node, answer: each(names[node], answer),
        )
        closed = 0 < enough <= sum(answer.content is not None for answer in answers.values())
        return self.take_note(form.kind, nodes, answers, heard, closed=closed)

    def hand_out(self, question: Content, names: Collection[str], seconds: float) -> dict[str, str]:
        """Send vehicles a driving field; its digest as those say it that have taken it."""
        answers = self.ask(DRIVING, dict.fromkeys(names, question), seconds)
        contents = {name: answer.content for name, answer in answers.items()}
        return {name: str(own.values["field"]) for name, own in contents.items() if own is not None}

    def take_note(
        self,
        kind: str,
        nodes: Mapping[str, int],
        answers: Mapping[int, Answer],
        heard: Heard,
        *,
        closed: bool = False,
    ) -> dict[str, Answer]:
        """Write down what became of a question to these vehicles; their answers by name."""
        now, waited = self.exchange.clock(), round(heard.waited, 1)
        self.away |= {node: now + pause for node, pause in heard.away.items()}
        became = self.events.asked(kind, nodes, answers, heard, seconds=waited, closed=closed)
        self.missed = {n: reason for n, (event, reason) in became.items() if event in MISSES}
        found = {name: answers[node] for name, node in nodes.items() if node in answers}
        for name, answer in found.items():
            if answer.refused:
                self.conduct.refused(name, answer.refused)
        return found


def _hollow(member: Member, settings: DataSettings, held_out: bool) -> Client:
    """A client of which only the numbers of windows are known."""
    # All windows end at second 0, in no memory: only their number means anything.
    ends = [np.broadcast_to(np.int64(0), count) for count in member.windows]
    return Client(
        name=member.name,
        features=settings.columns,
        window=settings.window,
        series=np.zeros((0, len(settings.columns)), dtype=np.float32),
        ends=dict(zip(SPLITS, ends, strict=True)),
        labels={split: np.zeros(0, dtype=np.float32) for split in SPLITS},
        label_center_wh=0.0,
        label_scale_wh=1.0,
        strata={},
        trips=dict.fromkeys(SPLITS, ()),
        held_out=held_out,
        simulated=member.simulated,
    )
