"""One training over several workers: participants are dealt out in shares, and sums come back.

    here      draws the participants of a round and deals them into shares        `deal`
    worker    makes or maps its vehicles' windows, trains them, adds up           `train_share`
    here      adds the shares' sums in a tree and lets the server's rule act      `Sums`

What travels to a worker is the model, once a round, and what its vehicles remember; what comes back
is a sum of displacements and a few numbers for each vehicle. Windows stay with the workers. A
server that has to see every reply (a defence, noise for privacy) is sent every reply.

How participants are dealt depends on them and on the number of shares alone. So a training gives
the same bits with any number of workers and whoever of them dies, and those of a single process to
rounding: sums are in float64, in another order (docs/scale.md states the tolerance).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import numpy as np
import torch
from torch import Tensor

from fedwatt.engine.together import train
from fedwatt.federation.federation import Federation
from fedwatt.federation.local_round import (
    Broadcast,
    begin_round,
    finish_round,
    in_stack_order,
    like,
)
from fedwatt.federation.participation import Call, Participant, Present
from fedwatt.federation.simulated import SimulatedVehicles
from fedwatt.federation.state import State, Table
from fedwatt.federation.work import Together, Work, joined, no_work, picked
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.methods.server import ServerRule, weighted_sum
from fedwatt.metrics import Stopwatch
from fedwatt.models import Model

SHARES: Final = 32
"""Of a round, however many workers there are: eight have four each, so that none waits long."""


@dataclass(frozen=True, eq=False)
class RoundStart:
    """Message to all workers at the start of a round; rows are runs."""

    round: int
    weights: Tensor  # [R, D]
    sent: Rows  # each [R, ...]
    population: int
    population_windows: float


@dataclass(frozen=True, eq=False)
class Share:
    """Some participants of a round, and what they remember, in their order."""

    participants: tuple[Participant, ...]
    memory: Rows


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of the counted updates of one run, float64."""

    replies: int
    weight: float  # Σ w_k, w_k being n_k, or 1 where the server counts all alike
    contribution: Tensor  # Σ w_k times what the server adds up in the place of Δ_k
    uploads: Rows  # Σ w_k times what goes with it
    windows: float  # Σ n_k
    moved: Tensor  # Σ n_k Δ_k, [D]

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.replies + other.replies,
            self.weight + other.weight,
            self.contribution + other.contribution,
            {name: values + other.uploads[name] for name, values in self.uploads.items()},
            self.windows + other.windows,
            self.moved + other.moved,
        )


@dataclass(frozen=True, eq=False)
class ShareResult:
    """Result of one share."""

    calls: tuple[Call, ...]  # of all who were asked
    windows: tuple[int, ...]  # n_k of each of them
    work: Work  # of those who trained; without their replies where `sums` stand for them
    sums: Mapping[int, Sums] = field(default_factory=dict)  # by run
    seconds: Mapping[str, float] = field(default_factory=dict)


Deal = Callable[[RoundStart, Sequence[Share]], list[ShareResult]]
"""Has every share trained somewhere; the parts are in the order of the shares."""


def deal(participants: Sequence[Participant], shares: int) -> list[list[int]]:
    """Divide the participants into even shares, in the order of runs and vehicles.

    >>> deal([Asked(0, vehicle, lost=False) for vehicle in (7, 3, 5)], 2)
    [[1, 2], [0]]
    """
    order = sorted(
        range(len(participants)),
        key=lambda place: (participants[place].run, participants[place].vehicle),
    )
    return [places.tolist() for places in np.array_split(order, min(shares, len(order)))]


def adds_up(method: Method) -> bool:
    """Return whether sums are enough for the method's server."""
    return method.defence is None and not method.server.private and not method.server.sum_fault()


def train_share(local: Federation, method: Method, start: RoundStart, share: Share) -> ShareResult:
    """Train a share's vehicles as one stack."""
    members = local.members
    terms = local.terms
    watch = Stopwatch()
    local.fleet.let_go()
    local.fleet.fetch([participant.vehicle for participant in share.participants])
    calls = [terms.call(participant, members) for participant in share.participants]
    windows = tuple(members.windows(call.vehicle) for call in calls)
    place = {(call.run, call.vehicle): row for row, call in enumerate(calls)}
    working = in_stack_order(call for call in calls if call.steps)
    if not working:
        return ShareResult(tuple(calls), windows, no_work(start.weights))
    rows = [place[call.run, call.vehicle] for call in working]
    runs = [call.run for call in working]
    weights = start.weights.to(local.device)
    anchor = picked(weights, runs)
    broadcast = Broadcast(
        start.round,
        anchor,
        {name: like(value, anchor)[runs] for name, value in start.sent.items()},
        start.population,
        start.population_windows,
    )
    memory = {name: values[rows].to(local.device) for name, values in share.memory.items()}
    with watch.section("training"):
        begun = begin_round(local, method, broadcast, memory, working, watch)
        work = finish_round(local, method, begun, train(begun.job, watch))
    sums: dict[int, Sums] = {}
    if adds_up(method):
        sums = dict(_sums(method, method.adapted(local.model), work))
        # New and empty: a view of no row would take all rows along on its way home.
        work = replace(work, deltas=work.deltas.new_empty((0, work.deltas.shape[1])), uploads={})
    return ShareResult(tuple(calls), windows, _on_host(work), sums, dict(watch.seconds))


