"""A cell as an equivalent circuit, and a pack of n_s × n_p cells, solved exactly in every second.

A cell is an equivalent circuit with one RC pair (paper `eq:ecm_system`). Open-circuit voltage,
series resistance and the RC pair are looked up against the state of charge, linear between knots.
The curves of vehicles.toml are typical of their chemistry, set from published ranges rather than
fitted to one cell.

Over a second the current is constant, so charge falls linearly (paper `eq:soc_system`, with 3600 C
per Ah) and, with the circuit's elements held at the charge in the middle of the second, V_1 relaxes
exponentially (`eq:ecm_system`). Holding the middle is second order in the charge moved: a second at
3C moves 0.08 %, and the solution stays within 1e-6 V of the one whose elements follow the charge
continuously.

All seconds are solved together. V_1 is a chain of linear maps, composed by doubling; under a demand
for power, current, charge and V_1 depend on each other and are found by iterating over the complete
drive. Each pass shrinks the error by about the share of the voltage that is lost inside the cells.
"""

import math
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from fedwatt.errors import DataError
from fedwatt.telemetry.trip import FloatArray, IntArray

KNOTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SHIPPED: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("vehicles.toml").read_text(encoding="utf-8")
)


class Circuit(NamedTuple):
    """Values of the circuit's elements, each [...]: V_oc, R_0, R_1 and C_1."""

    open_v: FloatArray
    series_ohm: FloatArray
    transient_ohm: FloatArray
    transient_f: FloatArray


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Capacity, curves against the state of charge at `KNOTS`, and limits of a cell."""

    capacity_ah: float
    open_v: Sequence[float]
    series_ohm: Sequence[float]
    transient_ohm: Sequence[float]
    transient_f: Sequence[float]
    least_v: float = 2.5
    most_v: float = 4.2
    discharge_limit_a: float = math.inf
    charge_limit_a: float = math.inf

    def at(self, soc: FloatArray) -> Circuit:
        """Return the elements of the circuit at states of charge [...]."""
        return Circuit(*(np.interp(soc, KNOTS, getattr(self, curve)) for curve in Circuit._fields))

    def stored_wh(self, soc: FloatArray) -> FloatArray:
        """Return the chemical energy above empty, Q ∫ V_oc dSoC, exact for the linear curve; [...].

        >>> float(LEAF_CELL.stored_wh(np.array(1.0)).round(1))
        125.8
        """
        knots = np.array(KNOTS)
        open_v = np.array(self.open_v)
        areas = np.diff(knots) * (open_v[1:] + open_v[:-1]) / 2
        below = np.concatenate([[0.0], np.cumsum(areas)])
        piece = np.clip(np.searchsorted(knots, soc, side="right") - 1, 0, len(knots) - 2)
        within = soc - knots[piece]
        slope = (open_v[piece + 1] - open_v[piece]) / (knots[piece + 1] - knots[piece])
        mean_v = open_v[piece] + slope * within / 2
        return np.asarray(self.capacity_ah * (below[piece] + within * mean_v))

    def scaled(self, size: float) -> "Cell":
        """Return a cell that is `size` times as large, as if so many cells were in parallel."""
        return replace(
            self,
            capacity_ah=self.capacity_ah * size,
            series_ohm=tuple(value / size for value in self.series_ohm),
            transient_ohm=tuple(value / size for value in self.transient_ohm),
            transient_f=tuple(value * size for value in self.transient_f),
            discharge_limit_a=self.discharge_limit_a * size,
            charge_limit_a=self.charge_limit_a * size,
        )


LEAF_CELL = Cell(**SHIPPED["cells"]["leaf"])
NMC_CELL = Cell(**SHIPPED["cells"]["nmc"])

SECONDS_PER_HOUR = 3600.0
SETTLED_A = 1e-9  # the iteration stops when no cell's current moves by more
MOST_PASSES = 300
FORGOTTEN = 1e-20  # share of an earlier V_1 that is neglected


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Equal cells in series and parallel: V_pack = n_s V_cell, I_pack = n_p I_cell."""

    cell: Cell = LEAF_CELL
    in_series: int = 96
    in_parallel: int = 2

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.in_series * self.in_parallel

    @property
    def capacity_wh(self) -> float:
        """Energy from full to empty without load."""
        return self.cells * float(self.cell.stored_wh(np.array(1.0)))


