"""Unnormalised attention: its field, and its scale, which is a change of time."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import metastable as ms
import reference
from metastable.errors import InvalidInput
from small_runs import random_measure, random_weights


@given(seed=st.integers(0, 10**6), n=st.integers(2, 12), d=st.integers(2, 5))
def test_the_field_against_the_reference(seed, n, d):
    w, rho = random_weights(seed, d), random_measure(seed, n, d)
    x, m = rho.numpy()
    expected = reference.unnormalized(x, m, w.V.numpy(), w.B.numpy(), 1.5)
    got = ms.UnnormalizedAttention(w, 1.5).velocity(0.0, rho.points, rho.mass).numpy()
    assert np.abs(got - expected).max() <= 1e-12 * (1 + np.abs(expected).max())


def test_unnormalized_scale_is_a_change_of_time():
    w, rho = random_weights(2, 3), random_measure(2, 6, 3)
    plain = ms.UnnormalizedAttention(w, 2.0).velocity(0.0, *rho)
    scaled = ms.UnnormalizedAttention(w, 2.0, log_scale=3.0).velocity(0.0, *rho)
    assert (scaled * np.exp(3.0) - plain).abs().max() < 1e-12
    assert ms.UnnormalizedAttention(w, 2.0).log_scale == 0
    large = ms.UnnormalizedAttention(w, 1e6)
    assert large.log_scale == pytest.approx(1e6 * w.B_norm)
    assert torch.isfinite(large.velocity(0.0, *rho)).all()
    with pytest.raises(InvalidInput, match="overflows"):
        ms.UnnormalizedAttention(w, 1e6, log_scale=0.0)
