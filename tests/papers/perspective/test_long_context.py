import math

import numpy as np
import pytest

from metastable.papers.perspective.long_context import share_on_others
from metastable.theory.equiangular import attention_on_others
from small_claims import small_verdict


@pytest.mark.parametrize(("n", "overlap"), [(5, 0.0), (200, 0.4), (60, 0.9)])
def test_shares_are_those_of_the_closed_form(n, overlap):
    for beta in (0.0, 2.0, math.log(n) / (1 - overlap)):
        assert share_on_others(n, overlap, beta) == pytest.approx(attention_on_others(overlap, n, beta), rel=1e-9)


def test_points_lie_on_their_curves():
    series = small_verdict("long-context").figure.series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert np.interp(points.x, line.x, line.y) == pytest.approx(points.y, abs=5e-3)
