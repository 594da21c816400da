"""Nearest-point formula: closed forms of the two-level zero-temperature flow, optimality, lower bound."""

import math

import numpy as np
import pytest

from metastable.errors import InvalidInput
from metastable.measure import Measure
from metastable.transport import bounds, distance_to_subsphere, wasserstein

CLOSED_FORM_W2 = {
    (2, 1): (0.6041589962, 0.3948144468, 0.1516240925, 0.0206642634),
    (3, 1): (0.7334049650, 0.4882682091, 0.1896639658, 0.0258978814),
    (3, 2): (0.3784874064, 0.1879004790, 0.0361138375, 0.0009420646),
}


def zero_temperature_tokens(d: int, k: int, s: float) -> Measure:
    """Tokens of the two-level flow from uniform data at s = exp(-gap t), as a quadrature with masses.

    The angle phi_0 to E has the density cos^{k-1} sin^{d-k-1}, and tan(phi_t) = s tan(phi_0). The trapezoidal
    rule in u = log tan(phi_0) converges exponentially. Only the angle matters for the distance to E, so the
    tokens lie in a plane, mirrored.
    """
    u = np.arange(-4500, 4501) * 0.01
    along, away = 1 / np.hypot(1, np.exp(u)), 1 / np.hypot(1, np.exp(-u))
    mass = along**k * away ** (d - k)  # density times d phi_0/du = sin cos
    points = np.zeros((2 * len(u), d))
    points[:, 0] = np.concatenate([along, -along])
    points[:, -1] = s * np.tile(away, 2)
    return Measure(points, np.tile(mass, 2) / (2 * mass.sum()))


@pytest.mark.parametrize(("d", "k"), list(CLOSED_FORM_W2))
def test_distances_of_the_zero_temperature_flow(d: int, k: int) -> None:
    """Z6, gap * t = 1, 2, 4, 8."""
    for gap_t, expected in zip((1, 2, 4, 8), CLOSED_FORM_W2[d, k], strict=True):
        rho = zero_temperature_tokens(d, k, math.exp(-gap_t))
        assert float(distance_to_subsphere(rho, np.eye(d)[:, :k])) == pytest.approx(expected, abs=1e-9)
        if k == 1:
            atoms = wasserstein(rho, np.array([1.0, -1.0])[:, None] * np.eye(d)[0])
            assert float(atoms) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", ["chordal", "geodesic"])
@pytest.mark.parametrize("p", [1, 2])
def test_exact_for_the_push_forward_and_lower_bound_for_others(metric: str, p: int) -> None:
    rng = np.random.default_rng(1)
    rho = Measure(rng.standard_normal((60, 4)), rng.random(60))
    rho = Measure(rho.points, rho.mass)
    basis = rng.standard_normal((4, 2))
    span, _ = np.linalg.qr(basis)
    image = Measure(rho.points.numpy() @ span @ span.T, rho.mass)
    distance = distance_to_subsphere(rho, basis, metric, p)
    assert distance == pytest.approx(wasserstein(rho, image, p, metric, method="exact"), abs=1e-12)
    other = Measure(rng.standard_normal((50, 2)) @ span.T)
    assert distance <= wasserstein(rho, other, p, metric)
    lower, _ = bounds(rho, other, p, metric)
    assert lower >= distance - 1e-9


def test_bad_basis_is_refused() -> None:
    rho = np.eye(3)
    with pytest.raises(InvalidInput, match=r"shape \(3, k\)"):
        distance_to_subsphere(rho, np.eye(2))
    with pytest.raises(InvalidInput, match="independent columns"):
        distance_to_subsphere(rho, np.ones((3, 2)))
