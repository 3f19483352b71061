"""Spectral ratio of a weight matrix, by power iterations or exactly.

Paper, `eq:spectral_flatness`: κ = ‖W‖₂ / (‖W‖_F + ε_F). For a matrix of rank r it lies in
[1/√r, 1]; it is 1 for every output layer of a scalar regressor, so look at a hidden matrix.

The paper takes "a fixed small number of power iterations (e.g., 10)". Ten leave κ 1 to 5 % too low
where the largest singular values are close together, and no number of them is a bound: iterations
that begin nearly orthogonal to the leading vector settle on the next one. The exact value costs
little for matrices of this size.
"""

import torch
from torch import Tensor


def spectral_ratio(matrix: Tensor, *, iterations: int = 10, epsilon_f: float = 1e-12) -> Tensor:
    """κ of `matrix` [..., rows, columns], shape [...]; 0 iterations: exact to rounding.

    >>> round(spectral_ratio(torch.diag(torch.tensor([4.0, 3.0])), iterations=50).item(), 6)
    0.8
    >>> round(spectral_ratio(torch.diag(torch.tensor([4.0, 3.0])), iterations=0).item(), 6)
    0.8
    """
    if iterations == 0:
        exact: Tensor = torch.linalg.svdvals(matrix)[..., 0] / (
            matrix.norm(dim=(-2, -1)) + epsilon_f
        )
        return exact
    # A fixed start keeps the estimate reproducible and free of a random stream; the uneven values
    # make it unlikely to be orthogonal to the leading singular vector.
    columns = matrix.shape[-1]
    vector = torch.linspace(1.0, 2.0, columns, dtype=matrix.dtype, device=matrix.device)
    vector = vector.expand(*matrix.shape[:-2], columns).unsqueeze(-1)
    tiny = torch.finfo(matrix.dtype).tiny
    for _ in range(iterations):
        vector = matrix.mT @ (matrix @ vector)
        vector = vector / vector.norm(dim=-2, keepdim=True).clamp_min(tiny)
    largest = (matrix @ vector).norm(dim=(-2, -1))
    ratio: Tensor = largest / (matrix.norm(dim=(-2, -1)) + epsilon_f)
    return ratio
