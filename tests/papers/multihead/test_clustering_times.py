from itertools import pairwise

import numpy as np
import pytest

from metastable.papers import Setting
from metastable.papers.multihead.clustering_times import clustering_time, exponential, next_order, relu
from metastable.theory.scalar_heads import relu_travel_time, travel_time
from small_claims import small_verdict


def test_times_of_runs_are_those_of_the_reduction():
    assert clustering_time(relu(6), 6, 0.1) == pytest.approx(relu_travel_time(0.5, 6, start=0.1), rel=1e-7)
    assert clustering_time(exponential(6), 6, 0.0) == pytest.approx(travel_time(0.5, 6, 1.0), rel=1e-7)


def test_golden_times_of_all_tokens():
    table = small_verdict("relu-and-exponential-times").table
    assert [round(row["ReLU"], 2) for row in table[:2]] == [4.67, 28.56]
    assert [round(row["exponential"], 2) for row in table[:2]] == [0.79, 1.49]


def test_the_tolerance_of_the_slope_is_the_next_order():
    assert next_order(Setting(small=True)) == pytest.approx(0.02)


def test_times_are_drawn_on_their_lines():
    for name in ("relu-time-grows-with-log-d", "exponential-time-grows-with-log-n"):
        series = small_verdict(name).figure.series
        for line, points in pairwise(series):
            if points.style == "points":
                where = np.exp(np.interp(np.log(points.x), np.log(line.x), np.log(line.y)))
                assert np.allclose(where, points.y, rtol=2e-3) and line.colour in (None, points.colour)
