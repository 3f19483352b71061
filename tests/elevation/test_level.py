"""Which of two models predicts a window."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from fedwatt.elevation.level import Predictions, borne_out
from fedwatt.runs.elevation import choose_by_elevation
from fedwatt.windows import Client

WINDOW = 10


def client(labels, known=None, ends=None) -> Client:
    """A vehicle of which only validation windows matter; by default they do not overlap."""
    count = len(labels)
    ends = np.arange(1, count + 1) * WINDOW - 1 if ends is None else np.asarray(ends)
    known = np.ones(count, dtype=bool) if known is None else np.asarray(known, dtype=bool)
    return Client(
        name="v",
        features=("speed", "ascent"),
        window=WINDOW,
        series=np.zeros((1, 2), dtype=np.float32),
        ends={"validation": ends},
        labels={"validation": np.asarray(labels, dtype=np.float32)},
        label_center_wh=0.0,
        label_scale_wh=1.0,
        strata={},
        trips={},
        climb_known={"validation": known},
    )


def test_hills_that_take_a_tenth_off_the_squared_error_are_borne_out_by_one_window():
    # squared error 4
    labels = np.array([2.0])
    level = np.array([0.0])
    assert borne_out(np.array([0.15]), level, client(labels))  # 3.42 is left
    assert not borne_out(np.array([0.1]), level, client(labels))  # 3.61


def test_a_small_gain_needs_many_windows():
    """A twentieth saved in every window, G = 0.05: Σ G ≥ 2 √(Σ G²) from four windows on."""
    hilly = np.sqrt(0.95)
    for windows, enough in ((3, False), (4, True), (40, True)):
        labels = np.zeros(windows)
        assert borne_out(np.full(windows, hilly), np.ones(windows), client(labels)) is enough


def test_overlapping_windows_count_as_one():
    # all within the second length
    labels = np.zeros(40)
    ends = np.arange(40) // 14 + WINDOW
    assert not borne_out(np.full(40, np.sqrt(0.95)), np.ones(40), client(labels, ends=ends))


def test_a_gain_by_chance_bears_nothing_out():
    """Saved and lost by turns, 1 and -0.9: Σ G = 1, and two standard errors are 8.5."""
    labels = np.zeros(20)
    level = np.full(20, np.sqrt(2.0))
    hilly = np.sqrt(np.tile([1.0, 2.9], 10))
    assert not borne_out(hilly, level, client(labels))


def test_only_windows_with_known_climb_are_judged():
    labels = np.zeros(4)
    level = np.ones(4)
    hilly = np.array([0.0, 0.0, 9.0, 9.0])
    assert borne_out(hilly, level, client(labels, known=[1, 1, 0, 0]))
    assert not borne_out(hilly, level, client(labels))
    assert not borne_out(hilly, level, client(labels, known=[0, 0, 0, 0]))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_diverged_network_bears_nothing_out(bad):
    assert not borne_out(np.array([0.0, bad]), np.ones(2), client(np.zeros(2)))


def test_no_gain_is_no_reason():
    assert not borne_out(np.ones(3), np.ones(3), client(np.zeros(3)))
    assert not borne_out(np.zeros(3), np.zeros(3), client(np.zeros(3)))


def test_unknown_windows_and_hills_that_are_not_borne_out_are_left_to_the_level_model():
    vehicle = client(np.zeros(2))
    vehicle = replace(vehicle, climb_known=vehicle.climb_known | {"test": np.array([True, False])})
    windows = SimpleNamespace(offsets=np.array([0, 2]))
    federation = SimpleNamespace(
        fleet=SimpleNamespace(clients=[vehicle]),
        pool=SimpleNamespace(validation=windows, test=windows),
    )
    right = np.zeros((1, 2))
    wrong = np.ones((1, 2))
    hilly = np.array([[1.0, 2.0]])
    level = np.array([[3.0, 4.0]])
    for evaluated, used in (((right, wrong), [1, 4]), ((wrong, right), [3, 4])):
        both = (Predictions(*own) for own in zip(evaluated, (hilly, level), strict=True))
        assert choose_by_elevation(federation, *both).tolist() == [used]
