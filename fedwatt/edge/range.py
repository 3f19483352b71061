"""How far a charge reaches: charge on arrival of a planned drive, and the range that is left."""

from dataclasses import dataclass

import numpy as np

from fedwatt.data.trip import FloatArray
from fedwatt.edge.trips import TripPrediction
from fedwatt.journeys.charge import charge_along, refuse_impossible_charge, usable_wh


@dataclass(frozen=True)
class RangeEstimate:
    """A plan and a charge.

    `arrival` is the state of charge at the plan's end with its interval `arrival_low` to
    `arrival_high` (below 0: the plan is longer than the charge). `range_km` is how far the charge
    reaches in driving like the plan's, `remaining_km` what of it is left on arrival; both are
    infinite where the plan takes no energy. `short_wh` is what the charge lacks for the plan.
    """

    arrival: float
    arrival_low: float
    arrival_high: float
    range_km: float
    remaining_km: float
    short_wh: float

    @property
    def reaches(self) -> bool:
        """Whether the plan ends before the charge does."""
        return self.arrival >= 0


def estimate_range(plan: TripPrediction, charge: float, capacity_wh: float) -> RangeEstimate:
    """What the plan leaves of a `charge` (0 to 1) of `capacity_wh` usable energy.

    The charge never rises above 1: what braking frees on a full pack is lost.
    """
    refuse_impossible_charge(charge)
    usable_wh(capacity_wh / 1000)
    energy_wh, kilometres = plan.total_wh, plan.kilometres

    def after(spent_wh: FloatArray) -> float:
        return float(charge_along(spent_wh[:, None], charge, capacity_wh)[-1, 0])

    arrival = after(np.cumsum(plan.predicted_wh))
    wh_per_km = energy_wh / kilometres if kilometres > 0 else float("inf")
    reach_km = charge * capacity_wh / wh_per_km if wh_per_km > 0 else float("inf")
    return RangeEstimate(
        arrival=arrival,
        arrival_low=after(plan.high_wh),
        arrival_high=after(plan.low_wh),
        range_km=reach_km,
        remaining_km=max(reach_km - kilometres, 0.0),
        short_wh=max(-arrival, 0.0) * capacity_wh,
    )
