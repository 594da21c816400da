"""What the attention tests compare with: the dense formula in extended precision, and the tokens they draw."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from metastable.attention import Operands

PRECISION = {torch.float64: 1e-12, torch.float32: 1e-5}
"""Error of a kernel over all pairs, the rounding of scores aside."""
LAYOUTS = ("uniform", "clustered", "antipodal", "duplicate", "off-sphere")


def exact(queries, keys, values, mass, beta):
    """(mean, log Z) by the dense formula in numpy's longdouble."""
    q, k, v, m = (np.asarray(x, dtype=np.longdouble) for x in (queries, keys, values, mass))
    seen = m > 0
    k, v, m = k[seen], v[seen], m[seen]
    scores = np.longdouble(beta) * (q @ k.T)
    top = scores.max(axis=1, keepdims=True)
    weight = m * np.exp(scores - top)
    partition = weight.sum(axis=1, keepdims=True)
    return (weight @ v) / partition, (top + np.log(partition))[:, 0]


def errors(result, queries, keys, values, mass, beta):
    """(error of the mean relative to the longest value, error of log Z relative to max(1, |log Z|))."""
    mean, log_partition = exact(queries, keys, values, mass, beta)
    longest = max(float(np.sqrt((np.asarray(values, dtype=np.longdouble) ** 2).sum(axis=1)).max()), 1e-300)
    off = np.sqrt(((np.asarray(result[0], dtype=np.longdouble) - mean) ** 2).sum(axis=1)).max() / longest
    off_log = (
        np.abs(np.asarray(result[1], dtype=np.longdouble) - log_partition) / np.maximum(1, abs(log_partition))
    ).max()
    return float(off), float(off_log)


def conditioning(queries, keys, beta, dtype):
    """Relative error of a weight that rounding its score alone causes: eps beta max|q| max|k|."""
    length = [float(torch.as_tensor(x).double().norm(dim=1).max()) for x in (queries, keys)]
    return torch.finfo(dtype).eps * beta * length[0] * length[1]


def tokens(n, d, layout, seed):
    """n tokens in R^d: on the sphere, except for the layout "off-sphere"."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    if layout == "clustered":
        centres = rng.normal(size=(3, d))
        x = centres[rng.integers(3, size=n)] + 1e-3 * x
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    if layout == "antipodal":
        x[n // 2 : 2 * (n // 2)] = -x[: n // 2]
    if layout == "duplicate":
        x = x[rng.integers(max(n // 4, 1), size=n)]
    if layout == "off-sphere":
        x *= rng.uniform(0.1, 3.0, size=(n, 1))
    return torch.from_numpy(x)


def masses(n, seed):
    """Masses of very different sizes, a third of them zero (never all)."""
    rng = np.random.default_rng(seed)
    m = rng.exponential(size=n) ** 3 * (rng.uniform(size=n) > 0.33)
    m[0] = 1.0
    return torch.from_numpy(m)


def check(result, queries, keys, values, mass, beta):
    """The result agrees with the dense formula, up to rounding in its own precision."""
    dtype = result.mean.dtype
    assert dtype == result.log_partition.dtype == queries.dtype
    off, off_log = errors((result.mean, result.log_partition), queries, keys, values, mass, beta)
    assert max(off, off_log) <= PRECISION[dtype] + 8 * conditioning(queries, keys, beta, dtype)


def check_many_blocks(kernel, d, dtype, beta, layout):
    """More keys than one block and more rows than one tile, so that running maxima are carried across blocks."""
    keys = tokens(2600, d, layout, 3).to(dtype)
    queries = 1.7 * tokens(600, d, "uniform", 4).to(dtype)
    mass = masses(2600, 5).to(dtype)
    result = kernel(Operands(queries, keys, keys, mass, beta))
    some = replace(result, mean=result.mean[::23], log_partition=result.log_partition[::23])
    check(some, queries[::23], keys, keys, mass, beta)


def check_rising_scores(kernel, dtype):
    """Keys sorted so that every block beats the last by hundreds: the sums are rescaled at every block."""
    keys = torch.linspace(-1, 1, 6000, dtype=torch.float64)[:, None].repeat(1, 2).to(dtype)
    queries = torch.tensor([[1.0, 0.5], [-1.0, 0.2]], dtype=dtype)
    mass = torch.full((6000,), 1 / 6000, dtype=dtype)
    for beta in (100.0, 1e4, 1e6):
        check(kernel(Operands(queries, keys, keys, mass, beta)), queries, keys, keys, mass, beta)
