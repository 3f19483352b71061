from math import inf, nan

from fedwatt.metrics import rounds_to_threshold


def test_first_round_at_the_threshold_counts():
    assert rounds_to_threshold([0, 5, 10], [80.0, 60.0, 40.0], 60.0) == 5


def test_later_rise_does_not_undo_it():
    assert rounds_to_threshold([0, 1, 2], [80.0, 50.0, 90.0], 60.0) == 1


def test_never_reached_is_infinite():
    assert rounds_to_threshold([0, 1], [80.0, nan], 60.0) == inf
    assert rounds_to_threshold([], [], 60.0) == inf
