"""Coefficients of modes against SciPy's Bessel functions; what is summed of them is tested in test_adjoint.py."""

import numpy as np
import pytest
from scipy.special import ive

from metastable.attention.circle.mode_sums import coefficients


@pytest.mark.parametrize("last", [5, 40, 600])
def test_coefficients_are_bessel_functions(last):
    """For queries of all lengths together, from none at all to those that need more modes than there are."""
    r = np.array([1e-15, 1e-9, 1e-3, 0.1, 1.0, 7.0, 30.0, 200.0, 3e3, 1e5])
    p, held = np.empty((last + 2, len(r))), np.empty((4, len(r)))
    coefficients(r, p, *held)
    total = held[3]
    assert np.isfinite(p).all() and np.isfinite(total).all() and (total > 0).all()
    exact = ive(np.arange(last + 1)[:, None], r)
    # Where the modes that are left out are nothing, the sum of the others is one.
    whole = ive(last, r) < 1e-17
    found = p[:-1] / total
    assert np.abs(found - exact)[:, whole].max() < 1e-14
    # Elsewhere the recurrence begins with a ratio that is right to two percent, beside the last mode.
    mine, theirs = found / found[0], exact / exact[0]
    assert (np.abs(mine - theirs).max(axis=0) < 0.02 * theirs[-1] + 1e-14).all()
