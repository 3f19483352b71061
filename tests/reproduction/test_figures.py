"""Figures of the reproduction: labels at the ends of lines."""

import pytest

from reproduction.figures import spread


def test_labels_are_spread_as_little_as_possible():
    assert spread([5.0, 1.0], gap=2.0) == [5.0, 1.0]
    assert spread([1.0, 1.2, 9.0], gap=1.0) == pytest.approx([0.6, 1.6, 9.0])
    # The first pair is pushed apart into the third, so all three share one centre, 1.0.
    assert spread([0.0, 0.0, 3.0], gap=2.5) == pytest.approx([-1.5, 1.0, 3.5])
