"""A battery cell as an equivalent circuit with one RC pair (paper `eq:ecm_system`).

Open-circuit voltage, series resistance and the RC pair are looked up against the state of charge,
linear between knots. The curves of vehicles.toml are typical of their chemistry, set from published
ranges rather than fitted to one cell.
"""

import math
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from fedwatt.errors import check
from fedwatt.synthetic.arrays import FloatArray

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
