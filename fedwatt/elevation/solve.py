"""The server's part: elevations from the fleet's sums and a smoothness prior.

    (Σ AᵀA + prior) z = Σ Aᵀy

The prior says that neighbouring nodes differ by a grade of `prior_grade`, give or take, and that
elevations stay within a few hundred metres; the second part only settles each region's constant.
Small problems are factorised; large ones go by conjugate gradients, with a coarse grid for the
long slopes that a diagonal alone would take thousands of steps to find.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph, linalg

from fedwatt.elevation.elevation_map import Field, empty_field, find
from fedwatt.elevation.grid import Grid
from fedwatt.elevation.statistics import Contribution
from fedwatt.errors import RunError
from fedwatt.telemetry.trip import FloatArray, IntArray

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
    """Differences between neighbours, [ties, nodes]: a row for each pair that the prior ties.

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
    one = np.ones(len(west))
    other = np.ones(len(south))
    values = np.concatenate([-one, one, -other, *(share[south] / total[south, None]).T])
    ties = sparse.csr_matrix((values, (rows, columns)), (len(west) + len(south), len(keys)))
    ties.eliminate_zeros()
    return ties


def solve_field(grid: Grid, sums: Contribution, prior_grade: float) -> Field:
    """Return the field that the sums and the prior make most likely; each region has mean 0."""
    if not len(sums.keys):
        return empty_field(grid)
    equations = system(grid, sums, prior_grade)
    if len(equations.keys) <= DIRECT_NODES:
        elevation_m = factorised(equations.matrix)(equations.right)
    else:
        elevation_m = conjugate_gradients(grid, equations)
    region = regions(equations.matrix)
    mean_m = np.bincount(region, elevation_m) / np.maximum(np.bincount(region), 1)
    return Field(grid, sums.keys, elevation_m - mean_m[region], region, sums.passes, sums.vehicles)


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


def conjugate_gradients(grid: Grid, equations: System, tolerance: float = TOLERANCE) -> FloatArray:
    """z [nodes] with a two-level preconditioner: the diagonal, and blocks solved exactly."""
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
        matrix, equations.right, rtol=tolerance, maxiter=MOST_STEPS, M=operator
    )
    if failure:
        raise RunError(
            f"The field of {nodes} nodes was not found in {MOST_STEPS} steps. "
            "Are the sums of one fleet? Choose a smaller prior_grade to make it easier."
        )
    return np.asarray(solution)


def regions(matrix: sparse.csr_matrix) -> IntArray:
    """Return number of the connected piece that each node is in, [nodes]."""
    _, labels = csgraph.connected_components(matrix, directed=False)
    return np.asarray(labels, dtype=np.int64)
