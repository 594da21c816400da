"""What the attention tests compare with: the dense formula in extended precision, and the tokens they draw."""

from __future__ import annotations

import numpy as np
import torch

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
