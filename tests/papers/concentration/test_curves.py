import numpy as np
import pytest

from metastable.papers import Outcome
from metastable.papers.concentration.curves import (
    DECAY,
    STABILITY,
    sphere_floor_figure,
    theorem_curve,
    token_limit_figure,
)
from metastable.papers.concentration.families import sheared
from metastable.theory import spectrum


def test_theorem_curve_is_the_theorem_s():
    assert theorem_curve(4.0, np.array([0.0])) == pytest.approx(1 + np.sqrt(np.log(5) / 4))


def test_the_constants_of_the_bound_are_those_of_the_weights():
    s = spectrum(sheared(0.5))
    assert min(s.g_in, s.g_out / 2) == pytest.approx(DECAY, abs=1e-12)
    real = s.M.eigenvalues.real
    assert float(real.max() - real.min()) == pytest.approx(STABILITY, abs=1e-12)


def test_every_curve_on_the_sphere_stands_beside_its_floor_in_the_same_shade():
    t = np.arange(3.0)
    curves = {"t": t, "beta": np.array([4.0, 16.0, 64.0])}
    for beta in (4, 16, 64):
        curves |= {f"W2 {beta}": t, f"floor {beta}": np.array([0.1])}
    series = sphere_floor_figure(Outcome(1.0, curves=curves)).series
    assert [one.label for one in series[:2]] == ["β = 4", "predicted floor, β = 4"]
    assert [one.shade for one in series] == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0]
    assert np.array_equal(series[1].y, np.full(3, 0.1))


def test_one_curve_for_every_number_of_tokens():
    curves = {"t": np.arange(2.0), "n": np.array([10, 20]), "W2 10": np.ones(2), "W2 20": np.zeros(2)}
    series = token_limit_figure(Outcome(1.0, curves=curves)).series
    assert [(one.label, float(one.y[0])) for one in series] == [("n = 10", 1.0), ("n = 20", 0.0)]
