"""FedBuff: the server makes a model of every Kb replies, however old the models behind them are.

Nguyen et al., AISTATS 2022. Mc vehicles are at work at any time; who finishes is replaced by
another, which starts from the newest model. With σ_k, how many models were made since vehicle k
downloaded its own:

    w ← w + η_g (1/Kb) Σ_{k in the buffer} (1 + σ_k)^-a Δ_k

divided by Kb, not by the sum of the factors, as published; a place that stays empty, because its
reply is not finite or nobody is left to fill it, counts as Δ = 0. The method's own server rule
takes this step, so η_g, momentum or Adam are those of "@sgd" and "@adam", and local rules work
unchanged: their anchor, their rate and the age of what they remember go by the model they
downloaded.

Time is simulated. A vehicle is at work for H_k / speed · exp(jitter · z), z ~ N(0, 1), in units of
a step of a device of speed 1; no result decides when it finishes. So the events up to a full buffer
are played through first, in the order (time, vehicle), and then the vehicles in it are trained
together, those of the same model in one stack. A completed "round" is a new model.

Decided where the authors are silent: vehicles that finish at the same instant are replaced after
all of them are in; a vehicle is in a buffer at most once, so that each has one voice in a model;
vehicles that become unavailable finish what they began; where nobody is left to wait for, the
server makes do with the replies that it has.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedwatt.data import Fleet
from fedwatt.engine.call import Call
from fedwatt.errors import SettingError
from fedwatt.federation.federation import Federation
from fedwatt.federation.participation import local_steps, lost_replies, participant_count
from fedwatt.federation.records import RoundRecord
from fedwatt.federation.settings import Asynchronous
from fedwatt.federation.state import State
from fedwatt.federation.work import Work
from fedwatt.methods import Method
from fedwatt.methods.rule import Rows
from fedwatt.metrics import Stopwatch
from fedwatt.models import Model
from fedwatt.randomness import generator


@dataclass(frozen=True, order=True)
class Flight:
    """A vehicle at work; the next one to finish sorts first, ties by vehicle."""

    due: float
    """When it finishes."""
    vehicle: int
    version: int
    """The model it downloaded."""


class Buffered(Federation):
    """A federation without rounds: every `buffer` replies make the next model."""

    def __init__(
        self,
        fleet: Fleet,
        model: str | Model = "mlp",
        *,
        asynchronous: Asynchronous,
        **terms: Any,
    ) -> None:
        super().__init__(fleet, model, **terms)
        self.asynchronous = asynchronous
        vehicles, buffer = len(self.population), asynchronous.buffer
        if not 1 <= buffer <= vehicles:
            raise SettingError(
                f"asynchronous.buffer must be in 1..{vehicles}, the vehicles that train, "
                f"got {buffer}: each is in a buffer at most once."
            )
        if self.availability.deadline:
            raise SettingError(
                "A buffered federation waits for no deadline: stragglers are merely late. Set "
                "availability.deadline = 0."
            )
        wanted = asynchronous.concurrency or participant_count(
            vehicles, self.training.participation
        )
        self.concurrency = min(wanted, vehicles)

    def check(self, method: Method) -> None:
        """Refuse a method that would be wrong with replies to older models, or in a buffer."""
        reason = method.server.stale_fault()
        if reason:
            raise SettingError(f"FedBuff cannot carry '{method.name}': {reason}.")
        if method.defence is not None:
            method.defence.refuse_fewer(self.asynchronous.buffer, "a full buffer")

    def start(self, method: Method) -> tuple[State, RoundRecord]:
        """As in any federation, with nobody at work yet."""
        state, record = super().start(method)
        runs = len(self.seeds)
        events = {
            "clock": torch.zeros(runs, dtype=torch.float64),
            "models": state.weights[None][:0],
            **packed([[] for _ in range(runs)], self.concurrency),
        }
        return replace(state, events=events), record

    def clock(self, state: State, run: int) -> float:
        """When the newest model was made."""
        return float(state.events["clock"][run])

    def _weight(self, vehicle: int) -> float:
        """One; what a reply weighs is already in its displacement."""
        return 1.0

    def _filled(self, replies: int) -> float:
        """The mean of the replies times this is their sum over Kb."""
        return replies / self.asynchronous.buffer

    def _local_work(
        self, method: Method, state: State, live: Sequence[int], watch: Stopwatch
    ) -> tuple[State, list[Call], Work]:
        """Let time pass until the buffers are full, then train who is in them."""
        models = torch.cat([state.events["models"], state.weights[None]])
        clock = state.events["clock"].clone()
        flights = [unpacked(state.events, run) for run in range(len(self.seeds))]
        versions: dict[Call, int] = {}
        calls: list[Call] = []
        for run in live:
            clock[run], flights[run], arrived = self._until_full(state, run, flights[run])
            for flight in arrived:
                steps = self._all_steps(flight.vehicle) if self._counts(state, run, flight) else 0
                calls.append(Call(run, flight.vehicle, steps))
                if steps:
                    versions[calls[-1]] = flight.version
        parts = []
        for version in sorted(set(versions.values())):
            then = replace(state, round=version, weights=models[version - state.round - 1])
            own = [call for call in calls if versions.get(call) == version]
            part = self._train(method, then, own, watch)
            parts.append(self._weakened(part, state.round - version))
        oldest = min((f.version for run in live for f in flights[run]), default=state.round + 1)
        events = {
            "clock": clock,
            # Only models that somebody still works on; the newest is added when it is downloaded.
            "models": models[len(models) - (state.round + 1 - oldest) :],
            **packed(flights, self.concurrency),
        }
        work = joined(parts) if parts else self._train(method, state, (), watch)
        return replace(state, events=events), calls, work

    def _until_full(
        self, state: State, run: int, flights: list[Flight]
    ) -> tuple[float, list[Flight], list[Flight]]:
        """(the time it takes, who is still at work, who finished), from the model of `state` on."""
        now, flights, arrived = self.clock(state, run), list(flights), list[Flight]()
        replies, draws = 0, 0
        while replies < self.asynchronous.buffer:
            if all(flight.due > now for flight in flights):
                known = {flight.vehicle for flight in [*flights, *arrived]}
                flights += self._starting(state, run, now, known, len(flights), draws)
                draws += 1
            if not flights:
                break
            first = min(flights)
            flights.remove(first)
            now = first.due
            arrived.append(first)
            replies += self._counts(state, run, first)
        return now, flights, arrived

    def _starting(
        self, state: State, run: int, now: float, known: set[int], at_work: int, draws: int
    ) -> list[Flight]:
        """Vehicles that start at time `now` so that `concurrency` are at work."""
        seed, version = self.seeds[run], state.round
        available = self.population[state.available[run].numpy()]
        candidates = available[~np.isin(available, list(known))]
        count = min(self.concurrency - at_work, len(candidates))
        # The first draw of a model is that of a synchronous round, so the two can be compared.
        again = (draws,) if draws else ()
        rng = generator(seed, "participation", version, *again)
        return [
            Flight(now + self._duration(run, int(k), version), int(k), version)
            for k in rng.choice(candidates, size=count, replace=False)
        ]

    def _duration(self, run: int, vehicle: int, version: int) -> float:
        """H_k / speed, give or take `jitter`."""
        name = self.fleet.clients[vehicle].name
        normal = generator(self.seeds[run], "duration", version, name).standard_normal()
        return (
            self._all_steps(vehicle)
            / self._speed(run, vehicle)
            * exp(self.asynchronous.jitter * normal)
        )

    def _all_steps(self, vehicle: int) -> int:
        training = self.training
        return local_steps(
            self.pool.train.count(vehicle),
            1.0,  # without a deadline a slow vehicle takes as many steps, only later
            epochs=training.epochs,
            steps=training.steps,
            batch=training.batch,
            availability=self.availability,
        )

    def _counts(self, state: State, run: int, flight: Flight) -> bool:
        """Whether a reply arrives and is not too old; the same question has the same answer."""
        lost = lost_replies(
            self.seeds[run], flight.version, len(self.population), self.availability
        )
        position = int(np.searchsorted(self.population, flight.vehicle))
        limit = self.asynchronous.max_staleness
        fresh = limit == 0 or state.round - flight.version <= limit
        return fresh and not lost[position]

    def _weakened(self, work: Work, staleness: int) -> Work:
        """Replies that are `staleness` models old, scaled by (1 + σ)^-a and perhaps their size."""
        factor = self._float64([staleness_factor(staleness, self.asynchronous)] * len(work.calls))
        if self.asynchronous.weighting == "windows":
            mean = self.population_windows / len(self.population)
            sizes = [self.pool.train.count(call.vehicle) / mean for call in work.calls]
            factor = factor * self._float64(sizes)
        return replace(
            work,
            deltas=work.deltas * factor[:, None].to(work.deltas.dtype),
            columns=work.columns | {"staleness": [float(staleness)] * len(work.calls)},
        )


def staleness_factor(staleness: int, asynchronous: Asynchronous) -> float:
    """(1 + σ)^-a.

    >>> staleness_factor(3, Asynchronous(staleness_exponent=0.5))
    0.5
    """
    return float((1 + staleness) ** -asynchronous.staleness_exponent)


def joined(parts: Sequence[Work]) -> Work:
    """The work of several stacks as one."""
    first = parts[0]
    return Work(
        [call for part in parts for call in part.calls],
        torch.cat([part.deltas for part in parts]),
        np.concatenate([part.finite for part in parts]),
        np.concatenate([part.counted for part in parts]),
        {name: torch.cat([part.memory[name] for part in parts]) for name in first.memory},
        {name: torch.cat([part.uploads[name] for part in parts]) for name in first.uploads},
        {name: [value for part in parts for value in part.columns[name]] for name in first.columns},
    )


def packed(flights: Sequence[Sequence[Flight]], slots: int) -> Rows:
    """The vehicles at work in R runs as tensors [R, slots]; an empty slot is due at infinity."""
    due = torch.full((len(flights), slots), torch.inf, dtype=torch.float64)
    vehicle = torch.zeros((len(flights), slots), dtype=torch.int64)
    version = torch.zeros_like(vehicle)
    for run, own in enumerate(flights):
        for slot, flight in enumerate(sorted(own)):
            due[run, slot], vehicle[run, slot] = flight.due, flight.vehicle
            version[run, slot] = flight.version
    return {"due": due, "vehicle": vehicle, "version": version}


def unpacked(events: Rows, run: int) -> list[Flight]:
    """The vehicles at work in one run, as `packed` stored them."""
    columns: list[Tensor] = [events[name][run] for name in ("due", "vehicle", "version")]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Flight(*row) for row in rows if row[0] < torch.inf]
