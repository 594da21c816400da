import torch

import metastable as ms
from metastable import Measure, SelfAttention, sphere
from metastable.meanfield import Empirical, solve


def test_tokens_of_a_model_are_their_own_law():
    tokens = Measure(sphere.uniform(30, 5, seed=2))
    w = ms.AttentionWeights(V=torch.eye(5), B=torch.eye(5))
    path = solve(w, 2.0, Empirical(tokens), 1.0, tol=1e-7)
    plain = ms.solve(SelfAttention(w, 2.0), tokens, t=1.0, rtol=1e-11, atol=1e-11)
    assert path.converged
    assert torch.allclose(path.end.points, plain.end.points, atol=1e-8)
