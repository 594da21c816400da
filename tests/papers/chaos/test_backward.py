import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.papers.chaos.sampling import uniform_contexts, watched
from metastable.theory import weight_derivative
from small_claims import small_verdict


def test_known_errors_on_the_circle():
    """The angle from 0.7, b = 2, T = 1, V = I + eps diag(1, -1); 100 contexts of 256 tokens, seed 1."""
    n, draws, h = 256, 100, 1e-2
    contexts, x = uniform_contexts(draws, n, 2, seed=1), ms.sphere.from_angles([0.7])
    angles = []
    for e in (h, -h):
        flow = ms.SelfAttention(ms.AttentionWeights(V=np.diag([1 + e, 1 - e]), B=np.eye(2)), 2.0)
        angles.append(ms.sphere.angles(watched(flow, contexts, x, [0.0, 1.0], rtol=1e-6)[1][:, 0]))
    across = torch.tensor([-math.sin(0.7), math.cos(0.7)]).double()
    expected = weight_derivative(x, np.diag([1.0, -1.0]), 1.0, 2.0)[0] @ across
    error = (angles[0] - angles[1]) / (2 * h) - expected
    rms = math.sqrt(float(error.square().mean()))
    assert rms == pytest.approx(0.0336, rel=4 / math.sqrt(2 * 40))  # known from 40 contexts


def test_the_table_holds_every_case():
    rows = small_verdict("weight-derivative-rate").table
    assert [row["d"] for row in rows] == [3, 4, 5]
