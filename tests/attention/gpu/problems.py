"""Tokens, masses and temperatures that the CUDA kernels are tested with, and the dense reference beside them."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from metastable.attention.direct.dense import attend_dense
from metastable.attention.gpu.kernels import gpu_available
from metastable.attention.operands import Operands

cuda = pytest.mark.skipif(not gpu_available(), reason="needs a CUDA device and Triton")
BETAS = [0.0, 1.0, 256.0, 1e4, 1e6]
CLOUDS = ["uniform", "clustered", "antipodal", "duplicates", "line"]
MASSES = ["equal", "zeros", "wide"]


def unit(n: int, d: int, generator: torch.Generator) -> Tensor:
    x = torch.randn(n, d, dtype=torch.float64, generator=generator)
    return x / x.norm(dim=1, keepdim=True)


def cloud(kind: str, n: int, d: int, generator: torch.Generator) -> Tensor:
    x = unit(n, d, generator)
    pole = unit(1, d, generator)
    if kind == "clustered":
        x = pole + 1e-3 * x
    elif kind == "antipodal":
        x = torch.where(torch.arange(n)[:, None] % 2 == 0, pole, -pole) + 1e-2 * x
    elif kind == "duplicates":
        x = x[torch.arange(n) % max(1, n // 5)]
    elif kind == "line":
        x = 3.0 * x * torch.rand(n, 1, dtype=torch.float64, generator=generator)
    return x if kind == "line" else x / x.norm(dim=1, keepdim=True)


def masses(kind: str, n: int, generator: torch.Generator) -> Tensor:
    m = torch.rand(n, dtype=torch.float64, generator=generator)
    if kind == "equal":
        return torch.full((n,), 1.0 / n, dtype=torch.float64)
    if kind == "zeros" and n > 2:
        m[torch.arange(n) % 3 == 1] = 0.0
    if kind == "wide":
        m = 10.0 ** (-60 * m)
    return m / m.sum()


def problem(
    seed: int, n_q: int, n_k: int, d: int, d_v: int | None, kind: str, weight: str, device: str = "cuda"
) -> tuple[Tensor, ...]:
    """Float32 numbers in float64 on the device, so that float32 kernels and the reference see the same input."""
    g = torch.Generator().manual_seed(seed)
    k = cloud(kind, n_k, d, g).float()
    q = cloud("uniform", n_q, d, g).float() @ (torch.eye(d) + 0.3 * torch.randn(d, d, generator=g) / math.sqrt(d))
    v = k if d_v is None else torch.randn(n_k, d_v, generator=g)
    m = masses(weight, n_k, g)
    q, k64 = q.double().to(device), k.double().to(device)
    return q, k64, k64 if d_v is None else v.double().to(device), m.to(device)


def check(got: tuple[Tensor, Tensor], case: tuple[Tensor, ...], beta: float, tolerance: float) -> None:
    q, k, v, m = case
    mean, log_partition = attend_dense(Operands(q, k, v, m, beta))
    assert got[0].shape == mean.shape and got[1].shape == log_partition.shape
    assert got[0].dtype == q.dtype and got[0].device == q.device
    radius = float((v - v.mean(dim=0)).norm(dim=1).max())
    # The reference rounds, too, and does not centre: its scores are off by eps beta |q| |k|.
    reach = beta * float(q.norm(dim=1).max() * k.norm(dim=1).max())
    reference = 2.0**-52 * (k.shape[1] + 4) * (1 + reach)
    allowed = (tolerance + reference) * radius + 2.0**-46 * float(v.abs().max())
    error = float((got[0].double() - mean).norm(dim=1).max())
    assert error <= allowed, f"mean off by {error:.2e}, allowed {allowed:.2e}"
    slack = (tolerance + reference) * (1 + log_partition.abs())
    assert bool(((got[1].double() - log_partition).abs() <= slack).all())


def rounding_error(queries: Tensor, keys: Tensor, beta: float, precision: torch.dtype = torch.float32) -> float:
    """A-priori bound on the relative error of one softmax weight: eps (d + 4) (1 + beta max|q| max|k - c|).

    c is the centre of the keys. The error of the mean is at most this times the diameter of the values that carry
    weight, and usually far less, because the errors of many keys average out.
    """
    radius = torch.linalg.vector_norm(keys - keys.mean(dim=0), dim=1).max()
    reach = beta * float(torch.linalg.vector_norm(queries, dim=1).max() * radius)
    return torch.finfo(precision).eps * (keys.shape[1] + 4) * (1 + reach)
