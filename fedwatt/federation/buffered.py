"""FedBuff: buffered asynchronous aggregation, a new model after every Kb updates of any age.

Nguyen et al., AISTATS 2022. Mc vehicles train at any time; one that finishes is replaced by
another, which starts from the newest model. With σ_k, the number of models made since vehicle k
downloaded the model that it trains:

    w ← w + η_g (1/Kb) Σ_{k in the buffer} (1 + σ_k)^-a Δ_k

divided by Kb, not by the sum of the factors, as published. A place of the buffer that stays empty
(its update is not finite, or no vehicle is left) counts as Δ = 0. The method's server rule takes
this step, so η_g, momentum or Adam are those of "@sgd" and "@adam". Local rules are unchanged:
anchor, learning rate and age of the client state follow the downloaded model.

Time is simulated. A vehicle trains for H_k / speed · exp(jitter · z), z ~ N(0, 1), in units of a
step of a device of speed 1, so times do not depend on results. The events up to a full buffer are
simulated first, in the order (time, vehicle); then the vehicles in it are trained, those of the
same model in one stack. A completed "round" is a new model.

The authors do not specify the following. Here vehicles that finish at the same time are replaced
after all of them have arrived; a vehicle is in a buffer at most once; vehicles that become
unavailable finish their work; without any vehicle to wait for, the server aggregates the updates
that it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp

import numpy as np
import torch
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation.participation import (
    Call,
    IntArray,
    Members,
    Present,
    Terms,
    lost_replies,
    participant_count,
)
from fedwatt.federation.settings import Asynchronous, Availability
from fedwatt.federation.simulated import SimulatedVehicles
from fedwatt.federation.state import State, Table
from fedwatt.federation.work import Work, joined, no_work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import Stopwatch
from fedwatt.randomness import generator


@dataclass(frozen=True, order=True)
class Flight:
    """A vehicle that is training; sorts by the time at which it finishes, then by vehicle."""

    due: float
    vehicle: int
    version: int  # round of the model that it trains


@dataclass(frozen=True)
class SimulatedBuffer(SimulatedVehicles):
    """Vehicles simulated without rounds: every `buffer` updates make the next model.

    Only available vehicles start; those at work finish in any case.
    """

    @property
    def asynchronous(self) -> Asynchronous:
        """The settings of the buffer."""
        return self.local.asynchronous

    @property
    def concurrency(self) -> int:
        """Mc, vehicles at work at any time."""
        return concurrency(self.asynchronous, self.local.terms, len(self.members.population))

    def check(self, method: Method) -> None:
        """Refuse a method that cannot use updates of older models, or a buffer."""
        refuse_unbuffered(method, self.asynchronous)

    def initial_states(self, method: Method, weights: Tensor) -> tuple[dict[str, Table], Rows]:
        """Return the client states before the first round, and events with no vehicle at work."""
        events = {
            "clock": torch.zeros(len(weights), dtype=torch.float64),
            "models": weights[None][:0],
            **packed([[] for _ in weights], self.concurrency),
        }
        return self.tables(method, weights), events

    def work(self, method: Method, state: State, present: Present, watch: Stopwatch) -> Work:
        """Simulate time until the buffers are full, then train the vehicles in them."""
        self.local.fleet.let_go()
        models = torch.cat([state.events["models"], state.weights[None]])
        clock = state.events["clock"].clone()
        flights = [unpacked(state.events, run) for run in range(len(clock))]
        versions: dict[Call, int] = {}
        calls: list[Call] = []
        for run in state.at_work:
            clock[run], flights[run], arrived = self._until_full(state, present, run, flights[run])
            for flight in arrived:
                steps = self._steps(flight.vehicle) if self._counts(state, run, flight) else 0
                calls.append(Call(run, flight.vehicle, steps))
                if steps:
                    versions[calls[-1]] = flight.version
        parts = []
        for version in sorted(set(versions.values())):
            then = replace(state, round=version, weights=models[version - state.round - 1])
            current = [call for call in calls if versions.get(call) == version]
            part = self.trained(method, then, current, watch)
            age = [state.round - version] * len(part.calls)
            parts.append(weakened(part, age, self.asynchronous, self.members))
        at_work = [flight.version for run in state.at_work for flight in flights[run]]
        oldest = min(at_work, default=state.round + 1)
        events = {
            "clock": clock,
            # Only models that a vehicle still trains; the newest is added when it is downloaded.
            "models": models[len(models) - (state.round + 1 - oldest) :],
            **packed(flights, self.concurrency),
        }
        return replace(
            joined(parts) if parts else no_work(state.weights),
            called=calls,
            places=self.asynchronous.buffer,
            clock={run: float(clock[run]) for run in state.at_work},
            events=events,
        )

    def _until_full(
        self, state: State, present: Present, run: int, flights: list[Flight]
    ) -> tuple[float, list[Flight], list[Flight]]:
        """Return (time, flights at work, flights that finished) when a run's buffer is full."""
        now = float(state.events["clock"][run])
        flights = list(flights)
        arrived: list[Flight] = []
        replies = 0
        draws = 0
        while replies < self.asynchronous.buffer:
            if all(flight.due > now for flight in flights):
                busy = {flight.vehicle for flight in [*flights, *arrived]}
                missing = self.concurrency - len(flights)
                idle = present.idle(run, busy)
                chosen = starting(self.local.seeds[run], state.round, draws, idle, missing)
                self.local.fleet.fetch(chosen)
                flights += [self._flight(run, k, state.round, now) for k in chosen]
                draws += 1
            if not flights:
                break
            first = min(flights)
            flights.remove(first)
            now = first.due
            arrived.append(first)
            replies += self._counts(state, run, first)
        return now, flights, arrived

    def _flight(self, run: int, vehicle: int, version: int, now: float) -> Flight:
        """Return the flight of a vehicle that starts now, for H_k / speed · exp(jitter · z)."""
        name = self.members.name(vehicle)
        terms = self.local.terms
        normal = generator(terms.seeds[run], "duration", version, name).standard_normal()
        lengthened = exp(self.asynchronous.jitter * normal)
        duration = self._steps(vehicle) / terms.speed(run, name) * lengthened
        return Flight(now + duration, vehicle, version)

    def _steps(self, vehicle: int) -> int:
        """Return H_k, which does not depend on the vehicle's speed."""
        return self.local.terms.steps(self.members.windows(vehicle), speed=1.0)

    def _counts(self, state: State, run: int, flight: Flight) -> bool:
        """Return whether an update arrives and is not too old."""
        population = self.members.population
        local = self.local
        lost = lost_replies(local.seeds[run], flight.version, len(population), local.availability)
        position = int(np.searchsorted(population, flight.vehicle))
        limit = self.asynchronous.max_staleness
        fresh = limit == 0 or state.round - flight.version <= limit
        return fresh and not lost[position]


