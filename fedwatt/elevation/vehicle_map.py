"""A vehicle's own map: the shared map, its private nodes, and nodes that nobody has driven.

The vehicle chooses among these by its validation trips; its private map is never uploaded.

**Private nodes** are those that too few vehicles drive to be published. The vehicle solves for
them from its own training trips. Published nodes keep their elevations, except that each shared
region may be raised or lowered as a whole: two towns that only this vehicle connects have no
common zero yet.

**Undriven nodes.** Trips leave the map, and a road that is taken for level there costs more than
any other error of a window. Nodes up to `REACH` cells beside the map get the elevation that the
map's prior makes most likely: grades between neighbours are independent with mean 0, so with the
map's own nodes fixed the others minimise

    Σ (z_a - z_b)²   over neighbouring nodes a and b

(harmonic interpolation: Zhu, Ghahramani and Lafferty, ICML 2003). Regions of a map have no common
zero, so each is continued by itself.

Worst case: a wrong climb on undriven nodes, where the alternative is no climb at all. Interpolated
elevations stay within the range of their map, and `climb.rise_m` accepts no grade above 20 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

from fedwatt.elevation.elevation_map import ElevationMap, empty_map
from fedwatt.elevation.grid import find, scattered
from fedwatt.elevation.normal_equations import (
    Contribution,
    contribution,
    factorised,
    neighbour_ties,
    regions,
    system,
)
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.survey import (
    CLEAR_GAIN,
    Residual,
    Survey,
    map_errors_wh,
    measured_is_better,
    rms,
    segment_residual,
)
from fedwatt.errors import DataError
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

FURTHER_TURNS = 6
CLEARLY_LESS = 0.97
_LAST: WeakKeyDictionary[Survey, tuple[ElevationMap, int, ElevationMap]] = WeakKeyDictionary()
"""By survey: the shared map, the number of refreshes, and the vehicle's map made last."""


def private_map(
    survey: Survey, residuals: Residual, shared: ElevationMap, prior_grade: float
) -> ElevationMap:
    """Return the shared map with the vehicle's private nodes; it never leaves the vehicle."""
    sums = contribution(survey, residuals, excluding=shared.keys)
    _, is_published = find(shared.keys, sums.keys)
    if is_published.all():
        return shared
    keys = np.union1d(shared.keys, sums.keys)
    place, _ = find(keys, sums.keys)
    row, column = (place[at].astype(np.int32) for at in (sums.row, sums.column))
    wide = (
        scattered(values, place, len(keys)) for values in (sums.right, sums.passes, sums.vehicles)
    )
    renumbered = Contribution(keys, row, column, sums.value, *wide)
    equations = system(shared.grid, renumbered, prior_grade)
    is_shared_at, is_shared = find(shared.keys, keys)
    base = np.where(is_shared, shared.elevation_m[is_shared_at] if shared.nodes else 0.0, 0.0)
    # Unknowns: one for each private node, one for each shared region.
    private = np.flatnonzero(~is_shared)
    shared_at = np.flatnonzero(is_shared)
    region = shared.region[is_shared_at[shared_at]] if shared.nodes else shared_at
    shape = (len(keys), len(private) + int(region.max(initial=-1)) + 1)
    rows = np.concatenate([private, shared_at])
    columns = np.concatenate([np.arange(len(private)), len(private) + region])
    expand = sparse.csr_matrix((np.ones(len(rows)), (rows, columns)), shape)
    reduced = (expand.T @ equations.matrix @ expand).tocsr()
    right = expand.T @ (equations.right - equations.matrix @ base)
    elevation_m = base + expand @ factorised(reduced)(right)
    published_at = is_shared_at[shared_at]
    passes, vehicles = (
        scattered(values[published_at], shared_at, len(keys))
        for values in (shared.passes, shared.vehicles)
    )
    at, is_passed = find(sums.keys, keys[private])
    passes[private] = np.where(is_passed, sums.passes[at], 0.0)
    vehicles[private] = 1
    region = regions(equations.matrix)
    return ElevationMap(shared.grid, keys, elevation_m, region, passes, vehicles, shared.prior)


def vehicle_map(survey: Survey, shared: ElevationMap, settings: ElevationSettings) -> ElevationMap:
    """Return the shared map with private nodes, refreshed as often as the shared ones are.

    Each turn fits the power model with the map so far. The first turns leave private mountains too
    flat, because much of them passes for noise, and further turns in the vehicle cost nothing; but
    where roads are nearly level they may fit noise. So they count only where they predict the
    vehicle's validation trips clearly better.
    """
    last = _LAST.get(survey)
    if last is not None and last[0] is shared and last[1] == settings.refreshes:
        return last[2]
    cut = survey.cut(shared.prior.segment_s)
    usual = _turned(cut, shared, shared, 1 + settings.refreshes)
    further = _turned(cut, shared, usual, FURTHER_TURNS)
    better = usual
    if survey.validation is not None:
        before, after = (
            np.abs(map_errors_wh(survey, each, at_face_value=True)).mean()
            for each in (usual, further)
        )
        better = further if after < CLEARLY_LESS * before else usual
    _LAST[survey] = shared, settings.refreshes, better
    return better


def unvalidated_map(
    survey: Survey, shared: ElevationMap, settings: ElevationSettings
) -> ElevationMap:
    """Return the shared map with private and undriven nodes, which no validation trip chose."""
    cut = survey.cut(shared.prior.segment_s)
    turns = 1 + settings.refreshes if settings.private else 0
    return with_undriven_nodes(_turned(cut, shared, shared, turns))


