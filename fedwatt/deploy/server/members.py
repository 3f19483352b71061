"""Vehicles of a run: names, numbers of windows, and the nodes that answer for them.

A vehicle enrols by accepting the plan. It must have the name of the certificate that its key was
registered with, and a name that a connected node answers for is not given to a second one. A
vehicle may enrol at any time; the plan names conditions, not vehicles.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Final

import numpy as np

import fedwatt
from fedwatt.deploy.plan.plan import Plan
from fedwatt.deploy.server import events as event_log
from fedwatt.deploy.server.events import EventLog, Faults
from fedwatt.deploy.server.requests import Outcome, Reply, Requests
from fedwatt.deploy.vehicle.errors import MOST_WINDOWS
from fedwatt.deploy.vehicle.messages import WINDOWS, ReplyForm
from fedwatt.deploy.wire import Content
from fedwatt.errors import RunError
from fedwatt.federation.participation import BoolArray
from fedwatt.files import append_rows, read_rows
from fedwatt.runs.config import RunConfig
from fedwatt.windows import DataSettings, Fleet
from fedwatt.windows.client import Client
from fedwatt.windows.splits import SPLITS, held_out_vehicles, natural_key

if TYPE_CHECKING:
    from fedwatt.deploy.server.maps import PublishedMap

log = logging.getLogger("fedwatt.deploy")

FILE: Final = "members.jsonl"
AGAIN_SECONDS: Final = 10.0
"""After which a node that was turned away is asked again; doubled with every refusal."""
LONGEST_AGAIN_SECONDS: Final = 600.0
TAKEN: Final = "another node already answers for"


@dataclass(frozen=True)
class Member:
    """A vehicle as the server knows it."""

    name: str
    node: int
    windows: tuple[int, int, int]
    """Training, validation and test windows; 0 under secure aggregation."""


@dataclass
class Roster:
    """The vehicles of a run; grows when new ones enrol."""

    requests: Requests
    plan: Plan
    signed_plan: bytes
    path: Path
    """A line per member; of two with one name, the latter counts."""
    members: dict[str, Member] = field(default_factory=dict)
    online: dict[int, str] = field(default_factory=dict)
    """Connected nodes, with the names that their keys are registered under."""
    asked: dict[str, int] = field(default_factory=dict)
    """Enrolments on their way: node by message id."""
    turned_away: dict[int, float] = field(default_factory=dict)
    """Nodes that are not asked again before a time."""
    refusals: dict[int, int] = field(default_factory=dict)
    """How often in a row a node was turned away."""
    away: dict[int, float] = field(default_factory=dict)
    """Nodes that are outside their hours until a time."""
    published: "PublishedMap | None" = None
    """The elevation map that vehicles must have before they can train."""
    missed: dict[str, str] = field(default_factory=dict)
    """Who was late with a reply to the last request or failed, and why."""
    faults: Faults = field(init=False)
    events: EventLog = field(init=False)
    _fleets: dict[DataSettings, tuple[tuple[object, ...], Fleet]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.events = EventLog(self.path.with_name(event_log.FILE))
        self.faults = Faults.read(self.path.with_name(event_log.FAULTS), self.events)

    @property
    def config(self) -> RunConfig:
        """Return the plan's configuration."""
        return self.plan.config

    @property
    def hidden(self) -> bool:
        """Tell whether secure aggregation hides what single vehicles have."""
        return self.config.secure.enabled

    @property
    def enrolment(self) -> ReplyForm:
        """Return the form of an enrolment."""
        return ReplyForm("enrol", more={} if self.hidden else WINDOWS)

    def load(self) -> None:
        """Continue with the vehicles of an interrupted run."""
        try:
            rows = read_rows(self.path)
            members = [Member(**row | {"windows": tuple(row["windows"])}) for row in rows]
            if not self.hidden and not all(self.possible(n) for m in members for n in m.windows):
                raise ValueError("a vehicle has an impossible number of windows")
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise RunError(f"{self.path} is damaged: {error}. Delete it.") from error
        self.members = {member.name: member for member in members}

    def wait(self) -> None:
        """Let vehicles enrol: until as many are there as the plan says, or time is up.

        A continued run waits for those it had, and goes on with those that are there.
        """
        before = len(self.members)
        seconds = self.config.deploy.enrolment_seconds
        vehicles = before or self.config.deploy.vehicles

        def enrolled() -> int:
            return sum(self.there(name) or self.is_away(name) for name in self.members)

        def complete() -> bool:
            self.refresh()
            return 0 < vehicles <= enrolled()

        self.requests.wait(complete, seconds)
        there = enrolled()
        if not there or (vehicles and there < vehicles and not before):
            raise RunError(
                f"{there} of {vehicles or 'any'} vehicles enrolled within {seconds:g} s. Start "
                "'fedwatt deploy vehicle' in each, or sign a plan with other deploy.vehicles."
            )
        log.info("%d vehicles enrolled", there)

    def refresh(self) -> None:
        """Update who is connected, ask new vehicles to enrol and admit those that have."""
        requests = self.requests
        self.online = requests.channel.nodes()
        self.away = {node: until for node, until in self.away.items() if node in self.online}
        if self.asked:
            self._receive()
        nodes = {member.node for member in self.members.values()} | set(self.asked.values())
        now = requests.clock()
        waiting = {node for node, until in self.turned_away.items() if until > now}
        fresh = [node for node in self.online if node not in nodes | waiting]
        if fresh:
            request = Content({"kind": "enrol", "signed_plan": self.signed_plan})
            seconds = self.config.deploy.enrolment_seconds
            self.asked |= requests.send(self.enrolment, dict.fromkeys(fresh, request), seconds)
        if self.published is not None:
            self.published.offer(self)

    def _receive(self) -> None:
        """Admit the vehicles whose enrolment has come."""
        before = set(self.asked.values())
        outcome = Outcome()
        replies = self.requests.receive(self.enrolment, self.asked, outcome)
        admitted = [self._admit(node, reply) for node, reply in replies.items()]
        members = [member for member in admitted if member is not None]
        if members:
            append_rows(self.path, map(asdict, members))
        for node in before - set(self.asked.values()) - replies.keys():
            self._turn_away(node, outcome.failed.get(node, "it could not reply"))
        self.events.flush()

    def _admit(self, node: int, reply: Reply) -> Member | None:
        """Enter a vehicle, or turn it away and say why."""
        reason = reply.trouble if reply.content is None else self._fault(node, reply.content)
        if reason or reply.content is None:
            self._turn_away(node, reason)
            return None
        values = reply.content.values
        windows = reply.content.arrays.get("windows", np.zeros(3))
        train, validation, test = (int(count) for count in windows)
        name = str(values["vehicle"])
        version = str(values["version"])
        member = Member(name, node, (train, validation, test))
        self.members[name] = member
        self.refusals.pop(node, None)
        log.info("vehicle %s enrolled", name)
        self.events.came(event_log.ENROLLED, name, version=version[:40])
        if version != fedwatt.__version__:
            log.warning("vehicle %s has fedwatt %.40s", name, version)
        return member

    def _turn_away(self, node: int, reason: str) -> None:
        """Ask a node again later, and ever later."""
        self.refusals[node] = self.refusals.get(node, 0) + 1
        # A vehicle that was cut off may come back before the old connection is over.
        doubled = 0 if reason.startswith(TAKEN) else min(self.refusals[node] - 1, 20)
        pause = min(AGAIN_SECONDS * 2**doubled, LONGEST_AGAIN_SECONDS)
        self.turned_away[node] = self.requests.clock() + pause
        log.warning("node %d was turned away for %g s: %s", node, pause, reason)
        name = self.online.get(node) or f"node {node}"
        self.events.came(event_log.TURNED_AWAY, name, reason=reason[:200])

    def possible(self, count: int) -> bool:
        """Tell whether a vehicle can have so many windows."""
        return 1 <= count <= MOST_WINDOWS

    def _fault(self, node: int, content: Content) -> str:
        """Return why an enrolment cannot be accepted; empty if it can."""
        name = str(content.values["vehicle"])
        registered = self.online.get(node, "")
        if not name:
            return "it has no name"
        if registered and registered != name:
            return f"it calls itself '{name}', and its key is registered for '{registered}'"
        before = self.members.get(name)
        if before is not None and before.node != node and before.node in self.online:
            return f"{TAKEN} '{name}'"
        if not content.values["enough"]:
            return "it lacks windows for training, validation or test"
        if self.hidden:
            return ""
        if "windows" not in content.arrays:
            return "it does not tell how many windows it has"
        counts = content.arrays["windows"].tolist()
        if not all(self.possible(count) for count in counts):
            return f"it tells that it has {counts} windows, and 1 to {MOST_WINDOWS} are possible"
        return ""

    def held_out(self) -> frozenset[str]:
        """Return the vehicles that never train."""
        data = self.config.data
        return held_out_vehicles(self.members, data.held_out, data.split_seed)

    def there(self, name: str) -> bool:
        """Tell whether a vehicle is connected, has what it needs, and is not excluded."""
        node = self.members[name].node
        if self.faults.excluded(name) or self.is_away(name):
            return False
        ready = self.published is None or node in self.published.holders
        return node in self.online and ready

    def is_away(self, name: str) -> bool:
        """Tell whether a vehicle is connected and outside its hours."""
        return self.away.get(self.members[name].node, 0.0) > self.requests.clock()

    def unanswered(self, name: str) -> None:
        """Take note that a vehicle did not do what it was asked to."""
        if self.published is not None:
            self.published.doubted.add(self.members[name].node)

    def resize(self, name: str, windows: int) -> None:
        """Take note that a vehicle now has other training windows than it enrolled with."""
        member = self.members[name]
        self.members[name] = replace(member, windows=(windows, *member.windows[1:]))

    def heaviest(self) -> tuple[float, ...]:
        """Return the most training, validation and test windows that a vehicle counts for."""
        table = [member.windows for member in self.members.values()]
        cap = self.config.deploy.weight_cap
        return tuple(cap * median_low(counts) for counts in zip(*table, strict=True))

    def fleet(self, settings: DataSettings | None = None) -> Fleet:
        """Return the fleet as the server knows it: names and numbers of windows, no data.

        With other `settings` it is that of the plan's model without elevation.
        """
        settings, never = settings or self.config.data, self.held_out()
        state = (never, *self.members.values())
        if settings not in self._fleets or self._fleets[settings][0] != state:
            ordered = sorted(self.members.values(), key=lambda member: natural_key(member.name))
            clients = tuple(_client(m, settings, m.name in never) for m in ordered)
            self._fleets[settings] = state, Fleet(clients, settings, f"{len(clients)} vehicles")
        return self._fleets[settings][1]

    def available(self, fleet: Fleet) -> BoolArray:
        """Return A_t as a mask over the vehicles of `fleet` that may train."""
        return np.array([self.there(c.name) for c in fleet.clients if not c.held_out], dtype=bool)

    def ask(
        self,
        form: ReplyForm,
        requests: Mapping[str, Content],
        seconds: float,
        *,
        kind: str = "",
        enough: int = 0,
        share: float = 1.0,
        each: Callable[[str, Reply], Reply] = lambda name, reply: reply,
    ) -> dict[str, Reply]:
        """Return replies by vehicle, in the order of `requests`, of those that came in time.

        `enough`, `share` and `each` as in `Requests.ask`; `kind` is what events call it.
        """
        nodes = {name: self.members[name].node for name in requests if self.there(name)}
        sent = {node: requests[name] for name, node in nodes.items()}
        outcome = Outcome()
        names = {node: name for name, node in nodes.items()}
        replies = self.requests.ask(
            form,
            sent,
            seconds,
            enough=enough,
            share=share,
            outcome=outcome,
            each=lambda node, reply: each(names[node], reply),
        )
        closed = 0 < enough <= sum(reply.content is not None for reply in replies.values())
        return self.take_note(kind or form.kind, nodes, replies, outcome, closed=closed)

    def take_note(
        self,
        kind: str,
        nodes: Mapping[str, int],
        replies: Mapping[int, Reply],
        outcome: Outcome,
        *,
        closed: bool = False,
    ) -> dict[str, Reply]:
        """Write down what became of a request to these vehicles; return their replies by name."""
        now = self.requests.clock()
        waited = round(outcome.waited, 1)
        self.away |= {node: now + pause for node, pause in outcome.away.items()}
        became = self.events.asked(kind, nodes, replies, outcome, seconds=waited, closed=closed)
        self.missed = {
            name: reason for name, (event, reason) in became.items() if event in event_log.MISSES
        }
        return {name: replies[node] for name, node in nodes.items() if node in replies}


def _client(member: Member, settings: DataSettings, held_out: bool) -> Client:
    """Return a client of which only the numbers of windows are known."""
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
        simulated=False,
    )
