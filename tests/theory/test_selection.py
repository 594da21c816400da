import numpy as np
import pytest
import torch

from metastable import SelfAttention, sphere
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.theory import equilibrium_residual, selection_weights
from metastable.theory.selection import read_eigenvalues


def test_a_matrix_that_is_not_symmetric_is_refused_in_one_sentence():
    with pytest.raises(InvalidInput, match=r"needs a symmetric V \(Q\^T K = V = V\^T\), got .* = 0\.289"):
        selection_weights([[2.0, 1.0], [0.0, 1.0]])
    with pytest.raises(InvalidInput, match="symmetric"):
        equilibrium_residual([[0.0, 1.0], [-1.0, 0.0]], 1.0, [[1.0, 0.0]])
    with pytest.raises(InvalidInput, match="symmetric"):
        read_eigenvalues([[0.0, 1.0], [-1.0, 0.0]])


def test_rounding_does_not_make_a_matrix_unsymmetric():
    axes = np.linalg.qr(np.random.default_rng(0).normal(size=(5, 5)))[0]
    w = selection_weights(axes @ np.diag([3.0, 2.0, 1.0, 0.4, -1.0]) @ axes.T)
    assert torch.equal(w.V, w.V.T) and torch.equal(w.V, w.B)


def test_eigenvalues_are_a_row_as_given_or_those_of_a_matrix_from_the_largest():
    assert read_eigenvalues((1, 3, 2)).tolist() == [1.0, 3.0, 2.0]
    assert read_eigenvalues(np.diag([1.0, 3.0, 2.0])) == pytest.approx([3.0, 2.0, 1.0])


@pytest.mark.parametrize("seed", range(6))
def test_the_residual_is_the_largest_speed(seed):
    """P2 divided by its row sums is the field itself, here against the engine's."""
    rng = np.random.default_rng(seed)
    n, d, beta = int(rng.integers(1, 9)), int(rng.integers(2, 6)), float(rng.uniform(0, 9))
    A = rng.normal(size=(d, d))
    rho = Measure(sphere.uniform(n, d, seed=seed), rng.exponential(size=n))
    speed = SelfAttention(selection_weights(A + A.T), beta).velocity(0.0, rho.points, rho.mass).norm(dim=1).max()
    assert equilibrium_residual(A + A.T, beta, rho) == pytest.approx(float(speed), rel=1e-11)


def test_eigenvectors_are_equilibria_at_any_temperature():
    points = np.eye(3)[[0, 0, 0]] * [[1], [-1], [1]]
    for beta in (0.0, 1.0, 1e5, 1e90):
        assert equilibrium_residual(np.diag([3.0, -1.0, 2.0]), beta, points) < 1e-15


@pytest.mark.parametrize("V", [None, "3", [], [[1.0]], np.ones(3), [[np.nan, 0], [0, 1]], 1e200 * np.eye(2), 3.0])
def test_malformed_matrices_are_sentences(V):
    with pytest.raises(InvalidInput) as refused:
        selection_weights(V)
    assert len(str(refused.value)) < 200
