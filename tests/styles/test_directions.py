"""A direction counts by how far vehicles are apart in it, over what their own trips scatter."""

import numpy as np
import pytest

from examples.driving_styles.directions import StyleSums, directions
from fedwatt.errors import DataError


def test_what_trips_scatter_in_counts_little() -> None:
    draw = np.random.default_rng(0)
    # Vehicles differ by 1.5 in the first number and by 2 in the second, where trips scatter by 10.
    vehicles = [
        np.array([1.5, 2.0]) * trip_style + draw.normal(size=(40, 2)) * [1.0, 10.0]
        for trip_style in draw.normal(size=(30, 2))
    ]
    sums = [StyleSums.of(trips) for trips in vehicles]
    found = directions(StyleSums.total(sums), 30)
    assert found.axes.shape == (2, 1)
    first, second = np.abs(found.axes[:, 0]) * [1.5, 2.0]
    assert first > 5 * second
    points = np.stack([found.place(vehicle_sums.mean) for vehicle_sums in sums])
    assert points.mean(axis=0) == pytest.approx(0, abs=1e-9)
    assert found.spread == pytest.approx(points.std(axis=0))


def test_sums_of_one_vehicle_by_hand() -> None:
    style_sums = StyleSums.of(np.array([[1.0, 0.0], [3.0, 0.0]]))
    assert style_sums.mean.tolist() == [2.0, 0.0]
    assert style_sums.square.tolist() == [[4.0, 0.0], [0.0, 0.0]]
    assert style_sums.scatter.tolist() == [[2.0, 0.0], [0.0, 0.0]]
    assert (style_sums.freedom, style_sums.noise) == (1, 0.5)


def test_one_trip_each_tells_no_style_from_a_trip() -> None:
    sums = StyleSums.total(StyleSums.of(np.ones((1, 2)) * place) for place in range(4))
    with pytest.raises(DataError, match="one training trip alone"):
        directions(sums, 4)
