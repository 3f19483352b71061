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

from fedwatt.data.trip import FloatArray
from fedwatt.errors import RunError
from fedwatt.terrain.field import Field, empty_field, find
from fedwatt.terrain.grid import Grid, IntArray
from fedwatt.terrain.statistics import Contribution

ELEVATION_SPREAD_M = 300.0
DIRECT_NODES = 60_000
BLOCK_CELLS = 8
TOLERANCE = 1e-8
MOST_STEPS = 5_000


@dataclass(frozen=True, eq=False)
class System:
    """`matrix` z = `right` for the elevations of `keys`; and the neighbours the prior ties."""

    keys: IntArray
    matrix: sparse.csr_matrix
    right: FloatArray
    ties: sparse.csr_matrix


def system(grid: Grid, sums: Contribution, prior_grade: float) -> System:
    """The equations of the posterior mean."""
    ties = neighbour_ties(grid, sums.keys)
    tightness = 1 / (prior_grade * grid.cell_m) ** 2
    prior = tightness * (ties.T @ ties)
    anchor = sparse.identity(len(sums.keys), format="csr") / ELEVATION_SPREAD_M**2
    return System(sums.keys, (sums.matrix + prior + anchor).tocsr(), sums.right, ties)


def neighbour_ties(grid: Grid, keys: IntArray) -> sparse.csr_matrix:
    """Differences between neighbours, [ties, nodes]: a row for each pair that the prior ties.

    A node is tied to the next one east and to the value due north, which lies between two nodes;
    where only one of these is known, to that one.
    """
    nodes = np.arange(len(keys))
    east, north, share = grid.beside(keys)
    east_at, east_known = find(keys, east)
    pairs = [(nodes[east_known], east_at[east_known], np.ones(int(east_known.sum())))]
    north_at, north_known = find(keys, north)
    share = np.where(north_known, share, 0.0)
    total = share.sum(axis=1)
    apart = (total > 0.3) & (north[:, 0] != keys)
    rows = [np.arange(len(pairs[0][0]))] * 2
    columns = [pairs[0][0], pairs[0][1]]
    values = [-pairs[0][2], pairs[0][2]]
    first, some = len(pairs[0][0]), np.flatnonzero(apart)
    numbers = first + np.arange(len(some))
    rows += [numbers, numbers, numbers]
    columns += [some, north_at[some, 0], north_at[some, 1]]
    values += [-np.ones(len(some)), *(share[some] / total[some, None]).T]
    shape = (first + len(some), len(keys))
    ties = sparse.csr_matrix(
        (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape
    )
    ties.eliminate_zeros()
    return ties


def solve_field(grid: Grid, sums: Contribution, prior_grade: float) -> Field:
    """The field that the sums and the prior make most likely; each region has mean 0."""
    if not len(sums.keys):
        return empty_field(grid)
    equations = system(grid, sums, prior_grade)
    elevation_m = solve(grid, equations)
    region = regions(equations.matrix)
    return Field(
        grid,
        sums.keys,
        _centred(elevation_m, region),
        region,
        np.asarray(sums.passes, float),
        np.asarray(sums.vehicles),
    )


def solve(grid: Grid, equations: System) -> FloatArray:
    """z [nodes]: by factorisation where that is cheap, else by conjugate gradients."""
    if len(equations.keys) <= DIRECT_NODES:
        solution: FloatArray = factorised(equations.matrix)(equations.right)
        return solution
    return conjugate_gradients(grid, equations)


def factorised(matrix: sparse.csr_matrix) -> Callable[[FloatArray], FloatArray]:
    """A function that solves with a sparse symmetric positive definite matrix."""
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

    solution, failure = linalg.cg(
        matrix,
        equations.right,
        rtol=tolerance,
        maxiter=MOST_STEPS,
        M=linalg.LinearOperator(matrix.shape, precondition),
    )
    if failure:
        raise RunError(
            f"The field of {nodes} nodes was not found in {MOST_STEPS} steps. "
            "Are the sums of one fleet? Choose a smaller prior_grade to make it easier."
        )
    return np.asarray(solution)


def regions(matrix: sparse.csr_matrix) -> IntArray:
    """Number of the connected piece that each node is in, [nodes]."""
    _, labels = csgraph.connected_components(matrix, directed=False)
    return np.asarray(labels, dtype=np.int64)


def _centred(elevation_m: FloatArray, region: IntArray) -> FloatArray:
    mean = np.bincount(region, elevation_m) / np.maximum(np.bincount(region), 1)
    return elevation_m - mean[region]
