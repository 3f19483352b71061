"""A vehicle's own simple power model: ridge regression, fitted and kept on board.

energy of a segment = physics · β + up · climb - down · descent + noise

What it cannot explain is what the hills (and the wind, and the driver) did. Before a field is known
`up` and `down` are both mass times gravity; with one they are fitted like everything else, because
a pack gives more for a metre up than it gets back for a metre down.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedwatt.elevation.elevation_map import Field
from fedwatt.elevation.survey import Survey, climb_m
from fedwatt.telemetry.trip import FloatArray
from fedwatt.windows.ridge import ridge

LEAST_CLIMBING = 30
LEAST_SLOPE = 0.25  # a metre of climb is worth at least a quarter of mass times gravity
OUTLIER = 3.0
CLEAR_GAIN = 1.02
"""By how much something simpler, or less well known, must be better on few validation trips."""


@dataclass(frozen=True, eq=False)
class Residual:
    """Residual energy of each segment [segments], and the energy of a metre of climb there.

    residual_wh   energy not explained by physics: slope_wh_per_m times climb, and noise
    noise_wh      standard deviation of that noise, robustly
    """

    residual_wh: FloatArray
    slope_wh_per_m: FloatArray
    noise_wh: float


def residual(survey: Survey, climb_m: FloatArray | None = None) -> Residual:
    """Residual of the vehicle's power model, without a field or on top of each segment's climb."""
    physics = survey.physics
    usual = survey.wh_per_m
    slope = np.full(len(physics), usual)
    hills = np.zeros(len(physics))
    if climb_m is not None and (np.abs(climb_m) > 1).sum() >= LEAST_CLIMBING:
        ways = _up_and_down(climb_m)
        beta = ridge(np.hstack([physics, ways]), survey.energy_wh)
        hills = ways @ beta[-3:-1]
        explained = physics @ beta[:-3] + beta[-1] + hills
        # Smooth from one slope to the other over a metre: a kink at 0 makes refreshes flip signs.
        up, down = slopes(float(beta[-3]), float(beta[-2]), usual)
        slope = down + (up - down) * np.clip(climb_m + 0.5, 0, 1)
    else:
        beta = ridge(physics, survey.energy_wh)
        explained = physics @ beta[:-1] + beta[-1]
    error, noise_wh = without_outliers(survey.energy_wh - explained, survey)
    return Residual(error + hills, slope, noise_wh)


def without_outliers(error_wh: FloatArray, survey: Survey) -> tuple[FloatArray, float]:
    """Errors of all segments within 3 standard deviations, and what these are, robustly."""
    middle = np.median(np.abs(error_wh[survey.placed])) if survey.placed.any() else 1.0
    noise_wh = max(1.4826 * float(middle), 1e-3 * survey.wh_per_m)
    # A door left open or a wrong fix must not make a mountain.
    return np.clip(error_wh, -OUTLIER * noise_wh, OUTLIER * noise_wh), noise_wh


def _up_and_down(climb_m: FloatArray) -> FloatArray:
    return np.column_stack([np.maximum(climb_m, 0), np.minimum(climb_m, 0)])


def field_errors_wh(training: Survey, field: Field, *, at_face_value: bool = False) -> FloatArray:
    """Errors [segments] as by `validation_errors_wh`, with climbs read off a field."""
    assert training.validation is not None
    climbs_m = [climb_m(one, field) for one in (training, training.validation)]
    return validation_errors_wh(training, climbs_m, at_face_value=at_face_value)


def validation_errors_wh(
    training: Survey, climbs_m: Sequence[FloatArray], *, at_face_value: bool = False
) -> FloatArray:
    """Errors [segments] on validation trips of the power model fitted on training segments.

    `climbs_m` are those of training and of validation segments. What a metre of climb is worth is
    fitted, too; `at_face_value` it is what mass and gravity allow (`slopes`), as it is to a network
    that other vehicles trained.
    """
    validation = training.validation
    assert validation is not None
    up_and_down, evaluated = map(_up_and_down, climbs_m)
    beta = ridge(np.hstack([training.physics, up_and_down]), training.energy_wh)
    if at_face_value:
        worth = np.array(slopes(float(beta[-3]), float(beta[-2]), training.wh_per_m))
        rest = ridge(training.physics, training.energy_wh - up_and_down @ worth)
        beta = np.concatenate([rest[:-1], worth, rest[-1:]])
    features = np.hstack([validation.physics, evaluated])
    errors: FloatArray = features @ beta[:-1] + beta[-1] - validation.energy_wh
    return errors


def rms(values: FloatArray) -> float:
    """Root mean square."""
    return float(np.sqrt(np.mean(values**2)))


def slopes(up: float, down: float, usual: float) -> tuple[float, float]:
    """Wh for a metre up and back for a metre down, with the mean that mass and gravity fix.

    A field half as high with slopes twice as steep explains energy just as well; losses up and down
    being about equal, their mean is what settles how high hills are.

    >>> slopes(3.0, 1.0, usual=4.0)
    (6.0, 2.0)
    """
    least = LEAST_SLOPE * usual
    up, down = max(up, least), max(down, least)
    scale = 2 * usual / (up + down)
    return float(up * scale), float(down * scale)