def _turned(
    cut: Survey, shared: ElevationMap, elevation_map: ElevationMap, turns: int
) -> ElevationMap:
    for _ in range(turns):
        residuals = segment_residual(cut, elevation_map)
        elevation_map = private_map(cut, residuals, shared, shared.prior.grade)
    return elevation_map


def vehicle_maps(
    names: Sequence[str],
    surveys: Mapping[str, Survey],
    shared: ElevationMap,
    settings: ElevationSettings,
) -> dict[str, ElevationMap]:
    """Return each vehicle's map with undriven nodes; vehicles without a survey have the shared one.

    With the source "auto" a vehicle reads its measured elevation first, unless the map clearly
    lowers the error on its validation trips.
    """
    read = with_undriven_nodes(shared)
    maps = dict.fromkeys(names, replace(read, measured=True) if settings.measures else read)
    for name, survey in surveys.items():
        candidates = [shared, empty_map(shared.grid)]
        if settings.private:
            candidates.insert(0, vehicle_map(survey, shared, settings))
        best = best_map(candidates, survey)
        measured = measured_is_better(survey, best)
        maps[name] = replace(with_undriven_nodes(best), measured=measured)
    return maps


def best_map(candidates: Sequence[ElevationMap], training: Survey) -> ElevationMap:
    """Return the map with which the power model predicts the vehicle's validation trips best.

    The first, with the most nodes, is given up only for a clear gain: validation trips are few. An
    empty map is a candidate like any other: where positions are wrong, it is best. Elevations that
    are always wrong look harmless to a power model, which may value a metre of climb at nothing,
    but a network that other vehicles trained takes them at face value. So they must not do harm at
    face value.
    """
    if training.validation is None:
        raise DataError("A survey without validation trips cannot choose a map.")
    errors = [rms(map_errors_wh(training, elevation_map)) for elevation_map in candidates]
    errors[0] /= CLEAR_GAIN
    best = candidates[int(np.argmin(errors))]
    empty = empty_map(candidates[0].grid)
    with_map, without = (
        rms(map_errors_wh(training, each, at_face_value=True)) for each in (best, empty)
    )
    return best if with_map <= CLEAR_GAIN * without else empty


REACH = 4
"""Cells beside the map that are interpolated: 320 m with the default grid."""
SLACK = 1e-9
TOLERANCE = 1e-6


def with_undriven_nodes(elevation_map: ElevationMap) -> ElevationMap:
    """Return the map with interpolated nodes beside it, which no vehicle has passed."""
    if not elevation_map.nodes:
        return elevation_map
    keys, region = _surroundings(elevation_map)
    place, driven = find(elevation_map.keys, keys)
    elevation_m = np.where(driven, elevation_map.elevation_m[place], 0.0)
    undriven = np.flatnonzero(~driven)
    elevation_m[undriven] = _interpolated(elevation_map, keys, region, elevation_m, driven)
    return replace(
        elevation_map,
        keys=keys,
        elevation_m=elevation_m,
        region=region,
        passes=np.where(driven, elevation_map.passes[place], 0.0),
        vehicles=np.where(driven, elevation_map.vehicles[place], 0),
    )


def _surroundings(elevation_map: ElevationMap) -> tuple[IntArray, IntArray]:
    """Return the keys of all nodes within `REACH` steps of the map, and the region of each."""
    grid = elevation_map.grid
    keys = frontier = elevation_map.keys
    region = frontier_region = elevation_map.region
    for _ in range(REACH):
        beside = np.concatenate(grid.neighbours(frontier))
        candidates, first = np.unique(beside, return_index=True)
        fresh = ~find(keys, candidates)[1]
        frontier = candidates[fresh]
        frontier_region = np.tile(frontier_region, 4)[first][fresh]
        order = np.argsort(np.concatenate([keys, frontier]))
        keys = np.concatenate([keys, frontier])[order]
        region = np.concatenate([region, frontier_region])[order]
    return keys, region


def _interpolated(
    elevation_map: ElevationMap,
    keys: IntArray,
    region: IntArray,
    elevation_m: FloatArray,
    driven: BoolArray,
) -> FloatArray:
    """Return the elevations of the nodes that are not `driven`, in the order of their keys."""
    ties = neighbour_ties(elevation_map.grid, keys).tocoo()
    lowest = np.full(ties.shape[0], region.max() + 1)
    highest = np.full(ties.shape[0], -1)
    np.minimum.at(lowest, ties.row, region[ties.col])
    np.maximum.at(highest, ties.row, region[ties.col])
    within_region = ties.tocsr()[np.flatnonzero(lowest == highest)]
    precision = (within_region.T @ within_region).tocsr()
    unknown = np.flatnonzero(~driven)
    fixed = np.flatnonzero(driven)
    matrix = precision[unknown][:, unknown] + SLACK * sparse.identity(len(unknown), format="csr")
    right = -(precision[unknown][:, fixed] @ elevation_m[fixed])
    solution, _ = linalg.cg(matrix, right, rtol=TOLERANCE)
    bounds = elevation_map.elevation_m.min(), elevation_map.elevation_m.max()
    return np.asarray(np.clip(solution, *bounds), dtype=np.float64)
