import numpy as np
import pytest

from metastable.papers.perspective.euclidean import _distinct, corners
from small_claims import small_verdict


def test_corners_and_distinct_points():
    square = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.5, 0.5], [1.0, 1.0 + 1e-9]])
    assert len(_distinct(square)) == 5
    assert corners(_distinct(square)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["rescaled-frame", "polytope-corners", "three-values", "boolean-attention"])
def test_limits_of_rescaled_tokens(name):
    assert small_verdict(name).holds


def test_attention_of_the_figure_becomes_a_choice():
    for series in small_verdict("boolean-attention").figure.series:
        assert series.y[0] > 0.1 > 1e-3 > series.y[-1]
