"""One training over several workers: participants are dealt out in shares, and sums come back.

    here      draws the participants of a round and deals them into shares        `deal`
    worker    opens its vehicles' windows, trains them, adds their updates        `train_share`
    here      adds the shares' sums, from which the server rule makes the model   `DealtBackend`

Workers receive the model once per round, and the client state of their vehicles. They return sums
of updates and a few numbers per vehicle; windows stay with the workers. A server rule that needs
every update (a defence, noise for privacy) receives every update.

The shares depend on the participants and on the number of shares alone. So results are
bit-identical for any number of workers, and equal those of a single process up to rounding: sums
are in float64, in another order (docs/scale.md states the tolerance).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import torch

from fedwatt.engine.together import train
from fedwatt.federation.federation import Federation
from fedwatt.federation.local_round import Broadcast, begin_round, finish_round, in_stack_order
from fedwatt.federation.participation import Call, Participant, Present
from fedwatt.federation.simulated import SimulatedRounds
from fedwatt.federation.state import State
from fedwatt.federation.work import Together, Work, joined, no_work, picked
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.methods.server import ServerRule, weighted_sum
from fedwatt.metrics import Stopwatch
from fedwatt.metrics.sums import Contribution, added
from fedwatt.models import Model

SHARES: Final = 32
"""Shares per round, whatever the number of workers: with eight, each has about four."""


@dataclass(frozen=True, eq=False)
class Share:
    """Some participants of a round and their client state, in the same order."""

    participants: tuple[Participant, ...]
    client_state: Rows


@dataclass(frozen=True, eq=False)
class ShareResult:
    """Result of one share."""

    calls: tuple[Call, ...]  # of all participants of the share
    windows: tuple[int, ...]  # n_k of each of them
    work: Work  # of those that trained; without updates where `sums` replace them
    sums: Mapping[int, Contribution] = field(default_factory=dict)  # by run
    seconds: Mapping[str, float] = field(default_factory=dict)


Deal = Callable[[Broadcast, Sequence[Share]], list[ShareResult]]
"""Trains every share somewhere, from a message with a row for each run; results in their order."""


def deal(participants: Sequence[Participant], shares: int) -> list[list[int]]:
    """Return the places of the participants of each share: even shares, by run and vehicle.

    >>> deal([Participant(0, vehicle, lost=False) for vehicle in (7, 3, 5)], 2)
    [[1, 2], [0]]
    """
    order = sorted(
        range(len(participants)),
        key=lambda place: (participants[place].run, participants[place].vehicle),
    )
    return [places.tolist() for places in np.array_split(order, min(shares, len(order)))]


def adds_up(method: Method) -> bool:
    """Return whether the method's server needs sums of updates only."""
    return method.defence is None and not method.server.private and not method.server.sum_fault()


def train_share(local: Federation, method: Method, start: Broadcast, share: Share) -> ShareResult:
    """Train a share's vehicles as one stack; `start` has a row for each run."""
    members = local.members
    watch = Stopwatch()
    local.fleet.let_go()
    local.fleet.fetch([participant.vehicle for participant in share.participants])
    calls = [local.terms.call(participant, members) for participant in share.participants]
    windows = tuple(members.windows(call.vehicle) for call in calls)
    place = {(call.run, call.vehicle): row for row, call in enumerate(calls)}
    working = in_stack_order(call for call in calls if call.steps)
    if not working:
        return ShareResult(tuple(calls), windows, no_work(start.weights))
    rows = [place[call.run, call.vehicle] for call in working]
    broadcast = start.to(local.device).of_runs([call.run for call in working])
    client_state = {
        name: values[rows].to(local.device) for name, values in share.client_state.items()
    }
    with watch.section("training"):
        begun = begin_round(local, method, broadcast, client_state, working, watch)
        work = finish_round(method, begun, train(begun.job, watch))
    sums: dict[int, Contribution] = {}
    if adds_up(method):
        sums = dict(_sums(method, method.adapted(local.model), work))
        # New and empty: a view of no row would be sent with all the rows behind it.
        work = replace(work, deltas=work.deltas.new_empty((0, work.deltas.shape[1])), uploads={})
    return ShareResult(tuple(calls), windows, work.to(torch.device("cpu")), sums, watch.seconds)


