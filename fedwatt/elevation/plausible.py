"""Bounds on the totals of honest vehicles, checked where masks hide single vehicles.

One vehicle can still bend totals within these bounds, and nobody would see it.
"""

from collections.abc import Mapping

import numpy as np

from fedwatt.elevation.agreed import Pairs
from fedwatt.elevation.elevation_map import Field, spread
from fedwatt.elevation.grid import distance_m
from fedwatt.elevation.noise import PairSums
from fedwatt.errors import RunError
from fedwatt.telemetry.trip import FloatArray

CLIFF = 1.0
"""Grade between two nodes that one segment can join. Bends of a mountain road lie above each other,
so ground may be steeper than any road (`climb.STEEPEST`)."""
SLACK_M = 1.0


def refuse_impossible_counts(counts: FloatArray, vehicles: int) -> None:
    """Raise unless all counts are whole numbers from 0 to `vehicles`."""
    possible = (np.abs(counts - np.round(counts)) < 1e-6) & (counts > -0.5)
    possible &= counts < vehicles + 0.5
    if not possible.all():
        raise _at_fault(f"A node has {counts[~possible][0]:g} of {vehicles} vehicles")


def refuse_impossible_sums(total: Mapping[str, FloatArray], pairs: Pairs, vehicles: int) -> None:
    """Raise unless passes ≥ 0, AᵀA_ii ≥ 0 and |AᵀA_ij|² ≤ AᵀA_ii · AᵀA_jj, but for roundings."""
    value = total["value"]
    passes = total["passes"]
    # At most half a step of `contributions.LARGEST` a vehicle, and what float64 loses.
    rounding = vehicles**2 * 2.0**-38 + 1e-9
    if passes.min() < -rounding:
        raise _at_fault(f"A node has {passes.min():g} passes")
    itself = pairs[0] == pairs[1]
    diagonal = spread(value[itself], pairs[0][itself], len(passes))
    if diagonal.min() < -rounding:
        raise _at_fault(f"A node's sum of squares is {diagonal.min():g}")
    most = np.sqrt(np.maximum(diagonal, 0) + rounding)
    if (np.abs(value) > (1 + 1e-9) * most[pairs[0]] * most[pairs[1]] + rounding).any():
        raise _at_fault("The sum of a pair of nodes is larger than those of both nodes allow")


def refuse_impossible_pair_sums(sums: PairSums, clip: float, vehicles: int) -> None:
    """Raise unless weights are at least 0, and all are no longer than `clip` a vehicle."""
    slack = 1e-6 * vehicles * clip
    if sums.weight.min(initial=0.0) < -slack:
        raise _at_fault(f"A pair of nodes has the weight {sums.weight.min():g}")
    if sums.length > vehicles * clip + slack:
        raise _at_fault(
            f"Sums of {vehicles} vehicles, clipped to {clip:g}, are {sums.length:g} long"
        )


def refuse_impossible_field(field: Field, pairs: Pairs) -> None:
    """Raise unless elevations are finite and no two nodes of `pairs` make a cliff."""
    height_m = field.elevation_m
    if not np.isfinite(height_m).all():
        raise _at_fault("The vehicles' sums make no field")
    joined = field.region[pairs[0]] == field.region[pairs[1]]
    one = pairs[0][joined]
    other = pairs[1][joined]
    lat, lon = field.grid.positions(field.keys)
    metres = distance_m(lat[one], lon[one], lat[other], lon[other])
    rise_m = np.abs(height_m[other] - height_m[one])
    steep = rise_m > CLIFF * metres + SLACK_M
    if steep.any():
        at = np.flatnonzero(steep)[rise_m[steep].argmax()]
        raise _at_fault(
            f"The vehicles' sums make two nodes {metres[at]:.0f} m apart differ by "
            f"{rise_m[at]:.3g} m in height"
        )


def _at_fault(what: str) -> RunError:
    return RunError(
        f"{what}, which cannot be. One of the vehicles is at fault, and masks hide which; "
        "--resume tries again."
    )
