import json
import math

import numpy as np
import pytest
import torch

import metastable as ms
from metastable.theory import dominant, spectrum

I2, I3 = np.eye(2), np.eye(3)


def random_weights(seed, d):
    rng = np.random.default_rng(seed)
    return ms.AttentionWeights(V=rng.normal(size=(d, d)), B=np.eye(d) + 0.3 * rng.normal(size=(d, d)))


@pytest.mark.parametrize("seed", range(12))
def test_projector_commutes_is_idempotent_and_has_the_right_range(seed):
    d = 2 + seed % 5
    s = spectrum(random_weights(seed, d)).M
    Q, M = s.projector, s.matrix
    assert torch.allclose(Q @ Q, Q, atol=1e-10)
    assert torch.allclose(Q @ M, M @ Q, atol=1e-10)
    assert torch.allclose(Q @ s.space, s.space, atol=1e-10)
    assert round(float(torch.trace(Q))) == s.dimension
    assert torch.allclose(M @ s.space, s.space @ (s.space.T @ M @ s.space), atol=1e-10)
    # the next space is invariant too, and inside ker Q
    assert torch.allclose(Q @ s.next_space, torch.zeros_like(s.next_space), atol=1e-10)
    inner = s.next_space.T @ M @ s.next_space
    assert torch.allclose(M @ s.next_space, s.next_space @ inner, atol=1e-9)
    real = s.eigenvalues.real
    assert bool((real[:-1] >= real[1:] - 1e-12).all())
    rest = real[s.dimension :].tolist() or [-math.inf]
    assert s.gap == pytest.approx(float(real[s.dimension - 1]) - rest[0], abs=1e-12)


def test_oblique_projector_from_left_and_right_eigenvectors():
    rng = np.random.default_rng(4)
    S = rng.normal(size=(4, 4))
    A = S @ np.diag([3.0, 1.0, -1.0, -2.0]) @ np.linalg.inv(S)
    expected = np.outer(S[:, 0], np.linalg.inv(S)[0])
    assert np.allclose(dominant(torch.from_numpy(A)).projector.numpy(), expected, atol=1e-10)


@pytest.mark.parametrize(
    ("M", "kind", "k"),
    [
        (np.diag([2.0, 1.0, 0.5]), "point pair", 1),
        (np.diag([2.0, 2.0, 0.5]), "subsphere", 2),
        (3 * I3, "identity", 3),
        (np.zeros((3, 3)), "identity", 3),
        (np.diag([-1.0, -2.0, -5.0]), "point pair", 1),
        ([[1.0, -2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 0.5]], "rotation", 2),
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.5]], "jordan", 2),
        ([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 1.0]], "jordan", 3),
        ([[0.5, 1.0, 0.0], [0.0, 0.5, 0.0], [0.0, 0.0, 1.0]], "point pair", 1),
        ([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]], "rotation", 3),
    ],
)
def test_kinds_survive_a_change_of_basis(M, kind, k):
    rng = np.random.default_rng(1)
    S = I3 + 0.3 * rng.normal(size=(3, 3))
    for A in (np.asarray(M), S @ M @ np.linalg.inv(S)):
        s = dominant(torch.from_numpy(np.asarray(A, dtype=float)), tolerance=1e-5)
        assert (s.kind, s.dimension, s.isolated) == (kind, k, True)


def test_symmetric_projector_is_orthogonal():
    rng = np.random.default_rng(2)
    A = rng.normal(size=(5, 5))
    s = dominant(torch.from_numpy(A + A.T))
    assert s.symmetric and s.symmetry_defect < 1e-15
    assert torch.allclose(s.projector, s.projector.T, atol=1e-14)
    assert s.projector_norm == pytest.approx(1.0, abs=1e-13)


def test_rates_and_delta_of_the_reference_families():
    B = np.array([[1.0, 0.5], [0.0, 1.0]])
    G = spectrum(ms.AttentionWeights(V=np.diag([2.0, 1.0]) @ np.linalg.inv(B.T), B=B))
    assert G.kind == "point pair" and G.gap == pytest.approx(1.0)
    assert G.g_in == pytest.approx(1 / math.hypot(1, 0.5))
    assert G.g_out == pytest.approx(1.0)
    assert G.delta == pytest.approx(math.hypot(1, 0.5) - 1)
    # the top of V is (1, -b): the angle to e1 is atan(b)
    assert G.angle == pytest.approx(math.atan(0.5), abs=1e-7)
    C = spectrum(ms.AttentionWeights(V=np.diag([1.0, 2.0]), B=np.diag([3.0, 1.0])))
    assert C.delta == 0 and C.angle == pytest.approx(math.pi / 2)
    assert [a.holds for a in C.assumptions] == [True, True, True, True, False]
    assert "log beta" in C.assumptions[-1].sentence
    I = spectrum(ms.AttentionWeights(V=np.diag([2.0, 1.0]), B=I2))
    assert all(a.holds for a in I.assumptions) and "does not end" in I.assumptions[-1].sentence


def test_delta_on_a_great_circle_is_the_minimum():
    B = np.array([[1.0, 0.0, 0.7], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    s = spectrum(ms.AttentionWeights(V=np.diag([2.0, 2.0, 0.5]) @ np.linalg.inv(B.T), B=B))
    assert s.dimension == 2
    # e2 is an eigenvector of B^T, so that a token there looks for itself
    assert s.delta == pytest.approx(0.0, abs=1e-8)


def test_singular_scores_and_near_ties_are_reported():
    s = spectrum(ms.AttentionWeights(V=I2, B=np.diag([1.0, 0.0])))
    assert s.singular and s.B_condition == math.inf
    assert not s.assumptions[0].holds
    tie = spectrum(ms.AttentionWeights(V=np.diag([1.0, 1.0 - 3e-6]), B=I2))
    assert not tie.M.isolated and not tie.assumptions[2].holds
    json.dumps(s.to_dict(), allow_nan=False)
    json.dumps(tie.to_dict(), allow_nan=False)
