"""Participants of a round, and the number of local steps of each.

Paper, section on client churn: A_t is the set of available vehicles, |S_t| = max(⌈C·|A_t|⌉, 1) of
them participate. Draws depend on seed and round only, so every method has the same participants.
Steps follow from the terms, the vehicle's name and its number of windows, so that a simulation, a
server and a deployed vehicle compute the same.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import repeat
from math import ceil
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedwatt.errors import SettingError
from fedwatt.federation.settings import Availability, Training
from fedwatt.methods import Method
from fedwatt.methods.rule import scheduled
from fedwatt.randomness import generator
from fedwatt.windows import Fleet


class Call(NamedTuple):
    """A vehicle called for a round; with 0 steps it sends no update."""

    run: int
    vehicle: int
    steps: int


BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


def first_available(seed: int, vehicles: int, availability: Availability) -> BoolArray:
    """Return A_0 as a mask [K]."""
    if availability.initially == 1:  # no draw is as high as 1
        return np.ones(vehicles, dtype=bool)
    return generator(seed, "churn", 0).random(vehicles) < availability.initially


def next_available(
    seed: int, round: int, before: BoolArray, availability: Availability
) -> BoolArray:
    """Return A_t as a mask [K] from A_{t-1}: each vehicle leaves or joins independently."""
    if availability.p_leave == availability.p_join == 0:  # no draw is below 0
        return before
    draw = generator(seed, "churn", round).random(len(before))
    return np.where(before, draw >= availability.p_leave, draw < availability.p_join)


def participants(
    seed: int, round: int, available: BoolArray, participation: float, *, sampling: str = "fixed"
) -> IntArray:
    """Return S_t in ascending order; empty if no vehicle is available (or, with "poisson", drawn).

    >>> participants(1, 0, np.array([True, False, True, True, True]), 0.5).size
    2
    """
    rng = generator(seed, "participation", round)
    if sampling == "poisson":
        # One draw for every vehicle, available or not, so that churn moves no other draw.
        return np.flatnonzero(available & (rng.random(len(available)) < participation))
    most = int(np.count_nonzero(available))
    # Drawing from a number takes less time than from a list.
    candidates: Any = most if most == len(available) else np.flatnonzero(available)
    count = min(participant_count(most, participation), most)
    drawn: IntArray = np.sort(rng.choice(candidates, size=count, replace=False))
    return drawn


def participant_count(available: int, participation: float) -> int:
    """Return max(⌈C·|A_t|⌉, 1)."""
    # 0.07 * 100 is 7.000000000000001 in floating point; its ceiling must still be 7.
    return max(ceil(round(participation * available, 9)), 1)


def lost_replies(seed: int, round: int, vehicles: int, availability: Availability) -> BoolArray:
    """Return a mask [K] of the vehicles whose update is lost in this round."""
    if availability.reply_loss == 0:  # no draw is below 0
        return np.zeros(vehicles, dtype=bool)
    return generator(seed, "replies", round).random(vehicles) < availability.reply_loss


def device_speed(seed: int, vehicle: str, availability: Availability) -> float:
    """Return the relative speed of a vehicle's computer, the same in all rounds."""
    if len(availability.speeds) == 1:
        return availability.speeds[0]
    return float(generator(seed, "device", vehicle).choice(availability.speeds))


