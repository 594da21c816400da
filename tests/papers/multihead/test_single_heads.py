import numpy as np
import pytest

from metastable import sphere
from metastable.observe import head_energies
from metastable.papers.multihead.heads import orthogonal, symmetric, together
from metastable.papers.multihead.single_heads import balances, identity
from small_claims import small_verdict


def test_the_identity_word_for_word_is_the_production_of_every_head():
    for seed in range(3):
        found = head_energies(sphere.uniform(7, 4, seed), together(symmetric(4, 3, seed), 1.2))
        assert np.allclose(identity(found)["identity"], found.production, atol=1e-13)


def test_of_orthogonal_heads_the_shadows_alone_are_left():
    found = identity(head_energies(sphere.uniform(7, 6, 1), together(orthogonal(6, 3, 1), 2.0)))
    assert np.allclose(found["identity"], found["shadows only"], atol=1e-13)
    assert np.allclose(found["without shadows"], found["alone"], atol=1e-13)
    assert np.abs(found["alone"] - found["identity"]).max() > 1e-3


def test_a_balance_is_as_good_as_the_integrator():
    errors = balances(together(symmetric(3, 2, 7), 1.5), sphere.uniform(5, 3, 7), 0.3)
    assert errors["identity"] < 1e-9 and min(errors["alone"], errors["without shadows"]) > 1e-3


def test_lines_of_slope_one_go_through_the_last_points():
    series = small_verdict("nearly-orthogonal-heads").figure.series
    for points, line in zip(series[::2], series[1::2], strict=True):
        assert points.style == "points" and points.colour == line.colour
        assert line.y[-1] == pytest.approx(points.y[-1]) and len(line.x) > 100
