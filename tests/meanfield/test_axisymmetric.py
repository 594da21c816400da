import math

import numpy as np
import pytest

from metastable import meanfield, sphere
from metastable.errors import InvalidInput
from metastable.flows import AxisymmetricAttention, SelfAttention
from metastable.meanfield import axial_disorder, axisymmetric_nodes
from metastable.solve import solve
from metastable.theory import moebius
from metastable.weights import AttentionWeights


@pytest.mark.parametrize("d", [2, 3, 4, 8, 40])
def test_the_closed_family_is_followed_to_late_times(d):
    """1 - R falls over six decades and keeps the digits of the integrator."""
    times = np.linspace(0, 14 / min(2, d - 1), 6)
    path = solve(AxisymmetricAttention(d, 0.0), axisymmetric_nodes(d), times[-1], times, rtol=1e-9, atol=1e-11)
    exact = moebius.disorder(moebius.shift(times, 0.5, d), d)
    assert axial_disorder(path).numpy() == pytest.approx(exact.numpy(), rel=1e-8)


def test_mixtures_of_bumps_have_the_mean_of_their_orders():
    for d in (2, 5):
        rho = axisymmetric_nodes(d, [(0.7, 0.5), (0.3, -9.0)])
        expected = 0.7 * moebius.order(0.5, d) + 0.3 * moebius.order(-9.0, d)
        assert float(rho.mass @ rho.points[:, 0]) == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize(("d", "tol"), [(2, 1e-8), (3, 1e-5)])
@pytest.mark.parametrize("normalized", [True, False])
def test_they_agree_with_the_solver_for_any_density(d, tol, normalized):
    eta, beta, t = 0.5, 1.0, 2.0

    def density(x):
        return moebius.relative_density(x[:, 0].clamp(-1, 1), eta, d)

    w = AttentionWeights(V=np.eye(d), B=np.eye(d))
    full = meanfield.solve(w, beta, density, t, tol, normalized=normalized)
    path = solve(AxisymmetricAttention(d, beta, normalized), axisymmetric_nodes(d), t, rtol=1e-9, atol=1e-11)
    R = float((full.end.mass @ full.end.points)[0])
    assert pytest.approx(1 - float(axial_disorder(path)[-1]), abs=10 * tol) == R


def test_disorder_keeps_its_digits_near_the_end():
    path = solve(AxisymmetricAttention(8, 0.0), axisymmetric_nodes(8), 30.0, rtol=1e-8, atol=1e-10)
    assert 0 < float(axial_disorder(path)[-1]) < 1e-19


@pytest.mark.parametrize(
    "given",
    [
        *({"d": bad} for bad in (1, None, 2.5, 10**9)),
        *({"bumps": bad} for bad in (3, [], [1.0], [(1.0,)], "ab", None, [(1.0, 0.5), (1.0,)])),
        *({"bumps": [bad]} for bad in ((-1.0, 0.5), (0.0, 0.5), (1.0, math.nan), (1, 1e9))),
        *({"reach": bad} for bad in (-1, math.inf, "x", None)),
    ],
)
def test_malformed_nodes_are_sentences(given):
    with pytest.raises(InvalidInput) as refused:
        axisymmetric_nodes(**{"d": 3} | given)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("given", [None, 3, "path", np.ones((2, 2))])
def test_only_a_path_of_overlaps_has_a_disorder(given):
    with pytest.raises(InvalidInput, match="must be one of tokens"):
        axial_disorder(given)


def test_a_path_on_another_sphere_is_refused():
    w = AttentionWeights(V=np.eye(3), B=np.eye(3))
    with pytest.raises(InvalidInput, match="must be one of tokens"):
        axial_disorder(solve(SelfAttention(w, 1.0), sphere.uniform(4, 3), 0.1))