def _sums(method: Method, model: Model, work: Work) -> Iterator[tuple[int, Sums]]:
    """Yield the sums of each run that has a reply, over its vehicles in ascending order."""
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
            updates = torch.stack(
                [
                    server.contribution(model, d.double(), up)
                    for d, up in zip(deltas, each, strict=True)
                ]
            )
        totals = {
            name: (values * weights.view(-1, *[1] * (values.dim() - 1))).sum(dim=0).cpu()
            for name, values in uploads.items()
        }
        yield (
            run,
            Sums(
                len(rows),
                float(weights.sum()),
                weighted_sum(weights, updates).cpu(),
                totals,
                float(windows.sum()),
                weighted_sum(windows, deltas).cpu(),
            ),
        )


def _on_host(work: Work) -> Work:
    return replace(
        work,
        deltas=work.deltas.cpu(),
        memory={name: values.cpu() for name, values in work.memory.items()},
        uploads={name: values.cpu() for name, values in work.uploads.items()},
    )


def added(parts: Sequence[Sums]) -> Sums:
    """Return the sums of all shares: neighbours first, then sums of neighbours, and so on."""
    while len(parts) > 1:
        pairs = [parts[place : place + 2] for place in range(0, len(parts), 2)]
        parts = [pair[0] + pair[1] if len(pair) == 2 else pair[0] for pair in pairs]
    return parts[0]


@dataclass(frozen=True)
class DealtBackend(SimulatedVehicles):
    """Vehicles simulated in rounds whose local work is done by other processes."""

    deal: Deal
    shares: int = SHARES

    def check(self, method: Method) -> None:
        """Refuse a method that cannot work in rounds of these vehicles."""
        self.local.terms.check(method, len(self.members.population))

    def initial_states(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Return the client states before the first round; rounds have no events."""
        return self.tables(method, weights), {}

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """Train the participants of all runs and join the results."""
        terms = self.local.terms
        members = present.members
        participants = terms.participants(state.round, members, present.available, state.at_work)
        self.local.fleet.let_go()
        if not participants:
            return no_work(state.weights)
        start = RoundStart(
            state.round,
            state.weights.cpu(),
            {name: value.cpu() for name, value in method.server.broadcast(state.server).items()},
            len(members.population),
            members.population_windows,
        )
        shares = [
            self._share(state, participants, places) for places in deal(participants, self.shares)
        ]
        with watch.divided() as spent:
            parts = self.deal(start, shares)
            spent += [part.seconds for part in parts]
        for part in parts:
            for call, windows in zip(part.calls, part.windows, strict=True):
                self.local.fleet.note_windows(call.vehicle, windows)
        calls = [call for part in parts for call in part.calls]
        done = [part.work for part in parts if part.work.calls]
        if not done:
            return replace(no_work(state.weights), called=calls)
        work = self._at_home(joined(done))
        return replace(work, called=calls, together=self._together(method, parts))

    def _share(
        self, state: State, participants: Sequence[Participant], places: Sequence[int]
    ) -> Share:
        share = tuple(participants[place] for place in places)
        runs = [participant.run for participant in share]
        vehicles = [participant.vehicle for participant in share]
        memory = {name: table[runs, vehicles].cpu() for name, table in state.memory.items()}
        return Share(share, memory)

    def _at_home(self, work: Work) -> Work:
        device = self.local.device
        return replace(
            work,
            deltas=work.deltas.to(device),
            memory={name: values.to(device) for name, values in work.memory.items()},
            uploads={name: values.to(device) for name, values in work.uploads.items()},
        )

    def _together(self, method: Method, parts: Sequence[ShareResult]) -> dict[int, Together]:
        """Return the stand-in for all updates of a run, from the sums of all shares."""
        model = method.adapted(self.local.model)
        device = self.local.device
        stand_ins = {}
        for run in sorted({run for part in parts for run in part.sums}):
            total = added([part.sums[run] for part in parts if run in part.sums])
            mean = total.moved / total.windows
            delta, uploads = method.server.mean_of_sums(
                model, total.contribution, total.weight, dict(total.uploads)
            )
            weight = total.weight / total.replies
            rows = {name: values.to(device) for name, values in uploads.items()}
            stand_ins[run] = Together(delta.to(device), weight, rows, float(mean.norm()))
        return stand_ins


def dealt_federation(federation: Federation, deal: Deal, shares: int = SHARES) -> Federation:
    """Return the federation with its participants dealt to other processes."""
    result = copy(federation)
    result.make_backend = partial(DealtBackend, deal=deal, shares=shares)
    return result