def sized_pack(cell: Cell, in_series: int, capacity_wh: float) -> Pack:
    """Return a pack of one string of cells that are scaled to the capacity.

    >>> round(sized_pack(LEAF_CELL, 96, 30_000.0).capacity_wh, 6)
    30000.0
    """
    single_string = Pack(cell=cell, in_series=in_series, in_parallel=1)
    return replace(single_string, cell=cell.scaled(capacity_wh / single_string.capacity_wh))


@dataclass(frozen=True, eq=False)
class Drives:
    """First seconds of consecutive drives, and the pack's state of charge there.

    `first` [drives] are rows, ascending from 0. Where `start_soc` [drives] is NaN the pack keeps
    the charge that the previous drive left. A pack has rested before each drive: V_1 is 0.
    """

    first: IntArray
    start_soc: FloatArray


@dataclass(frozen=True, eq=False)
class PackTrace:
    """Voltage, current and state of charge of a pack in each second; all [seconds].

    Current is constant over a second and voltage is its mean: their product is the mean power.
    `soc` and `transient_v` (V_1 of a cell) are at the end of the second.
    """

    current_a: FloatArray
    voltage_v: FloatArray
    soc: FloatArray
    transient_v: FloatArray

    @property
    def power_w(self) -> FloatArray:
        """Mean power at the terminals (paper `eq:pack_power`), + = discharge."""
        return self.voltage_v * self.current_a

    @property
    def energy_wh(self) -> FloatArray:
        """Energy that left the terminals in each second."""
        return self.power_w / SECONDS_PER_HOUR


def coulomb_count(
    current_a: FloatArray, capacity_ah: float, drives: Drives
) -> tuple[FloatArray, FloatArray]:
    """Return the state of charge at the start and end of each second, [seconds] (`eq:soc_system`).

    >>> drive = Drives(np.array([0]), np.array([0.5]))
    >>> start, end = coulomb_count(np.array([360.0, -180.0]), 1.0, drive)
    >>> start.round(3), end.round(3)
    (array([0.5, 0.4]), array([0.4 , 0.45]))
    """
    step = current_a * (1 / (SECONDS_PER_HOUR * capacity_ah))
    used = np.cumsum(step)
    has_start = np.isfinite(drives.start_soc)
    rows = drives.first[has_start]
    steps = np.diff(rows, append=len(current_a))
    full = drives.start_soc[has_start] + used[rows] - step[rows]
    end = np.repeat(full, steps) - used
    return end + step, end


def respond(pack: Pack, current_a: FloatArray, drives: Drives) -> PackTrace:
    """Return the pack under a current [seconds]."""
    cell_a = current_a / pack.in_parallel
    _, soc, inner_v, inner_ohm, transient_v = _solved(pack.cell, cell_a, drives)
    cell_v = inner_v - inner_ohm * cell_a
    return PackTrace(current_a, pack.in_series * cell_v, soc, transient_v)


def supply(pack: Pack, power_w: FloatArray, drives: Drives) -> PackTrace:
    """Return the pack under a demand for mean power [seconds], as far as its limits allow.

    Power is + for discharge. The current, voltage and charge of a cell are limited; the trace's
    own power is what the pack gave.
    """
    cell = pack.cell
    cell_w = power_w / pack.cells
    cell_a = cell_w / float(np.mean(cell.open_v))
    full_a = SECONDS_PER_HOUR * cell.capacity_ah  # empties a cell in one second
    for _ in range(MOST_PASSES):
        start, _, inner_v, inner_ohm, _ = _solved(cell, cell_a, drives)
        most_a = np.minimum((inner_v - cell.least_v) / inner_ohm, start * full_a)
        most_a = np.clip(most_a, 0.0, cell.discharge_limit_a)
        least_a = np.maximum((inner_v - cell.most_v) / inner_ohm, (start - 1) * full_a)
        least_a = np.clip(least_a, -cell.charge_limit_a, 0.0)
        next_a = np.clip(_current(cell_w, inner_v, inner_ohm), least_a, most_a)
        moved_a = np.abs(next_a - cell_a).max(initial=0.0)
        cell_a = next_a
        if moved_a <= SETTLED_A:
            return respond(pack, cell_a * pack.in_parallel, drives)
    raise DataError(
        f"The current of a pack of {pack.capacity_wh:.0f} Wh under a peak demand of "
        f"{np.max(power_w):.0f} W did not settle. Use a larger pack or a smaller demand."
    )


