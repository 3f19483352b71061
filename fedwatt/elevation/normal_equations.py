"""Normal equations of elevation: sums that vehicles upload, and their solution on the server.

Each segment says slope · (weights · elevations) = residual, up to noise. Written as rows A z = y,
weighted by 1 / noise², the fleet's least-squares problem is Σ AᵀA and Σ Aᵀy over all vehicles: the
sums add, and one exchange gives the server the very problem of the pooled data. It solves

    (Σ AᵀA + prior) z = Σ Aᵀy

The prior says that neighbouring nodes differ by a grade of about `prior_grade`, and that elevations
stay within a few hundred metres; the second part only settles each region's constant. Small
problems are factorised; large ones go by conjugate gradients, with a coarse grid for the long
slopes that a diagonal alone would take thousands of steps to find.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse import csgraph, linalg

from fedwatt.elevation.elevation_map import ElevationMap, empty_map
from fedwatt.elevation.grid import Grid, find
from fedwatt.elevation.survey import Residual, Survey
from fedwatt.errors import RunError
from fedwatt.telemetry.trip import BoolArray, FloatArray, IntArray

CHUNK = 65_536  # segments turned into sums at a time; bounds memory for any length of driving


@dataclass(frozen=True, eq=False)
class Contribution:
    """The message of one vehicle, or the sum of many. Nothing else leaves a vehicle.

    keys       int64 [nodes], ascending
    matrix     upper triangle of AᵀA: `row`, `column` int32 and `value` float64, each [pairs]
    right      float64 [nodes], Aᵀy
    passes     float64 [nodes], segments that touch a node
    vehicles   int64 [nodes], vehicles that contributed: 1 in a vehicle's own message
    """

    keys: IntArray
    row: NDArray[np.int32]
    column: NDArray[np.int32]
    value: FloatArray
    right: FloatArray
    passes: FloatArray
    vehicles: IntArray

    @classmethod
    def over(
        cls, keys: IntArray, upper: Any, right: FloatArray, passes: FloatArray, vehicles: IntArray
    ) -> "Contribution":
        """Return sums over `keys` with the upper triangle of AᵀA as a sparse matrix [nodes,
        nodes].
        """
        pairs = upper.tocoo()
        row, column = (at.astype(np.int32, copy=False) for at in (pairs.row, pairs.col))
        return cls(keys, row, column, pairs.data, right, passes, vehicles)

    @cached_property
    def matrix(self) -> sparse.csr_matrix:
        """AᵀA, symmetric, [nodes, nodes]."""
        nodes = len(self.keys)
        upper = sparse.csr_matrix((self.value, (self.row, self.column)), shape=(nodes, nodes))
        return (upper + sparse.triu(upper, 1).T).tocsr()


def touched_nodes(survey: Survey, within: IntArray | None = None) -> IntArray:
    """Return nodes, ascending, of the vehicle's segments (wholly `within` a set of nodes, if
    given).
    """
    used = usable_segments(survey, within)
    return np.unique(survey.keys[used][survey.weights[used] != 0])


def usable_segments(survey: Survey, within: IntArray | None = None) -> BoolArray:
    """Return segments with both ends placed and, if given, all nodes `within` an ascending set."""
    used = survey.placed.copy()
    if within is not None:
        _, inside = find(within, survey.keys)
        used &= (inside | (survey.weights == 0)).all(axis=1)
    return used


def contribution(
    survey: Survey,
    residuals: Residual,
    within: IntArray | None = None,
    excluding: IntArray | None = None,
) -> Contribution:
    """Return sums over the segments that lie wholly `within` a set of nodes (None: anywhere).

    With `excluding`, segments wholly inside *that* set are left out: what is already shared.
    """
    used = usable_segments(survey, within)
    if excluding is not None:
        used &= ~usable_segments(survey, excluding)
    segments = np.flatnonzero(used)
    keys = np.unique(survey.keys[segments][survey.weights[segments] != 0])
    nodes = len(keys)
    upper = sparse.csr_matrix((nodes, nodes))
    right = np.zeros(nodes)
    passes = np.zeros(nodes)
    for part in np.array_split(segments, max(len(segments) // CHUNK, 1)):
        if not len(part):
            continue
        index, _ = find(keys, survey.keys[part])
        weights = (
            survey.weights[part] * (residuals.slope_wh_per_m[part] / residuals.noise_wh)[:, None]
        )
        rows = np.repeat(np.arange(len(part)), index.shape[1])
        design = sparse.csr_matrix((weights.ravel(), (rows, index.ravel())), (len(part), nodes))
        design.sum_duplicates()
        design.eliminate_zeros()
        upper = upper + sparse.triu(design.T @ design)
        right += design.T @ (residuals.residual_wh[part] / residuals.noise_wh)
        passes += np.bincount(design.indices, minlength=nodes)
    return Contribution.over(keys, upper, right, passes, np.ones(nodes, dtype=np.int64))


def add(contributions: Sequence[Contribution]) -> Contribution:
    """Return the sum over vehicles; the first may be a sum already."""
    # Sorting is faster here than numpy's hashing.
    all_keys = np.sort(np.concatenate([NOTHING.keys, *(each.keys for each in contributions)]))
    keys = all_keys[np.diff(all_keys, prepend=-1) > 0]
    nodes = len(keys)
    right = np.zeros(nodes)
    passes = np.zeros(nodes)
    vehicles = np.zeros(nodes, dtype=np.int64)
    entries = []
    for each in contributions:
        place = find(keys, each.keys)[0].astype(np.int32)
        right[place] += each.right
        passes[place] += each.passes
        vehicles[place] += each.vehicles
        entries.append((each.value, place[each.row], place[each.column]))
    # The first may be the sum of a whole fleet: in order already, it is not sorted once more.
    upper = _upper_triangle(entries[:1], nodes) + _upper_triangle(entries[1:], nodes)
    return Contribution.over(keys, upper, right, passes, vehicles)


def _upper_triangle(entries: Sequence[tuple[Any, ...]], nodes: int) -> sparse.csr_matrix:
    """Return values, rows and columns of several contributions as one matrix [nodes, nodes]."""
    if not entries:
        return sparse.csr_matrix((nodes, nodes))
    value, row, column = map(np.concatenate, zip(*entries, strict=True))
    return sparse.csr_matrix((value, (row, column)), (nodes, nodes))


NOTHING = Contribution(*(np.zeros(0, kind) for kind in ("i8", "i4", "i4", "f8", "f8", "f8", "i8")))
"""The sum of no messages."""

ELEVATION_SPREAD_M = 300.0
DIRECT_NODES = 60_000
BLOCK_CELLS = 8
TOLERANCE = 1e-8
MOST_STEPS = 5_000


@dataclass(frozen=True, eq=False)
class System:
    """`matrix` z = `right` for the elevations of `keys`."""

    keys: IntArray
    matrix: sparse.csr_matrix
    right: FloatArray


def system(grid: Grid, sums: Contribution, prior_grade: float) -> System:
    """Return the equations of the posterior mean."""
    ties = neighbour_ties(grid, sums.keys)
    tightness = 1 / (prior_grade * grid.cell_m) ** 2
    prior = tightness * (ties.T @ ties)
    anchor = sparse.identity(len(sums.keys), format="csr") / ELEVATION_SPREAD_M**2
    return System(sums.keys, (sums.matrix + prior + anchor).tocsr(), sums.right)


def neighbour_ties(grid: Grid, keys: IntArray) -> sparse.csr_matrix:
    """Return the matrix [ties, nodes] of differences between neighbours that the prior ties.

    A node is tied to the next one east and to the value due north, which lies between two nodes;
    where only one of these is known, to that one.
    """
    nodes = np.arange(len(keys))
    east, north, share = grid.beside(keys)
    east_at, east_known = find(keys, east)
    west, east_at = nodes[east_known], east_at[east_known]
    north_at, north_known = find(keys, north)
    share = np.where(north_known, share, 0.0)
    total = share.sum(axis=1)
    south = np.flatnonzero((total > 0.3) & (north[:, 0] != keys))
    eastward, northward = np.split(np.arange(len(west) + len(south)), [len(west)])
    rows = np.concatenate([eastward, eastward, northward, northward, northward])
    columns = np.concatenate([west, east_at, south, *north_at[south].T])
    eastern = np.ones(len(west))
    northern = np.ones(len(south))
    values = np.concatenate([-eastern, eastern, -northern, *(share[south] / total[south, None]).T])
    ties = sparse.csr_matrix((values, (rows, columns)), (len(west) + len(south), len(keys)))
    ties.eliminate_zeros()
    return ties


def solve_map(grid: Grid, sums: Contribution, prior_grade: float) -> ElevationMap:
    """Return the map that the sums and the prior make most likely; each region has mean 0."""
    if not len(sums.keys):
        return empty_map(grid)
    equations = system(grid, sums, prior_grade)
    if len(equations.keys) <= DIRECT_NODES:
        elevation_m = factorised(equations.matrix)(equations.right)
    else:
        elevation_m = conjugate_gradients(grid, equations)
    region = regions(equations.matrix)
    mean_m = np.bincount(region, elevation_m) / np.maximum(np.bincount(region), 1)
    return ElevationMap(
        grid, sums.keys, elevation_m - mean_m[region], region, sums.passes, sums.vehicles
    )


def factorised(matrix: sparse.csr_matrix) -> Callable[[FloatArray], FloatArray]:
    """Return a function that solves with a sparse symmetric positive definite matrix."""
    factors = linalg.splu(
        matrix.tocsc(),
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )
    solver: Callable[[FloatArray], FloatArray] = factors.solve
    return solver


def conjugate_gradients(grid: Grid, equations: System) -> FloatArray:
    """Solve for z [nodes]; the preconditioner is the diagonal, and blocks solved exactly."""
    matrix = equations.matrix
    _, block = np.unique(grid.blocks(equations.keys, BLOCK_CELLS), return_inverse=True)
    nodes = len(equations.keys)
    gather = sparse.csr_matrix((np.ones(nodes), (block, np.arange(nodes))))
    coarse = factorised(gather @ matrix @ gather.T)
    scale = 1 / matrix.diagonal()
    spread = gather.T.tocsr()

    def precondition(residual: FloatArray) -> FloatArray:
        improved: FloatArray = scale * residual + spread @ coarse(gather @ residual)
        return improved

    operator = linalg.LinearOperator(matrix.shape, precondition)
    solution, failure = linalg.cg(
        matrix, equations.right, rtol=TOLERANCE, maxiter=MOST_STEPS, M=operator
    )
    if failure:
        raise RunError(
            f"The map of {nodes} nodes was not found in {MOST_STEPS} steps. "
            "Are the sums of one fleet? Choose a smaller prior_grade to make it easier."
        )
    return np.asarray(solution)


def regions(matrix: sparse.csr_matrix) -> IntArray:
    """Return number of the connected piece that each node is in, [nodes]."""
    _, labels = csgraph.connected_components(matrix, directed=False)
    return np.asarray(labels, dtype=np.int64)
