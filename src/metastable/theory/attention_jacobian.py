"""The derivative of the softmax flow of n tokens in the tangent space of their spheres, at any configuration.

v_i = P_i V m_i, m_i = sum_j K_ij x_j:  grad_j v_i = P_i V [K_ij (I + beta (x_j - m_i)(B^T x_i)^T)
                                                     + delta_ij beta C_i B^T] P_j - delta_ij <x_i, V m_i> P_i
with C_i = sum_j K_ij (x_j - m_i) x_j^T, the covariance of what token i attends (P9).
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import number
from metastable.errors import InvalidInput
from metastable.measure import as_measure
from metastable.theory.tokens import check_weights, tokens
from metastable.weights import AttentionWeights

MOST_COORDINATES = 4096
"""Largest n (d - 1): the matrix is dense, and its square of so many numbers is 128 MiB."""
LARGEST_BETA = 1e100
"""Largest inverse temperature: the scores stay in the range of numbers."""


def attention_jacobian(w: AttentionWeights, beta: float, points: Any) -> Float[Tensor, "c c"]:
    """The covariant derivative of the softmax velocity in tangent coordinates, c = n (d - 1), token by token.

    At an equilibrium its eigenvalues are the rates of small disturbances: it is stable if all real parts are
    negative. The coordinates of token i are those of `tangent_bases(points)[i]`. Points may be a `Measure`.

    >>> w = AttentionWeights(V=[[2.0, 0.0], [0.0, 1.0]], B=[[2.0, 0.0], [0.0, 1.0]])
    >>> attention_jacobian(w, 1.0, [[1.0, 0.0]]).tolist()  # one token: l_k - l_p
    [[-1.0]]
    """
    beta = number(beta, "beta", least=0.0, most=LARGEST_BETA)
    rho = tokens(points, check_weights(w).d)
    n, d = rho.n, rho.d
    if n * (d - 1) > MOST_COORDINATES:
        raise InvalidInput(f"the Jacobian is dense: n (d - 1) must be <= {MOST_COORDINATES}, got {n * (d - 1)}")
    x, V, B = rho.points, w.V.to(torch.float64).cpu(), w.B.to(torch.float64).cpu()
    x = x.cpu()
    sought = x @ B
    K = torch.softmax(beta * sought @ x.T + torch.log(rho.mass.cpu()), dim=1)
    mean = K @ x
    offset = x[None, :, :] - mean[:, None, :]
    basis = _tangent_bases(x)
    left = basis.mT @ V  # (n, d-1, d): T_i^T V
    own = beta * torch.einsum("ij,ija,jb->iab", K, offset, x) @ B.T
    blocks = torch.einsum("ij,ipa,jaq->ipjq", K, left, basis)
    blocks += beta * torch.einsum("ij,ipa,ija,ib,jbq->ipjq", K, left, offset, sought, basis)
    diagonal = left @ own @ basis
    height = (x * (mean @ V.T)).sum(1)
    diagonal -= height[:, None, None] * torch.eye(d - 1, dtype=torch.float64)
    every = torch.arange(n)
    blocks[every, :, every, :] += diagonal
    return blocks.reshape(n * (d - 1), n * (d - 1))


def tangent_bases(points: Any) -> Float[Tensor, "n d d-1"]:
    """An orthonormal basis of the tangent space at every token, the columns of a reflection that takes e_1 to it.

    >>> tangent_bases([[0.0, 1.0]]).tolist()
    [[[-1.0], [0.0]]]
    """
    return _tangent_bases(as_measure(points, dtype=torch.float64).points)


def _tangent_bases(x: Tensor) -> Tensor:
    """I - 2 u u^T/|u|^2 with u = x + sign(x_1) e_1, which never cancels; its first column is -sign(x_1) x."""
    u = x.clone()
    u[:, 0] += torch.where(x[:, 0] >= 0, 1.0, -1.0).to(x)
    reflection = (
        torch.eye(x.shape[1], dtype=x.dtype, device=x.device)
        - 2 * u[:, :, None] * u[:, None, :] / ((u * u).sum(1)[:, None, None])
    )
    return reflection[:, :, 1:]