def concurrency(asynchronous: Asynchronous, terms: Terms, vehicles: int) -> int:
    """Return Mc, the number of vehicles at work at any time."""
    share = terms.training.participation
    return min(asynchronous.concurrency or participant_count(vehicles, share), vehicles)


def refuse_impossible(
    asynchronous: Asynchronous, availability: Availability, vehicles: int
) -> None:
    """Raise if the vehicles cannot fill the buffer, or if there is a deadline."""
    if not 1 <= asynchronous.buffer <= vehicles:
        raise SettingError(
            f"asynchronous.buffer must be in 1..{vehicles}, the vehicles that train, "
            f"got {asynchronous.buffer}: each is in a buffer at most once."
        )
    if availability.deadline or availability.relative_deadline:
        raise SettingError(
            "A buffered federation has no deadlines: slow vehicles finish later. Set "
            "availability.deadline = 0 and availability.relative_deadline = 0."
        )


def refuse_unbuffered(method: Method, asynchronous: Asynchronous) -> None:
    """Raise for a method that cannot use updates of older models, or a buffer."""
    reason = method.server.stale_fault()
    if reason:
        raise SettingError(f"FedBuff cannot carry '{method.name}': {reason}.")
    if method.defence is not None:
        method.defence.refuse_fewer(asynchronous.buffer, "a full buffer")


def starting(seed: int, version: int, draws: int, idle: IntArray, missing: int) -> list[int]:
    """Draw up to `missing` of the `idle` vehicles to start on a model; `draws` came before.

    A model's first draw equals that of a synchronous round, so the two can be compared.
    """
    rng = generator(seed, "participation", version, *((draws,) if draws else ()))
    count = min(missing, len(idle))
    return [int(k) for k in rng.choice(idle, size=count, replace=False)]


def weakened(
    work: Work, staleness: Sequence[int], asynchronous: Asynchronous, members: Members
) -> Work:
    """Scale updates by (1 + σ_k)^-a, and with `weighting` "windows" by n_k over the mean.

    All updates then have the weight 1 in the mean.
    """
    exponent = -asynchronous.staleness_exponent
    factor = np.array([(1 + age) ** exponent for age in staleness], dtype=np.float64)
    if asynchronous.weighting == "windows":
        factor *= work.weights / (members.population_windows / len(members.population))
    scale = torch.from_numpy(factor).to(work.deltas.device, work.deltas.dtype)
    return replace(
        work,
        deltas=work.deltas * scale[:, None],
        weights=np.ones(len(work.calls)),
        columns=work.columns | {"staleness": [float(age) for age in staleness]},
    )


def packed(flights: Sequence[Sequence[Flight]], slots: int) -> Rows:
    """Return the flights of R runs as tensors [R, slots]; an empty slot is due at infinity."""
    due = torch.full((len(flights), slots), torch.inf, dtype=torch.float64)
    vehicle = torch.zeros((len(flights), slots), dtype=torch.int64)
    version = torch.zeros_like(vehicle)
    for run, run_flights in enumerate(flights):
        for slot, flight in enumerate(sorted(run_flights)):
            due[run, slot] = flight.due
            vehicle[run, slot] = flight.vehicle
            version[run, slot] = flight.version
    return {"due": due, "vehicle": vehicle, "version": version}


def unpacked(events: Rows, run: int) -> list[Flight]:
    """Return the flights of one run from the tensors of `packed`."""
    columns: list[Tensor] = [events[name][run] for name in ("due", "vehicle", "version")]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Flight(*row) for row in rows if row[0] < torch.inf]
