"""Spectral selection: weights Q^T K = V = V^T, the energy that tokens climb, and what an equilibrium is.

x_i' = P_{x_i} sum_j K_ij V x_j,  K_ij = softmax_j(beta <x_i, V x_j>)                          [arXiv:2604.26085]
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import number
from metastable.errors import InvalidInput
from metastable.measure import as_tensor
from metastable.spectral import SYMMETRIC
from metastable.theory.tokens import tokens
from metastable.weights import AttentionWeights

LARGEST = 1e100
"""Largest entry of V and largest beta: products of a few of them stay in the range of numbers."""


def selection_weights(V: Any) -> AttentionWeights:
    """The weights Q^T K = V = V^T of spectral selection; a matrix that is not symmetric is refused.

    >>> selection_weights([[2.0, 0.0], [0.0, -1.0]]).M.tolist()
    [[4.0, 0.0], [0.0, 1.0]]
    """
    symmetric = symmetric_matrix(V)
    return AttentionWeights(V=symmetric, B=symmetric)


def symmetric_matrix(V: Any) -> Float[Tensor, "d d"]:
    """V as a symmetric matrix in double precision, or one sentence that says why it is none."""
    a = as_tensor(V, "V").cpu()
    if a.ndim != 2 or a.shape[0] != a.shape[1] or len(a) < 2:
        raise InvalidInput(f"V must be a square matrix of dimension >= 2, got an array of shape {tuple(a.shape)}")
    if not bool(torch.isfinite(a).all()) or float(a.abs().max()) > LARGEST:
        raise InvalidInput(f"V must be finite and at most {LARGEST:g} in size, got {float(a.abs().max())}")
    size = float(torch.linalg.matrix_norm(a))
    defect = float(torch.linalg.matrix_norm(a - a.T)) / (2 * size) if size > 0 else 0.0
    if defect > SYMMETRIC * len(a):
        raise InvalidInput(
            f"spectral selection needs a symmetric V (Q^T K = V = V^T), got |V - V^T|/(2|V|) = {defect:.3g}"
        )
    return (a + a.T) / 2


def read_eigenvalues(eigenvalues: Any) -> np.ndarray:
    """A row of eigenvalues as given, or those of a symmetric matrix from the largest on."""
    given = as_tensor(eigenvalues, "eigenvalues").cpu()
    if given.ndim == 2:
        found: np.ndarray = torch.linalg.eigvalsh(symmetric_matrix(given)).numpy()[::-1]
        return found
    if given.ndim != 1 or len(given) < 2:
        raise InvalidInput(
            "eigenvalues must be a row of at least two numbers or a symmetric matrix, got an array of shape "
            f"{tuple(given.shape)}"
        )
    if not bool(torch.isfinite(given).all()) or float(given.abs().max()) > LARGEST:
        raise InvalidInput(f"eigenvalues must be finite and at most {LARGEST:g} in size, got {given.tolist()[:4]}")
    row: np.ndarray = given.numpy()
    return row


def equilibrium_residual(V: Any, beta: float, points: Any) -> float:
    """max_i |(K X V - diag(K H) X)_i|, H = X V X^T, K = softmax(beta H): 0 at equilibria and only there (P2).

    The paper writes R X V = diag(R H) X with R = exp(beta H); here each row is divided by its sum, so that nothing
    overflows. Tokens may carry masses (a `Measure`), which multiply the columns of R.

    >>> round(equilibrium_residual([[2.0, 0.0], [0.0, 1.0]], 1.0, [[0.6, 0.8]]), 12)
    0.48
    """
    symmetric = symmetric_matrix(V)
    beta = number(beta, "beta", least=0.0, most=LARGEST)
    rho = tokens(points, len(symmetric))
    x = rho.points
    H = x @ symmetric @ x.T
    K = torch.softmax(beta * H + torch.log(rho.mass), dim=1)
    rows = K @ x @ symmetric - (K * H).sum(1, keepdim=True) * x
    return float(torch.linalg.vector_norm(rows, dim=1).max())
