"""Several trainings on one fleet, side by side.

Each keeps its own seeds, rate, hyperparameters and server; those whose local work is of one kind
take their steps in one stack. What comes out is what each would have reached alone, up to rounding.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from torch import Tensor

from fedwatt.engine.call import Call
from fedwatt.engine.job import Job
from fedwatt.engine.together import train_together
from fedwatt.errors import SettingError
from fedwatt.federation.federation import Federation, Trained
from fedwatt.federation.prepared import Prepared
from fedwatt.federation.records import History, RoundRecord
from fedwatt.federation.state import State
from fedwatt.federation.work import no_work
from fedwatt.methods import Method


@dataclass
class _Member:
    federation: Federation
    method: Method
    state: State
    history: History


def train_side_by_side(
    trainings: Sequence[tuple[Federation, Method]],
    *,
    on_round: Callable[[int, State, RoundRecord], None] | None = None,
) -> list[Trained]:
    """Train all of them; `on_round` is told which one (its place) finished a round."""
    first = trainings[0][0]
    members = []
    for federation, method in trainings:
        if type(federation) is not Federation or federation.fleet is not first.fleet:
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
    return [Trained(member.history, member.state) for member in members]


def _advance(members: Sequence[_Member]) -> list[RoundRecord]:
    """One round of every member."""
    watches = [member.federation.stopwatch() for member in members]
    prepared: list[tuple[list[Call], Prepared | None]] = []
    for member, watch in zip(members, watches, strict=True):
        with watch.section("training"):
            calls = member.federation.calls(member.state)
            working = [call for call in calls if call.steps]
            own = None
            if working:
                own = member.federation.prepare(member.method, member.state, working, watch)
            prepared.append((calls, own))
    kinds: dict[Hashable, dict[int, Job]] = {}
    for place, (_, own) in enumerate(prepared):
        if own is not None:
            kinds.setdefault(own.job.kind, {})[place] = own.job
    deltas: dict[int, Tensor] = {}
    for jobs in kinds.values():
        # The time of the whole stack is booked once, under the first of its trainings.
        watch = watches[min(jobs)]
        with watch.section("training"):
            found = train_together(list(jobs.values()), watch)
        deltas |= zip(jobs, found, strict=True)
    records = []
    for place, (member, (calls, own)) in enumerate(zip(members, prepared, strict=True)):
        federation, method = member.federation, member.method
        if own is None:
            work = no_work(member.state.weights)
        else:
            work = federation.collect(method, own, deltas[place])
        state, record = federation.conclude(method, member.state, calls, work, watches[place])
        member.state = state
        member.history.add(state.round, len(federation.seeds), record)
        records.append(record)
    return records
