"""Windows as indices, and the splits of trips into training, validation and test.

A window of length L that ends at second r covers seconds r-L+1 to r of one trip (paper
`eq:window_input_sf`, `eq:window_label_sf`).

Splits are by recorded trip, so that no window shares a second with a window of another split; the
parts of a trip that was cut at a gap have its weather and traffic in common and stay together.
Draws are keyed by the vehicle's name, so that a vehicle splits the same way alone and in any
fleet.
"""

import re
from collections.abc import Iterable, Mapping

import numpy as np

from fedwatt.randomness import first_uniforms, generator
from fedwatt.telemetry.trip import BoolArray as BoolArray
from fedwatt.telemetry.trip import FloatArray, IntArray


def window_ends(seconds: int, *, length: int = 60, stride: int = 1) -> IntArray:
    """Return the last second of each full window of a trip, [W]; empty if the trip is too short.

    >>> window_ends(5, length=3)
    array([2, 3, 4])
    >>> window_ends(2, length=3)
    array([], dtype=int64)
    """
    return np.arange(length - 1, seconds, stride, dtype=np.int64)


def window_sums(values: FloatArray, ends: IntArray, *, length: int = 60) -> FloatArray:
    """Return sums of `values` [seconds] over each window, [W], from one float64 cumulative sum.

    >>> window_sums(np.array([1.0, 2.0, -4.0, 8.0]), np.array([1, 3]), length=2)
    array([3., 4.])
    """
    total = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
    return np.asarray(total[ends + 1] - total[ends + 1 - length])


def window_means(values: FloatArray, ends: IntArray, *, length: int = 60) -> FloatArray:
    """Return means of `values` [seconds] over each window, [W]."""
    return window_sums(values, ends, length=length) / length


def known_windows(finite: FloatArray, ends: IntArray, *, length: int = 60) -> BoolArray:
    """Mark the windows with at least half of their seconds finite, [W]; `finite` is 0 or 1.

    >>> known_windows(np.array([0.0, 1.0, 0.0, 0.0]), np.array([1, 3]), length=2)
    array([ True, False])
    """
    # In counts, which are exact, and not in means.
    return 2 * window_sums(finite, ends, length=length) >= length


SPLITS = ("train", "validation", "test")


def split_counts(trips: int, shares: tuple[float, float, float]) -> tuple[int, int, int]:
    """Return the number of trips of each split: nearest to `shares`, and at least one each.

    >>> split_counts(40, (0.7, 0.1, 0.2)), split_counts(4, (0.7, 0.1, 0.2))
    ((28, 4, 8), (2, 1, 1))
    """
    target_counts = trips * np.asarray(shares)
    counts = np.maximum(np.floor(target_counts + 1e-9).astype(int), 1)
    while counts.sum() < trips:
        counts[np.argmax(target_counts - counts)] += 1
    while counts.sum() > trips:
        counts[np.argmax(np.where(counts > 1, counts - target_counts, -np.inf))] -= 1
    train, validation, test = counts.tolist()
    return train, validation, test


def split_trips(
    vehicle: str, recordings: Mapping[str, str], shares: tuple[float, float, float], seed: int
) -> dict[str, tuple[str, ...]]:
    """Return the trip names of each split, in natural order.

    `recordings` maps each trip to its recording, the unit that is split; at least three are needed.
    """
    ordered = sorted(set(recordings.values()), key=natural_key)
    shuffled = [ordered[i] for i in generator(seed, "split", vehicle).permutation(len(ordered))]
    splits = np.repeat(SPLITS, split_counts(len(ordered), shares)).tolist()
    split_of = dict(zip(shuffled, splits, strict=True))
    trips = sorted(recordings, key=natural_key)
    return {
        split: tuple(trip for trip in trips if split_of[recordings[trip]] == split)
        for split in SPLITS
    }


def held_out_vehicles(names: Iterable[str], count: int, seed: int) -> frozenset[str]:
    """Return the `count` vehicles that never train."""
    candidates = list(names) if count else []
    return frozenset(candidates[k] for k in lowest_draws(candidates, count, seed, "held out"))


def lowest_draws(names: Iterable[str], count: int, seed: int, purpose: str) -> IntArray:
    """Return the places of the `count` names that draw the lowest numbers, lowest first.

    Every name draws its own number, so a vehicle that joins later moves at most one other.
    """
    return np.argsort(first_uniforms(seed, purpose, names), kind="stable")[:count]


def natural_key(name: str) -> tuple[tuple[str, int, str], ...]:
    """Return a sorting key that reads numbers as numbers.

    >>> sorted(["car-10", "car-9", "bus-1"], key=natural_key)
    ['bus-1', 'car-9', 'car-10']
    """
    pieces = re.findall(r"(\D*)(\d*)", name, flags=re.ASCII)
    return tuple((text, int(digits or -1), digits) for text, digits in pieces)
