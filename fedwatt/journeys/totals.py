"""Energy of every second of a trip from energies of windows, so that the trip's total is right.

Windows inside a trip do not determine its total unless its length is a multiple of theirs: energy
that varies with the period of a window cancels in every window. So the trip is extended by a
window's length of standing at either end, and windows may hang over its ends. A second outside the
trip counts `idle_wh`, the model's prediction for a window of standing.

One tiling of the trip by windows then gives its energy exactly, if the model is exact; so does the
mean over all tilings, which has less of the noise of a model that is not. Within a tile energy is
spread evenly. A tile that hangs over is spread together with its neighbour, because its few seconds
inside would show the error of a complete window.

Needs numpy only.
"""

import numpy as np

from fedwatt.telemetry.trip import FloatArray, IntArray


def tile_ends(seconds: int, *, window: int) -> IntArray:
    """Return the last seconds of all windows that touch a trip, ascending.

    Windows that end before second window - 1 hang over the trip's beginning, those that end after
    second seconds - 1 over its end.

    >>> tile_ends(5, window=3)
    array([0, 1, 2, 3, 4, 5, 6])
    """
    return np.arange(seconds + window - 1)


def energy_by_second(
    windows_wh: FloatArray, seconds: int, *, window: int, idle_wh: tuple[float, float] = (0.0, 0.0)
) -> FloatArray:
    """Return the energy of each second, [seconds], from energies of the windows of `tile_ends`.

    `idle_wh` is the energy of a second of standing before the trip and after it.

    >>> # Windows of 2 s over seconds of 1, 2 and 3 Wh
    >>> energy_by_second(np.array([1.0, 3.0, 5.0, 3.0]), 3, window=2).sum()
    np.float64(6.0)
    """
    ends = tile_ends(seconds, window=window)
    before = np.maximum(window - 1 - ends, 0)
    after = np.maximum(ends - seconds + 1, 0)
    inside_wh = windows_wh - before * idle_wh[0] - after * idle_wh[1]
    edges = np.arange(seconds + 1)
    total_wh = np.zeros(seconds + 1)
    for phase in range(window):
        tiles = np.flatnonzero((ends + 1) % window == phase)
        # Edges between tiles, except for those of a tile that hangs over; the trip's end is one.
        is_edge = np.ones(len(tiles), dtype=np.bool_)
        is_edge[0] = before[tiles[0]] == 0
        is_edge[-2:-1] &= after[tiles[-1]] == 0
        is_edge[-1] = True
        edge_s = np.concatenate([[0], np.minimum(ends[tiles] + 1, seconds)[is_edge]])
        edge_wh = np.concatenate([[0.0], np.cumsum(inside_wh[tiles])[is_edge]])
        total_wh += np.interp(edges, edge_s, edge_wh)
    return np.diff(total_wh / window)


def exact_windows(
    energy_wh: FloatArray, *, window: int, idle_wh: tuple[float, float] = (0.0, 0.0)
) -> FloatArray:
    """Return the windows of `tile_ends` from the energy of each second.

    >>> exact_windows(np.array([1.0, 2.0, 6.0]), window=2)
    array([1., 3., 8., 6.])
    """
    before, after = (np.full(window, idle) for idle in idle_wh)
    total = np.concatenate([[0.0], np.cumsum(np.concatenate([before, energy_wh, after]))])
    return np.asarray(total[window + 1 : -1] - total[1 : -window - 1])
