import math

import numpy as np
import pytest

import metastable as ms
from metastable.errors import InvalidInput
from metastable.theory import polygon_rate, token_rate


def jacobian(theta, mass, beta, normalized):
    """d theta_i'/d theta_j by central differences of the dense sum."""

    def speed(angles):
        turn = angles[None, :] - angles[:, None]
        kernel = mass * np.exp(beta * np.cos(turn))
        pull = (kernel * np.sin(turn)).sum(1)
        return pull / kernel.sum(1) if normalized else pull

    h = 1e-6
    return np.stack([(speed(theta + h * e) - speed(theta - h * e)) / (2 * h) for e in np.eye(len(theta))], axis=1)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize(("corners", "beta"), [(2, -1.0), (3, -2.0), (3, 0.7), (5, -0.5), (6, 3.0)])
def test_rates_are_eigenvalues_of_the_jacobian(corners, beta, normalized):
    theta = 2 * np.pi * np.arange(corners) / corners
    found = np.sort(np.linalg.eigvals(jacobian(theta, np.full(corners, 1 / corners), beta, normalized)).real)
    exact = sorted(polygon_rate(m, corners, beta, normalized) for m in range(corners))
    assert found == pytest.approx(exact, abs=1e-8)


@pytest.mark.parametrize("normalized", [True, False])
def test_one_token_leaves_its_cluster_at_that_rate(normalized):
    theta, mass = np.array([0.0, 2 * np.pi / 3, 4 * np.pi / 3, 0.0]), np.array([1 / 3, 1 / 3, 1 / 3, 0.0])
    for beta in (-3.0, -0.5, 1.0):
        found = jacobian(theta, mass, beta, normalized)[3, 3]
        assert token_rate(3, beta, normalized) == pytest.approx(found, abs=1e-8)


def test_three_clusters_are_stable_below_two_thirds():
    for beta in (-4.0, -0.7, -0.6, 1.0):
        exact = (0.5 + 0.75 * beta) * math.exp(-beta / 2)
        assert polygon_rate(1, 3, beta, normalized=False) == pytest.approx(exact, rel=1e-12)
        assert (polygon_rate(1, 3, beta) < 0) == (beta < -2 / 3)
    assert token_rate(3, -0.1) < 0 and token_rate(3, 0.1) < 0
    # the square is never stable, and on the sphere the triangle is not: together its corners leave their plane
    assert max(polygon_rate(m, 4, beta) for m in (1, 2) for beta in (-9.0, -1.0)) > 0
    weights = ms.AttentionWeights(V=np.eye(3), B=-np.eye(3))
    tilted = np.column_stack([ms.sphere.from_angles([0.0, 2 * np.pi / 3, 4 * np.pi / 3]).numpy(), np.full(3, 1e-3)])
    end = ms.solve(ms.SelfAttention(weights, 2.0), tilted, 1.0).end.points
    assert float(end[:, 2].min()) > 1.5e-3


@pytest.mark.parametrize(
    "call",
    [
        lambda: polygon_rate(1, 1, 1.0),
        lambda: polygon_rate(-1, 3, 1.0),
        lambda: polygon_rate(1, 3, 1e4),
        lambda: token_rate(3.0, 1.0),
        lambda: token_rate(3, None),
    ],
)
def test_nonsense_is_refused(call):
    with pytest.raises(InvalidInput):
        call()
