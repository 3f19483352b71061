"""A cell as an equivalent circuit, and a pack of n_s × n_p cells, solved exactly in every second.

A cell is an equivalent circuit with one RC pair (paper `eq:ecm_system`). Open-circuit voltage,
series resistance and the RC pair are looked up against the state of charge, linear between knots.
The curves of vehicles.toml are typical of their chemistry, set from published ranges rather than
fitted to one cell.

Over one step the current is constant, so charge falls linearly (paper `eq:soc_system`, its capacity
in Ah taken as 3600 C each) and, with the circuit's elements held at the charge in the middle of the
step, V_1 relaxes exponentially (`eq:ecm_system`). A step is a second. Holding the
middle is second order in the charge moved: a second at 3C moves 0.08 %, and the solution stays
within 1e-6 V of the one whose elements follow the charge continuously.

All steps are solved together. V_1 is a chain of linear maps, composed by doubling; a demand for
power makes current, charge and V_1 depend on each other, and is met by iterating over the
whole drive. Each pass shrinks the error by about the share of the voltage lost inside the cells.
"""

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedwatt.errors import DataError, check
from fedwatt.telemetry.trip import FloatArray, IntArray

KNOTS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
SHIPPED: dict[str, Any] = tomllib.loads(
    Path(__file__).with_name("vehicles.toml").read_text(encoding="utf-8")
)
CURVES = ("open_v", "series_ohm", "transient_ohm", "transient_f")


class Circuit(NamedTuple):
    """Values of the circuit's elements, each [...]: V_oc, R_0, R_1 and C_1."""

    open_v: FloatArray
    series_ohm: FloatArray
    transient_ohm: FloatArray
    transient_f: FloatArray


@dataclass(frozen=True, kw_only=True)
class Cell:
    """Capacity, curves against `soc` (knots from 0 to 1), and what a cell may be asked for."""

    capacity_ah: float
    soc: tuple[float, ...] = KNOTS
    open_v: tuple[float, ...]
    series_ohm: tuple[float, ...]
    transient_ohm: tuple[float, ...]
    transient_f: tuple[float, ...]
    least_v: float = 2.5
    most_v: float = 4.2
    discharge_limit_a: float = math.inf
    charge_limit_a: float = math.inf

    def __post_init__(self) -> None:
        check(self, "capacity_ah", 0 < self.capacity_ah < math.inf, "positive")
        rising = all(a < b for a, b in zip(self.soc, self.soc[1:], strict=False))
        spans = len(self.soc) >= 2 and self.soc[0] == 0 and self.soc[-1] == 1
        check(self, "soc", rising and spans, "knots that rise from 0 to 1")
        for curve in CURVES:
            values = getattr(self, curve)
            good = len(values) == len(self.soc) and all(0 < v < math.inf for v in values)
            check(self, curve, good, f"{len(self.soc)} positive values, one a knot of soc")
        falls = any(a > b for a, b in zip(self.open_v, self.open_v[1:], strict=False))
        check(self, "open_v", not falls, "a curve that never falls as the cell is charged")
        check(self, "least_v", 0 < self.least_v < self.most_v, f"in (0, {self.most_v})")
        for name in ("discharge_limit_a", "charge_limit_a"):
            check(self, name, getattr(self, name) > 0, "positive")

    def at(self, soc: FloatArray) -> Circuit:
        """Elements of the circuit at states of charge [...]."""
        return Circuit(*(np.interp(soc, self.soc, getattr(self, curve)) for curve in CURVES))

    def stored_wh(self, soc: FloatArray) -> FloatArray:
        """Chemical energy above empty, Q ∫ V_oc dSoC, exact for the linear curve; [...].

        >>> float(FLAT_CELL.stored_wh(np.array(0.5)))
        18.0
        """
        knots = np.array(self.soc)
        open_v = np.array(self.open_v)
        areas = np.diff(knots) * (open_v[1:] + open_v[:-1]) / 2
        below = np.concatenate([[0.0], np.cumsum(areas)])
        piece = np.clip(np.searchsorted(knots, soc, side="right") - 1, 0, len(knots) - 2)
        within = soc - knots[piece]
        slope = (open_v[piece + 1] - open_v[piece]) / (knots[piece + 1] - knots[piece])
        mean_v = open_v[piece] + slope * within / 2
        return np.asarray(self.capacity_ah * (below[piece] + within * mean_v))

    def scaled(self, size: float) -> "Cell":
        """Return a cell of the same kind, `size` times as large: as if so many were in parallel."""
        return replace(
            self,
            capacity_ah=self.capacity_ah * size,
            series_ohm=tuple(value / size for value in self.series_ohm),
            transient_ohm=tuple(value / size for value in self.transient_ohm),
            transient_f=tuple(value * size for value in self.transient_f),
            discharge_limit_a=self.discharge_limit_a * size,
            charge_limit_a=self.charge_limit_a * size,
        )


