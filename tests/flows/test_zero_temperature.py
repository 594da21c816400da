"""The zero-temperature flow: its field, its energy, and the weights that it refuses."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
import reference
from metastable.errors import InvalidInput, NoEnergy
from small_runs import random_measure, random_weights


@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(2, 5))
def test_the_field_against_the_reference(seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    x, _ = rho.numpy()
    expected = reference.zero_temperature(x, w.V.numpy(), w.B.numpy())
    got = ms.ZeroTemperature(w).velocity(0.0, rho.points, rho.mass).numpy()
    assert np.abs(got - expected).max() <= 1e-12 * (1 + np.abs(expected).max())


def test_the_energy_is_the_rayleigh_quotient_of_a_symmetric_M():
    rho = random_measure(1, 5, 3)
    w = ms.AttentionWeights(V=2 * torch.eye(3), B=torch.eye(3))
    assert ms.ZeroTemperature(w).energy(*rho) == pytest.approx(2.0, abs=1e-14)
    with pytest.raises(NoEnergy, match="symmetric M"):
        ms.ZeroTemperature(random_weights(1, 3)).energy(*rho)


def test_a_singular_B_is_refused():
    with pytest.raises(InvalidInput, match="rank 2 in dimension 3"):
        ms.ZeroTemperature(ms.AttentionWeights(V=torch.eye(3), B=torch.diag(torch.tensor([1.0, 1.0, 0.0]))))