def _sums(method: Method, model: Model, work: Work) -> Iterator[tuple[int, Contribution]]:
    """Yield (run, sums over its vehicles that count), float64.

    "weight" is Σ w_k, w_k being n_k, or 1 where the server counts all vehicles alike. "delta" is
    the sum of w_k times what the server adds in place of Δ_k; each upload is weighted likewise.
    "replies", "windows" and "moved" are the number of vehicles, Σ n_k and Σ n_k Δ_k.
    """
    server = method.server
    for run in sorted({call.run for call in work.calls}):
        rows = [row for row in work.of(run) if work.counted[row]]
        if not rows:
            continue
        deltas = picked(work.deltas, rows)
        windows = torch.from_numpy(work.weights[rows]).to(deltas.device)
        weights = torch.ones_like(windows) if server.counts_alike else windows
        uploads = {name: values[rows].double() for name, values in work.uploads.items()}
        updates = deltas
        if type(server).contribution is not ServerRule.contribution:
            each = [{name: values[k] for name, values in uploads.items()} for k in range(len(rows))]
            pairs = zip(deltas.double(), each, strict=True)
            updates = torch.stack([server.contribution(model, *pair) for pair in pairs])
        vectors = uploads | {"delta": updates}
        totals = {
            name: weighted_sum(weights, values.reshape(len(rows), -1))
            for name, values in vectors.items()
        }
        totals |= {"weight": weights.sum(), "windows": windows.sum()}
        totals["moved"] = weighted_sum(windows, deltas)
        sums = {name: total.cpu().reshape(-1).numpy() for name, total in totals.items()}
        yield run, {"replies": np.array([float(len(rows))]), **sums}


@dataclass(frozen=True)
class DealtBackend(SimulatedRounds):
    """Vehicles simulated in rounds whose local work is done by other processes."""

    deal: Deal
    shares: int = SHARES

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """Have the participants of all runs trained, and join the results."""
        terms = self.local.terms
        members = present.members
        participants = terms.participants(state.round, members, present.available, state.at_work)
        self.local.fleet.let_go()
        if not participants:
            return no_work(state.weights)
        start = self.broadcast(method, state).to(torch.device("cpu"))
        shares = [
            _share(state, [participants[place] for place in places])
            for places in deal(participants, self.shares)
        ]
        with watch.divided() as spent:
            results = self.deal(start, shares)
            spent += [result.seconds for result in results]
        for result in results:
            for call, windows in zip(result.calls, result.windows, strict=True):
                self.local.fleet.note_windows(call.vehicle, windows)
        calls = [call for result in results for call in result.calls]
        done = [result.work for result in results if result.work.calls]
        if not done:
            return replace(no_work(state.weights), called=calls)
        work = joined(done).to(self.local.device)
        return replace(work, called=calls, together=self._together(method, results))

    def _together(self, method: Method, results: Sequence[ShareResult]) -> dict[int, Together]:
        """Return the stand-in for all updates of a run, from the sums of all shares."""
        model = method.adapted(self.local.model)
        device = self.local.device
        stand_ins = {}
        for run in sorted({run for result in results for run in result.sums}):
            sums = added(result.sums[run] for result in results if run in result.sums)
            length = float(np.linalg.norm(sums["moved"] / sums["windows"]))
            delta, weight, uploads = method.mean_of_sums(model, sums)
            rows = {name: values.to(device) for name, values in uploads.items()}
            mean_weight = weight / float(sums["replies"][0])
            stand_ins[run] = Together(delta.to(device), mean_weight, rows, length)
        return stand_ins


def _share(state: State, participants: Sequence[Participant]) -> Share:
    runs = [participant.run for participant in participants]
    vehicles = [participant.vehicle for participant in participants]
    client_state = {name: table[runs, vehicles].cpu() for name, table in state.client_state.items()}
    return Share(tuple(participants), client_state)


def dealt_federation(federation: Federation, deal: Deal, shares: int = SHARES) -> Federation:
    """Return the federation with its participants dealt to other processes."""
    result = copy(federation)
    result.make_backend = partial(DealtBackend, deal=deal, shares=shares)
    return result
