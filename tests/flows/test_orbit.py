"""Exact orbits of the zero-temperature flow."""

import pytest
import torch

import metastable as ms
from metastable.errors import InvalidInput
from metastable.flows.orbit import orbit, orbit_clock
from small_runs import random_weights


def test_orbits_are_a_semigroup_to_rounding():
    w, x0 = random_weights(5, 3), ms.sphere.uniform(50, 3, seed=1)
    half = orbit(w.M, w.B, x0, [0.7])[0]
    assert (orbit(w.M, w.B, half, [0.4])[0] - orbit(w.M, w.B, x0, [1.1])[0]).abs().max() < 2e-12


def test_the_clock_of_an_isometry_is_time_over_its_scale():
    """B = b R: tau = t/b for every token, and the start is kept bit for bit."""
    M, B = random_weights(2, 2).M, 2.0 * torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)
    x0 = ms.sphere.uniform(9, 2, seed=3)
    assert (orbit_clock(M, B, x0, [0.0, 3.0])[1] - 1.5).abs().max() < 1e-14
    assert torch.equal(orbit(M, B, x0, [0.0, 3.0])[0], x0)


@pytest.mark.parametrize(
    ("times", "match"), [([-1.0], "t must be finite and >= 0, got -1.0"), ([[0.0]], "times must be")]
)
def test_bad_times(times, match):
    w = random_weights(2, 2)
    with pytest.raises(InvalidInput, match=match):
        orbit(w.M, w.B, ms.sphere.uniform(3, 2), times)
