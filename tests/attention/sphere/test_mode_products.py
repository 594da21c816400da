"""Bessel functions of eight lines against SciPy's, and products in rows of eight against sums written out."""

import numpy as np
import pytest
from numba import njit
from scipy.special import ive

from metastable.attention.sphere.mode_products import SEED, downwards, gather, give_back


@pytest.mark.parametrize("abreast", [1, 2])
def test_modes_are_bessel_functions_up_to_a_factor_whatever_m_a_line_starts_from(abreast):
    recurrence, draw = downwards(abreast), np.random.default_rng(abreast)

    @njit
    def call(inverse, start, low, top, b, width, terms, total):
        recurrence(inverse, start, low, top, b, width, terms, total)

    rings, b = abreast + 2, 1
    x = draw.uniform(0.5, 30.0, (rings, 8))
    start = np.floor(draw.uniform(70.0, 90.0, (rings, 8)))
    used = start[b : b + abreast]
    low, top = int(used.min()), int(used.max())
    terms, total = np.zeros((top + 1, rings, 8)), np.full((rings, 8), np.nan)
    call(2.0 / x, start, low, top, b, rings, terms.reshape(-1), total)
    for ring in range(b, b + abreast):
        mine = terms[:, ring] / total[ring]
        expected = ive(np.arange(top + 1)[:, None], x[ring])
        np.testing.assert_allclose(mine[:40], expected[:40], rtol=1e-12, atol=1e-17)
        assert (terms[start[ring].astype(int), ring, np.arange(8)] == SEED).all()
    assert (terms[:, 0] == 0).all() and np.isnan(total[0]).all()


def test_sums_over_rings_and_back():
    @njit
    def there(terms, at, count, modes, origin, out, to, step):
        gather(terms, at, count, modes, origin, out, to, step)

    @njit
    def back(terms, at, count, received, to, sent, origin, step):
        give_back(terms, at, count, received, to, sent, origin, step)

    draw = np.random.default_rng(0)
    terms, modes, sent = (draw.normal(size=(rows, 8)) for rows in (12, 9, 40))
    out, received = np.full((40, 8), np.nan), draw.normal(size=(9, 8))
    before, at, count, origin, to, step = received.copy(), 4, 5, 2, 3, 4
    places = to + step * np.arange(8)
    there(terms.reshape(-1), at, count, modes.reshape(-1), origin, out.reshape(-1), to, step)
    np.testing.assert_allclose(out[places], terms[at : at + count].T @ modes[origin : origin + count], atol=1e-14)
    assert np.isnan(np.delete(out, places, axis=0)).all()
    back(terms.reshape(-1), at, count, received.reshape(-1), origin, sent.reshape(-1), to, step)
    grown = terms[at : at + count] @ sent[places]
    np.testing.assert_allclose((received - before)[origin : origin + count], grown, atol=1e-13)
    assert (np.delete(received - before, range(origin, origin + count), axis=0) == 0).all()
