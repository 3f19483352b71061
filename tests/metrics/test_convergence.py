from math import inf, isnan, nan

from fedwatt.metrics import Best, best_so_far, rounds_to_threshold


def test_first_round_at_the_threshold_counts():
    assert rounds_to_threshold([0, 5, 10], [80.0, 60.0, 40.0], 60.0) == 5


def test_later_rise_does_not_undo_it():
    assert rounds_to_threshold([0, 1, 2], [80.0, 50.0, 90.0], 60.0) == 1


def test_never_reached_is_infinite():
    assert rounds_to_threshold([0, 1], [80.0, nan], 60.0) == inf
    assert rounds_to_threshold([], [], 60.0) == inf


def test_best_follows_validation_not_test():
    history = best_so_far([0, 2, 4, 6], [50.0, 40.0, 45.0, 39.0], [60.0, 48.0, 30.0, 52.0])
    assert [best.round for best in history] == [0, 2, 2, 6]
    assert [best.test for best in history] == [60.0, 48.0, 48.0, 52.0]


def test_equal_validation_keeps_the_earlier_round():
    assert best_so_far([1, 2], [5.0, 5.0], [7.0, 6.0])[-1] == Best(1, 5.0, 7.0)


def test_rounds_without_evaluation_change_nothing():
    first, second, third = best_so_far([0, 1, 2], [nan, 4.0, nan], [nan, 5.0, nan])
    assert first.round == -1 and isnan(first.test) and first.validation == inf
    assert second == third == Best(1, 4.0, 5.0)
