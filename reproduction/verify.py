"""Run cells of committed records again, drawn at random, and compare every number.

On the machine, engine version and libraries of a record its numbers come again to the last bit of
the single precision in which records are kept. Anywhere else products round differently, and three
hundred rounds of training amplify that. There, who took part, the steps that were taken and which
seeds diverged must still be the same, the mean over several seeds of the last errors within
`MEAN_WH`, the spread that was measured between machines, and each seed's within `SEED_WH`, the
largest difference seen between a processor and a GPU (0.53 Wh of 48) rounded up. Simulated
telemetry differs in its last bits from machine to machine as well: a fleet with as many windows
counts as the same.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from statistics import fmean
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from fedwatt.runs.provenance import describe_fleet
from reproduction.cell import Cell, key_of
from reproduction.lab import Lab
from reproduction.progress import Steps, local_steps, measured_steps, step_seconds
from reproduction.record import Record, same_kind
from reproduction.scale import Scale
from reproduction.train import is_timing, train_group

MEAN_WH: Final = 0.1
"""Allowed difference of the mean last error over seeds on other machines or engines."""
SEED_WH: Final = 0.6
"""Allowed difference of one seed's last error there."""
ERRORS: Final = ("validation_rmse", "test_rmse", "test_mae")
SCHEDULE: Final = ("seed", "round", "participants", "steps")
"""Columns that no rounding reaches."""
OnRound = Callable[[int, int], None]


@dataclass(frozen=True)
class Check:
    """A record beside the same cell, trained again."""

    cell: Cell
    differences: tuple[str, ...]
    """What of engine and machine is not the same; empty: compared bit for bit."""
    numbers: int
    """That were compared."""
    faults: tuple[str, ...]
    """What is not as it should be, in words; empty: verified."""
    largest: float
    """Largest difference of a seed's last test RMSE, Wh."""
    seconds: float


@dataclass(frozen=True)
class Draw:
    """The cells that can be drawn, and those refused."""

    keys: tuple[str, ...]
    """In the order in which they are drawn."""
    refused: Mapping[str, int]
    """Reason → how many records were not considered for it."""


def drawn(lab: Lab, records: Mapping[str, Record], seed: int, limit_s: float) -> Draw:
    """Return all records that this machine can run again, in random order."""
    refused: Counter[str] = Counter()
    possible = []
    steps = measured_steps(records.values(), lab.scale)
    for key, record in sorted(records.items()):
        reason = obstacle(lab, key, record, limit_s, steps)
        if reason:
            refused[reason] += 1
        else:
            possible.append(key)
    order = np.random.default_rng(seed).permutation(len(possible))
    return Draw(tuple(possible[place] for place in order), refused)


def obstacle(lab: Lab, key: str, record: Record, limit_s: float, steps: Steps) -> str:
    """Return why a record cannot be verified here; empty if it can."""
    cell = record.cell
    if is_timing(cell):
        return "about time, which does not repeat"
    if key_of(cell, lab.scale) != key:
        return "of an older format, whose settings are not those of today"
    if not lab.sources.has(cell.dataset):
        return f"on data that is not here: {cell.dataset}"
    if (seconds := expected_seconds(record, lab.scale, steps)) > limit_s:
        return f"longer than the limit of {limit_s:,.0f} s" if seconds < inf else "without rounds"
    return ""


def expected_seconds(record: Record, scale: Scale, steps: Steps) -> float:
    """Return how long a cell takes on one core, where that is known; ∞ without rounds."""
    fleet = record.facts["fleet"]
    if not len(record.rounds["seed"]):
        return inf
    windows = fleet["windows"]["train"]
    count = local_steps(record.cell, scale, fleet["vehicles"], windows)
    return step_seconds(record.cell, steps) * count


