"""The vehicle's own power model: what one wrong segment may do to the elevation map."""

import numpy as np
import pytest

from fedwatt.elevation.survey import Survey, residual, without_outliers


def survey(energy_wh: np.ndarray) -> Survey:
    """Segments without any physics feature: the power model is their mean energy."""
    count = len(energy_wh)
    keys = np.zeros((count, 8), dtype=np.int64)
    weights = np.zeros((count, 8))
    return Survey(np.zeros((count, 0)), energy_wh, keys, weights, np.ones(count, dtype=bool), 4.0)


def test_an_outlier_counts_as_three_robust_standard_deviations() -> None:
    errors = np.array([1.0, -1.0, 1.0, -1.0, 100.0])
    # The median of |error| is 1, so a standard deviation is 1.4826 and three are 4.4478.
    clipped, noise_wh = without_outliers(errors, survey(np.zeros(5)))
    assert noise_wh == pytest.approx(1.4826)
    assert clipped == pytest.approx([1.0, -1.0, 1.0, -1.0, 4.4478])


def test_a_door_left_open_makes_no_mountain() -> None:
    energy = np.tile([1.0, -1.0], 500)
    energy[7] = 1000.0
    residuals = residual(survey(energy))
    assert np.abs(residuals.residual_wh).max() == pytest.approx(3 * residuals.noise_wh)
    assert residuals.noise_wh < 3.0
