"""Energy of every second of a trip from energies of windows, so that the trip's total is right.

Windows inside a trip cannot tell its total, unless its length is a multiple of theirs: energy that
comes and goes with the period of a window leaves every window as it is. So the trip is taken to
stand for a window's length before it begins and after it ends, and windows may hang over its ends.
A window that hangs over holds `idle_wh` for every second outside, which the model says itself: it
is asked for a window that stands all the time.

One tiling of the trip by windows then gives its energy exactly, if the model is exact; so does the
mean of several, which begin `stride` seconds apart, and it has less of the noise of a model that is
not. Within a tile energy is spread evenly. A tile that hangs over is spread together with its
neighbour: what few seconds of it are inside would show the error of a whole window.

Needs numpy only.
"""

import numpy as np

from fedwatt.telemetry.trip import FloatArray, IntArray


def tile_ends(seconds: int, *, window: int, stride: int = 1) -> IntArray:
    """Last seconds of the windows whose energies `energy_by_second` takes, ascending.

    Windows that end before second window - 1 hang over the trip's beginning, those that end after
    second seconds - 1 over its end.

    >>> tile_ends(5, window=3, stride=3), tile_ends(5, window=3)
    (array([2, 5]), array([0, 1, 2, 3, 4, 5, 6]))
    """
    first = np.arange(0, window, stride)
    ends = (first[:, None] + window * np.arange(-1, -(-seconds // window))).ravel() + window - 1
    touching = (ends >= 0) & (ends - window + 1 < seconds)
    return np.unique(ends[touching]).astype(np.int64)


def energy_by_second(
    windows_wh: FloatArray,
    seconds: int,
    *,
    window: int,
    stride: int = 1,
    idle_wh: tuple[float, float] = (0.0, 0.0),
) -> FloatArray:
    """Energy of each second, [seconds], from the energies of the windows of `tile_ends`.

    `idle_wh` is what a second of standing takes, before the trip and after it.

    >>> # Seconds of 1, 2, 3, 4 and 5 Wh, in windows of 3 s that begin where the last one ended.
    >>> energy_by_second(np.array([6.0, 9.0]), 5, window=3, stride=3).sum()
    np.float64(15.0)
    """
    ends = tile_ends(seconds, window=window, stride=stride)
    before = np.maximum(window - 1 - ends, 0)
    after = np.maximum(ends - seconds + 1, 0)
    inside_wh = windows_wh - before * idle_wh[0] - after * idle_wh[1]
    edges = np.arange(seconds + 1)
    phases = range(0, window, stride)
    total_wh = np.zeros(seconds + 1)
    for phase in phases:
        tiles = np.flatnonzero((ends + 1) % window == phase)
        # Edges between tiles, except for those of a tile that hangs over; the trip's end is one.
        is_edge = np.ones(len(tiles), dtype=np.bool_)
        is_edge[0] = before[tiles[0]] == 0
        is_edge[-2:-1] &= after[tiles[-1]] == 0
        is_edge[-1] = True
        known_s = np.concatenate([[0], np.minimum(ends[tiles] + 1, seconds)[is_edge]])
        known_wh = np.concatenate([[0.0], np.cumsum(inside_wh[tiles])[is_edge]])
        total_wh += np.interp(edges, known_s, known_wh)
    return np.diff(total_wh / len(phases))


def exact_windows(
    energy_wh: FloatArray,
    *,
    window: int,
    stride: int = 1,
    idle_wh: tuple[float, float] = (0.0, 0.0),
) -> FloatArray:
    """Return a perfect model's windows of `tile_ends`, from the energy of each second.

    >>> exact_windows(np.array([1.0, 2.0, 6.0]), window=2)
    array([1., 3., 8., 6.])
    """
    before, after = (np.full(window, idle) for idle in idle_wh)
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([before, energy_wh, after]))])
    until = tile_ends(len(energy_wh), window=window, stride=stride) + window + 1
    return np.asarray(total[until] - total[until - window])
