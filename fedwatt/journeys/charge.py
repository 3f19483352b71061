"""State of charge at the end of a route, and the range along it, with prediction intervals."""

from dataclasses import dataclass

import numpy as np

from fedwatt.errors import SettingError
from fedwatt.journeys.route_intervals import LEVELS, interval
from fedwatt.journeys.route_model import RouteForecast
from fedwatt.telemetry.trip import FloatArray

MOST_KWH = 2000.0
"""No road vehicle carries more; the largest electric lorries have about 1,000 kWh."""


def usable_wh(capacity_kwh: float) -> float:
    """Return a usable capacity in Wh; refused where it cannot be one, such as Wh given as kWh.

    >>> usable_wh(16.0)
    16000.0
    """
    if not 0 < capacity_kwh <= MOST_KWH:
        hint = ""
        if 1000 <= capacity_kwh < float("inf"):
            hint = f" If it was meant in Wh, write {capacity_kwh / 1000:g}."
        raise SettingError(
            f"A usable capacity of {capacity_kwh:g} kWh cannot be: give kWh, above 0 and at most "
            f"{MOST_KWH:g}.{hint}"
        )
    return 1000.0 * capacity_kwh


def refuse_impossible_charge(charge: float) -> None:
    """Raise unless a state of charge is from 0 to 1."""
    if not 0 <= charge <= 1:
        raise SettingError(
            f"A state of charge of {charge:.0%} does not exist: give a number from 0 to 100 %."
        )


@dataclass(frozen=True, eq=False)
class Arrival:
    """State of charge along a route.

    charge         at the start, 0 to 1
    left           at the end; below 0: the charge does not suffice
    along          expected state of charge at the end of each step, [steps]
    levels_along   the same at 99 levels, ascending, [steps, 99]
    reach_m        metres after which the charge would run out; inf: it reaches the end
    reach_levels_m the same at 99 levels, ascending
    """

    charge: float
    left: float
    along: FloatArray
    levels_along: FloatArray
    reach_m: float
    reach_levels_m: FloatArray

    @property
    def levels(self) -> FloatArray:
        """State of charge at the end at 99 levels, ascending."""
        arrival_levels: FloatArray = self.levels_along[-1]
        return arrival_levels

    @property
    def likely(self) -> float:
        """Probability of reaching the end, from 0.01 to 0.99."""
        return float(np.clip((self.levels >= 0).mean(), LEVELS[0], LEVELS[-1]))

    def reach(self, share: float) -> tuple[float, float]:
        """Return the middle `share` of where the charge would run out, metres; inf: after the
        end.
        """
        low, high = interval(self.reach_levels_m, share)
        return float(low), float(high)


def arrival(forecast: RouteForecast, charge: float, capacity_wh: float) -> Arrival:
    """Return the state of charge after the route from `charge` (0 to 1) of `capacity_wh`.

    The charge cannot rise above 1: energy of braking on a full pack is lost.
    """
    refuse_impossible_charge(charge)
    usable_wh(capacity_wh / 1000)
    along = charge_along(forecast.energy_wh[:, None], charge, capacity_wh)
    levels = charge_along(forecast.energy_levels_wh, charge, capacity_wh)
    return Arrival(
        charge,
        float(along[-1, 0]),
        along[:, 0],
        levels[:, ::-1],
        _spent_at(along, forecast.metres)[0],
        _spent_at(levels, forecast.metres)[::-1],
    )


def charge_along(energy_wh: FloatArray, charge: float, capacity_wh: float) -> FloatArray:
    """Return the state of charge after each step, [steps, n], from energies since the start.

    >>> # A full pack of 16 kWh goes down a hill that would give it 2, and up again.
    >>> charge_along(np.array([[-2000.0], [0.0]]), 1.0, 16000.0).ravel()
    array([1.   , 0.875])
    """
    unlimited = charge - energy_wh / capacity_wh
    lost = np.maximum(np.maximum.accumulate(unlimited, axis=0) - 1.0, 0.0)
    return unlimited - lost


def _spent_at(charges: FloatArray, metres: FloatArray) -> FloatArray:
    """Return the metres at which each column of charges [steps, n] first is below 0; inf: never.

    >>> _spent_at(np.array([[0.1], [-0.1], [0.2]]), np.array([10.0, 20.0, 30.0]))
    array([20.])
    """
    empty = charges < 0
    return np.where(empty.any(axis=0), metres[empty.argmax(axis=0)], np.inf)
