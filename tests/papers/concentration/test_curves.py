import math

import numpy as np
import pytest

from metastable.papers import Outcome, Setting
from metastable.papers.concentration.curves import (
    CLAIMS,
    DECAY,
    STABILITY,
    constant,
    growth,
    rate_in_beta,
    rigorous_figure,
    rival_laws,
    theorem_curve,
    zero_curve,
)
from metastable.papers.concentration.families import sheared
from metastable.theory import spectrum

TIMES = np.linspace(0, 6, 49)


def test_theorem_curve_is_the_theorem_s():
    assert theorem_curve(4.0, np.array([0.0])) == pytest.approx(1 + np.sqrt(np.log(5) / 4))


def test_the_constants_of_the_bound_are_those_of_the_weights():
    s = spectrum(sheared(0.5))
    assert min(s.g_in, s.g_out / 2) == pytest.approx(DECAY, abs=1e-12)
    real = s.M.eigenvalues.real
    assert float(real.max() - real.min()) == pytest.approx(STABILITY, abs=1e-12)


def test_a_law_that_obeys_the_theorem_needs_one_constant():
    zero = np.exp(-DECAY * TIMES)
    laws = {b: zero + 0.03 * rate_in_beta(b) * np.exp(STABILITY * TIMES) for b in (4.0, 16.0, 64.0, 256.0)}
    assert growth(laws, zero, TIMES, (4.0, 16.0)) == pytest.approx(1.0, abs=1e-9)
    assert constant(16.0, TIMES, laws[16.0] - zero) == pytest.approx(np.full(49, 0.03), abs=1e-9)


@pytest.mark.parametrize("fitted", [(4.0, 16.0), (8.0, 32.0)])
def test_laws_that_do_not_feel_beta_need_a_constant_that_grows(fitted):
    zero = zero_curve(TIMES)
    grown = rate_in_beta(fitted[-1]) / rate_in_beta(256.0)
    for law in rival_laws(zero, TIMES).values():
        found = growth(dict.fromkeys((*fitted, 64.0, 256.0), law), zero, TIMES, fitted)
        assert grown * 0.99 <= found <= grown * math.exp(0.125)
        assert law[0] == pytest.approx(zero[0])


def test_a_law_that_returns_is_back_at_time_two():
    zero = zero_curve(TIMES)
    back = rival_laws(zero, TIMES)["return"]
    assert back[8] == pytest.approx(zero[8]) and back[16:] == pytest.approx(np.full(33, zero[0]))


def test_the_legend_of_a_bound_says_what_it_bounds():
    t = np.arange(3.0)
    curves = {"t": t, "beta": np.array([16.0, 64.0]), "nodes": np.array([300])}
    for beta in (16, 64):
        curves |= {f"W2 {beta}": t, f"bound {beta}": t}
    series = rigorous_figure(Outcome(1.0, curves=curves)).series
    assert [one.label for one in series[:2]] == ["300 nodes, β = 16", "bound on the run of the 300 nodes, β = 16"]
    assert [one.shade for one in series] == [0.0, 0.0, 1.0, 1.0]


def test_a_statement_names_the_ranges_of_its_run():
    claim = CLAIMS[0]
    assert "beta = 64 and 256." in claim.words(Setting(quick=True))[0]
    assert "beta = 256 and 1024." in claim.words(Setting())[0]
