"""Clusters from sums, on points whose clusters anybody can see."""

import numpy as np
import pytest

from examples.driving_styles.kmeans import k_means


def clusters_of(values: list[float], k: int, fewest: int = 3):
    points = np.array(values)[:, None] - np.mean(values)
    return points, k_means(points, points.std(axis=0), k, np.random.default_rng(0), fewest=fewest)


def test_two_groups_on_a_line() -> None:
    points, two = clusters_of([-6, -5, -4, 4, 5, 6], 2)
    assert sorted(two.centres.ravel().tolist()) == pytest.approx([-5, 5])
    assert two.within == pytest.approx(4)  # 1 + 0 + 1 on both sides
    first = two.of(points)[:3]
    other = two.of(points)[3:]
    assert len(set(first)) == len(set(other)) == 1 and first[0] != other[0]


def test_no_cluster_has_fewer_vehicles_than_may_be_summed() -> None:
    outlier = [-1.0, -0.5, 0.0, 0.5, 1.0, 1.5, 2.0, 40.0]
    points, two = clusters_of(outlier, 2, fewest=1)
    assert sorted(np.bincount(two.of(points))) == [1, 7]
    points, two = clusters_of(outlier, 2, fewest=3)
    assert two is None or min(np.bincount(two.of(points))) >= 3
    assert clusters_of([0.0, 1.0, 2.0], 2)[1] is None


def test_a_vehicle_alone_with_a_centre_does_not_move_it(monkeypatch: pytest.MonkeyPatch) -> None:
    sums: list[np.ndarray] = []
    real = np.einsum

    def seen(way, member, points):
        total = real(way, member, points)
        sums.append(member.sum(axis=1))
        return total

    monkeypatch.setattr(np, "einsum", seen)
    points, two = clusters_of([-6.0, -5.0, -4.0, 4.0, 5.0, 6.0, 90.0], 3)
    # Where somebody was alone, the centre was drawn anew and never became that vehicle's place.
    assert any((counts == 1).any() for counts in sums)
    assert two is None or not np.isclose(two.centres, points.max()).any()
