"""Agreement of a round's directions, and lengths that are out of line."""

from math import isnan, log, sqrt

import numpy as np
import pytest
from pytest import approx

from fedwatt.metrics.rounds import agreement, out_of_line


def of_vectors(vectors: list[list[float]], windows: list[float]) -> float:
    deltas = np.array(vectors)
    shares = np.array(windows) / sum(windows)
    lengths = np.linalg.norm(deltas, axis=1)
    return agreement(shares, lengths, float(np.linalg.norm(shares @ deltas)))


@pytest.mark.parametrize(
    ("vectors", "windows", "expected"),
    [
        ([[0.095], [-1.22]], [1, 3], 0.2270281445),  # the scalar toy's first round
        ([[1, 2], [1, 2], [1, 2]], [1, 1, 1], 1.0),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], [1, 1, 1], 0.0),
        ([[0, 1, 1], [1, 0, 1], [1, 1, 0]], [1, 1, 1], 0.5),  # pairwise cosine ½
        ([[1, 0], [-1, 0]], [1, 1], -1.0),
    ],
)
def test_golden_agreements(vectors, windows, expected: float) -> None:
    assert of_vectors(vectors, windows) == approx(expected, abs=1e-9)


def test_one_reply_or_no_movement_agrees_with_nobody() -> None:
    assert isnan(of_vectors([[1.0, 2.0]], [3]))
    assert isnan(of_vectors([[0.0], [0.0]], [1, 1]))


def test_lengths_are_held_against_their_median_in_logarithms() -> None:
    ratio, z = out_of_line([1.0, 4.0, 2.0, 2.0, np.nan, 1.0, 4.0])
    assert ratio.tolist() == approx([0.5, 2.0, 1.0, 1.0, np.nan, 0.5, 2.0], nan_ok=True)
    # Logarithms -ln 2, ln 2, 0, 0, -ln 2, ln 2: the median absolute deviation is ln 2.
    assert z[1] == approx(1 / 1.4826) and z[0] == approx(-1 / 1.4826) and isnan(z[4])


def test_lengths_that_nearly_agree_are_not_told_apart() -> None:
    _, z = out_of_line([1.0, 1.0, 1.0, 1.0, 1.05])
    assert z[-1] == approx(1 / 1.4826)
    _, z = out_of_line([1.0, 1.0, 1.0, 1.0, 2.0])
    assert z[-1] == approx(log(2) / (1.4826 * log(1.05)))


def test_three_replies_are_too_few() -> None:
    assert np.isnan(np.concatenate(out_of_line([1.0, 2.0, sqrt(2)]))).all()
