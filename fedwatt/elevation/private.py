"""The field a vehicle keeps to itself: what only it (or too few) drive, on top of the shared one.

On board and from its own training trips, a vehicle solves for the nodes that are not published. The
published ones keep their elevations, except that each shared region may be raised or lowered as a
whole: two towns that only this vehicle connects have no common zero yet.
"""

from weakref import WeakKeyDictionary

import numpy as np
from scipy import sparse

from fedwatt.elevation.elevation_map import Field, find, spread
from fedwatt.elevation.measured import segment_residual
from fedwatt.elevation.power import Residual, field_errors_wh
from fedwatt.elevation.settings import ElevationSettings
from fedwatt.elevation.solve import factorised, regions, system
from fedwatt.elevation.statistics import Contribution, contribution
from fedwatt.elevation.survey import Survey
from fedwatt.telemetry.trip import IntArray

FURTHER_TURNS = 6
CLEARLY_LESS = 0.97
_LAST: WeakKeyDictionary[Survey, tuple[Field, int, Field]] = WeakKeyDictionary()
"""By survey the last own field, and what it was made on: asked for when a prior is evaluated, and
again when it is kept."""


def private_field(survey: Survey, own: Residual, shared: Field, prior_grade: float) -> Field:
    """Return the shared field and, beside it, the vehicle's own nodes; never to be sent
    anywhere.
    """
    sums = contribution(survey, own, excluding=shared.keys)
    _, known = find(shared.keys, sums.keys)
    if known.all():
        return shared
    keys = np.union1d(shared.keys, sums.keys)
    equations = system(shared.grid, _placed(sums, keys), prior_grade)
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
    both = is_shared_at[shared_at]
    passes, vehicles = (
        spread(values[both], shared_at, len(keys)) for values in (shared.passes, shared.vehicles)
    )
    at, own_nodes = find(sums.keys, keys[private])
    passes[private] = np.where(own_nodes, sums.passes[at], 0.0)
    vehicles[private] = 1
    parts = keys, elevation_m, regions(equations.matrix), passes, vehicles
    return Field(shared.grid, *parts, shared.prior)


def own_field(one: Survey, shared: Field, settings: ElevationSettings) -> Field:
    """Return a vehicle's own field: private nodes learned on board, refreshed as the shared ones
    are.

    Each turn fits the power model on top of the hills found so far. The first turns leave private
    mountains too flat, because much of them passes for noise, and on board further turns cost
    nothing; but on gentle ground they may chase noise. So they are kept only where they predict the
    vehicle's validation trips clearly better.
    """
    kept = _LAST.get(one)
    if kept is not None and kept[0] is shared and kept[1] == settings.refreshes:
        return kept[2]
    cut = one.cut(shared.prior.segment_s)
    usual = _turned(cut, shared, shared, 1 + settings.refreshes)
    further = _turned(cut, shared, usual, FURTHER_TURNS)
    before, after = (_validation_error_wh(one, field) for field in (usual, further))
    field = further if after < CLEARLY_LESS * before else usual
    _LAST[one] = shared, settings.refreshes, field
    return field


def _turned(cut: Survey, shared: Field, field: Field, turns: int) -> Field:
    for _ in range(turns):
        own = segment_residual(cut, field)
        field = private_field(cut, own, shared, shared.prior.grade)
    return field


def _validation_error_wh(one: Survey, field: Field) -> float:
    """Mean absolute error of the power model on validation segments; 0 where there are none."""
    if one.validation is None:
        return 0.0
    return float(np.abs(field_errors_wh(one, field, at_face_value=True)).mean())


def _placed(sums: Contribution, keys: IntArray) -> Contribution:
    """Return the sums, renumbered within a larger ascending set of nodes."""
    at, _ = find(keys, sums.keys)
    row, column = (at[place].astype(np.int32) for place in (sums.row, sums.column))
    wide = (spread(part, at, len(keys)) for part in (sums.right, sums.passes, sums.vehicles))
    return Contribution(keys, row, column, sums.value, *wide)
