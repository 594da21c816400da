import numpy as np
import pytest

from metastable.papers.perspective.negative_beta import largest_rate
from metastable.theory import polygon_rate, token_rate
from small_claims import small_verdict


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("beta", [-1.5, -0.4])
def test_the_jacobian_of_the_flow_has_the_rates_of_theory(beta, normalized):
    exact = max(polygon_rate(1, 3, beta, normalized), token_rate(3, beta, normalized))
    assert largest_rate(3, 4, beta, normalized) == pytest.approx(exact, abs=1e-7)


def test_points_lie_on_the_curve():
    line, points = small_verdict("three-clusters-threshold").figure.series
    assert np.interp(points.x, line.x, line.y) == pytest.approx(points.y, abs=5e-3)


def test_runs_come_back_below_the_threshold_and_leave_above():
    for row in small_verdict("three-clusters-rate").table:
        assert (row["rate of the run"] < 0) == (row["beta"] < -2 / 3)
