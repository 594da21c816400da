"""The window between tokens and nodes: its error on every mode, and the Fourier coefficients it meets."""

from __future__ import annotations

import math

import numpy as np
import pytest

from metastable.attention.sphere.window import WINDOWS, _table, lebesgue, mapped_error, von_mises, window


@pytest.mark.parametrize(("width", "ratio"), WINDOWS)
@pytest.mark.parametrize("mode", [0, 1, 7, 19])
def test_the_window_reproduces_each_mode_to_its_stated_error(width, ratio, mode) -> None:
    fine = 60
    kept = window(width, ratio, fine)
    x = np.random.default_rng(0).uniform(0.0, fine, 500)
    first = np.ceil(x - width // 2)
    psi = np.zeros((len(x), width))
    for row in kept.table:
        psi = psi * (2.0 * (first - (x - width // 2)) - 1.0)[:, None] + row
    nodes = first[:, None] + np.arange(width)
    value = (psi * np.exp(2j * math.pi * mode / fine * nodes)).sum(axis=1) / kept.transform[mode]
    miss = np.abs(value - np.exp(2j * math.pi * mode / fine * x)).max()
    assert miss <= 1.1 * kept.error[mode] + 1e-14
    assert kept.error[:12].max() <= {8: 1e-6, 16: 1e-11}[width]


@pytest.mark.parametrize(("width", "ratio"), WINDOWS)
def test_a_highest_coefficient_may_be_zero(width, ratio, monkeypatch) -> None:
    """Symmetry makes it zero for the node in the middle, to rounding or to the last digit."""
    fit = np.polynomial.chebyshev.Chebyshev.fit

    def even(x, values, degree, domain):
        found = fit(x, values, degree, domain=domain)
        found.coef[-1] = 0.0
        return found

    monkeypatch.setattr(np.polynomial.chebyshev.Chebyshev, "fit", even)
    table = _table.__wrapped__(width, ratio)
    assert table.shape == (width + 2, width) and (table[0] == 0.0).all() and (table[1] != 0.0).any()


@pytest.mark.parametrize("r", [0.3, 10.0, 300.0])
def test_bounds_of_fourier_coefficients(r) -> None:
    x = np.arange(1024) * (2.0 * math.pi / 1024)
    exact = np.abs(np.fft.rfft(np.exp(r * (np.cos(x) - 1.0)))) / 1024
    assert np.allclose(von_mises(r, 200), exact[:200], atol=1e-15)


def test_the_norm_of_interpolation_is_that_of_its_worst_data() -> None:
    n = 24
    modes = np.arange(1 - n // 2, n // 2)
    nodes = np.arange(n) * (2.0 * math.pi / n)
    at = np.linspace(0.0, 2.0 * math.pi, 4001)
    cardinal = np.exp(1j * (at[:, None, None] - nodes[:, None]) * modes).sum(axis=2).real / n
    norm = np.abs(cardinal).sum(axis=1).max()
    assert norm * (1.0 - 1e-2) <= lebesgue(n) <= norm * (1.0 + 1e-6)
    assert lebesgue(2000) ** 2 * (1.0 + lebesgue(2000)) * 2.0 <= 400.0


def test_modes_beyond_the_coarse_nodes_are_counted_in_full() -> None:
    kept, weights = window(8, 2.0, 40), von_mises(4.0, 60)
    inside, beyond = mapped_error(weights, kept, 20)
    assert beyond == pytest.approx(2.0 * weights[9:].sum(), rel=1e-14)
    assert 0.0 < inside <= 2.0 * weights[:9].sum() * kept.error[1:10].max()
