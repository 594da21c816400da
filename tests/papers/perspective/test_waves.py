import numpy as np
import pytest

from small_claims import small_verdict


def test_rates_lie_on_their_curves():
    series = small_verdict("waves-of-both-flows").figure.series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert line.colour == points.colour
        assert np.interp(points.x, line.x, line.y) == pytest.approx(points.y, rel=5e-3)


def test_clusters_are_about_as_many_as_the_fastest_wave():
    for row in small_verdict("number-of-clusters").table:
        assert 0.7 < row["clusters"] / row["fastest wave"] < 1.3
