"""The terms on which vehicles train together: rounds, availability and seeds.

Participants and their steps follow from these terms and from names and numbers of windows alone, so
a simulation, a server and a vehicle on the road all work them out alike.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import torch
from torch import Tensor

from fedwatt.engine.call import Call
from fedwatt.errors import SettingError
from fedwatt.federation.members import Members
from fedwatt.federation.participation import (
    device_speed,
    local_steps,
    lost_replies,
    participant_count,
    participants,
)
from fedwatt.federation.settings import Availability, Training
from fedwatt.methods import Method
from fedwatt.methods.schedule import scheduled


class Asked(NamedTuple):
    """A participant of a round, and whether its reply will be lost."""

    run: int
    vehicle: int
    lost: bool


@dataclass(frozen=True)
class Terms:
    """Conditions of all rounds; a run is a place in `seeds`."""

    training: Training
    availability: Availability
    seeds: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of models and series."""
        dtype: torch.dtype = getattr(torch, self.training.precision)
        return dtype

    def learning_rate(self, round: int) -> float:
        """η_t."""
        return scheduled(self.training.learning_rate, self.training.schedule, round)

    def speed(self, run: int, vehicle: str) -> float:
        """Relative speed of a vehicle's computer."""
        return device_speed(self.seeds[run], vehicle, self.availability)

    def steps(self, windows: int, speed: float) -> int:
        """H_k of a vehicle with so many training windows; 0 if it cannot finish any."""
        return local_steps(windows, speed, self.training, self.availability)

    def calls(
        self,
        round: int,
        members: Members,
        available: Tensor,
        live: Sequence[int],
        *,
        calling_seed: int | None = None,
    ) -> list[Call]:
        """Return the participants of a round in all `live` runs, of those `available` [R, K].

        They are drawn by each run's seed unless a server has a secret one for it. A vehicle whose
        reply will be lost is called with no steps.
        """
        participants = self.asked(round, members, available, live, calling_seed=calling_seed)
        members.fleet.let_go()
        members.fleet.fetch([participant.vehicle for participant in participants])
        return [self.call(participant, members) for participant in participants]

    def asked(
        self,
        round: int,
        members: Members,
        available: Tensor,
        live: Sequence[int],
        *,
        calling_seed: int | None = None,
    ) -> list[Asked]:
        """Return the same participants as `calls`, by name only."""
        drawn: list[Asked] = []
        for run in live:
            seed = self.seeds[run]
            run_available = available[run].numpy()
            lost = lost_replies(seed, round, len(run_available), self.availability)
            called = participants(
                seed if calling_seed is None else calling_seed,
                round,
                run_available,
                self.training.participation,
                sampling=self.training.sampling,
            )
            vehicles = members.population[called].tolist()
            drawn += map(Asked, repeat(run), vehicles, lost[called].tolist())
        return drawn

    def call(self, participant: Asked, members: Members) -> Call:
        """Return the work that a participant is called for, by its windows and its computer."""
        run, vehicle, lost = participant
        if lost:
            return Call(run, vehicle, 0)
        speed = self.speed(run, members.name(vehicle))
        return Call(run, vehicle, self.steps(members.windows(vehicle), speed))

    def check(self, method: Method, vehicles: int) -> None:
        """Refuse a method that cannot work in rounds of so many vehicles."""
        share = self.training.participation
        sampling = self.training.sampling
        fault = method.server.sampling_fault(sampling, share)
        if fault:
            raise SettingError(f"Method '{method.name}': {fault}")
        if method.defence is not None:
            most = vehicles if sampling == "poisson" else participant_count(vehicles, share)
            where = f"a round of {vehicles} vehicles at participation {share:g}"
            method.defence.refuse_fewer(most, where)


def checked_seeds(seeds: object) -> tuple[int, ...]:
    """Return the seeds as a tuple; SettingError unless they are one or more different ones."""
    checked = tuple(seeds) if isinstance(seeds, Iterable) else ()
    if not checked or len(set(checked)) < len(checked):
        raise SettingError(
            f"seeds must be one or more different numbers, such as (1, 2, 3), got {seeds}."
        )
    return checked
