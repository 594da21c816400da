"""R9 and R10: mean-field values of W2(rho_t, Pi#rho_0) that are known to 2e-6."""

import numpy as np
import pytest

from meanfield_families import diagonal, tilted
from metastable.meanfield import Uniform, distance_to_limit, reference_skew, solve, two_atom_distance

R9_UNIFORM_64 = ([1, 2, 3, 4], [0.5993592086, 0.3916965025, 0.248758843, 0.164580081])
R9_UNIFORM_256 = ([2, 4, 8, 12], [0.4005283, 0.1600882, 0.029396, 0.0209985])
R9_SKEW_64 = ([1, 2, 4], [0.6062913, 0.3951482, 0.1749828])
R10_UNIFORM_64 = ([2, 4, 8, 16], [0.4280368, 0.2232418, 0.136528, 0.1287452])


def curve(weights, beta, law, times):
    path = solve(weights, beta, law, float(times[-1]), times=times)
    assert path.converged and path.error < 1e-6
    assert abs(float(path.mass.sum()) - 1) < 1e-12
    found = distance_to_limit(path)
    assert float(found.error.max()) < 2e-6
    return path, found


def test_r9_uniform():
    times, expected = R9_UNIFORM_64
    path, found = curve(tilted(0.5), 64.0, Uniform(2), times)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=2e-6)
    # The nodes of the path are themselves so dense that a plain two-atom distance sees the same number.
    assert two_atom_distance(path.end, np.array([1.0, 0.0]), 0.5) == pytest.approx(expected[-1], abs=2e-6)


def test_r9_skew():
    times, expected = R9_SKEW_64
    _, found = curve(tilted(0.5), 64.0, reference_skew(), times)
    assert found.p == pytest.approx(0.585991783, abs=1e-9)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=5e-6)


def test_r10():
    times, expected = R10_UNIFORM_64
    _, found = curve(diagonal(-1.0, -2.0), 64.0, Uniform(2), times)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=2e-6)


@pytest.mark.slow
def test_r9_uniform_at_beta_256():
    times, expected = R9_UNIFORM_256
    _, found = curve(tilted(0.5), 256.0, Uniform(2), times)
    assert found.distance.numpy() == pytest.approx(np.array(expected), abs=2e-6)