def local_steps(windows: int, speed: float, training: Training, availability: Availability) -> int:
    """Return H_k of a vehicle with `windows` training windows; 0 if it sends no update.

    >>> local_steps(130, 1.0, Training(epochs=2, batch=64), Availability())
    6
    >>> local_steps(130, 1 / 3, Training(epochs=2, batch=64), Availability(relative_deadline=1.0))
    2
    """
    steps = training.steps or training.epochs * -(-windows // training.batch)
    limits = [d for d in (availability.deadline, availability.relative_deadline * steps) if d]
    if not limits:
        return steps
    # 100 * 0.29 is 28.999999999999996 in floating point; that is 29 steps.
    possible = int(round(min(limits) * speed, 9))
    if possible < steps and availability.stragglers == "drop":
        return 0
    return min(steps, possible)


@dataclass(frozen=True, eq=False)
class Members:
    """The vehicles of a federation by their places in `fleet`; no data is read."""

    fleet: Fleet
    evaluate_vehicles: int  # as in `Training`
    mean_windows: float = 0.0
    """Mean n_k, where secure aggregation hides single n_k; 0: n_k are known."""

    def __post_init__(self) -> None:
        if not len(self.population):
            raise SettingError("All vehicles are held out, so none can train. Lower held_out.")

    @cached_property
    def population(self) -> IntArray:
        """The vehicles that may train, K of them."""
        return np.flatnonzero(~self.fleet.held_out)

    @cached_property
    def population_windows(self) -> float:
        """n, the training windows of all of them."""
        if self.mean_windows:
            return self.mean_windows * len(self.population)
        return float(self.fleet.windows("train"))

    @cached_property
    def evaluated(self) -> list[int]:
        """The vehicles that evaluate models."""
        return self.fleet.sample(self.evaluate_vehicles)

    @property
    def weights(self) -> tuple[list[int], list[bool]]:
        """The training windows of the evaluated vehicles, and whether each never trains."""
        windows = [self.windows(k) for k in self.evaluated]
        return windows, [self.held_out(k) for k in self.evaluated]

    def name(self, vehicle: int) -> str:
        """Return the name that keys the vehicle's random draws."""
        return self.fleet.name(vehicle)

    def windows(self, vehicle: int) -> int:
        """Return n_k, its training windows."""
        return self.fleet.train_windows(vehicle)

    def held_out(self, vehicle: int) -> bool:
        """Return whether the vehicle never trains."""
        return bool(self.fleet.held_out[vehicle])


@dataclass(frozen=True, eq=False)
class Present:
    """The available vehicles of a round; masks are [R, K], over those that may train."""

    members: Members
    available: Tensor  # A_t
    available_next: Tensor  # A_{t+1}; of a deployed fleet A_t

    def idle(self, run: int, excluded: Collection[int]) -> IntArray:
        """Return the available vehicles, without those `excluded`."""
        present = self.members.population[self.available[run].numpy()]
        remaining: IntArray = present[~np.isin(present, list(excluded))]
        return remaining


class Participant(NamedTuple):
    """A participant of a round, and whether its update will be lost."""

    run: int
    vehicle: int
    lost: bool


@dataclass(frozen=True)
class Terms:
    """Settings that all rounds share; a run is a place in `seeds`."""

    training: Training
    availability: Availability
    seeds: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        """Precision of models and series."""
        dtype: torch.dtype = getattr(torch, self.training.precision)
        return dtype

    def learning_rate(self, round: int) -> float:
        """Return the learning rate η_t of a round."""
        return scheduled(self.training.learning_rate, self.training.schedule, round)

    def speed(self, run: int, vehicle: str) -> float:
        """Return the relative speed of a vehicle's computer."""
        return device_speed(self.seeds[run], vehicle, self.availability)

    def steps(self, windows: int, speed: float) -> int:
        """Return H_k of a vehicle with `windows` training windows; 0 if it sends no update."""
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
        """Draw the participants of all `live` runs from those `available` [R, K].

        They are drawn by each run's seed, or by the secret `calling_seed` of a server. A vehicle
        whose update will be lost is called with 0 steps.
        """
        participants = self.participants(round, members, available, live, calling_seed=calling_seed)
        members.fleet.let_go()
        members.fleet.fetch([participant.vehicle for participant in participants])
        return [self.call(participant, members) for participant in participants]

    def participants(
        self,
        round: int,
        members: Members,
        available: Tensor,
        live: Sequence[int],
        *,
        calling_seed: int | None = None,
    ) -> list[Participant]:
        """Draw the participants of `calls` without reading their windows."""
        drawn: list[Participant] = []
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
            drawn += map(Participant, repeat(run), vehicles, lost[called].tolist())
        return drawn

    def call(self, participant: Participant, members: Members) -> Call:
        """Return a participant's call, with the steps that follow from its windows and speed."""
        run, vehicle, lost = participant
        if lost:
            return Call(run, vehicle, 0)
        speed = self.speed(run, members.name(vehicle))
        return Call(run, vehicle, self.steps(members.windows(vehicle), speed))

    def check(self, method: Method, vehicles: int) -> None:
        """Refuse a method that cannot train in rounds of so many vehicles."""
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
    """Return the seeds as a tuple; refuse none, or equal ones."""
    checked = tuple(seeds) if isinstance(seeds, Iterable) else ()
    if not checked or len(set(checked)) < len(checked):
        raise SettingError(
            f"seeds must be one or more different numbers, such as (1, 2, 3), got {seeds}."
        )
    return checked
