"""Use of a vehicle's measured elevation channel beside the map learned from energy.

A receiver, a barometer or a map gives the climb M of a segment with an error of its own; energy
gives E, the climb that would explain what physics leaves. Both see the same ground c:

    E = c + e,  M = c + m      so that      var(m) = var(M) - cov(E, M)

for errors that have nothing to do with each other. So a vehicle knows, from its own training trips,
how far to trust either, and hands up the mean of both, weighted by their precision. Where it has no
positions it hands up nothing, and still reads its own elevation.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.power import CLEAR_GAIN, Residual, residual, rms, validation_errors_wh
from fedwatt.elevation.survey import Survey, climb_m
from fedwatt.telemetry.trip import FloatArray

LEAST_ERROR_M = 0.3
"""Of a measured climb over a segment: channels are rounded, to whole metres often."""
LEAST_SEGMENTS = 30


def segment_residual(one: Survey, field: Field) -> Residual:
    """Residuals on top of a field, with what the vehicle measured of its climb."""
    own = residual(one, climb_m(one, field))
    if not len(one.measured_m):
        return own
    known = np.isfinite(one.measured_m)
    error_m = measured_error_m(one)
    by_energy = (own.slope_wh_per_m / own.noise_wh) ** 2
    by_channel = np.where(known, error_m**-2, 0.0)
    climb = by_energy * own.residual_wh / own.slope_wh_per_m
    climb = (climb + by_channel * np.nan_to_num(one.measured_m)) / (by_energy + by_channel)
    # Sums take slope over noise as the precision of a climb; so it is that of both together.
    slope = own.noise_wh * np.sqrt(by_energy + by_channel)
    return replace(own, residual_wh=slope * climb, slope_wh_per_m=slope)


def measured_error_m(one: Survey) -> float:
    """Return standard deviation of the error of a segment's measured climb; infinite with too
    few.
    """
    known = np.isfinite(one.measured_m)
    if known.sum() < LEAST_SEGMENTS:
        return float("inf")
    by_energy = residual(one).residual_wh[known] / one.wh_per_m
    both = np.cov(by_energy, one.measured_m[known])
    return float(np.sqrt(max(both[1, 1] - both[0, 1], LEAST_ERROR_M**2)))


def measured_is_better(one: Survey, field: Field) -> bool:
    """Return whether a vehicle reads its measured elevation first, by its own validation trips.

    It does unless the field is clearly better there, or measured climbs do harm at face value.
    """
    evaluated = one.validation
    if evaluated is None or not len(one.measured_m) or not len(evaluated.measured_m):
        return False

    def error(climbs_m: Sequence[FloatArray], *, at_face_value: bool = False) -> float:
        return rms(validation_errors_wh(one, climbs_m, at_face_value=at_face_value))

    by_field = [climb_m(own, field) for own in (one, evaluated)]
    measured = [
        np.where(np.isfinite(own.measured_m), own.measured_m, climb)
        for own, climb in zip((one, evaluated), by_field, strict=True)
    ]
    level = [np.zeros(len(climb)) for climb in by_field]
    harmless = error(measured, at_face_value=True) <= CLEAR_GAIN * error(level)
    return harmless and error(measured) <= CLEAR_GAIN * error(by_field)