def _shipped(name: str) -> Cell:
    """Return a cell of vehicles.toml."""
    values: dict[str, Any] = SHIPPED["cells"][name]
    curves = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
    return Cell(**values | curves)


FLAT_CELL, LEAF_CELL, NMC_CELL = (_shipped(name) for name in ("flat", "leaf", "nmc"))

SECONDS_PER_HOUR = 3600.0
SETTLED_A = 1e-9  # currents of a cell are found to within this
MOST_PASSES = 300
FORGOTTEN = 1e-20  # what is left of V_1 once nobody need carry it on


@dataclass(frozen=True, kw_only=True)
class Pack:
    """Cells in series and parallel: V_pack = n_s V_cell, I_pack = n_p I_cell, all cells alike."""

    cell: Cell = LEAF_CELL
    in_series: int = 96
    in_parallel: int = 2

    def __post_init__(self) -> None:
        for name in ("in_series", "in_parallel"):
            check(self, name, getattr(self, name) >= 1, "at least 1 cell")

    @property
    def cells(self) -> int:
        """Number of cells."""
        return self.in_series * self.in_parallel

    @property
    def capacity_wh(self) -> float:
        """Energy from full to empty at no load."""
        return self.cells * float(self.cell.stored_wh(np.array(1.0)))


def sized_pack(cell: Cell, in_series: int, capacity_wh: float) -> Pack:
    """Return a pack of one string of cells, as large as the capacity asks for.

    >>> round(sized_pack(LEAF_CELL, 96, 30_000.0).capacity_wh, 6)
    30000.0
    """
    single_string = Pack(cell=cell, in_series=in_series, in_parallel=1)
    return replace(single_string, cell=cell.scaled(capacity_wh / single_string.capacity_wh))


@dataclass(frozen=True, eq=False)
class Drives:
    """Starts of drives in one long row of steps, and the pack's state of charge there.

    `first` [drives] are rows, ascending from 0. Where `start_soc` [drives] is NaN the pack is as
    full as the drive before left it. A pack has rested before each drive: V_1 is 0.
    """

    first: IntArray
    start_soc: FloatArray

    @staticmethod
    def one(start_soc: float) -> "Drives":
        """Return a single drive."""
        return Drives(np.array([0]), np.array([start_soc]))


