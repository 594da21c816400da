import numpy as np
import pytest

from metastable.papers.perspective.equiangular import without_self
from metastable.theory.equiangular import travel_time
from small_claims import small_verdict


def test_tokens_lie_on_the_curve_of_the_equation():
    series = small_verdict("equiangular-reduction").figure.series
    for line, points in zip(series[::2], series[1::2], strict=True):
        assert line.colour == points.colour
        assert np.interp(points.x, line.x, line.y) == pytest.approx(points.y, abs=2e-3)


def test_golden_times_are_in_the_table():
    rows = {(row["beta"], row["g"]): row["t(g) of tokens"] for row in small_verdict("travel-times").table}
    golden = {
        (0, 0.5): 1.748254,
        (1, 0.5): 1.819935,
        (4, 0.5): 3.431732,
        (0, 0.999): 5.186261,
        (4, 0.999): 6.953502,
    }
    for key, time in golden.items():
        assert rows[key] == pytest.approx(time, abs=1e-6)


def test_tokens_without_themselves():
    """Two tokens that attend to each other only: g' = 2 (1 - g^2), g = tanh 2t."""
    assert without_self(0.7, 2) == pytest.approx(np.tanh(1.4), abs=1e-14)


@pytest.mark.parametrize("name", ["zero-beta-closed-form", "consensus-rates"])
def test_rates_and_closed_forms(name):
    assert small_verdict(name).holds
    assert travel_time(0.5, 32, 9.0) == pytest.approx(174.65224, abs=1e-4)
