import math

import numpy as np
import pytest

from metastable.meanfield.piecewise import TWO_PI, Piecewise, adapt, clenshaw


def smooth(theta):
    return np.exp(np.sin(theta))


def fine(trial):
    return trial.tail < 1e-14


def test_adapted_cells_know_a_smooth_function_on_every_branch():
    f, reached = adapt(smooth, np.linspace(0, TWO_PI, 4), fine)
    theta = np.linspace(-7, 13, 200)
    assert reached and f(theta) == pytest.approx(smooth(theta), abs=1e-12)
    nodes, increments = f.quadrature()
    assert f.slope() == pytest.approx(np.cos(nodes) * smooth(nodes), abs=1e-9)
    assert increments.sum() == pytest.approx(0.0, abs=1e-12)


def test_antiderivative_winds_by_the_integral():
    f, _ = adapt(smooth, np.linspace(0, TWO_PI, 4), fine)
    F = f.antiderivative()
    assert F.winding == pytest.approx(TWO_PI * 1.2660658777520084, rel=1e-13)  # 2 pi I_0(1)
    assert F(np.array([1.0 + TWO_PI])) == pytest.approx(F(np.array([1.0])) + F.winding, rel=1e-13)
    assert F.quadrature()[1].sum() == pytest.approx(F.winding, rel=1e-13)


def test_what_cannot_be_resolved_is_said():
    step, reached = adapt(lambda theta: (theta > 1).astype(float), np.linspace(0, TWO_PI, 4), fine, levels=5)
    assert not reached and step.width.min() == pytest.approx(TWO_PI / 3 / 2**5)


def test_clenshaw_is_the_chebyshev_series():
    xi = np.linspace(-1, 1, 9)
    rows = np.tile([0.5, -1.0, 0.0, 2.0], (9, 1))
    expected = 0.5 - np.cos(np.arccos(xi)) + 2 * np.cos(3 * np.arccos(xi))
    assert clenshaw(rows, xi) == pytest.approx(expected, abs=1e-14)


def test_winding_is_added_turn_by_turn():
    line = Piecewise(np.array([0.0, math.pi, TWO_PI]), np.linspace(0, 1, 3)[:2, None] + np.zeros((2, 17)), 1.0)
    assert line(np.array([0.1, 0.1 + 2 * TWO_PI])) == pytest.approx([0.0, 2.0])