def verified(
    lab: Lab, records: Mapping[str, Record], draw: Draw, count: int, on_round: OnRound
) -> Iterator[Check | str]:
    """Yield checks of `count` drawn cells; a text for each that was passed over, and why."""
    done = 0
    for key in draw.keys:
        if done == count:
            return
        record = records[key]
        fleet = lab.fleet(record.cell)
        if describe_fleet(fleet)["windows"] != record.facts["fleet"]["windows"]:
            yield f"{key}: made of other telemetry than what is here"
            continue
        scale = replace(lab.scale, deterministic=bool(record.made_with["deterministic"]))
        begin = time.perf_counter()
        (again,) = train_group([record.cell], scale, fleet, lab.device, on_round)
        done += 1
        yield compared(record, again, time.perf_counter() - begin)


def compared(record: Record, again: Record, seconds: float) -> Check:
    """Return every number of a record beside those of the same cell trained again.

    Rounds that records of its time did not keep are left out.
    """
    recorded = np.isin(again.rounds["round"], record.rounds["round"])
    again = replace(again, rounds={name: column[recorded] for name, column in again.rounds.items()})
    differences = same_kind(again.made_with, record.made_with)
    if again.facts["fleet"]["hash"] != record.facts["fleet"]["hash"]:
        differences.append("telemetry")
    numbers, faults = (close if differences else exact)(record, again)
    before = record.final("test_rmse")
    now = again.final("test_rmse")
    apart = [abs(before[seed] - now[seed]) for seed in before if seed in now]
    largest = max(apart, default=0.0)
    return Check(record.cell, tuple(differences), numbers, tuple(faults), largest, seconds)


def exact(record: Record, again: Record) -> tuple[int, list[str]]:
    """Return (How many numbers were compared, faults) where all must agree to the last bit."""
    faults = []
    numbers = 0
    for table in ("rounds", "vehicles"):
        before = getattr(record, table)
        now = getattr(again, table)
        for name in before:
            recorded = before[name]
            repeated = now[name]
            numbers += len(recorded)
            if recorded.shape != repeated.shape:
                faults.append(f"{table}: {len(recorded)} rows, now {len(repeated)}")
                break
            wrong = np.flatnonzero(~_same(recorded, repeated))
            if len(wrong):
                first = wrong[0]
                faults.append(
                    f"{table}.{name}: {len(wrong)} of {len(recorded)} differ, first in row "
                    f"{first}: {recorded[first]} recorded, {repeated[first]} now"
                )
    for name, value in (record.facts.get("step_scale") or {}).items():
        numbers += 1
        if again.facts["step_scale"][name] != value:
            faults.append(f"step_scale.{name}: {value} recorded, now {again.facts['step_scale']}")
    return numbers, faults


def close(record: Record, again: Record) -> tuple[int, list[str]]:
    """Return (How many numbers were compared, faults) where roundings differ."""
    faults = []
    numbers = 0
    for name in SCHEDULE:
        before = record.rounds[name]
        after = again.rounds[name]
        numbers += len(before)
        # Of seeds that diverge, the round may be another one.
        if not (record.diverged or again.diverged) and not np.array_equal(before, after):
            faults.append(f"rounds.{name}: not the same")
    if record.diverged.keys() != again.diverged.keys():
        lost = sorted(record.diverged)
        now = sorted(again.diverged)
        faults.append(f"diverged seeds: {lost} recorded, {now} now")
    for name in ERRORS:
        recorded = record.final(name)
        repeated = again.final(name)
        seeds = sorted(recorded.keys() & repeated.keys())
        if not seeds:
            continue
        numbers += len(seeds)
        apart = {seed: repeated[seed] - recorded[seed] for seed in seeds}
        for seed in seeds:
            if not abs(apart[seed]) <= SEED_WH:
                faults.append(
                    f"{name} of seed {seed}: {recorded[seed]:.4f} recorded, "
                    f"{repeated[seed]:.4f} now"
                )
        if len(seeds) > 1 and not abs(fmean(apart.values())) <= MEAN_WH:
            faults.append(f"mean {name}: {fmean(apart.values()):+.3f} Wh from the record")
    return numbers, faults


def _same(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = first == second
    if first.dtype.kind == "f":
        same |= np.isnan(first) & np.isnan(second)
    return same