def _solved(
    cell: Cell, cell_a: FloatArray, drives: Drives
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return charge before and after each second, the inner voltage and resistance, and V_1.

    The mean voltage of a second is inner voltage - inner resistance · I. V_1 after it is
    decay · before + (1 - decay) · R_1 · I. All [seconds].
    """
    start, end = coulomb_count(cell_a, cell.capacity_ah, drives)
    circuit = cell.at((start + end) / 2)
    time_constants = 1 / (circuit.transient_ohm * circuit.transient_f)
    decay = np.exp(-time_constants)
    mean_decay = -np.expm1(-time_constants) / time_constants
    keep = decay.copy()
    keep[drives.first] = 0.0
    transient_v = chained(keep, (1 - decay) * circuit.transient_ohm * cell_a)
    inner_v = circuit.open_v - mean_decay * before(transient_v, drives)
    inner_ohm = circuit.series_ohm + (1 - mean_decay) * circuit.transient_ohm
    return start, end, inner_v, inner_ohm, transient_v


def before(transient_v: FloatArray, drives: Drives) -> FloatArray:
    """Return V_1 at the start of each second, [seconds]."""
    start_v = np.roll(transient_v, 1)
    start_v[drives.first] = 0.0
    return start_v


def chained(keep: FloatArray, add: FloatArray) -> FloatArray:
    """Return x with x[n] = keep[n] · x[n-1] + add[n] from x[-1] = 0; keep in [0, 1]. All [steps].

    Maps are composed over 1, 2, 4, ... steps, until the oldest no longer counts.

    >>> chained(np.array([0.0, 0.5, 0.5]), np.array([8.0, 0.0, 1.0]))
    array([8., 4., 3.])
    """
    keep = keep.copy()
    add = add.copy()
    reach = 1
    while reach < len(add) and keep.max() > FORGOTTEN:
        add[reach:] += keep[reach:] * add[:-reach]
        keep[reach:] *= keep[:-reach]
        reach *= 2
    return add


def _current(power_w: FloatArray, inner_v: FloatArray, inner_ohm: FloatArray) -> FloatArray:
    """Return the smaller current at which (inner_v - inner_ohm · I) · I is the power.

    Where no current gives the power, it is that of the greatest power.
    """
    inside = np.maximum(inner_v**2 - 4 * inner_ohm * power_w, 0.0)
    # Beyond the greatest power this root would overstate the current.
    root: FloatArray = 2 * power_w / (inner_v + np.sqrt(inside))
    return np.minimum(root, inner_v / (2 * inner_ohm))


RECHARGE_BELOW_SOC = 0.4
LEAST_SOC = 0.1
CHARGED_TO_SOC = (0.8, 0.95)
# Heat inside the pack and its lower voltage under load cost a little more charge than energy says.
MARGIN = 1.06


def charge_between_trips(
    pack: Pack, trip: IntArray, demand_w: FloatArray, rng: Generator
) -> Drives:
    """Return the starts of trips, and the state of charge where the pack was charged before.

    `trip` [seconds] counts from 0. The decision rests on the demand alone: no battery is solved.
    """
    first = np.flatnonzero(np.diff(trip, prepend=-1))
    used = MARGIN * np.add.reduceat(demand_w, first) / 3600 / pack.capacity_wh
    start_soc = np.full(len(first), np.nan)
    now = 0.0
    for number, share in enumerate(used):
        if now < RECHARGE_BELOW_SOC or now - share < LEAST_SOC:
            now = start_soc[number] = float(rng.uniform(*CHARGED_TO_SOC))
        now -= share
    return Drives(first, start_soc)
