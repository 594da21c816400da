import numpy as np
import pytest
import torch

from metastable import AttentionWeights, SelfAttention, sphere
from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.theory import attention_jacobian, tangent_bases

STEP = 1e-4
"""Of central differences of second order: their error is STEP^2, their rounding 1e-16/STEP."""


def differences(w: AttentionWeights, beta: float, rho: Measure) -> np.ndarray:
    """The same matrix from the engine's velocity at displaced tokens."""
    flow, T = SelfAttention(w, beta), tangent_bases(rho)
    columns = []
    for j in range(rho.n):
        for p in range(rho.d - 1):
            sides = []
            for sign in (1, -1):
                x = rho.points.clone()
                x[j] += sign * STEP * T[j, :, p]
                sides.append(flow.velocity(0.0, sphere.normalize(x), rho.mass))
            change = (sides[0] - sides[1]) / (2 * STEP)
            columns.append(torch.einsum("iap,ia->ip", T, change).reshape(-1))
    return torch.stack(columns, dim=1).numpy()


@pytest.mark.parametrize("seed", range(8))
def test_it_is_the_derivative_of_the_flow_at_any_configuration(seed):
    rng = np.random.default_rng(seed)
    n, d, beta = int(rng.integers(1, 7)), int(rng.integers(2, 6)), float(rng.uniform(0, 3))
    w = AttentionWeights(V=rng.normal(size=(d, d)), B=rng.normal(size=(d, d)))
    rho = Measure(sphere.uniform(n, d, seed=seed), rng.exponential(size=n))
    found = attention_jacobian(w, beta, rho).numpy()
    assert found.shape == (n * (d - 1), n * (d - 1))
    # The third derivative of the field is of order |V| (beta |B|)^3.
    allowed = STEP**2 * w.V_norm * (1 + beta * w.B_norm) ** 3
    assert np.abs(found - differences(w, beta, rho)).max() < allowed


def test_bases_are_orthonormal_and_tangent():
    x = torch.cat([sphere.uniform(50, 4, seed=1), torch.eye(4, dtype=torch.float64), -torch.eye(4).double()])
    T = tangent_bases(x)
    assert torch.allclose(T.mT @ T, torch.eye(3, dtype=torch.float64).expand(58, 3, 3), atol=1e-14)
    assert float((x[:, None, :] @ T).abs().max()) < 1e-14


def test_at_rest_the_rates_of_a_symmetric_head_are_real():
    """A gradient flow in the metric Z_i |dx_i|^2: the matrix is similar to a symmetric one at an equilibrium."""
    V = np.diag([1.0, -2.0, 0.5])
    points = np.eye(3)[[1, 1, 1, 1]] * [[1], [-1], [1], [1]]
    values = torch.linalg.eigvals(attention_jacobian(AttentionWeights(V=V, B=V), 0.7, points))
    assert float(values.imag.abs().max()) < 1e-12


def test_a_matrix_that_does_not_fit_into_memory_is_refused():
    with pytest.raises(InvalidInput, match=r"n \(d - 1\) must be <= 4096, got 5000"):
        attention_jacobian(AttentionWeights(V=np.eye(2), B=np.eye(2)), 1.0, sphere.equispaced(5000))