@dataclass(frozen=True, eq=False)
class PackTrace:
    """Voltage, current and state of charge of a pack in each second; all [steps].

    Current is constant over a step, voltage is its mean, so their product is the mean power.
    `soc` and `transient_v` (V_1 of a cell) are at the end of the step.
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
        """Energy that left the terminals in each step."""
        return self.power_w / SECONDS_PER_HOUR


def coulomb_count(
    current_a: FloatArray, capacity_ah: float, drives: Drives
) -> tuple[FloatArray, FloatArray]:
    """State of charge at the start and at the end of each step, both [steps] (`eq:soc_system`).

    >>> start, end = coulomb_count(np.array([360.0, -180.0]), 1.0, Drives.one(0.5))
    >>> start.round(3), end.round(3)
    (array([0.5, 0.4]), array([0.4 , 0.45]))
    """
    step = current_a * (1 / (SECONDS_PER_HOUR * capacity_ah))
    used = np.cumsum(step)
    has_start = np.isfinite(drives.start_soc)
    if not len(has_start) or not has_start[0]:
        raise DataError("The first drive has no state of charge to start from. Give it one.")
    rows = drives.first[has_start]
    steps = np.diff(rows, append=len(current_a))
    full = drives.start_soc[has_start] + used[rows] - step[rows]
    end = np.repeat(full, steps) - used
    return end + step, end


def respond(pack: Pack, current_a: FloatArray, drives: Drives) -> PackTrace:
    """Return the pack under a given current [steps]."""
    cell_a = current_a / pack.in_parallel
    _, soc, behind_v, behind_ohm, transient_v = _solved(pack.cell, cell_a, drives)
    cell_v = behind_v - behind_ohm * cell_a
    return PackTrace(current_a, pack.in_series * cell_v, soc, transient_v)


def supply(pack: Pack, power_w: FloatArray, drives: Drives) -> PackTrace:
    """Return the pack under a demand for mean power [steps], as far as its limits let it be met.

    Power is + for discharge. Limits are the current, voltage and charge of a cell; what they leave
    is in the trace's own power.
    """
    cell = pack.cell
    wanted_w = power_w / pack.cells
    cell_a = wanted_w / float(np.mean(cell.open_v))
    per_charge = SECONDS_PER_HOUR * cell.capacity_ah
    for _ in range(MOST_PASSES):
        start, _, behind_v, behind_ohm, _ = _solved(cell, cell_a, drives)
        most_a = np.minimum((behind_v - cell.least_v) / behind_ohm, start * per_charge)
        most_a = np.minimum(np.maximum(most_a, 0.0), cell.discharge_limit_a)
        least_a = np.maximum((behind_v - cell.most_v) / behind_ohm, (start - 1) * per_charge)
        least_a = np.maximum(np.minimum(least_a, 0.0), -cell.charge_limit_a)
        found_a = np.clip(_current(wanted_w, behind_v, behind_ohm), least_a, most_a)
        moved_a = np.abs(found_a - cell_a).max(initial=0.0)
        cell_a = found_a
        if moved_a <= SETTLED_A:
            return respond(pack, cell_a * pack.in_parallel, drives)
    raise DataError(
        f"The current of a pack of {pack.capacity_wh:.0f} Wh under a peak demand of "
        f"{np.max(power_w):.0f} W did not settle. Use a larger pack or a smaller demand."
    )


def _solved(
    cell: Cell, cell_a: FloatArray, drives: Drives
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray, FloatArray]:
    """Charge before and after each step, the voltage and resistance behind its current, and V_1.

    V_1 after a step is decay · before + (1 - decay) · R_1 · I. All [steps].
    """
    start, end = coulomb_count(cell_a, cell.capacity_ah, drives)
    circuit = cell.at((start + end) / 2)
    decay, carried = _relaxation(circuit)
    keep = decay.copy()
    keep[drives.first] = 0.0
    transient_v = chained(keep, (1 - decay) * circuit.transient_ohm * cell_a)
    behind_v = circuit.open_v - carried * _before(transient_v, drives)
    behind_ohm = circuit.series_ohm + (1 - carried) * circuit.transient_ohm
    return start, end, behind_v, behind_ohm, transient_v


def _relaxation(circuit: Circuit) -> tuple[FloatArray, FloatArray]:
    """Return the remainder of V_1 at the end of each step, and its mean over it, without
    current.
    """
    steps = 1 / (circuit.transient_ohm * circuit.transient_f)
    return np.exp(-steps), -np.expm1(-steps) / steps


def _before(transient_v: FloatArray, drives: Drives) -> FloatArray:
    before = np.empty_like(transient_v)
    before[1:] = transient_v[:-1]
    before[drives.first] = 0.0
    return before


def chained(keep: FloatArray, add: FloatArray) -> FloatArray:
    """x with x[n] = keep[n] · x[n-1] + add[n] and nothing before; keep in [0, 1]. All [steps].

    Maps are composed over 1, 2, 4, ... steps, until nothing of the oldest is left.

    >>> chained(np.array([0.0, 0.5, 0.5]), np.array([8.0, 0.0, 1.0]))
    array([8., 4., 3.])
    """
    keep, add = keep.copy(), add.copy()
    reach = 1
    while reach < len(add) and keep.max() > FORGOTTEN:
        add[reach:] += keep[reach:] * add[:-reach]
        keep[reach:] *= keep[:-reach]
        reach *= 2
    return add


def _current(power_w: FloatArray, behind_v: FloatArray, behind_ohm: FloatArray) -> FloatArray:
    """Return current at which (behind_v - behind_ohm · I) · I is the power, the smaller root.

    A power beyond reach asks for the current of the greatest power there is.
    """
    inside = np.maximum(behind_v**2 - 4 * behind_ohm * power_w, 0.0)
    # A reachable power would give this root as well; beyond reach it would overstate the current.
    root: FloatArray = 2 * power_w / (behind_v + np.sqrt(inside))
    return np.minimum(root, behind_v / (2 * behind_ohm))
