"""Small heads, tokens and runs that several tests share."""

import torch

import metastable as ms


def gaussian(seed, *shape):
    """A tensor of standard normal numbers."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def identity(d, v=1.0):
    """V = v I, B = I."""
    return ms.AttentionWeights(V=v * torch.eye(d), B=torch.eye(d))


def equiangular(n, g):
    """n unit vectors in R^n with all overlaps g."""
    gram = (1 - g) * torch.eye(n, dtype=torch.float64) + g
    return torch.linalg.cholesky(gram)


def random_weights(seed, d):
    """V random, B random around the identity."""
    g = torch.Generator().manual_seed(seed)
    return ms.AttentionWeights(
        V=torch.randn(d, d, generator=g, dtype=torch.float64),
        B=torch.eye(d).double() + 0.5 * torch.randn(d, d, generator=g, dtype=torch.float64),
    )


def random_measure(seed, n, d):
    """n uniform tokens with unequal masses."""
    g = torch.Generator().manual_seed(seed + 1)
    mass = torch.rand(n, generator=g, dtype=torch.float64) + 0.1
    return ms.Measure(ms.sphere.uniform(n, d, seed=g), mass)


def low_rank_and_dense(seed, rank, d):
    """One head in factors and multiplied out."""
    g = torch.Generator().manual_seed(seed)
    Q, K, V, O = (torch.randn(rank, d, generator=g, dtype=torch.float64) for _ in range(4))
    return ms.AttentionWeights.from_qkv(Q, K, V, O.T), ms.AttentionWeights(V=O.T @ V, B=Q.T @ K)


def weights():
    """A head on the circle, neither symmetric nor diagonal."""
    return ms.AttentionWeights(V=[[2.0, 0.0], [0.3, 1.0]], B=[[1.0, 0.5], [0.0, 1.0]])


def flow(beta=8.0):
    """Its self-attention."""
    return ms.SelfAttention(weights(), beta)


def small_run(**options):
    """Twelve tokens of that flow up to time 2."""
    return ms.solve(flow(), ms.sphere.uniform(12, 2, seed=1), 2.0, **options)


def short_run(**options):
    """Nine tokens up to time 1."""
    return ms.solve(flow(3.0), ms.sphere.uniform(9, 2, seed=4), 1.0, **options)


def smooth_case():
    """A flow and tokens in R^3 on which orders of convergence are clean."""
    g = torch.Generator().manual_seed(5)
    w = ms.AttentionWeights(
        V=torch.randn(3, 3, generator=g, dtype=torch.float64),
        B=torch.randn(3, 3, generator=g, dtype=torch.float64),
    )
    return ms.SelfAttention(w, 3.0), ms.Measure(ms.sphere.uniform(15, 3, seed=g))
