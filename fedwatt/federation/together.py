"""Several trainings on one fleet, side by side.

Trainings may differ in seeds, learning rate, hyperparameters and server. Those whose jobs are of
one kind train in one stack, with the results of separate trainings up to rounding.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from fedwatt.engine.job import Job
from fedwatt.engine.together import train_together
from fedwatt.errors import SettingError
from fedwatt.federation.federation import Federation
from fedwatt.federation.local_round import LocalRound, finish_round
from fedwatt.federation.loop import TrainingResult
from fedwatt.federation.participation import Call, Present
from fedwatt.federation.records import History, RoundRecord
from fedwatt.federation.state import State
from fedwatt.federation.work import no_work
from fedwatt.methods import Method
from fedwatt.metrics import Stopwatch


@dataclass
class _Member:
    federation: Federation
    method: Method
    state: State
    history: History


@dataclass(frozen=True)
class _Begun:
    """A member's round up to its first step."""

    watch: Stopwatch
    present: Present
    calls: list[Call]
    stack: LocalRound | None  # None: no vehicle trains


def train_side_by_side(
    trainings: Sequence[tuple[Federation, Method]],
    *,
    on_round: Callable[[int, State, RoundRecord], None] | None = None,
) -> list[TrainingResult]:
    """Train all `trainings`; `on_round` gets the place of the training that finished a round."""
    first = trainings[0][0]
    members = []
    for federation, method in trainings:
        if federation.asynchronous.buffer or federation.fleet is not first.fleet:
            raise SettingError(
                "Only synchronous federations of one fleet object can train side by side."
            )
        if (federation.device, federation.dtype) == (first.device, first.dtype):
            federation.share_pool(first)
        history = History(method.name)
        state, record = federation.start(method)
        history.add(state.round, len(federation.seeds), record)
        members.append(_Member(federation, method, state, history))
    while left := [i for i, m in enumerate(members) if not m.federation.finished(m.state)]:
        for place, record in zip(left, _advance([members[i] for i in left]), strict=True):
            if on_round is not None:
                on_round(place, members[place].state, record)
    return [TrainingResult(member.history, member.state) for member in members]


def _advance(members: Sequence[_Member]) -> list[RoundRecord]:
    """Do one round of every member."""
    rounds = [_begin(member) for member in members]
    kinds: dict[Hashable, dict[int, Job]] = {}
    for place, begun in enumerate(rounds):
        if begun.stack is not None:
            kinds.setdefault(begun.stack.job.kind, {})[place] = begun.stack.job
    deltas: dict[int, Tensor] = {}
    for jobs in kinds.values():
        # The time of the whole stack is recorded for the first of its trainings.
        watch = rounds[min(jobs)].watch
        with watch.section("training"):
            displacements = train_together(list(jobs.values()), watch)
        deltas |= zip(jobs, displacements, strict=True)
    return [
        _conclude(member, begun, deltas.get(place))
        for place, (member, begun) in enumerate(zip(members, rounds, strict=True))
    ]


def _begin(member: _Member) -> _Begun:
    fleet = member.federation.simulated
    watch = member.federation.stopwatch()
    present = fleet.present(member.state)
    with watch.section("training"):
        calls = fleet.calls(member.state, present)
        working = [call for call in calls if call.steps]
        stack = fleet.begin(member.method, member.state, working, watch) if working else None
    return _Begun(watch, present, calls, stack)


def _conclude(member: _Member, begun: _Begun, deltas: Tensor | None) -> RoundRecord:
    """Aggregate a member's round and return its record; `deltas` are [P, D]."""
    federation = member.federation
    method = member.method
    state = member.state
    work = no_work(state.weights)
    if begun.stack is not None and deltas is not None:
        work = finish_round(federation, method, begun.stack, deltas)
    work = replace(work, called=begun.calls)
    member.state, record = federation.conclude(method, state, begun.present, work, begun.watch)
    member.history.add(member.state.round, len(federation.seeds), record)
    return record
