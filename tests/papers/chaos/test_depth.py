import numpy as np
import pytest

from metastable.papers.chaos.depth import formula_slope, half_time
from metastable.theory import clustering_time, fastest_mode
from small_claims import small_verdict


def test_half_times_and_their_errors():
    times = np.linspace(0, 4, 41)
    random = np.random.default_rng(2)
    ratios = np.exp(-times[:, None] * np.log(2) / 2 * (1 + 0.1 * random.standard_normal((1, 200))))
    half, error = half_time(times, ratios)
    assert half == pytest.approx(2.0, abs=0.05) and error == pytest.approx(0.2 / np.sqrt(200), rel=0.5)


def test_every_number_of_tokens_is_lost_before_its_clusters_have_formed():
    rows = small_verdict("depth-of-context").table
    assert len(rows) == 6 and all(0.6 < row["depth"] / row["ln sqrt(n)/sigma_max"] < 1.2 for row in rows)


def test_the_slope_of_the_formula_tends_to_that_of_the_fastest_mode():
    for counts, close in (((32, 90, 256), 0.1), ((10**9, 10**12, 10**15), 0.03)):
        halves = [0.9 * clustering_time(n, 4.0, 2) for n in counts]
        assert abs(formula_slope(counts, halves, 4.0, 2) * fastest_mode(4.0, 2)[1] - 1) < close
